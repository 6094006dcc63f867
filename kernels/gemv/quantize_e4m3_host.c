/* quantize_e4m3_host.c - quantising to e4m3 on the host: an item is a row. Every operation is one that IEEE 754 defines
 * to the last bit, as in quantize_e4m3.cu: both give the same bytes. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "quantize_e4m3.h"

enum { PIECE = 256 };

int64_t quantize_e4m3_host_items(const struct op_task *task) { return rows_count(&task->operands[QUANTIZE_E4M3_X]); }

/* NaN for a row with NaN or an infinity. */
static float scale_of_row(rondo_dtype dtype, const void *x, int64_t begin, int64_t k) {
  float values[PIECE];
  uint32_t largest = 0; /* magnitudes compare as their bits do, and NaN is above infinity */
  for (int64_t column = 0; column < k; column += PIECE) {
    const int64_t length = smaller(k - column, PIECE);
    rows_load(dtype, x, begin + column, length, values);
    for (int64_t i = 0; i < length; i++) {
      const uint32_t magnitude = bits_of_f32(values[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  if (largest >= 0x7f800000u) return f32_of_bits(0x7fc00000u);
  const float scale = f32_of_bits(largest) / QUANTIZE_E4M3_MOST;
  return scale > QUANTIZE_E4M3_LEAST ? scale : QUANTIZE_E4M3_LEAST;
}

static int64_t scale_place(const struct op_operand *scales, int64_t row) {
  const int64_t length = scales->shape[scales->rank - 1];
  return rows_begin(scales, row / length) + row % length;
}

void quantize_e4m3_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *x = &call->task->operands[QUANTIZE_E4M3_X];
  const int64_t k = x->shape[x->rank - 1];
  for (int64_t row = first; row < last; row++) {
    const int64_t begin = rows_begin(x, row);
    uint8_t *codes =
        (uint8_t *)call->data[QUANTIZE_E4M3_CODES] + rows_begin(&call->task->operands[QUANTIZE_E4M3_CODES], row);
    const float scale = scale_of_row(x->dtype, call->data[QUANTIZE_E4M3_X], begin, k);
    const float factor = 1.0f / scale;
    float values[PIECE];
    for (int64_t column = 0; column < k; column += PIECE) {
      const int64_t length = smaller(k - column, PIECE);
      rows_load(x->dtype, call->data[QUANTIZE_E4M3_X], begin + column, length, values);
      for (int64_t i = 0; i < length; i++) codes[column + i] = isnan(scale) ? 0x7f : e4m3_of_f32(values[i] * factor);
    }
    ((float *)call->data[QUANTIZE_E4M3_SCALES])[scale_place(&call->task->operands[QUANTIZE_E4M3_SCALES], row)] = scale;
  }
}
