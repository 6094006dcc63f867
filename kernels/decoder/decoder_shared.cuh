/* decoder_shared.cuh - for both layer halves: numbers in bf16, and copies before the wait. */
#pragma once

#include "../common/barrier.cuh"
#include "../common/device_code.cuh"
#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/send.cuh"
#include "../common/shared_words.cuh"

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

DEVICE uint32_t pack(float low, float high) { return pack_two<__nv_bfloat16>(low, high); }
DEVICE float2 two_numbers(uint32_t bits) { return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)}; }
/* The remainders of two numbers after rounding. */
DEVICE uint32_t rest_of(float low, float high, uint32_t rounded) {
  const float2 two = two_numbers(rounded);
  return pack(low - two.x, high - two.y);
}
/* Four rounded numbers, then their remainders: the order of a token's numbers in shared memory. */
DEVICE uint4 numbers_and_rest(float2 low, float2 high) {
  const uint2 numbers = {pack(low.x, low.y), pack(high.x, high.y)};
  return {numbers.x, numbers.y, rest_of(low.x, low.y, numbers.x), rest_of(high.x, high.y, numbers.y)};
}
/* A product. `Alike`: it is not fused with a sum, so that kernels with the same steps have the same bits. */
template <bool Alike> DEVICE float product(float a, float b) { return Alike ? __fmul_rn(a, b) : a * b; }
template <bool Alike> DEVICE float sum_of_squares(float2 two) {
  return Alike ? fmaf(two.x, two.x, __fmul_rn(two.y, two.y)) : two.x * two.x + two.y * two.y;
}
template <bool Alike> DEVICE float2 products(float2 a, float2 b) {
  return {product<Alike>(a.x, b.x), product<Alike>(a.y, b.y)};
}
DEVICE float silu(float x) { return x * reciprocal(1.0f + exp2_approximate(x * -1.44269504f)); }

/* Four numbers of global memory, that other blocks or kernels wrote. */
DEVICE float4 load_four(const void *address) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address)
               : "memory");
  return value;
}

/* ---- Copies before the wait -------------------------------------------------------------------------------------- */

/* Asynchronous copies of settled operands (EARLY in launch.cuh). Whole lines go to the L2 cache. */
DEVICE void copy_early_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" EARLY ::"r"(to), "l"(from) : "memory");
}
/* To the L2 cache alone: multiples of 16 bytes. */
DEVICE void prefetch_early(const void *from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" EARLY ::"l"(from), "r"(bytes) : "memory");
}
template <int Bytes> DEVICE void copy_early(uint32_t to, const void *from) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" EARLY ::"r"(to), "l"(from), "n"(Bytes) : "memory");
}
