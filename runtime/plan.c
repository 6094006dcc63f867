/* plan.c - see plan.h: names and tasks of the nodes that are no tasks of the graph. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "join.h"
#include "kernels.h"

void plan_node_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]) {
  size_t used = (size_t)snprintf(name, NAME_BYTES, "%s",
                                 node->kind == NODE_JOIN    ? "join"
                                 : node->kind == NODE_INPUT ? "copy in"
                                                            : "copy out");
  for (uint32_t i = 0; i < node->tensor_count && used < NAME_BYTES; i++)
    used +=
        (size_t)snprintf(name + used, NAME_BYTES - used, "%s %s", i ? "," : "", graph->tensors[node->tensors[i]].name);
  if (used >= NAME_BYTES) memcpy(name + NAME_BYTES - 4, "...", 4);
}

struct op_task plan_node_task(const rondo_graph *graph, const struct plan_node *node, struct op_operand *operands) {
  const struct op *op = node->kind == NODE_JOIN ? &op_join : node->tensor_count == 1 ? &op_copy : &op_transfer;
  struct op_task task = {.op = op, .operand_count = 2 * node->tensor_count, .operands = operands};
  for (uint32_t i = 0; i < task.operand_count; i++) {
    const struct tensor *tensor = &graph->tensors[node->tensors[i / 2]];
    operands[i] = (struct op_operand){.present = true, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(operands[i].shape, tensor->shape, sizeof operands[i].shape);
    memcpy(operands[i].stride, tensor->stride, sizeof operands[i].stride);
    operands[i].access = i % 2 ? RONDO_WRITE : RONDO_READ;
  }
  return task;
}
