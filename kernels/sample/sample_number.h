/* sample_number.h - the arithmetic of drawing a column, shared by host and device. IEEE 754 and integer arithmetic
 * define every operation here to the last bit, and so both draw the same columns.
 *
 * A number x of a row has the probability
 *
 *   2^-t with t = (largest - x) log2(e) / temperature,
 *
 * scaled to an integer up to 2^42. Sums over a row are therefore exact, and the same in any order. t is measured in
 * octaves: factors of two. Refused: float sums in a fixed order, rejection sampling, radix passes. */
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SAMPLE_FUNCTION      __device__ __forceinline__
#define SAMPLE_BITS(value)   __float_as_uint(value)
#define SAMPLE_NUMBER(bits)  __uint_as_float(bits)
#define SAMPLE_MUL(a, b)     __fmul_rn(a, b)
#define SAMPLE_HIGH(a, b)    __umulhi(a, b)
#define SAMPLE_HIGH_64(a, b) __umul64hi(a, b)
#else
#include "../common/number.h"
#define SAMPLE_FUNCTION      static inline
#define SAMPLE_BITS(value)   bits_of_f32(value)
#define SAMPLE_NUMBER(bits)  f32_of_bits(bits)
#define SAMPLE_MUL(a, b)     ((a) * (b))
#define SAMPLE_HIGH(a, b)    ((uint32_t)((uint64_t)(a) * (b) >> 32))
#define SAMPLE_HIGH_64(a, b) ((uint64_t)((unsigned __int128)(a) * (b) >> 64))
#endif

enum {
  SAMPLE_OCTAVES = 42,          /* from this t on the probability is 0 */
  SAMPLE_SHIFT = 18,            /* the largest probability is a mantissa of 24 bits times 2^18 */
  SAMPLE_MOST_COLUMNS = 1 << 20 /* the sum of their probabilities stays below 2^63 */
};

/* An integer that grows with the value. It is the same for both zeros, largest for NaN, and never 0. */
SAMPLE_FUNCTION uint32_t sample_order(float value) {
  const uint32_t bits = SAMPLE_BITS(value + 0.0f); /* -0 becomes 0 */
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return value != value ? 0xffffffffu : order;
}

/* Is `value` larger than the best number before it? A NaN is larger than every number, and not than another NaN. */
SAMPLE_FUNCTION int sample_is_larger(float value, float best) { return best == best && !(best >= value); }

SAMPLE_FUNCTION float sample_value(uint32_t order) {
  return SAMPLE_NUMBER(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/* The key of a number and its column: an integer that grows with the number and, for equal numbers, falls with the
 * column. */
SAMPLE_FUNCTION uint64_t sample_key(float value, uint32_t column) {
  return (uint64_t)sample_order(value) << 32 | (0xffffffffu - column);
}
SAMPLE_FUNCTION float sample_value_of_key(uint64_t key) { return sample_value((uint32_t)(key >> 32)); }
SAMPLE_FUNCTION uint32_t sample_column_of_key(uint64_t key) { return 0xffffffffu - (uint32_t)key; }

SAMPLE_FUNCTION float sample_factor(float temperature) { return 1.44269504f / temperature; }

/* Is a column drawn? Else the result is the column of the largest number. */
SAMPLE_FUNCTION int sample_is_drawn(float largest, float temperature, float factor) {
  return temperature > 0 && factor <= 3.4028235e38f && largest - largest == 0;
}

/* t, or SAMPLE_OCTAVES if the probability is 0. `factor` is log2(e) / temperature. */
SAMPLE_FUNCTION float sample_octaves(float largest, float factor, float value) {
  const float t = SAMPLE_MUL(largest - value, factor);
  return t < (float)SAMPLE_OCTAVES ? t : (float)SAMPLE_OCTAVES; /* also if t is NaN: infinity times 0 */
}

/* The integer part of a number in [0, 2^22), as integer and as f32. The device uses full-rate instructions for it. */
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

/* 2^(24 - f) for 0 <= f < 1, with an error of at most 4 units: the Taylor series of 2^-0.5 2^-(f - 0.5). */
SAMPLE_FUNCTION uint32_t sample_mantissa(float f) {
  const float g = f - 0.5f;
  float sum = -1.07853115e-5f;
  sum = fmaf(sum, g, 1.08919408e-4f);
  sum = fmaf(sum, g, -9.42824938e-4f);
  sum = fmaf(sum, g, 6.80104431e-3f);
  sum = fmaf(sum, g, -3.92473316e-2f);
  sum = fmaf(sum, g, 1.69865792e-1f);
  sum = fmaf(sum, g, -4.90129072e-1f);
  sum = fmaf(sum, g, 7.07106781e-1f);
  sum = sum < 0.5f ? 0.5f : sum > 0.99999994f ? 0.99999994f : sum;
  return (SAMPLE_BITS(sum) & 0x7fffffu) | 0x800000u;
}

/* A probability in the unit of its octave: probability = part * 2^sample_unit(octave). */
SAMPLE_FUNCTION uint32_t sample_part(float t, struct sample_whole octave) {
  return sample_mantissa(t - octave.value) >> (octave.whole > SAMPLE_SHIFT ? octave.whole - SAMPLE_SHIFT : 0);
}
SAMPLE_FUNCTION int32_t sample_unit(int32_t octave) { return octave < SAMPLE_SHIFT ? SAMPLE_SHIFT - octave : 0; }

SAMPLE_FUNCTION uint64_t sample_probability(float t) {
  if (!(t < (float)SAMPLE_OCTAVES)) return 0;
  const struct sample_whole octave = sample_cut(t);
  return (uint64_t)sample_part(t, octave) << sample_unit(octave.whole);
}

/* The sum that the most probable columns must reach together for this top_p. It is at least 1, so that the first column
 * always counts. */
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

/* The sum of probabilities that the columns up to the drawn one reach, as a random share of a sum that is not 0. */
SAMPLE_FUNCTION uint64_t sample_drawn(uint64_t random, uint64_t sum) { return SAMPLE_HIGH_64(random, sum) + 1; }
