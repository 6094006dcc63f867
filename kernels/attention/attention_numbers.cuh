/* attention_numbers.cuh - numbers of 16 bits for kernels that learn their type from a parameter. */
#pragma once

#include "../common/device_code.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

DEVICE float widen(uint16_t bits, bool bf16) {
  return bf16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}
DEVICE uint16_t narrow(float value, bool bf16) {
  return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value)) : __half_as_ushort(__float2half_rn(value));
}
