/* quantize_e4m3.cu - rows to e4m3: a scale of each row from its largest magnitude, and a code of each element.
 *
 * Bound by memory. A power of two of warps shares a row. A thread keeps its first numbers in registers between the
 * maximum and the products with the scale's reciprocal, and reads those of longer rows again, from a cache. Operations
 * are IEEE's, and a maximum has no order: the bytes are those of quantize_e4m3_host.c, whichever threads share the
 * row. */
#include <cuda_fp8.h>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/rectangle.cuh"
#include "quantize_e4m3.h"

/* The largest over a row's threads. All of them get it. */
DEVICE uint32_t largest_of_row(uint32_t largest, uint32_t row_threads) {
  __shared__ uint32_t warps[QUANTIZE_E4M3_THREADS / 32];
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (row_threads == 32) return largest;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  const uint32_t count = row_threads / 32, first = threadIdx.x / row_threads * count;
  for (uint32_t i = 0; i < count; i++) largest = max(largest, warps[first + i]);
  return largest;
}

/* NaN for a row with NaN or an infinity. */
DEVICE float scale_of_row(uint32_t largest) {
  if (largest >= 0x7f800000u) return __uint_as_float(0x7fc00000u);
  return fmaxf(__fdiv_rn(__uint_as_float(largest), QUANTIZE_E4M3_MOST), QUANTIZE_E4M3_LEAST);
}

DEVICE void store_codes(bool whole, unsigned char *codes, uint32_t count, const float (&values)[8], float factor) {
  uint32_t words[2] = {};
  unrolled_for (int i = 0; i < 8; i += 2) {
    const float2 pair = make_float2(values[i] * factor, values[i + 1] * factor);
    words[i / 4] |= (uint32_t)__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3) << (i % 4 * 8);
  }
  if (whole && count == 8) {
    *(uint2 *)codes = make_uint2(words[0], words[1]);
  } else {
    unrolled_for (uint32_t i = 0; i < 8; i++)
      if (i < count) codes[i] = (unsigned char)(words[i / 4] >> (i % 4 * 8));
  }
}

/* Where a row begins. */
struct row_places {
  int64_t x, codes, scale;
};

/* A row of a type that is known, and in whole vectors; or of type 0: p.dtype, and any. */
template <uint32_t Type>
DEVICE void quantize_row(const quantize_e4m3_parameters &p, uint32_t row, const row_places &at) {
  constexpr uint32_t Held = Type ? QUANTIZE_E4M3_HELD : 1;
  const uint32_t log = 31 - __clz(p.row_threads), first = 8 * (threadIdx.x & (p.row_threads - 1)), step = 8 << log;
  const uint32_t k = row < p.rows ? p.k : 0; /* a row beyond the last has no elements */
  const auto count_at = [&](uint32_t column) { return Type ? 8 : min(k - column, 8u); };
  const auto load = [&](uint32_t column, float(&values)[8]) {
    load_numbers(Type ? Type : p.dtype, Type || p.x_is_aligned, p.x, at.x + column, count_at(column), values);
  };
  uint32_t largest = 0;
  const auto compare = [&](const float(&values)[8]) {
    unrolled_for (int i = 0; i < 8; i++) largest = max(largest, __float_as_uint(values[i]) & 0x7fffffffu);
  };
  float held[Held][8] = {};
  unrolled_for (uint32_t h = 0; h < Held; h++)
    if (first + h * step < k) load(first + h * step, held[h]);
  unrolled_for (uint32_t h = 0; h < Held; h++) compare(held[h]);
  for (uint32_t column = first + Held * step; column < k; column += step) {
    float values[8];
    load(column, values);
    compare(values);
  }
  const float scale = scale_of_row(largest_of_row(largest, p.row_threads)), factor = __fdiv_rn(1.0f, scale);
  const auto store = [&](uint32_t column, const float(&values)[8]) {
    store_codes(Type || p.codes_are_aligned, p.codes + at.codes + column, count_at(column), values, factor);
  };
  unrolled_for (uint32_t h = 0; h < Held; h++)
    if (first + h * step < k) store(first + h * step, held[h]);
  for (uint32_t column = first + Held * step; column < k; column += step) {
    float values[8];
    load(column, values);
    store(column, values);
  }
  if (first == 0 && row < p.rows) p.scales[at.scale] = scale;
}

DEVICE void quantize_e4m3(const quantize_e4m3_parameters &p) {
  const uint32_t log = 31 - __clz(p.row_threads);
  const uint32_t row = blockIdx.x * (blockDim.x >> log) + (threadIdx.x >> log);
  row_places at = {};
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    at.x += index * p.x_stride[i];
    at.codes += index * p.code_stride[i];
    at.scale += index * p.scale_stride[i];
  });
  only_wait_for_predecessors();
  switch (p.whole_type) {
  case RONDO_F32:
    return quantize_row<RONDO_F32>(p, row, at);
  case RONDO_F16:
    return quantize_row<RONDO_F16>(p, row, at);
  case RONDO_BF16:
    return quantize_row<RONDO_BF16>(p, row, at);
  default:
    return quantize_row<0>(p, row, at);
  }
}

QUANTIZE_E4M3_KERNELS(DEFINE_EARLY_KERNEL)
