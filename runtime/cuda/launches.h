/* launches.h - the launches of a node on this device, and the words of completion that they write: see launches.c. */
#pragma once

#include "cuda_device.h"

/* The launches of a node's operation. If the node has words, its last launch publishes completion. */
rondo_status choose_launches(const struct device_exec *exec, const struct device_program *program, uint32_t node,
                             const char *phase, struct op_launches *launches);

/* Gives words to the nodes that end the graph. *end_count is their number. Returns the number of words; 0: a node after
 * all others must publish. */
uint32_t assign_words(const struct device_exec *exec, const struct device_program *program, uint32_t *end_count);
/* No node publishes. */
void assign_no_words(const struct device_exec *exec, const struct device_program *program);
struct completion completion_at(const struct device_program *program, uint32_t word);

/* The parameters of a kernel node: of one of Rondo's kernels, which take one struct by value, or of a user's. */
void own_kernel_node(struct op_launch *launch, void **parameter, struct cu_kernel_node *kernel_node);
void user_kernel_node(const struct device_node *node, void **parameters, struct cu_kernel_node *kernel_node);
