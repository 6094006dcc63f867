/* sum_parts.cu - out = x + the sum of parts, one thread a number. Parts are added in their order, with eight loads in
 * flight. */
#include "../common/device_code.cuh"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "sum_parts.h"

DEVICE void sum_parts(const sum_parts_parameters &p) {
  const uint32_t index = blockIdx.x * SUM_PARTS_THREADS + threadIdx.x;
  if (index >= p.elements) return;
  const uint32_t row = index / p.columns, column = index - row * p.columns;
  const float x = load_number(p.dtype, p.x, row * p.x_row + column);
  const float *part = p.parts + row * p.part_row + column;
  float *zero = p.zeros + row * p.zero_row + column, sum = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < p.part_count; i++) sum += part[i * p.part];
  store_number(p.dtype, p.out, row * p.out_row + column, x + sum);
  for (uint32_t i = 0; i < p.zero_count; i++) zero[i * p.zero] = 0;
}

SUM_PARTS_KERNELS(DEFINE_SHORT_KERNEL)
