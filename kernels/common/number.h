/* number.h - conversions between f32 and the small number formats on the host, bit by bit: IEEE f16, bf16, OCP e4m3 and
 * e2m1.
 *
 * Conversions from f32 round to nearest, ties to even. Conversions to f32 have neither branches nor tables, so that the
 * compiler turns loops over them into vector instructions. The device has instructions for these conversions; tests
 * compare the two. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_f32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A descriptor's field, or its default `instead` if the field is zero. The function does no arithmetic: the program's
 * thread may flush subnormal numbers or trap on floating-point exceptions. */
static inline float f32_or(float value, float instead) { return bits_of_f32(value) << 1 ? value : instead; }

static inline float f32_of_bf16(uint16_t half) { return f32_of_bits((uint32_t)half << 16); }

static inline uint16_t bf16_of_f32(float value) {
  uint32_t bits = bits_of_f32(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* keep NaN a NaN */
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float f32_of_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t rest = half & 0x7fffu;
  /* The factor 2^112 moves the exponent bias from 15 to 127 and makes subnormals normal. The next line sets the
   * exponent of infinity and NaN, which keep their mantissa. */
  uint32_t magnitude = bits_of_f32(f32_of_bits(rest << 13) * 0x1p112f);
  return f32_of_bits(sign | magnitude | (rest >= 0x7c00u ? 0x7f800000u : 0));
}

static inline uint16_t f16_of_f32(float value) {
  uint32_t bits = bits_of_f32(value);
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (bits >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more */
  if (bits < 0x38800000u)                                     /* subnormal: the addition rounds at bit 2^-24 */
    return (uint16_t)(sign | (uint16_t)(bits_of_f32(f32_of_bits(bits) + 0.5f) - bits_of_f32(0.5f)));
  bits += 0xfffu + ((bits >> 13) & 1u);
  return (uint16_t)(sign | (uint16_t)((bits - 0x38000000u) >> 13));
}

static inline float f32_of_e4m3(uint8_t code) {
  uint32_t sign = (uint32_t)(code & 0x80u) << 24;
  uint32_t rest = code & 0x7fu;
  uint32_t magnitude = bits_of_f32(f32_of_bits(rest << 20) * 0x1p120f);
  return f32_of_bits(sign | magnitude | (rest == 0x7fu ? 0x7fc00000u : 0));
}

/* Saturates to 448, NaN stays NaN. */
static inline uint8_t e4m3_of_f32(float value) {
  uint32_t bits = bits_of_f32(value);
  uint8_t sign = (uint8_t)((bits >> 24) & 0x80u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (bits >= bits_of_f32(448.0f)) return (uint8_t)(sign | 0x7eu);
  if (bits < bits_of_f32(0x1p-6f)) /* subnormal: the addition rounds at bit 2^-9 */
    return (uint8_t)(sign | (uint8_t)(bits_of_f32(f32_of_bits(bits) + 0x1p14f) - bits_of_f32(0x1p14f)));
  bits += 0x7ffffu + ((bits >> 20) & 1u);
  return (uint8_t)(sign | (uint8_t)((bits - (120u << 23)) >> 20));
}

static inline float f32_of_e2m1(uint8_t code) {
  uint32_t rest = code & 7u;
  /* Two bits of exponent with a bias of 1, one of mantissa; 0 and 1 are subnormal. */
  uint32_t subnormal = rest ? bits_of_f32(0.5f) : 0;
  uint32_t magnitude = rest < 2 ? subnormal : (rest << 22) + (126u << 23);
  return f32_of_bits(magnitude | (uint32_t)(code & 8u) << 28);
}

/* Saturates to 6. NaN gives 6 as the hardware's satfinite conversion does. */
static inline uint8_t e2m1_of_f32(float value) {
  uint8_t sign = (bits_of_f32(value) >> 31) ? 8u : 0u;
  float a = fabsf(value);
  /* Halfway points go to the even code. */
  uint8_t code = a <= 0.25f   ? 0
                 : a < 0.75f  ? 1
                 : a <= 1.25f ? 2
                 : a < 1.75f  ? 3
                 : a <= 2.5f  ? 4
                 : a < 3.5f   ? 5
                 : a <= 5.0f  ? 6
                              : 7;
  return (uint8_t)(sign | code);
}
