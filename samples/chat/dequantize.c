/* dequantize.c - converts rows to fp32 (dequantize.h). A block of ggml's quantised types (ggml-quants.c) has 32
 * elements: Q4_0  f16 d, 16 bytes: d * (code - 8) Q4_1  f16 d, f16 m, 16 bytes: d * code + m Q8_0  f16 d, 32 signed
 * bytes: d * code The low nibbles of the 16 bytes are elements 0 to 15, the high nibbles elements 16 to 31. */
#include "dequantize.h"

#include <string.h>

enum { BLOCK = 32 };

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
  }
}
