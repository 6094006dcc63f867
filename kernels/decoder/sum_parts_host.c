/* sum_parts_host.c - x + the sum of parts, and zeros, on the host: an item is a piece of a row. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "sum_parts.h"

enum { PIECE = 4096 };

static int64_t pieces_of(const struct op_task *task) { return divide_up(task->operands[SUM_PARTS_X].shape[1], PIECE); }

int64_t sum_parts_host_items(const struct op_task *task) {
  return task->operands[SUM_PARTS_X].shape[0] * pieces_of(task);
}

/* Adds the parts up, then x to them. */
static void piece_add(const struct op_call *call, int64_t row, int64_t column, int64_t count) {
  const struct op_operand *operands = call->task->operands, *parts = &operands[SUM_PARTS_PARTS];
  const struct op_operand *zeros = &operands[SUM_PARTS_ZEROS];
  float x[PIECE], sum[PIECE] = {0};
  for (int64_t p = 0; parts->present && p < parts->shape[0]; p++) {
    const float *part =
        (const float *)call->data[SUM_PARTS_PARTS] + p * parts->stride[0] + row * parts->stride[1] + column;
    for (int64_t i = 0; i < count; i++) sum[i] += part[i];
  }
  rows_load(operands[SUM_PARTS_X].dtype, call->data[SUM_PARTS_X], row * operands[SUM_PARTS_X].stride[0] + column, count,
            x);
  for (int64_t i = 0; i < count; i++) x[i] += sum[i];
  rows_store(operands[SUM_PARTS_OUT].dtype, call->data[SUM_PARTS_OUT], row * operands[SUM_PARTS_OUT].stride[0] + column,
             count, x);
  for (int64_t p = 0; zeros->present && p < zeros->shape[0]; p++)
    memset((float *)call->data[SUM_PARTS_ZEROS] + p * zeros->stride[0] + row * zeros->stride[1] + column, 0,
           (size_t)count * sizeof(float));
}

void sum_parts_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const int64_t pieces = pieces_of(call->task), columns = call->task->operands[SUM_PARTS_X].shape[1];
  for (int64_t item = first; item < last; item++) {
    const int64_t column = item % pieces * PIECE;
    piece_add(call, item / pieces, column, smaller(columns - column, PIECE));
  }
}
