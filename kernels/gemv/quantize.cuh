/* quantize.cuh - NVFP4's scale of a block and its codes, for the quantiser and for products that write NVFP4.
 * Scales come from IEEE's divisions, codes from quotients that round as these do (e2m1_round.h): the bytes are those of
 * quantize_host.c. */
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "../common/device_code.cuh"
#include "e2m1_round.h"

/* Magnitudes compare as these bits do, and NaN is above infinity. */
DEVICE uint32_t magnitude_bits(float value) { return __float_as_uint(value) & 0x7fffffffu; }

/* The e4m3 scale of a block with this largest magnitude; six_global_scale is 6 times the tensor's factor. */
DEVICE uint32_t scale_of_block(uint32_t largest, float six_global_scale) {
  uint32_t scale =
      __nv_cvt_float_to_fp8(__fdiv_rn(__uint_as_float(largest), six_global_scale), __NV_SATFINITE, __NV_E4M3);
  return largest > 0x7f800000u ? 0x7f : scale;
}

/* What the elements of a block are divided by. Codes are 0 where it is not above 0. */
DEVICE float divisor_of_block(uint32_t scale, float global_scale) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)scale, __NV_E4M3))) * global_scale;
}
