/* program.h - what an exec runs: its nodes, with an address for every operand, in one slot after the other. */
#ifndef RONDO_PROGRAM_H
#define RONDO_PROGRAM_H

#include "exec.h"

/* Of an operation's tasks, or of the user's own work (NULL). */
uint32_t launches_most(const struct op *op);

/* Copies what the exec runs out of graph and plan, so that these may go. The exec has its memory. */
void program_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan);
/* Gives all nodes the slot's addresses. */
void program_address(rondo_exec *exec, const struct slot *slot);
struct device_program program_of(const rondo_exec *exec, struct slot *slot);

#endif
