/* transpose.h - an 8 x 8 transpose of fp32 on the host. Pitches are in elements. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

/* Pairs of rows, then fours, then eights. */
static inline void transpose_eight(const float *from, int64_t from_pitch, float *to, int64_t to_pitch) {
  __m256 rows[8], twos[8], fours[8];
  for (int64_t i = 0; i < 8; i++) rows[i] = _mm256_loadu_ps(from + i * from_pitch);
  for (int i = 0; i < 8; i += 2) {
    twos[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    twos[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int half = 0; half < 2; half++) {
      fours[i + 2 * half] = _mm256_shuffle_ps(twos[i + half], twos[i + 2 + half], 0x44);
      fours[i + 2 * half + 1] = _mm256_shuffle_ps(twos[i + half], twos[i + 2 + half], 0xee);
    }
  for (int64_t i = 0; i < 4; i++) {
    _mm256_storeu_ps(to + i * to_pitch, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_pitch, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
  }
}
