/* qr_tile_numbers.cuh - arithmetic of the QR kernels for f32 and f64: powers of two, the scalars of a step of the
 * register tiles, and sums over lanes. */
#pragma once

#include <stdint.h>

#include "../common/ptx.cuh"

template <typename T> struct tile_number;
template <> struct tile_number<float> {
  using vector = float4;
  static constexpr int VECTOR = 4, MANTISSA = 23, BIAS = 127;
  static constexpr uint32_t LOW = (127 - 16) << 23, HIGH = (127 + 40) << 23; /* the window, in the high word */
  static constexpr uint32_t FLOOR = (127 - 100) << 23;                       /* a smaller sigma counts as zero */
  static constexpr float BIAS_OF_SIGMA = 0x1p-126f; /* each lane adds it: no step divides by zero */
};
template <> struct tile_number<double> {
  using vector = double2;
  static constexpr int VECTOR = 2, MANTISSA = 20, BIAS = 1023;
  static constexpr uint32_t LOW = (1023 - 200) << 20, HIGH = (1023 + 400) << 20;
  static constexpr uint32_t FLOOR = (1023 - 960) << 20;
  static constexpr double BIAS_OF_SIGMA = 0x1p-1022;
};

/* number(0), number(1), .. */
template <typename T, typename Number> DEVICE typename tile_number<T>::vector vector_of(const Number &number) {
  typename tile_number<T>::vector v;
  unrolled_for (int e = 0; e < tile_number<T>::VECTOR; e++) ((T *)&v)[e] = number(e);
  return v;
}
/* take(e, number) for the numbers of a vector. */
template <typename T, typename Take> DEVICE void each_of_vector(const T *from, const Take &take) {
  const typename tile_number<T>::vector v = *(const typename tile_number<T>::vector *)from;
  unrolled_for (int e = 0; e < tile_number<T>::VECTOR; e++) take(e, ((const T *)&v)[e]);
}

DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
DEVICE float magnitude_of(float x) { return fabsf(x); }
DEVICE double magnitude_of(double x) { return fabs(x); }
DEVICE float against_sign(float x, float sign) { return -copysignf(x, sign); }
DEVICE double against_sign(double x, double sign) { /* x >= 0; not by an addition */
  return __hiloint2double(__double2hiint(x) | (~__double2hiint(sign) & (int)0x80000000), __double2loint(x));
}
DEVICE uint32_t high_word(float x) { return __float_as_uint(x); }
DEVICE uint32_t high_word(double x) { return (uint32_t)__double2hiint(x); }
DEVICE void from_high_word(uint32_t word, float *out) { *out = __uint_as_float(word); }
DEVICE void from_high_word(uint32_t word, double *out) { *out = __hiloint2double((int)word, 0); }

/* A normal number. */
template <typename T> DEVICE T power_of_two(int exponent) {
  T power;
  from_high_word((uint32_t)(tile_number<T>::BIAS + exponent) << tile_number<T>::MANTISSA, &power);
  return power;
}

DEVICE float seed_of_inverse_root(float x) { return reciprocal_root(x); }
DEVICE double seed_of_inverse_root(double x) {
  double r;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}
DEVICE float seed_of_inverse(float x) { return reciprocal(x); }
DEVICE double seed_of_inverse(double x) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}
DEVICE float inverse_of(float x) {
  const float r = seed_of_inverse(x);
  return fused(fused(-x, r, 1.f), r, r);
}
DEVICE double inverse_of(double x) {
  const double r = seed_of_inverse(x), e = fused(-x, r, 1.0);
  return fused(r, fused(e, e, e), r);
}

/* The scalars of one step. If sigma counts as zero, g = 0. The select is not in the chain: `error` is finite because
 * sigma has its bias. */
template <typename T> struct householder {
  T u, g, nu, beta;
  bool zero;
};

DEVICE householder<float> householder_of(float sigma, float alpha) {
  const float s = fused(alpha, alpha, sigma), r = seed_of_inverse_root(s), root = s * r;
  const float magnitude = fabsf(alpha), seed = seed_of_inverse(fused(magnitude, root, s));
  const float nu = fused(fused(-root, root, s), 0.5f * r, root), signed_nu = copysignf(nu, alpha);
  const bool zero = high_word(sigma) < tile_number<float>::FLOOR;
  const float error = fused(-fused(magnitude, nu, s), seed, 1.f), kept = zero ? 0.f : seed;
  return {alpha + signed_nu, fused(error, kept, kept), nu, against_sign(nu, alpha), zero};
}

DEVICE householder<double> householder_of(double sigma, double alpha) {
  const double s = fused(alpha, alpha, sigma), r = seed_of_inverse_root(s), root = s * r;
  const double magnitude = fabs(alpha), seed = seed_of_inverse(fused(magnitude, root, s));
  const double e = fused(-root, r, 1.0), nu = fused(root * e, fused(e, 0.375, 0.5), root);
  const double signed_nu = copysign(nu, alpha);
  const bool zero = high_word(sigma) < tile_number<double>::FLOOR;
  const double error = fused(-fused(magnitude, nu, s), seed, 1.0), kept = zero ? 0.0 : seed;
  return {alpha + signed_nu, fused(kept, fused(error, error, error), kept), nu, against_sign(nu, alpha), zero};
}

/* Sums of values[FIRST ..] over ROW_LANES lanes. Each lane gets all sums. */
template <typename Shape, int FIRST, typename T, int COUNT> DEVICE void butterfly(T (&values)[COUNT]) {
  unrolled_for (int offset = 1; offset < Shape::ROW_LANES; offset *= 2)
    unrolled_for (int q = FIRST; q < COUNT; q++) values[q] += __shfl_xor_sync(0xffffffffu, values[q], offset);
}

/* The same. Each level halves the values that a lane still sums; at the end each lane fetches all sums. */
template <typename Shape, int FIRST, typename T, int COUNT> DEVICE void scatter_and_gather(T (&values)[COUNT]) {
  constexpr int LANES = Shape::ROW_LANES, KEPT = COUNT - FIRST, PADDED = KEPT <= 4 ? 4 : KEPT <= 8 ? 8 : 16;
  constexpr int LEVELS = PADDED == 4 ? 2 : PADDED == 8 ? 3 : 4, LAST = PADDED >> LEVELS;
  static_assert((1 << LEVELS) <= LANES && KEPT <= 16);
  const int lane = threadIdx.x & 31;
  T part[PADDED];
  unrolled_for (int i = 0; i < PADDED; i++) part[i] = i < KEPT ? values[FIRST + i] : T(0);
  unrolled_for (int level = 0; level < LEVELS; level++) {
    const int half = PADDED >> (level + 1), offset = LANES >> (level + 1);
    const bool upper = lane & offset;
    unrolled_for (int i = 0; i < half; i++)
      if (i < KEPT) {
        const T sent = upper ? part[i] : part[i + half], kept = upper ? part[i + half] : part[i];
        part[i] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
      }
  }
  unrolled_for (int offset = (LANES >> LEVELS) / 2; offset >= 1; offset /= 2)
    unrolled_for (int i = 0; i < LAST; i++) part[i] += __shfl_xor_sync(0xffffffffu, part[i], offset);
  unrolled_for (int i = 0; i < KEPT; i++)
    values[FIRST + i] = __shfl_sync(0xffffffffu, part[i % LAST], (lane & ~(LANES - 1)) + i / LAST * (LANES >> LEVELS));
}
