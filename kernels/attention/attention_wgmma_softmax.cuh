/* attention_wgmma_softmax.cuh - scores to weights in the registers of a warpgroup's products (wgmma.cuh). Of a thread's
 * numbers, those with i / 2 even belong to its first row, the others to its second, eight rows below.
 *
 * Weights are 2^(score * scale_log2 - reference). Any reference gives the same result up to rounding unless weights
 * overflow or vanish. So a row keeps the maximum of its first tile, and moves it only after a sum has grown large. This
 * saves the maximum of every other tile, its shuffles and their latencies. If the scores of the first tile lie far
 * apart, or if a weight overflows all the same, the row has a running maximum. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

#include "../common/device_code.cuh"
#include "../common/ptx.cuh"

/* A thread's two rows. */
struct softmax_rows {
  float reference[2]; /* an exponent to base 2; -infinity while nothing was seen */
  float sum[2];       /* of this thread's columns */
};

/* Columns from `visible` on, counted from the thread's first one, become -infinity. */
template <int Count> DEVICE void mask(float (&s)[Count], int visible_first, int visible_second) {
  unroll<Count>([&](int i) {
    if (8 * (i / 4) + i % 2 >= (i & 2 ? visible_second : visible_first)) s[i] = -INFINITY;
  });
}

/* Columns before `begin`, counted in the same way, become -infinity. */
template <int Count> DEVICE void mask_before(float (&s)[Count], int begin_first, int begin_second) {
  unroll<Count>([&](int i) {
    if (8 * (i / 4) + i % 2 < (i & 2 ? begin_second : begin_first)) s[i] = -INFINITY;
  });
}

/* Scores to tanh(score * scale), 2^-11 of it wrong at most (PTX ISA). As 1 - 2 / (1 + e^2x), exact to fp32, it makes
 * attention at head dimension 128 a third slower; as a polynomial where all are below 1, a fifth. */
template <int Count> DEVICE void cap(float (&s)[Count], float scale) {
  unroll<Count>([&](int i) { asm("tanh.approx.f32 %0, %1;" : "=f"(s[i]) : "f"(s[i] * scale)); });
}

/* Sums up to here need no new reference. No weight is larger; f16 ends at 65504, and O, of which a row of V may be 2^60
 * and more, at 2^128. */
template <typename T> constexpr float most_sum = 0x1p60f;
template <> constexpr float most_sum<__half> = 0x1p15f;
/* Of a thread's columns. NaN is ignored here, and found in the sum. */
template <int Count> DEVICE void own_maximum(const float (&s)[Count], float (&maximum)[2]) {
  unroll<2>([&](int half) {
    float even = fmaxf(s[2 * half], s[2 * half + 1]), odd = fmaxf(s[4 + 2 * half], s[5 + 2 * half]);
    unrolled_for (int i = 8 + 2 * half; i < Count; i += 8) {
      even = fmaxf(even, fmaxf(s[i], s[i + 1]));
      odd = fmaxf(odd, fmaxf(s[i + 4], s[i + 5]));
    }
    maximum[half] = fmaxf(even, odd);
  });
}

/* Over the row's four lanes. */
template <int Count> DEVICE void row_maximum(const float (&s)[Count], float (&maximum)[2]) {
  own_maximum(s, maximum);
  unroll<2>([&](int half) { maximum[half] = quad_max(maximum[half]); });
}

/* The same. Whether scores of the thread's columns lie far apart from the row's: the largest of that quarter is more
 * than `far` exponents below the largest of all. */
template <int Count>
DEVICE bool row_maximum(const float (&s)[Count], float (&maximum)[2], float scale_log2, float far) {
  bool is_wide = false;
  own_maximum(s, maximum);
  unroll<2>([&](int half) {
    const float own = maximum[half];
    maximum[half] = quad_max(own);
    is_wide |= own > -INFINITY && (maximum[half] - own) * scale_log2 > far;
  });
  return is_wide;
}

/* Scores that differ by more exponents are far apart: a weight of a later tile may overflow. If all rows see a tile,
 * and scores are normal, the maximum of a quarter of a row is 2 to 4 deviations below the row's for some row of a
 * warpgroup. An overflow takes 1.4 deviations of 64, or 5.5 of 16. If rows see a part of the tile, the maximum of a few
 * columns may be as low as others are high, and tells nothing. */
constexpr float FAR_IN_WHOLE = 85.0f, FAR_IN_PART = 30.0f, ALWAYS_FAR = -1.0f;
enum { FEW_COLUMNS = 16 };

/* s[Begin, End) to weights, which are added to the sums. */
template <int Begin, int End, int Count>
DEVICE void weigh(float (&s)[Count], float scale_log2, const float (&against)[2], float (&sum)[2]) {
  float other[2] = {0.0f, 0.0f}; /* two chains of additions a row */
  unrolled_for (int i = Begin; i < End; i += 4) {
    unroll<2>([&](int half) {
      s[i + 2 * half] = exp2_approximate(fmaf(s[i + 2 * half], scale_log2, -against[half]));
      s[i + 2 * half + 1] = exp2_approximate(fmaf(s[i + 2 * half + 1], scale_log2, -against[half]));
      sum[half] += s[i + 2 * half];
      other[half] += s[i + 2 * half + 1];
    });
  }
  sum[0] += other[0];
  sum[1] += other[1];
}

/* Against 0 while a row has seen nothing: 2^-infinity is 0, and a NaN stays one. */
DEVICE float against_of(float reference) { return reference == -INFINITY ? 0.0f : reference; }

