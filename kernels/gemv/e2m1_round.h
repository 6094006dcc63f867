/* e2m1_round.h - numbers to e2m1 codes. A test runs the same lines on the host. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include "../common/device_code.cuh"
#define E2M1_ROUND DEVICE
#else
#define E2M1_ROUND static inline
#endif

E2M1_ROUND uint32_t e2m1_bits(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

E2M1_ROUND float e2m1_number(uint32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* Codes, below which come four bits of a number: its sign, and three that a code replaces. */
E2M1_ROUND uint32_t e2m1_shifted(uint32_t codes, float number) {
#ifdef __CUDACC__
  return __funnelshift_l(e2m1_bits(number), codes, 4);
#else
  return codes << 4 | e2m1_bits(number) >> 28;
#endif
}

/* Puts the code of a number with this magnitude, which is below 7, below other codes. Nearest, ties to the even code.
 * Codes are multiples of 0.5 up to 2, of 1 up to 4 and of 2 from there, as are the last places of numbers from 2^22,
 * 2^23 and 2^24 on. So a sum rounds as codes do; its last bits and twice its exponent are the code. */
E2M1_ROUND uint32_t e2m1_put(uint32_t codes, float magnitude, float number) {
  const float power = e2m1_number(e2m1_bits(fmaxf(magnitude, 1.0f)) & 0x7f800000u); /* 1, 2 or 4 */
  const uint32_t sum = e2m1_bits(fmaf(power, 4194307.0f, magnitude)); /* 2^22 + 3: 6 places; the exponent has 2 more */
  return (e2m1_shifted(codes, number) & ~7u) | ((sum + (sum >> 22)) & 7u);
}

/* The magnitude's quotient by a divisor, as a division rounds it, where both are normal and the quotient is near a tie
 * between codes. The reciprocal, 1 / divisor, serves all quotients of a divisor. The product may be 1.5 units in its
 * last place off; what it leaves of the magnitude is exact, and corrects it. */
E2M1_ROUND float e2m1_quotient(float magnitude, float divisor, float reciprocal) {
  const float product = magnitude * reciprocal;
  return fmaf(fmaf(-divisor, product, magnitude), reciprocal, product);
}
