/* op.c - helpers for operations: steps, an operand in words for error texts, and the alignment of operands for the
 * choice of a kernel. */
#include "op.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void *const op_nowhere[OP_MAX_OPERANDS] = {0};

void op_step_begin(const struct op_call *call, const struct op *op, uint32_t operand_count, struct op_step *step) {
  *step = (struct op_step){.task = {.op = op, .name = call->task->name, .operand_count = operand_count}, .call = *call};
  step->task.operands = step->operands;
  step->call.task = &step->task, step->call.data = step->data;
  step->call.settled_operands = 0;
}

void shape_describe(char *text, size_t bytes, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  size_t used = 0;
  for (uint32_t i = 0; i < rank && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? ", " : "[", shape[i]);
  if (used < bytes) snprintf(text + used, bytes - used, "] %s", rondo_dtype_name(dtype));
}

rondo_status op_unexpected(const char *name, const struct op_operand *operand, const char *expected) {
  char text[128] = "absent";
  if (operand->present) shape_describe(text, sizeof text, operand->dtype, operand->rank, operand->shape);
  return status_set(RONDO_INVALID_ARGUMENT, "%s is %s, expected %s", name, text, expected);
}

rondo_status op_expect(const char *name, const struct op_operand *operand, rondo_dtype dtype, uint32_t rank,
                       const int64_t *shape) {
  bool same = operand->present && operand->dtype == dtype && operand->rank == rank;
  for (uint32_t i = 0; same && i < rank; i++) same = operand->shape[i] == shape[i];
  if (same) return RONDO_OK;
  char expected[128];
  shape_describe(expected, sizeof expected, dtype, rank, shape);
  return op_unexpected(name, operand, expected);
}

rondo_status op_expect_finite(const char *name, float value) {
  return isfinite(value) ? RONDO_OK : op_refuse("%s is %g, expected a finite number", name, (double)value);
}

rondo_status op_expect_not_negative(const char *name, float value) {
  if (isfinite(value) && value >= 0) return RONDO_OK;
  return op_refuse("%s is %g, expected a finite number that is not negative", name, (double)value);
}

rondo_status op_expect_list(const char *name, const struct op_operand *operand, rondo_dtype dtype, int64_t count) {
  if (operand->present && operand->dtype == dtype && operand->rank == 1 &&
      (operand->shape[0] == 1 || operand->shape[0] == count))
    return RONDO_OK;
  char of_each[32] = "", expected[64];
  if (count != 1) snprintf(of_each, sizeof of_each, " or [%" PRId64 "]", count);
  snprintf(expected, sizeof expected, "[1]%s %s", of_each, rondo_dtype_name(dtype));
  return op_unexpected(name, operand, expected);
}

/* Tensors begin at multiples of 256 bytes. Where a dimension has one element, its stride leads nowhere. */
bool op_rows_aligned(const struct op_operand *operand, uint64_t bytes) {
  uint64_t bits = operand->offset_bytes * 8, element_bits = rondo_dtype_bits(operand->dtype);
  for (uint32_t i = 0; i + 1 < operand->rank; i++)
    if (operand->shape[i] > 1) bits |= (uint64_t)operand->stride[i] * element_bits;
  return bits % (8 * bytes) == 0;
}
