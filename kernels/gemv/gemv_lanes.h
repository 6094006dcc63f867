/* gemv_lanes.h - sixteen numbers of fp32 at a time, and 32 columns of a row decoded to twice as many. Two AVX2
 * registers or, where LANES_512 is defined, one of AVX-512: every operation rounds alike, so the bits are the same. Not
 * included twice: it makes static functions for one or the other. */
#pragma once

#include <immintrin.h>
#include <string.h>

#include "gemv.h"
#include "gemv_panel.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#ifdef LANES_512
typedef __m512 lanes;
ALWAYS_INLINE lanes lanes_load(const float *p) { return _mm512_load_ps(p); }
ALWAYS_INLINE void lanes_store(float *p, lanes a) { _mm512_store_ps(p, a); }
ALWAYS_INLINE lanes lanes_multiply(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
ALWAYS_INLINE lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
ALWAYS_INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
ALWAYS_INLINE lanes lanes_all(float a) { return _mm512_set1_ps(a); }
/* One number for the first eight, one for the others. */
ALWAYS_INLINE lanes lanes_halves(const float *p) {
  return _mm512_mask_broadcastss_ps(_mm512_set1_ps(p[0]), 0xff00, _mm_load_ss(p + 1));
}
#else
typedef struct {
  __m256 low, high;
} lanes;
ALWAYS_INLINE lanes lanes_load(const float *p) { return (lanes){_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
ALWAYS_INLINE void lanes_store(float *p, lanes a) {
  _mm256_store_ps(p, a.low);
  _mm256_store_ps(p + 8, a.high);
}
ALWAYS_INLINE lanes lanes_multiply(lanes a, lanes b) {
  return (lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
ALWAYS_INLINE lanes lanes_add(lanes a, lanes b) {
  return (lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
ALWAYS_INLINE lanes lanes_fma(lanes a, lanes b, lanes c) {
  return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
ALWAYS_INLINE lanes lanes_all(float a) { return (lanes){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
ALWAYS_INLINE lanes lanes_halves(const float *p) { return (lanes){_mm256_set1_ps(p[0]), _mm256_set1_ps(p[1])}; }
#endif

/* ---- 32 columns ------------------------------------------------------------------------------------------------- */

struct step {
  lanes first, second; /* see panel_is_interleaved */
};

/* A bf16 is the upper half of an fp32: of two in 32 bits, the odd one as it is, the even one moved up. */
ALWAYS_INLINE struct step step_of_bf16(const unsigned char *p) {
#ifdef LANES_512
  const __m512i pairs = _mm512_loadu_si512(p);
  return (struct step){_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
                       _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)))};
#else
  const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)p);
  const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
  const __m256i odd = _mm256_set1_epi32((int)0xffff0000u);
  return (struct step){
      {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))},
      {_mm256_castsi256_ps(_mm256_and_si256(low, odd)), _mm256_castsi256_ps(_mm256_and_si256(high, odd))}};
#endif
}

ALWAYS_INLINE lanes lanes_of_f16(__m256i halves) {
#ifdef LANES_512
  return _mm512_cvtph_ps(halves);
#else
  return (lanes){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
#endif
}

ALWAYS_INLINE struct step step_of_f16(const unsigned char *p) {
  const __m256i *halves = (const __m256i *)(const void *)p;
  return (struct step){lanes_of_f16(_mm256_loadu_si256(halves)), lanes_of_f16(_mm256_loadu_si256(halves + 1))};
}

/* Exponent and mantissa of an e4m3 are those of an f16 with a bias that is 8 higher; but 0x7f is NaN. */
ALWAYS_INLINE lanes lanes_of_e4m3(__m128i codes) {
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16((short)0xbf80));
  const __m256i largest = _mm256_set1_epi16(0x3f80);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(halves, largest), largest);
  return lanes_of_f16(_mm256_or_si256(halves, nan));
}

ALWAYS_INLINE struct step step_of_e4m3(const unsigned char *p) {
#ifdef LANES_512
  /* The same for both at once: an Intel core has two ports for 512 bits. */
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
  const __m512i halves = _mm512_slli_epi16(wide, 7), largest = _mm512_set1_epi16(0x3f80);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(halves, largest), largest);
  const __m512i valued = _mm512_and_si512(halves, _mm512_set1_epi16((short)0xbf80));
  const __m512i all = _mm512_mask_mov_epi16(valued, nan, _mm512_set1_epi16(-1));
  return (struct step){lanes_of_f16(_mm512_castsi512_si256(all)), lanes_of_f16(_mm512_extracti64x4_epi64(all, 1))};
#else
  const __m128i *codes = (const __m128i *)(const void *)p;
  return (struct step){lanes_of_e4m3(_mm_loadu_si128(codes)), lanes_of_e4m3(_mm_loadu_si128(codes + 1))};
#endif
}

/* Codes are decoded to twice their value, and scales[0], of the first sixteen columns, and [1] are halves of the
 * blocks'. e2m1 times e4m3 is exact in fp32. */
ALWAYS_INLINE struct step step_of_nvfp4(const unsigned char *p, const float *scales) {
  const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
  const lanes scale = lanes_halves(scales);
#ifdef LANES_512
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12);
  const __m512i pairs = _mm512_cvtepu8_epi32(bytes); /* a lookup takes the low four bits */
  const lanes even = _mm512_permutexvar_ps(pairs, values);
  const lanes odd = _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), values);
