/* norm_host.c - the norm on the host. An item is a row. Its squares are summed in sixteen lanes: the
 * compiler uses vector instructions, and the order is fixed. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "norm.h"

enum { PIECE = 256, LANES = 16 };

int64_t rms_norm_host_items(const struct op_task *task) {
  const struct op_operand *x = &task->operands[RMS_NORM_X];
  return op_elements(x) ? rows_count(x) : 0;
}

/* Loads numbers of a row of x, plus their parts, rounded to x's type. */
static void x_load(const struct op_call *call, int64_t row, int64_t column, int64_t length, float *values) {
  const struct op_operand *x = &call->task->operands[RMS_NORM_X], *parts = &call->task->operands[RMS_NORM_X_PARTS];
  rows_load(x->dtype, call->data[RMS_NORM_X], rows_begin(x, row) + column, length, values);
  if (!parts->present) return;
  const int64_t rows = rows_count(x);
  float sums[PIECE] = {0};
  for (int64_t p = 0; p < parts->shape[0]; p++) {
    const float *part = (const float *)call->data[RMS_NORM_X_PARTS] + rows_begin(parts, p * rows + row) + column;
    for (int64_t i = 0; i < length; i++) sums[i] += part[i];
  }
  uint32_t rounded[PIECE];
  for (int64_t i = 0; i < length; i++) sums[i] += values[i];
  rows_store(x->dtype, rounded, 0, length, sums);
  rows_load(x->dtype, rounded, 0, length, values);
}

/* Stores a piece of x plus its parts, and zeros. */
static void sum_store(const struct op_call *call, int64_t row, int64_t column, int64_t length, const float *values) {
  const struct op_operand *sum = &call->task->operands[RMS_NORM_SUM], *zeros = &call->task->operands[RMS_NORM_ZEROS];
  if (sum->present) rows_store(sum->dtype, call->data[RMS_NORM_SUM], row * sum->stride[0] + column, length, values);
  for (int64_t i = 0; zeros->present && i < zeros->shape[0]; i++)
    memset((float *)call->data[RMS_NORM_ZEROS] + i * zeros->stride[0] + row * zeros->stride[1] + column, 0,
           (size_t)length * sizeof(float));
}

static float sum_of_squares(const struct op_call *call, int64_t row, int64_t k) {
  float lanes[LANES] = {0}, values[PIECE], sum = 0;
  for (int64_t column = 0; column < k; column += PIECE) {
    int64_t length = smaller(k - column, PIECE);
    x_load(call, row, column, length, values);
    sum_store(call, row, column, length, values);
    for (int64_t i = length; i % LANES; i++) values[i] = 0;
    for (int64_t i = 0; i < length; i += LANES)
      for (int64_t lane = 0; lane < LANES; lane++) lanes[lane] = fmaf(values[i + lane], values[i + lane], lanes[lane]);
  }
  for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
  return sum;
}

void rms_norm_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *x = &call->task->operands[RMS_NORM_X], *norm = &call->task->operands[RMS_NORM_NORM];
  const struct op_operand *out = &call->task->operands[RMS_NORM_OUT];
  const struct rms_norm_attributes *attributes = op_attributes(call->task);
  int64_t k = x->shape[x->rank - 1];
  for (int64_t row = first; row < last; row++) {
    int64_t to = rows_begin(out, row);
    float squares = sum_of_squares(call, row, k);
    float factor = attributes->plain ? 1.0f : 1.0f / sqrtf(squares / (float)k + attributes->epsilon);
    for (int64_t column = 0; column < k; column += PIECE) {
      float values[PIECE], weights[PIECE];
      int64_t length = smaller(k - column, PIECE);
      x_load(call, row, column, length, values);
      if (norm->present) rows_load(norm->dtype, call->data[RMS_NORM_NORM], column, length, weights);
      for (int64_t i = 0; i < length; i++) values[i] = (norm->present ? values[i] * weights[i] : values[i]) * factor;
      rows_store(out->dtype, call->data[RMS_NORM_OUT], to + column, length, values);
    }
  }
}
