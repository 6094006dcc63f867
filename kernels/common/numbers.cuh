/* numbers.cuh - loads and stores of four or eight numbers of a row as f32; in memory they are f32, f16 or bf16.
 *
 * If all rows begin at multiples of a vector, the numbers move as vectors of 8 or 16 bytes, else one by one. The loads
 * do not use the read-only path, and so a kernel may read its own results. */
#pragma once

#include "ptx.cuh"
#include <rondo.h>

DEVICE float load_number(uint32_t dtype, const void *data, int64_t element) {
  if (dtype == RONDO_F32) return ((const float *)data)[element];
  if (dtype == RONDO_F16) return __half2float(((const __half *)data)[element]);
  return __bfloat162float(((const __nv_bfloat16 *)data)[element]);
}

DEVICE void store_number(uint32_t dtype, void *data, int64_t element, float value) {
  if (dtype == RONDO_F32)
    ((float *)data)[element] = value;
  else if (dtype == RONDO_F16)
    ((__half *)data)[element] = __float2half_rn(value);
  else
    ((__nv_bfloat16 *)data)[element] = __float2bfloat16_rn(value);
}

/* The two 16-bit numbers of a word. */
DEVICE float2 numbers_of(uint32_t dtype, uint32_t word) {
  if (dtype == RONDO_F16) return __half22float2(*reinterpret_cast<__half2 *>(&word));
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

template <int N> DEVICE void numbers_of(uint32_t dtype, const uint32_t (&words)[N], float (&values)[2 * N]) {
  unrolled_for (int i = 0; i < N; i++) {
    const float2 pair = numbers_of(dtype, words[i]);
    values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
  }
}

DEVICE uint32_t word_of(uint32_t dtype, float low, float high) {
  return dtype == RONDO_F16 ? pack_two<__half>(low, high) : pack_two<__nv_bfloat16>(low, high);
}

/* Loads values[i] for i < count, with count from 1 to N; the other values become 0. `whole`: all rows begin at
 * multiples of a vector, and so N numbers can move as vectors. */
template <int N>
DEVICE void load_numbers(uint32_t dtype, bool whole, const void *data, int64_t element, uint32_t count,
                         float (&values)[N]) {
  static_assert(N == 4 || N == 8, "vectors are written for these");
  if (!whole || count < N) {
    unrolled_for (uint32_t i = 0; i < N; i++) values[i] = i < count ? load_number(dtype, data, element + i) : 0;
  } else if (dtype == RONDO_F32) {
    unrolled_for (int i = 0; i < N; i += 4) {
      const float4 four = *(const float4 *)((const float *)data + element + i);
      values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
  } else {
    uint32_t words[N / 2];
    if constexpr (N == 8) {
      const uint4 loaded = *(const uint4 *)((const uint16_t *)data + element);
      words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
    } else {
      const uint2 loaded = *(const uint2 *)((const uint16_t *)data + element);
      words[0] = loaded.x, words[1] = loaded.y;
    }
    numbers_of(dtype, words, values);
  }
}

template <int N>
DEVICE void store_numbers(uint32_t dtype, bool whole, void *data, int64_t element, uint32_t count,
                          const float (&values)[N]) {
  static_assert(N == 4 || N == 8, "vectors are written for these");
  if (!whole || count < N) {
    unrolled_for (uint32_t i = 0; i < N; i++)
      if (i < count) store_number(dtype, data, element + i, values[i]);
  } else if (dtype == RONDO_F32) {
    unrolled_for (int i = 0; i < N; i += 4)
      *(float4 *)((float *)data + element + i) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
  } else {
    uint32_t words[N / 2];
    unrolled_for (int i = 0; i < N / 2; i++) words[i] = word_of(dtype, values[2 * i], values[2 * i + 1]);
    if constexpr (N == 8)
      *(uint4 *)((uint16_t *)data + element) = make_uint4(words[0], words[1], words[2], words[3]);
    else
      *(uint2 *)((uint16_t *)data + element) = make_uint2(words[0], words[1]);
  }
}
