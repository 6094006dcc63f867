/* dequantize.c - converts rows to fp32 (dequantize.h).
 *
 * The blocks of ggml's quantised types (ggml-quants.c), of 32 elements each, of NVFP4 64:
 *   - Q4_0: f16 d, 16 bytes of codes; d * (code - 8)
 *   - Q4_1: f16 d, f16 m, 16 bytes of codes; d * code + m
 *   - Q8_0: f16 d, 32 signed bytes; d * code
 *   - NVFP4: 4 bytes of e4m3, 32 bytes of e2m1 codes; factor * scale * code
 * The low nibbles of 16 bytes are elements 0 to 15, the high nibbles elements 16 to 31. A scale of NVFP4 has 16
 * elements: the low nibbles of 8 bytes, then the high ones. */
#include "dequantize.h"

#include <math.h>
#include <string.h>

#include "rounding.h"

enum { BLOCK = 32, NVFP4_SCALES = GGUF_NVFP4_ELEMENTS / 16 };

static float f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t half_word(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

/* The conversion is exact: every fp16 number is an fp32 number, the subnormal ones as normal numbers. */
static float f16_value(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return f32_of_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static void q4_row(const uint8_t *block, int64_t blocks, bool with_minimum, float *out) {
  uint32_t header = with_minimum ? 4 : 2;
  for (int64_t b = 0; b < blocks; b++, block += header + BLOCK / 2, out += BLOCK) {
    float d = f16_value(half_word(block)), m = with_minimum ? f16_value(half_word(block + 2)) : -8 * d;
    for (int i = 0; i < BLOCK / 2; i++) {
      out[i] = d * (float)(block[header + (uint32_t)i] & 15) + m;
      out[i + BLOCK / 2] = d * (float)(block[header + (uint32_t)i] >> 4) + m;
    }
  }
}

static void q8_row(const uint8_t *block, int64_t blocks, float *out) {
  for (int64_t b = 0; b < blocks; b++, block += 2 + BLOCK, out += BLOCK) {
    float d = f16_value(half_word(block));
    for (int i = 0; i < BLOCK; i++) out[i] = d * (float)(int8_t)block[2 + i];
  }
}

uint8_t nvfp4_block(const struct gguf_tensor *tensor, int64_t row, int64_t block, uint8_t codes[16]) {
  const uint8_t *at = tensor->data + (uint64_t)row * tensor->row_bytes + block / NVFP4_SCALES * GGUF_NVFP4_BYTES;
  const uint8_t *bytes = at + NVFP4_SCALES + block % NVFP4_SCALES * 8;
  for (int i = 0; i < 8; i++) {
    codes[i] = bytes[i] & 15;
    codes[i + 8] = bytes[i] >> 4;
  }
  return at[block % NVFP4_SCALES];
}

/* A scale has no sign: one with the highest bit is as little a number as the code of NaN. */
static void nvfp4_row(const struct gguf_tensor *tensor, int64_t row, float *out) {
  for (int64_t block = 0; block < tensor->shape[0] / 16; block++, out += 16) {
    uint8_t codes[16], scale = nvfp4_block(tensor, row, block, codes);
    float factor = scale < 0x7f ? tensor->factor * of_e4m3(scale) : NAN;
    for (int i = 0; i < 16; i++) out[i] = factor * of_e2m1(codes[i]);
  }
}

void dequantize_row(const struct gguf_tensor *tensor, int64_t row, float *out) {
  const uint8_t *data = tensor->data + (uint64_t)row * tensor->row_bytes;
  int64_t count = tensor->shape[0];
  switch (tensor->type) {
  case GGUF_TYPE_F32:
    memcpy(out, data, (size_t)count * sizeof *out);
    break;
  case GGUF_TYPE_F16:
    for (int64_t i = 0; i < count; i++) out[i] = f16_value(half_word(data + 2 * i));
    break;
  case GGUF_TYPE_BF16:
    for (int64_t i = 0; i < count; i++) out[i] = f32_of_bits((uint32_t)half_word(data + 2 * i) << 16);
    break;
  case GGUF_TYPE_Q4_0:
  case GGUF_TYPE_Q4_1:
    q4_row(data, count / BLOCK, tensor->type == GGUF_TYPE_Q4_1, out);
    break;
  case GGUF_TYPE_Q8_0:
    q8_row(data, count / BLOCK, out);
    break;
  case GGUF_TYPE_NVFP4:
    nvfp4_row(tensor, row, out);
    break;
  }
}
