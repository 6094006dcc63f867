/* sample_number.h - the arithmetic of drawing from a row, the same lines on the host and on the device, of operations
 * that IEEE 754 and the integers define to the last bit: both draw the same columns.
 *
 * Probabilities are integers: 2^-t with t = (largest - x) log2(e) / temperature comes as up to 2^42, so that sums of a
 * row's are exact, and the same in whatever order they are formed. */
#ifndef RONDO_SAMPLE_NUMBER_H
#define RONDO_SAMPLE_NUMBER_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SAMPLE_FUNCTION      __device__ __forceinline__
#define SAMPLE_BITS(value)   __float_as_uint(value)
#define SAMPLE_NUMBER(bits)  __uint_as_float(bits)
#define SAMPLE_FMA(a, b, c)  __fmaf_rn(a, b, c)
#define SAMPLE_MUL(a, b)     __fmul_rn(a, b)
#define SAMPLE_HIGH(a, b)    __umulhi(a, b)
#define SAMPLE_HIGH_64(a, b) __umul64hi(a, b)
#else
#include "../common/number.h"
#define SAMPLE_FUNCTION      static inline
#define SAMPLE_BITS(value)   bits_of_f32(value)
#define SAMPLE_NUMBER(bits)  f32_of_bits(bits)
#define SAMPLE_FMA(a, b, c)  fmaf(a, b, c)
#define SAMPLE_MUL(a, b)     ((a) * (b))
#define SAMPLE_HIGH(a, b)    ((uint32_t)((uint64_t)(a) * (b) >> 32))
#define SAMPLE_HIGH_64(a, b) ((uint64_t)((unsigned __int128)(a) * (b) >> 64))
#endif

enum {
  SAMPLE_OCTAVES = 42,          /* t from here on counts as a probability of 0 */
  SAMPLE_SHIFT = 18,            /* a mantissa of 24 bits times 2^18 is the largest probability */
  SAMPLE_MOST_COLUMNS = 1 << 20 /* their sum stays below 2^63 */
};

/* Grows with the value: equal for both zeros, and the most for NaN. Never 0. */
SAMPLE_FUNCTION uint32_t sample_order(float value) {
  const uint32_t bits = SAMPLE_BITS(value + 0.0f); /* -0 becomes 0 */
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return value != value ? 0xffffffffu : order;
}

/* Is a later number the larger one? NaN is above all but another NaN. */
SAMPLE_FUNCTION int sample_is_larger(float value, float best) { return best == best && !(best >= value); }

