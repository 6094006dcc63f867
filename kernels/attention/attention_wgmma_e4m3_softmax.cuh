/* attention_wgmma_e4m3_softmax.cuh - scores to weights in e4m3, in the registers of a warpgroup's products; see
 * attention_wgmma_softmax.cuh.
 *
 * An e4m3 number from 2^-6 to 448 has three bits after its first; smaller numbers have fewer, and below 2^-10 they
 * vanish. So the reference makes the largest weight of a row's first tile 2^6. It moves when a weight is rounded to
 * 448, as all larger weights are. Afterwards the largest weight is at least 2^6 again. So a small weight loses at most
 * 2^-16 of the largest. */
#pragma once

#include "attention_wgmma_softmax.cuh"

/* Exponents that are far here. A reference moves for 2.75, so that at a deviation of 8 some row's moves in nearly all
 * steps, which takes longer than a maximum in each: 769 us against 723 (H100, 4096 positions). */
constexpr float FAR_E4M3 = 12.0f;

constexpr float rounded_to_448 = 432.0f; /* from here on */

/* A thread's word of weights is made of four scores: this one, the next, and those four further. So the next product
 * has its columns in another order than the score; attention_wgmma_e4m3_copies.cuh puts V in the same order. */
DEVICE constexpr int first_score(int word) { return 16 * (word / 4) + 8 * (word / 2 % 2) + 2 * (word % 2); }

/* The scores of words [Begin, End), their upper halves or their lower ones, become weights. */
template <bool Upper, int Begin, int End, int Count>
DEVICE void weigh_halves(float (&s)[Count], float scale_log2, const float (&against)[2]) {
  unrolled_for (int i = Begin; i < End; i++) {
    unroll<2>([&](int k) {
      float &score = s[first_score(i) + (Upper ? 4 : 0) + k];
      score = exp2_approximate(fmaf(score, scale_log2, -against[i % 2]));
    });
  }
}

/* Brings a row's largest weight down to [2^6, 2^7), and all that was weighed with it, if it would be rounded to 448. If
 * it overflowed, all becomes NaN, and the query tile is computed again. */
template <int Count> DEVICE void move_reference_e4m3(float (&s)[Count], softmax_rows &rows, float (&factor)[2]) {
  float maximum[2];
  row_maximum(s, maximum);
  unroll<2>([&](int half) {
    const int exponent = (__float_as_int(maximum[half]) >> 23) - 127;
    const int steps = maximum[half] >= rounded_to_448 ? exponent - first_exponent : 0;
    factor[half] = maximum[half] < INFINITY ? exp2_approximate(-(float)steps) : NAN;
    rows.reference[half] += (float)steps;
    rows.sum[half] *= factor[half];
    unrolled_for (int i = 2 * half; i < Count; i += 4) {
      s[i] *= factor[half];
      s[i + 1] *= factor[half];
    }
  });
}

/* Two weights, rounded to nearest even. */
DEVICE uint16_t pack_two_e4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(low), "f"(high));
  return pair;
}

/* The upper halves of the first words. */
template <int Words, int Count> DEVICE void round_upper_halves(uint16_t (&upper)[Words], const float (&s)[Count]) {
  unroll<Words>([&](int i) { upper[i] = pack_two_e4m3(s[first_score(i) + 4], s[first_score(i) + 5]); });
}

/* Weights as operand A of the next product; of the first words the upper halves are there. Whether some weight was
 * rounded to 448, or is NaN: a byte of at least 0x7e. */
template <int Words, int Made, int Count>
DEVICE bool round_e4m3(uint32_t (&weights)[Words], const uint16_t (&upper)[Made], const float (&s)[Count]) {
  uint32_t high = 0;
  unroll<Words>([&](int i) {
    const int first = first_score(i);
    const uint16_t above = i < Made ? upper[i < Made ? i : 0] : pack_two_e4m3(s[first + 4], s[first + 5]);
    const uint16_t below = pack_two_e4m3(s[first], s[first + 1]);
    asm("mov.b32 %0, {%1, %2};" : "=r"(weights[i]) : "h"(below), "h"(above));
    high |= weights[i] + 0x02020202u;
  });
  return high & 0x80808080u;
}
template <int Words, int Count> DEVICE bool round_e4m3(uint32_t (&weights)[Words], const float (&s)[Count]) {
  uint16_t upper[1];
  round_upper_halves(upper, s);
  return round_e4m3(weights, upper, s);
}

/* Keeps the exponentials so far before the wait that follows, as hold() does: no pair of weights has the bits of the
 * scale, which is a normal number. */
template <int Words> DEVICE void hold_e4m3(const uint16_t (&upper)[Words], float scale_log2, uint32_t shared) {
  uint32_t any = 0;
  unroll<Words>([&](int i) { any |= upper[i]; });
  asm volatile("{\n.reg .pred never;\nsetp.eq.u32 never, %1, %2;\n@never st.shared.u32 [%0], %1;\n}" ::"r"(shared),
               "r"(any), "r"(__float_as_uint(scale_log2))
               : "memory");
}
