/* rounding.h - numbers of 16, 8 and 4 bits, from fp32 and back. All roundings are to nearest, ties to even. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define E4M3_MAX 448.0f
#define E2M1_MAX 6.0f

/* A carry goes into the exponent. Here, so that loops over it are vectorised. */
static inline uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
uint16_t to_f16(float value);

/* Saturates at 448, which has the code 0x7e; 0x7f is NaN. */
uint8_t to_e4m3(float value);
float of_e4m3(uint8_t code);

/* Codes of 4 bits, the highest of which is the sign: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Saturates at 6. */
uint8_t to_e2m1(float value);
float of_e2m1(uint8_t code);
