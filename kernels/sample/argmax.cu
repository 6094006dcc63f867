/* argmax.cu - the column of each row's largest number, the first of several; NaN is above all.
 *
 * A number and its column are one integer that grows with the number and falls with the column: the largest of these is
 * the same in whatever order they are compared. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "argmax.h"

/* Grows with the value: equal for both zeros, and the most for NaN. */
__device__ __forceinline__ uint32_t order_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f); /* -0 becomes 0 */
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return value != value ? 0xffffffffu : order;
}

__device__ __forceinline__ uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

__device__ __forceinline__ uint64_t largest_of_warp(uint64_t key) {
#pragma unroll
  for (int step = 16; step; step /= 2) key = larger_of(key, __shfl_xor_sync(0xffffffffu, key, step));
  return key;
}

__device__ __forceinline__ void argmax_row(const argmax_parameters &p) {
  __shared__ uint64_t warps[ARGMAX_THREADS / 32];
  const int64_t row = blockIdx.x * p.stride;
  uint64_t key = 0;
  for (uint32_t column = threadIdx.x * 8; column < p.n; column += ARGMAX_THREADS * 8) {
    const uint32_t count = min(p.n - column, 8u);
    float values[8];
    load_numbers(p.dtype, p.is_aligned, p.x, row + column, count, values);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
      if (i < count) key = larger_of(key, (uint64_t)order_of(values[i]) << 32 | (0xffffffffu - (column + i)));
  }
  key = largest_of_warp(key);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x < 32) key = largest_of_warp(warps[threadIdx.x]);
  if (threadIdx.x == 0) p.out[blockIdx.x] = (int32_t)(0xffffffffu - (uint32_t)key);
}

ARGMAX_KERNELS(DEFINE_SHORT_KERNEL)
