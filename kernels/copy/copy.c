/* copy.c - describing a copy, and its host function: one item is one row of the last dimension. */
#include "copy.h"

#include <inttypes.h>
#include <string.h>

static rondo_status check(const struct op_task *task) {
  const struct op_operand *src = &task->operands[0], *dst = &task->operands[1];
  if (!src->present || !dst->present)
    return status_set(RONDO_INVALID_ARGUMENT, "%s is missing", src->present ? "dst" : "src");
  if (src->dtype != dst->dtype)
    return status_set(RONDO_INVALID_ARGUMENT, "dst is %s, expected %s as src", rondo_dtype_name(dst->dtype),
                      rondo_dtype_name(src->dtype));
  if (src->rank != dst->rank)
    return status_set(RONDO_INVALID_ARGUMENT, "dst has rank %u, expected %u as src", dst->rank, src->rank);
  for (uint32_t i = 0; i < src->rank; i++)
    if (src->shape[i] != dst->shape[i])
      return status_set(RONDO_INVALID_ARGUMENT, "dst's dimension %u is %" PRId64 ", expected %" PRId64 " as src", i,
                        dst->shape[i], src->shape[i]);
  return RONDO_OK;
}

static int64_t host_items(const struct op_task *task) {
  const struct op_operand *src = &task->operands[0];
  int64_t last = src->shape[src->rank - 1];
  return last ? op_elements(src) / last : 0;
}

/* Byte offset of row `row`, counted over all but the last dimension. */
static int64_t row_offset(const struct op_operand *operand, int64_t row) {
  int64_t elements = 0;
  for (uint32_t i = operand->rank - 1; i-- > 0; row /= operand->shape[i])
    elements += row % operand->shape[i] * operand->stride[i];
  return elements * rondo_dtype_bits(operand->dtype) / 8;
}

static void host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *src = &call->task->operands[0], *dst = &call->task->operands[1];
  size_t bytes = (size_t)(src->shape[src->rank - 1] * rondo_dtype_bits(src->dtype) / 8);
  for (int64_t row = first; row < last; row++)
    memcpy((char *)call->data[1] + row_offset(dst, row), (const char *)call->data[0] + row_offset(src, row), bytes);
}

const struct op op_copy = {.name = "copy", .check = check, .host_items = host_items, .host_run = host_run};

rondo_status rondo_add_copy(rondo_graph *graph, const rondo_copy_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_copy: the description is NULL");
  const struct op_argument arguments[] = {{.name = "src", .tensor = desc->src, .access = RONDO_READ},
                                          {.name = "dst", .tensor = desc->dst, .access = RONDO_WRITE}};
  return graph_add(graph, &op_copy, desc->name, arguments, 2, NULL, 0);
}