#else
  const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m128i low = _mm_set1_epi8(15);
  const __m128i evens = _mm_shuffle_epi8(values, _mm_and_si128(bytes, low));
  const __m128i odds = _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
  const lanes even = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(evens)),
                      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(evens, evens)))};
  const lanes odd = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(odds)),
                     _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(odds, odds)))};
#endif
  return (struct step){lanes_multiply(even, scale), lanes_multiply(odd, scale)};
}

ALWAYS_INLINE struct step step_of(rondo_dtype dtype, const unsigned char *p, const float *scales) {
  switch (dtype) {
  case RONDO_F16:
    return step_of_f16(p);
  case RONDO_E4M3:
    return step_of_e4m3(p);
  case RONDO_NVFP4:
    return step_of_nvfp4(p, scales);
  default:
    return step_of_bf16(p);
  }
}

/* ---- Scales of nvfp4 --------------------------------------------------------------------------------------------- */

/* Halves of a row's scales from block `first` on; `scales` has room for a multiple of sixteen. */
ALWAYS_INLINE void scales_decode(const unsigned char *codes, rondo_scale_layout layout, int64_t row_bytes, int64_t row,
                                 int64_t first, int64_t count, float *scales) {
  unsigned char copy[PANEL_LANES];
  const lanes half = lanes_all(128.0f); /* of 2^8 */
  for (int64_t i = 0; i < count; i += PANEL_LANES) {
    const unsigned char *from = codes + row * row_bytes + first + i;
    int64_t left = count - i;
    if (layout == RONDO_SCALES_BY_ROW && left < PANEL_LANES && count >= PANEL_LANES) {
      i = count - PANEL_LANES; /* some once more: nothing is read behind the last */
      from = codes + row * row_bytes + first + i;
    } else if (layout != RONDO_SCALES_BY_ROW || left < PANEL_LANES) {
      for (int64_t j = 0; j < PANEL_LANES; j++)
        copy[j] = j >= left                       ? 0
                  : layout == RONDO_SCALES_BY_ROW ? from[j]
                                                  : codes[gemv_blocked_scale(row, first + i + j, row_bytes)];
      from = copy;
    }
    const lanes decoded = lanes_multiply(lanes_of_e4m3(_mm_loadu_si128((const __m128i *)(const void *)from)), half);
    memcpy(scales + i, &decoded, sizeof decoded);
  }
}
