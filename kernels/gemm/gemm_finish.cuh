/* gemm_finish.cuh - from sums in registers to results, for all kernels of products of many rows: scale, bias and
 * residual, in this order, in fp32. With silu_mul two neighbours become one before the residual. */
#pragma once

#include "../common/numbers.cuh"
#include "gemm.h"

namespace {

/* The type of X and W in kernels whose code is for every type. */
struct either {};

/* A number's type; any for struct either. */
template <typename T> struct gemm_dtype { static constexpr uint32_t value = RONDO_BF16; };
template <> struct gemm_dtype<__half> { static constexpr uint32_t value = RONDO_F16; };

/* Loads of numbers of 32 and of 16 bits. A loop over many numbers is written for one of these, so that its loads do not
 * wait for each other. */
struct numbers_32 {
  DEVICE static float one(uint32_t, const void *data, int64_t element) { return ((const float *)data)[element]; }
  DEVICE static float2 two(uint32_t, const void *data, int64_t element) {
    return *(const float2 *)((const float *)data + element);
  }
};
struct numbers_16 {
  DEVICE static float one(uint32_t dtype, const void *data, int64_t element) {
    const uint32_t bits = ((const uint16_t *)data)[element];
    return dtype == RONDO_F16 ? __half2float(__ushort_as_half((uint16_t)bits)) : __uint_as_float(bits << 16);
  }
  DEVICE static float2 of(uint32_t dtype, uint32_t word) {
    const float2 half = __half22float2(reinterpret_cast<const __half2 &>(word));
    const bool is_half = dtype == RONDO_F16;
    return make_float2(is_half ? half.x : __uint_as_float(word << 16),
                       is_half ? half.y : __uint_as_float(word & 0xffff0000u));
  }
  DEVICE static float2 two(uint32_t dtype, const void *data, int64_t element) {
    return of(dtype, *(const uint32_t *)((const uint16_t *)data + element));
  }
};

/* silu(gate) * up, to 2^-17 of itself and 2^-119 of up. A gate of -infinity gives NaN. The instructions flush tiny
 * numbers to zero, without which each would need three more. */
DEVICE float gated(float gate, float up) {
  return gate * reciprocal(1.0f + exp2_approximate(gate * -1.4426950408889634f)) * up;
}

/* Two results in 16 bits, without a branch on the type. */
DEVICE uint32_t word_of_16(bool is_bf16, float low, float high) {
  const __half2 halves = __floats2half2_rn(low, high);
  const __nv_bfloat162 others = __floats2bfloat162_rn(low, high);
  return is_bf16 ? reinterpret_cast<const uint32_t &>(others) : reinterpret_cast<const uint32_t &>(halves);
}

} // namespace
