/* gemv_operands.cuh - weights as operand A of the tensor cores.
 *
 * mma.m16n8k16 multiplies A (16 x 16), rows of weights, with B (16 x 8), whose columns are vectors. The order of k
 * inside is free as long as both share it. It is the order in which weights are decoded.
 *
 * NVFP4 weights become f16 with the scale multiplied in: at most six bits, so exact. */
#pragma once

#include "../common/element.cuh"
#include "gemv_formats.cuh"

template <rondo_dtype W> constexpr int elements_per_load = W == RONDO_NVFP4 ? 32 : W == RONDO_E4M3 ? 16 : 8;

/* c += rows of A, as loaded, times B. */
template <bool Bf16>
DEVICE void multiply_accumulate(float (&c)[4], const uint32_t *row, const uint32_t *row8, const uint32_t *b) {
  mma_16x8x16<element<Bf16 ? RONDO_BF16 : RONDO_F16>>(c, {row[0], row8[0], row[1], row8[1]}, b[0], b[1]);
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

/* Where e2m1 codes come as their values times 2^-14, scales are taken times 2^7, and a number of NVFP4 comes as itself
 * times 2^-7: exact in f16, as it has six bits at most. */
static_assert(E2M1_EXPONENT == 0 || E2M1_EXPONENT == -14, "");
constexpr float nvfp4_factor = E2M1_EXPONENT ? 1.0f / 128 : 1.0f;
enum : uint32_t { TWO_TO_THE_7 = 0x58005800u };

DEVICE __half2 block_scales(uint32_t pair) {
  const __half2 scales = half2_of_e4m3(pair);
  return nvfp4_factor == 1 ? scales : __hmul2(scales, half2_of(TWO_TO_THE_7));
}

/* In bf16 codes come as their values times 2^-126, scales are taken times 2^118, and a number is itself times 2^-8. */
constexpr float nvfp4_factor_bf16 = 1.0f / 256;
DEVICE uint32_t block_scales_bf16(uint32_t pair) {
  const float2 scales = __half22float2(half2_of_e4m3(pair));
  const float up = __uint_as_float((127u + 118) << 23);
  return bits_of(__floats2bfloat162_rn(scales.x * up, scales.y * up));
}

/* Eight elements as two pairs of operand A's registers; `scales` are those of a load's two blocks of NVFP4. */
template <rondo_dtype W, bool Bf16>
DEVICE void decode_eight(const words &loaded, int eighth, uint32_t scales, uint32_t (&out)[4]) {
  if constexpr (W == RONDO_NVFP4 && Bf16) {
    const __nv_bfloat162 both = bf162_of(scales), scale = eighth < 2 ? __low2bfloat162(both) : __high2bfloat162(both);
    decode_e2m1_bf16(loaded.word[eighth], out);
    unrolled_for (int i = 0; i < 4; i++) out[i] = bits_of(__hmul2(bf162_of(out[i]), scale));
  } else if constexpr (W == RONDO_NVFP4) {
    const __half2 both = half2_of(scales), scale = eighth < 2 ? __low2half2(both) : __high2half2(both);
    decode_e2m1(loaded.word[eighth], out);
    unrolled_for (int i = 0; i < 4; i++) out[i] = bits_of(__hmul2(half2_of(out[i]), scale));
  } else if constexpr (W == RONDO_E4M3) {
    unrolled_for (int i = 0; i < 2; i++) {
      out[2 * i] = bits_of(half2_of_e4m3(loaded.word[2 * eighth + i]));
      out[2 * i + 1] = bits_of(half2_of_e4m3_high(loaded.word[2 * eighth + i]));
    }
  } else {
    unrolled_for (int i = 0; i < 4; i++) out[i] = loaded.word[i];
  }
}

/* Pairs of NVFP4 scales of Slices slices of a row. A lane has loaded 2 x Slices consecutive bytes; the row's lanes
 * transpose them. out[s] has this lane's pair of slice s in its low half. */
template <int Slices, int Lanes> DEVICE void turn_scales(const uint32_t *in, uint32_t (&out)[Slices]) {
  const uint32_t lane = threadIdx.x % 32, l = lane % Lanes;
  if constexpr (Slices == 4) {
    static_assert(Lanes == 4, "a 4 x 4 transpose of pairs over the quad");
    uint32_t taken = __shfl_xor_sync(0xffffffffu, l & 2 ? in[0] : in[1], 2);
    uint32_t a = l & 2 ? taken : in[0], b = l & 2 ? in[1] : taken;
    uint32_t kept = permute(a, b, l & 1 ? 0x7632 : 0x5410);
    taken = __shfl_xor_sync(0xffffffffu, permute(a, b, l & 1 ? 0x5410 : 0x7632), 1);
    uint32_t even = l & 1 ? taken : kept, odd = l & 1 ? kept : taken;
    out[0] = even, out[1] = odd, out[2] = even >> 16, out[3] = odd >> 16;
  } else if constexpr (Slices == 2) {
    const uint32_t from = (lane & ~(Lanes - 1u)) + l / 2;
    uint32_t first = __shfl_sync(0xffffffffu, in[0], from);
    uint32_t second = __shfl_sync(0xffffffffu, in[0], from + Lanes / 2);
    uint32_t both = permute(first, second, l & 1 ? 0x7632 : 0x5410);
    out[0] = both, out[1] = both >> 16;
  } else {
    out[0] = in[0];
  }
}

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

template <rondo_dtype V> DEVICE float2 f32_of_pair(uint32_t pair) {
  if constexpr (V == RONDO_BF16) return f32_of_bf16_pair(pair);
  return __half22float2(half2_of(pair));
}
