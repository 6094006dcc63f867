/* quantize.cu - rows to NVFP4: per block of 16 an e4m3 scale and 16 e2m1 codes. A thread has a block. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/rectangle.cuh"
#include "gemv.h"
#include "quantize.cuh"

/* Where a block begins in x (elements), codes and scales (bytes). */
struct offsets {
  int64_t x, codes, scale;
};

DEVICE offsets offsets_of(const quantize_parameters &p, uint32_t block) {
  const uint32_t row = p.row_blocks < p.blocks ? block / p.row_blocks : 0, column = block - row * p.row_blocks;
  offsets at = {(int64_t)column * GEMV_BLOCK, (int64_t)column * (GEMV_BLOCK / 2), column};
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    at.x += index * p.x_stride[i];
    at.codes += index * p.code_stride[i];
    at.scale += index * p.scale_stride[i];
  });
  return at;
}

DEVICE uint32_t codes_of(const float (&values)[8], float divisor, float reciprocal) {
  uint32_t codes = 0;
  unrolled_for (int i = 7; i >= 0; i--)
    codes = e2m1_put(codes, e2m1_quotient(fabsf(values[i]), divisor, reciprocal), values[i]);
  return codes;
}

/* Multiplies values and their divisor by a power of two, so that the divisor is far from the ends of fp32's range, and
 * limits values to 6 divisors. */
DEVICE void moderate(float (&values)[2][8], float &divisor) {
  const uint32_t exponent = __float_as_uint(divisor) >> 23;
  const float power = __uint_as_float((exponent < 254 ? 254 - exponent : 1) << 23);
  divisor *= power;
  unrolled_for (int i = 0; i < GEMV_BLOCK; i++) {
    float &value = values[i / 8][i % 8];
    value = copysignf(fminf(fabsf(value) * power, 6 * divisor), value);
  }
}

DEVICE void quantize(const quantize_parameters &p) {
  const uint32_t block = blockIdx.x * QUANTIZE_THREADS + threadIdx.x;
  const offsets at = offsets_of(p, min(block, p.blocks - 1));
  only_wait_for_predecessors();
  if (block >= p.blocks) return;
  float values[2][8];
  /* A case for each type, so that no load waits for another. */
  const auto load = [&](uint32_t dtype, bool aligned) {
    load_numbers(dtype, aligned, p.x, at.x, 8, values[0]);
    load_numbers(dtype, aligned, p.x, at.x + 8, 8, values[1]);
  };
  if (!p.aligned)
    load(p.dtype, false);
  else if (p.dtype == RONDO_F32)
    load(RONDO_F32, true);
  else if (p.dtype == RONDO_F16)
    load(RONDO_F16, true);
  else
    load(RONDO_BF16, true);
  uint32_t largest = 0;
  unrolled_for (int i = 0; i < GEMV_BLOCK; i++) largest = max(largest, magnitude_bits(values[i / 8][i % 8]));
  const uint32_t scale = scale_of_block(largest, p.six_global_scale);
  float divisor = divisor_of_block(scale, p.global_scale);
  uint2 codes = {};
  if (divisor > 0) {
    if (!(divisor > 0x1p-90f && divisor < 0x1p90f && __uint_as_float(largest) < 6.5f * divisor))
      moderate(values, divisor);
    const float reciprocal = __frcp_rn(divisor);
    codes = make_uint2(codes_of(values[0], divisor, reciprocal), codes_of(values[1], divisor, reciprocal));
  }
  if (p.aligned) {
    *(uint2 *)(p.codes + at.codes) = codes;
  } else {
    unrolled_for (int i = 0; i < GEMV_BLOCK / 2; i++)
      p.codes[at.codes + i] = (unsigned char)((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
  }
  p.scales[at.scale] = (unsigned char)scale;
}

QUANTIZE_KERNELS(DEFINE_EARLY_KERNEL)