SAMPLE_FUNCTION float sample_value(uint32_t order) {
  return SAMPLE_NUMBER(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/* A number and its column as one integer: the larger number first, and of the same the first column. */
SAMPLE_FUNCTION uint64_t sample_key(float value, uint32_t column) {
  return (uint64_t)sample_order(value) << 32 | (0xffffffffu - column);
}
SAMPLE_FUNCTION float sample_value_of_key(uint64_t key) { return sample_value((uint32_t)(key >> 32)); }
SAMPLE_FUNCTION uint32_t sample_column_of_key(uint64_t key) { return 0xffffffffu - (uint32_t)key; }

SAMPLE_FUNCTION float sample_factor(float temperature) {
#ifdef __CUDACC__
  return __fdiv_rn(1.44269504f, temperature);
#else
  return 1.44269504f / temperature;
#endif
}

/* Else the largest is taken. */
SAMPLE_FUNCTION int sample_is_drawn(float largest, float temperature, float factor) {
  return temperature > 0 && factor <= 3.4028235e38f && largest - largest == 0;
}

/* t, or at least SAMPLE_OCTAVES where the probability is 0. `factor` is log2(e) / temperature. */
SAMPLE_FUNCTION float sample_octaves(float largest, float factor, float value) {
  const float t = SAMPLE_MUL(largest - value, factor);
  return t < (float)SAMPLE_OCTAVES ? t : (float)SAMPLE_OCTAVES; /* NaN too: infinity times 0 */
}

/* A number from 0 on and below 2^22, cut to a whole one, in full-rate instructions on the device. */
struct sample_whole {
  int32_t whole;
  float value;
};
SAMPLE_FUNCTION struct sample_whole sample_cut(float number) {
  struct sample_whole cut;
#ifdef __CUDACC__
  const float moved = __fadd_rd(number, 8388608.0f);
  cut.whole = (int32_t)(__float_as_uint(moved) & 0x7fffffu), cut.value = moved - 8388608.0f;
#else
  cut.whole = (int32_t)number, cut.value = (float)cut.whole;
#endif
  return cut;
}

/* 2^(24 - f) for 0 <= f < 1, to within 4 units: 2^-0.5 2^-(f - 0.5) by its Taylor series. */
SAMPLE_FUNCTION uint32_t sample_mantissa(float f) {
  const float g = f - 0.5f;
  float sum = -1.07853115e-5f;
  sum = SAMPLE_FMA(sum, g, 1.08919408e-4f);
  sum = SAMPLE_FMA(sum, g, -9.42824938e-4f);
  sum = SAMPLE_FMA(sum, g, 6.80104431e-3f);
  sum = SAMPLE_FMA(sum, g, -3.92473316e-2f);
  sum = SAMPLE_FMA(sum, g, 1.69865792e-1f);
  sum = SAMPLE_FMA(sum, g, -4.90129072e-1f);
  sum = SAMPLE_FMA(sum, g, 7.07106781e-1f);
  sum = sum < 0.5f ? 0.5f : sum > 0.99999994f ? 0.99999994f : sum;
  return (SAMPLE_BITS(sum) & 0x7fffffu) | 0x800000u;
}

/* In units that all probabilities of an octave share: times 2^sample_unit(octave) it is the probability. */
SAMPLE_FUNCTION uint32_t sample_part(float t, struct sample_whole octave) {
  return sample_mantissa(t - octave.value) >> (octave.whole > SAMPLE_SHIFT ? octave.whole - SAMPLE_SHIFT : 0);
}
SAMPLE_FUNCTION int32_t sample_unit(int32_t octave) { return octave < SAMPLE_SHIFT ? SAMPLE_SHIFT - octave : 0; }

SAMPLE_FUNCTION uint64_t sample_probability(float t) {
  if (!(t < (float)SAMPLE_OCTAVES)) return 0;
  const struct sample_whole octave = sample_cut(t);
  return (uint64_t)sample_part(t, octave) << sample_unit(octave.whole);
}

/* How much of the sum the most probable columns must reach: at least the first. */
SAMPLE_FUNCTION uint64_t sample_needed(float top_p, uint64_t sum) {
  if (!(top_p > 0)) return 1;
  if (top_p >= 1) return sum;
  const double needed = ceil((double)top_p * (double)sum);
  const uint64_t whole = (uint64_t)needed;
  return whole < 1 ? 1 : whole < sum ? whole : sum;
}

/* 64 bits of Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011). */
SAMPLE_FUNCTION uint64_t sample_random(uint32_t seed, uint32_t step) {
  uint32_t a = step, b = 0, c = 0, d = 0, key = seed, other_key = 0;
  for (int round = 0; round < 10; round++) {
    const uint32_t high = SAMPLE_HIGH(0xD2511F53u, a), low = 0xD2511F53u * a;
    const uint32_t other_high = SAMPLE_HIGH(0xCD9E8D57u, c), other_low = 0xCD9E8D57u * c;
    a = other_high ^ b ^ key, b = other_low, c = high ^ d ^ other_key, d = low;
    key += 0x9E3779B9u, other_key += 0xBB67AE85u;
  }
  return (uint64_t)b << 32 | a;
}

/* The probability that the columns up to the drawn one reach, of a sum that is not 0. */
SAMPLE_FUNCTION uint64_t sample_drawn(uint64_t random, uint64_t sum) { return SAMPLE_HIGH_64(random, sum) + 1; }

#endif
