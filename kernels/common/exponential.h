/* exponential.h - exponentials of eight fp32 numbers on the host, with the same bits on every processor and with every
 * C library. Their relative error is at most 2^-22, plus half a unit of a subnormal result. NaN stays NaN. */
#pragma once

#include <immintrin.h>

/* e^r 2^n for |r| <= ln 2 / 2 and a whole n from -152 to 130: the polynomial is that of expf in Cephes (Moshier). 2^n
 * is two factors, as it may be no normal number. */
static inline __m256 exponential_finish(__m256 r, __m256 n) {
  static const float factors[] = {
      1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f, 1.0f, 1.0f};
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), one = _mm256_set1_epi32(127);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  __m256 value = _mm256_set1_ps(1.9875691500e-4f);
  for (unsigned i = 0; i < sizeof factors / sizeof *factors; i++)
    value = _mm256_fmadd_ps(value, r, _mm256_set1_ps(factors[i]));
  value = _mm256_mul_ps(value, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23)));
  return _mm256_mul_ps(value, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23)));
}

/* A minimum or maximum with a NaN is its second operand. */
static inline __m256 exponential_clamp(__m256 x, float low, float high) {
  return _mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x));
}

static inline __m256 exponential_round(__m256 x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^x */
static inline __m256 exponential_2(__m256 x) {
  const __m256 inside = exponential_clamp(x, -152, 130), n = exponential_round(inside);
  return exponential_finish(_mm256_mul_ps(_mm256_sub_ps(inside, n), _mm256_set1_ps(0.693147181f)), n);
}

/* e^x; ln 2 is the sum of two numbers, of which a product with n is exact */
static inline __m256 exponential_e(__m256 x) {
  const __m256 inside = exponential_clamp(x, -105, 90);
  const __m256 n = exponential_round(_mm256_mul_ps(inside, _mm256_set1_ps(1.44269504f)));
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), inside);
  return exponential_finish(_mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r), n);
}