/* Weights in e4m3: the reference makes the largest weight 2^6, and the products sum the weights
 * (attention_wgmma_e4m3_softmax.cuh). */
constexpr int first_exponent = 6;
template <bool E4m3> DEVICE float reference_of(float maximum, float scale_log2) {
  return E4m3 ? fmaf(maximum, scale_log2, -(float)first_exponent) : maximum * scale_log2;
}
template <bool E4m3, int Count>
DEVICE void weigh_tile(float (&s)[Count], float scale_log2, const float (&against)[2], float (&sum)[2]) {
  if constexpr (E4m3) {
    unroll<Count>([&](int i) { s[i] = exp2_approximate(fmaf(s[i], scale_log2, -against[i / 2 % 2])); });
  } else {
    weigh<0, Count>(s, scale_log2, against, sum);
  }
}

/* The first tile: its maximum makes the reference. Whether the thread's scores lie far apart. */
template <bool E4m3 = false, int Count>
DEVICE bool weigh_first(float (&s)[Count], softmax_rows &rows, float scale_log2, float far) {
  float maximum[2], against[2];
  const bool wide = row_maximum(s, maximum, scale_log2, far);
  unroll<2>([&](int half) {
    rows.reference[half] = reference_of<E4m3>(maximum[half], scale_log2);
    against[half] = against_of(rows.reference[half]);
    rows.sum[half] = 0.0f;
  });
  weigh_tile<E4m3>(s, scale_log2, against, rows.sum);
  return wide;
}

/* Scores to exponents, rounded as their maximum is. weigh() rounds no product: beyond 2^25 the difference from a
 * rounded reference could make the greatest weight vanish or overflow. */
template <int Count> DEVICE void scale_first(float (&s)[Count], float scale_log2) {
  unroll<Count>([&](int i) { s[i] = __fmul_rn(s[i], scale_log2); });
}

/* A later tile, with the running maximum as reference. O has to be multiplied by `factor`. Whether the thread's scores
 * lie far apart. */
template <bool E4m3 = false, int Count>
DEVICE bool weigh_with_maximum(float (&s)[Count], softmax_rows &rows, float scale_log2, float far, float (&factor)[2]) {
  float maximum[2], against[2];
  const bool wide = row_maximum(s, maximum, scale_log2, far);
  unroll<2>([&](int half) {
    const float highest = fmaxf(reference_of<E4m3>(maximum[half], scale_log2), rows.reference[half]);
    against[half] = against_of(highest);
    factor[half] = exp2_approximate(rows.reference[half] - against[half]);
    rows.reference[half] = highest;
    rows.sum[half] *= factor[half];
  });
  weigh_tile<E4m3>(s, scale_log2, against, rows.sum);
  return wide;
}

/* Brings the larger of a row's sums down to [1, 4), and all that was weighed with it. 2^-127 would be 0. */
template <int Count> DEVICE void move_reference(float (&s)[Count], softmax_rows &rows, float (&factor)[2]) {
  unroll<2>([&](int half) {
    const int bits = __float_as_int(quad_max(rows.sum[half])), steps = min(max((bits >> 23) - 127, 0), 126);
    factor[half] = exp2_approximate(-(float)steps);
    rows.reference[half] += (float)steps;
    rows.sum[half] *= factor[half];
    unrolled_for (int i = 2 * half; i < Count; i += 4) {
      s[i] *= factor[half];
      s[i + 1] *= factor[half];
    }
  });
}

template <int Count> DEVICE void rescale(float (&o)[Count], const float (&factor)[2]) {
  unroll<Count>([&](int i) { o[i] *= factor[i / 2 % 2]; });
}

/* Weights as operand A of the next product. */
template <typename T, int Count> DEVICE void round_weights(uint32_t (&weights)[Count / 2], const float (&s)[Count]) {
  unroll<Count / 2>([&](int i) { weights[i] = pack_two<T>(s[2 * i], s[2 * i + 1]); });
}

/* `so_far`, two zeros, while neither of the two numbers of `word` is an infinity or a NaN; from then on NaN. */
template <typename T> DEVICE uint32_t zero_or_nan(uint32_t word, uint32_t so_far);
template <> DEVICE uint32_t zero_or_nan<__half>(uint32_t word, uint32_t so_far) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(so_far) : "r"(word), "r"(0));
  return so_far;
}
template <> DEVICE uint32_t zero_or_nan<__nv_bfloat16>(uint32_t word, uint32_t so_far) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(so_far) : "r"(word), "r"(0));
  return so_far;
}

/* Keeps the exponentials before the wait that follows. ptxas moves a wait for products above arithmetic that does not
 * use them, so products and exponentials no longer overlap (680 to 609 TFLOP/s at head dimension 128). It does not move
 * a wait above a store. This store depends on the sums, so on every exponential, and is never executed: sums are not
 * negative, and the scale is positive. A comparison with 0 would be removed where ptxas sees that a sum begins with 0;
 * it knows nothing of a parameter. build/check-overlap checks that the store stays. */
template <int Count> DEVICE void hold(float (&s)[Count], const softmax_rows &rows, float scale_log2, uint32_t shared) {
  pin(s);
  asm volatile("{\n.reg .pred never;\nsetp.lt.f32 never, %1, %2;\n@never st.shared.f32 [%0], %1;\n}" ::"r"(shared),
               "f"(rows.sum[0] + rows.sum[1]), "f"(-scale_log2)
               : "memory");
}
