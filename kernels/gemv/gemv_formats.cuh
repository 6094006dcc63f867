/* gemv_formats.cuh - loads, number formats, and sums over lanes, for products and for the decoder's kernels. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "e2m1.cuh"
#include <rondo.h>

/* ---- Loads ------------------------------------------------------------------------------------------------------ */

struct words {
  uint32_t word[4];
};

/* Weights are read once: past L1. All loads are volatile, since their order is the caller's: the first level of the
 * cache answers in the order it was asked. */
DEVICE words load_weights(const unsigned char *address) {
  words loaded;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" EARLY
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "l"(address));
  return loaded;
}

/* Two and four scales of weights. */
DEVICE uint32_t load_scale_pair(const unsigned char *address) {
  uint32_t pair; /* PTX widens it; a 16-bit register would be widened at once, and wait for the load */
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u16 %0, [%1];" EARLY : "=r"(pair) : "l"(address));
  return pair;
}
DEVICE uint32_t load_four_scales(const unsigned char *address) {
  uint32_t four;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" EARLY : "=r"(four) : "l"(address));
  return four;
}

/* Vectors: many warps read the same, so through L1; they may be another kernel's result, so not by the constant path.
 */
DEVICE words load_vector(const unsigned char *address) {
  words loaded;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "l"(address)
               : "memory");
  return loaded;
}

DEVICE uint32_t load_vector_scales(const unsigned char *address) {
  uint32_t pair;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(pair) : "l"(address) : "memory");
  return pair;
}

/* base + index * stride in one instruction. */
DEVICE const unsigned char *offset(const unsigned char *base, uint32_t index, uint32_t stride) {
  return base + (uint64_t)index * stride;
}

/* Here and now, not where it is used. */
DEVICE const unsigned char *computed_now(const unsigned char *address) {
  asm volatile("" : "+l"(address));
  return address;
}

/* ---- Number formats --------------------------------------------------------------------------------------------- */

DEVICE __half2 half2_of(uint32_t bits) { return *reinterpret_cast<__half2 *>(&bits); }
DEVICE uint32_t bits_of(__half2 pair) { return *reinterpret_cast<uint32_t *>(&pair); }
DEVICE __nv_bfloat162 bf162_of(uint32_t bits) { return *reinterpret_cast<__nv_bfloat162 *>(&bits); }
DEVICE uint32_t bits_of(__nv_bfloat162 pair) { return *reinterpret_cast<uint32_t *>(&pair); }
DEVICE uint32_t half_pair(float low, float high) { return bits_of(__floats2half2_rn(low, high)); }

DEVICE float2 f32_of_bf16_pair(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* The e4m3 numbers in the lower, and in the upper half of a word: exact; NaN stays NaN. */
DEVICE __half2 half2_of_e4m3(uint32_t pairs) {
#if __CUDA_ARCH__ >= 890
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}" : "=r"(result) : "r"(pairs));
  return half2_of(result);
#else
  return __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(pairs & 0xffffu), __NV_E4M3));
#endif
}
DEVICE __half2 half2_of_e4m3_high(uint32_t pairs) {
#if __CUDA_ARCH__ >= 890
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}" : "=r"(result) : "r"(pairs));
  return half2_of(result);
#else
  return half2_of_e4m3(pairs >> 16);
#endif
}

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* Sums over the 32 lanes of Count values at once: while there are several, a step halves their number instead of adding
 * all of them on both sides. Lane i ends with the sum of value i / (32 / Count). */
template <int Count> DEVICE float sums_over_lanes(float (&values)[Count]) {
  const uint32_t lane = threadIdx.x % 32;
  int distance = 16;
  unrolled_for (int left = Count; left > 1; left /= 2) {
    bool upper = lane & distance;
    unrolled_for (int i = 0; i < left / 2; i++) {
      float keep = upper ? values[i + left / 2] : values[i], give = upper ? values[i] : values[i + left / 2];
      values[i] = keep + __shfl_xor_sync(0xffffffffu, give, distance);
    }
    distance /= 2;
  }
  float sum = values[0];
  unrolled_for (; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

DEVICE words load_shared_words(uint32_t address) {
  words loaded;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "r"(address));
  return loaded;
}
DEVICE uint32_t load_shared_pair(uint32_t address) {
  uint32_t pair;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(pair) : "r"(address));
  return pair;
}

/* The parts' sums, `stride` bytes apart, added in order. Four are asked for at once: this is the tail of a short
 * kernel. */
DEVICE float sum_of_parts(uint32_t first, uint32_t stride, uint32_t parts) {
  float sum = load_number(first);
  rolled_for (uint32_t left = parts - 1; left; left -= min(left, 4u)) {
    float value[4];
    unrolled_for (uint32_t i = 0; i < 4; i++) {
      first += stride;
      value[i] = i < left ? load_number(first) : 0.0f;
    }
    unrolled_for (uint32_t i = 0; i < 4; i++)
      if (i < left) sum += value[i];
  }
  return sum;
}
