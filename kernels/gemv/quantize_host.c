/* quantize_host.c - quantising to NVFP4 on the host: an item is up to 256 blocks of 16. Every operation is one that
 * IEEE 754 defines to the last bit, in the same order as in quantize.cu: both give the same bytes. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "gemv.h"

enum { BLOCKS_OF_ITEM = 256 };

static int64_t block_count(const struct op_task *task) { return op_elements(&task->operands[QUANTIZE_X]) / GEMV_BLOCK; }

int64_t quantize_host_items(const struct op_task *task) { return divide_up(block_count(task), BLOCKS_OF_ITEM); }

/* The element at which block `block` of the tensor begins, with `unit` elements to a block. */
static int64_t block_offset(const struct op_operand *operand, int64_t block, int64_t unit) {
  uint32_t last = operand->rank - 1;
  int64_t blocks = operand->shape[last] / unit, offset = block % blocks * unit;
  block /= blocks;
  for (uint32_t i = last; i-- > 0; block /= operand->shape[i]) offset += block % operand->shape[i] * operand->stride[i];
  return offset;
}

/* Codes are 0 where the scale is NaN and where scale times global_scale is 0: there is nothing to divide by. */
uint8_t quantize_host_block(const float *values, float global_scale, uint8_t *codes) {
  uint32_t largest = 0; /* magnitudes compare as their bits do, and NaN is above infinity */
  for (int i = 0; i < GEMV_BLOCK; i++) {
    uint32_t magnitude = bits_of_f32(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  uint8_t scale = largest > 0x7f800000u ? 0x7f : e4m3_of_f32(f32_of_bits(largest) / (6.0f * global_scale));
  float divisor = f32_of_e4m3(scale) * global_scale;
  for (int i = 0; i < GEMV_BLOCK; i += 2) {
    uint32_t low = divisor > 0 ? e2m1_of_f32(values[i] / divisor) : 0;
    uint32_t high = divisor > 0 ? e2m1_of_f32(values[i + 1] / divisor) : 0;
    codes[i / 2] = (uint8_t)(low | high << 4);
  }
  return scale;
}

void quantize_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *operands = call->task->operands;
  const struct quantize_attributes *attributes = op_attributes(call->task);
  int64_t end = block_count(call->task);
  if (last * BLOCKS_OF_ITEM < end) end = last * BLOCKS_OF_ITEM;
  for (int64_t block = first * BLOCKS_OF_ITEM; block < end; block++) {
    float values[GEMV_BLOCK];
    rows_load(operands[QUANTIZE_X].dtype, call->data[QUANTIZE_X],
              block_offset(&operands[QUANTIZE_X], block, GEMV_BLOCK), GEMV_BLOCK, values);
    uint8_t *codes =
        (uint8_t *)call->data[QUANTIZE_CODES] + block_offset(&operands[QUANTIZE_CODES], block, GEMV_BLOCK) / 2;
    uint8_t *scale = (uint8_t *)call->data[QUANTIZE_SCALES] + block_offset(&operands[QUANTIZE_SCALES], block, 1);
    *scale = quantize_host_block(values, attributes->global_scale, codes);
  }
}
