/* argmax_host.c - the column of each row's largest number on the host. An item is a row. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "argmax.h"

enum { PIECE = 1024 };

int64_t argmax_host_items(const struct op_task *task) { return task->operands[ARGMAX_X].shape[0]; }

static int32_t argmax_row(rondo_dtype dtype, const void *data, int64_t begin, int64_t n) {
  float values[PIECE], largest = -INFINITY;
  int64_t best = 0;
  for (int64_t column = 0; column < n; column += PIECE) {
    int64_t length = smaller(n - column, PIECE);
    rows_load(dtype, data, begin + column, length, values);
    for (int64_t i = 0; i < length; i++) {
      if (isnan(values[i])) return (int32_t)(column + i); /* the first NaN is the largest */
      if (values[i] > largest) largest = values[i], best = column + i;
    }
  }
  return (int32_t)best;
}

void argmax_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *x = &call->task->operands[ARGMAX_X];
  int32_t *out = call->data[ARGMAX_OUT];
  for (int64_t row = first; row < last; row++)
    out[row] = argmax_row(x->dtype, call->data[ARGMAX_X], row * x->stride[0], x->shape[1]);
}
