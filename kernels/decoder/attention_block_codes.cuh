/* attention_block_codes.cuh - operands of decoder_integers.cuh's products, for attention_block_wide.cu. */
#ifndef RONDO_ATTENTION_BLOCK_CODES_CUH
#define RONDO_ATTENTION_BLOCK_CODES_CUH

#include "attention_block_shared.cuh"
#include "decoder_integers.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* As scaled_numbers, with one number a lane and sixteen lanes a scale group, to the group's `to` and `to_low`. The
 * upper sixteen lanes have the same numbers and store the low bytes. */
__device__ __forceinline__ void store_scaled(float number, uint32_t to, uint32_t to_low, uint32_t to_power) {
  uint32_t most = __float_as_uint(number) & 0x7fffffffu, high, low;
#pragma unroll
  for (int d = 1; d < 16; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
  const block_power power(most);
  split(number, power.up, high, low);
  const bool is_low = threadIdx.x % 32 >= 16;
  asm volatile("st.shared.u8 [%0], %1;" ::"r"((is_low ? to_low : to) + threadIdx.x % 16), "r"(is_low ? low : high)
               : "memory");
  if (threadIdx.x % 32 == 0) store_number(to_power, power.down);
}

/* Where a lane's numbers of a chunk lie, their powers, and the scales of its two rows. */
struct code_places {
  uint32_t numbers, powers, scales, scales_8;
};
template <typename Bytes>
__device__ __forceinline__ void multiply_codes(const Bytes &bytes, const code_places &at, float2 &sum) {
  uint32_t b[8];
  load_numbers(at.numbers, b);
  multiply_codes(bytes, load_shared_two(at.powers), b, load_half_word(at.scales), load_half_word(at.scales_8), sum);
}

/* Of a quad. */
__device__ __forceinline__ float2 sums_of_quad(float2 sum) { return {quad_sum(sum.x), quad_sum(sum.y)}; }

#endif
#endif
