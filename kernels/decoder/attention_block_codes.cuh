/* attention_block_codes.cuh - NVFP4's weights as f16, and a vector to multiply them with, for attention_block_wide.cu.
 *
 * A lane's 16 bytes of a row are two blocks of 16. The eight columns of mma.m16n8k16's operand B keep the lanes of a
 * quad apart: column 2 t has lane t's numbers of the vector, column 2 t + 1 what rounding left of them, and both are
 * zero where the other lanes' are. So each lane finds its own blocks' sums in its own registers, and multiplies the
 * scale to two sums instead of to 16 codes. The numbers are f16 times a power of two of each block, which the scale
 * takes back. */
#ifndef RONDO_ATTENTION_BLOCK_CODES_CUH
#define RONDO_ATTENTION_BLOCK_CODES_CUH

#include "../gemv/e2m1.cuh"
#include "attention_block_shared.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* What takes back that codes come times 2^E2M1_EXPONENT. */
constexpr float codes_factor = E2M1_EXPONENT ? 16384.0f : 1.0f;

/* The power that takes a block's greatest number to 2^14 and more, and its inverse. */
struct block_power {
  float up, down;
  __device__ __forceinline__ explicit block_power(float most) {
    const uint32_t exponent = max(min(__float_as_uint(most) >> 23, 254u), 15u);
    up = __uint_as_float((268 - exponent) << 23), down = __uint_as_float((exponent - 14) << 23);
  }
};

/* Two numbers a lane, eight lanes a block, in the order in which codes are decoded. */
struct scaled_pair {
  uint32_t rounded, rest;
  float factor;

  __device__ __forceinline__ explicit scaled_pair(float2 two) {
    float most = fmaxf(fabsf(two.x), fabsf(two.y));
#pragma unroll
    for (int d = 1; d < 8; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    const block_power power(most);
    factor = power.down, two.x *= power.up, two.y *= power.up;
    if (E2M1_EXPONENT) {
      const bool odd = threadIdx.x % 2;
      const float other = __shfl_xor_sync(0xffffffffu, odd ? two.x : two.y, 1);
      two = odd ? float2{other, two.y} : float2{two.x, other};
    }
    const __half2 half = __floats2half2_rn(two.x, two.y);
    const float2 seen = __half22float2(half);
    const __half2 left = __floats2half2_rn(two.x - seen.x, two.y - seen.y);
    rounded = *reinterpret_cast<const uint32_t *>(&half), rest = *reinterpret_cast<const uint32_t *>(&left);
  }
};

/* The same of one number a lane, sixteen lanes a block, to `to` and `to_rest`, where the block's begin. Lanes behind
 * the sixteenth have the same numbers, and store what is left. */
__device__ __forceinline__ void store_scaled(float number, uint32_t to, uint32_t to_rest, uint32_t to_factor) {
  const uint32_t lane = threadIdx.x % 16, eighth = lane % 8;
  float most = fabsf(number);
#pragma unroll
  for (int d = 1; d < 16; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
  const block_power power(most);
  const uint32_t place = E2M1_EXPONENT ? eighth % 2 * 4 + eighth / 4 * 2 + eighth / 2 % 2 : eighth;
  const __half half = __float2half_rn(number * power.up);
  const __half rest = __float2half_rn(number * power.up - __half2float(half));
  const uint32_t at = (lane / 8 * 8 + place) * 2;
  if (threadIdx.x % 32 < 16)
    store_shared_half_word(to + at, __half_as_ushort(half));
  else
    store_shared_half_word(to_rest + at, __half_as_ushort(rest));
  if (threadIdx.x % 32 == 0) store_shared(to_factor, power.down);
}

__device__ __forceinline__ float2 scales_of(uint32_t at, float2 powers) {
  uint32_t low, high;
  uint16_t two;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two) : "r"(at) : "memory");
  halves_of(two, low, high);
  const float2 scales = __half22float2(*reinterpret_cast<const __half2 *>(&low));
  return {scales.x * powers.x, scales.y * powers.y};
}

/* Adds the products of a lane's two blocks of two rows; the second's codes lie 512 bytes behind. Numbers: rounded, or
 * for odd columns of B what is left of them; or zeros. */
struct code_places {
  uint32_t codes, numbers, powers, scales, scales_8;
};
__device__ __forceinline__ void multiply_codes(const code_places &at, float2 &sum) {
  const uint4 codes = load_shared_words_four(at.codes), codes_8 = load_shared_words_four(at.codes + 512);
  const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w},
                 word_8[4] = {codes_8.x, codes_8.y, codes_8.z, codes_8.w};
  const float2 powers = load_shared_two(at.powers), scales = scales_of(at.scales, powers),
               scales_8 = scales_of(at.scales_8, powers);
#pragma unroll
  for (int block = 0; block < 2; block++) {
    float c[4] = {};
#pragma unroll
    for (int w = 2 * block; w < 2 * block + 2; w++) {
      const uint4 b = load_shared_words_four(at.numbers + w * 16);
      uint32_t a[4], a_8[4];
      decode_e2m1(word[w], a), decode_e2m1(word_8[w], a_8);
      mma_16x8x16<__half>(c, {a[0], a_8[0], a[1], a_8[1]}, b.x, b.y);
      mma_16x8x16<__half>(c, {a[2], a_8[2], a[3], a_8[3]}, b.z, b.w);
    }
    sum.x = fmaf(c[0] + c[1], block ? scales.y : scales.x, sum.x);
    sum.y = fmaf(c[2] + c[3], block ? scales_8.y : scales_8.x, sum.y);
  }
}

/* Of a quad. */
__device__ __forceinline__ float2 sums_of_quad(float2 sum) {
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
  }
  return sum;
}

#endif
#endif
