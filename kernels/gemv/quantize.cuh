/* quantize.cuh - NVFP4's scale of a block and code of an element, for the quantiser and for products that write NVFP4.
 * Divisions are IEEE's and every comparison is exact: the bytes are those of quantize_host.c. */
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "../common/device_code.cuh"

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

/* Nearest, ties to the even code, saturating at 6: code c is reached where the magnitude passes the middle between c -
 * 1 and c, or meets it and c is even. */
DEVICE uint32_t e2m1_of(float value) {
  float a = fabsf(value);
  uint32_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return code | (__float_as_uint(value) >> 31 << 3);
}
