/* program.h - what an exec runs: its nodes, and the addresses of their operands in one slot at a time. */
#pragma once

#include "exec.h"
#include "plan.h"

/* The most launches of a task of this operation, or of the user's own work (NULL). */
uint32_t launches_most(const struct op *op);

/* Copies the nodes of graph and plan into the exec, so that these may go. The exec has its memory. */
void program_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan);

/* Gives one node, or all nodes, the addresses of the slot. */
void program_address_node(rondo_exec *exec, const struct slot *slot, uint32_t node);
void program_address(rondo_exec *exec, const struct slot *slot);

/* Does the node use the memory of the tensor that a bound buffer replaces? */
bool program_touches(const rondo_exec *exec, uint32_t node, uint32_t tensor);

/* The name of a task that waits for other ranks; NULL: none does. */
const char *program_waiting_task(const rondo_exec *exec);

/* The program that the backend makes executable for the slot. */
struct device_program program_of(const rondo_exec *exec, struct slot *slot);
