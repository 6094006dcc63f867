/* op.c - what the checks of operations share: operands in words. */
#include "op.h"

#include <inttypes.h>
#include <stdio.h>

void *const op_nowhere[OP_MAX_OPERANDS] = {0};

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
