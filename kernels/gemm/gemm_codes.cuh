/* gemm_codes.cuh - weights in NVFP4 as operands of tensor cores: two e2m1 codes and the e4m3 scale of their block
 * become two numbers of X's type, divided by GEMM_CODE_FACTOR. All of them are exact: code times scale has six bits.
 *
 * A code's exponent and mantissa, in the lowest bits of those of a 16-bit number, are a subnormal number of that type:
 * the code's value times 2^-126 in bf16, 2^-14 in f16 (0.5 included, which is subnormal in e2m1 too). So one
 * multiplication by the scale, times a power of two, decodes it. With the whole power the largest scales would exceed
 * the type. */
#pragma once

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../gemv/gemv_scales.cuh"
#include <cuda_fp8.h>

namespace {

constexpr float GEMM_CODE_FACTOR = 256;

DEVICE void cp_async_word(uint32_t to, const unsigned char *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" EARLY ::"r"(to), "l"(from) : "memory");
}
/* The first `bytes` bytes, and zeros. */
DEVICE void cp_async_four_words(uint32_t to, const unsigned char *from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" EARLY ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

template <typename T> struct gemm_code;

template <> struct gemm_code<__nv_bfloat16> {
  DEVICE static uint32_t bits(uint32_t two) { return two << 2 & 0x81c081c0u; }
  DEVICE static uint32_t scale(uint32_t halves, bool upper) {
    const __half2 two = reinterpret_cast<const __half2 &>(halves);
    const float scale = (upper ? __high2float(two) : __low2float(two)) * 0x1p118f;
    return pack_two<__nv_bfloat16>(scale, scale);
  }
  /* One of two numbers, twice. */
  DEVICE static uint32_t both(uint32_t two, bool upper) {
    const __nv_bfloat162 numbers = reinterpret_cast<const __nv_bfloat162 &>(two);
    const __nv_bfloat162 c = upper ? __high2bfloat162(numbers) : __low2bfloat162(numbers);
    return reinterpret_cast<const uint32_t &>(c);
  }
  /* Of two scales, two numbers. */
  DEVICE static uint32_t two_scales(uint32_t halves) {
    const __half2 two = reinterpret_cast<const __half2 &>(halves);
    return pack_two<__nv_bfloat16>(__low2float(two) * 0x1p118f, __high2float(two) * 0x1p118f);
  }
  DEVICE static uint32_t product(uint32_t a, uint32_t b) {
    const __nv_bfloat162 c =
        __hmul2(reinterpret_cast<const __nv_bfloat162 &>(a), reinterpret_cast<const __nv_bfloat162 &>(b));
    return reinterpret_cast<const uint32_t &>(c);
  }
};

template <> struct gemm_code<__half> {
  DEVICE static uint32_t bits(uint32_t two) { return two << 5 & 0x8e008e00u; }
  DEVICE static uint32_t scale(uint32_t halves, bool upper) {
    return product(permute(halves, 0, upper ? 0x3232 : 0x1010), 0x54005400u); /* 2^6 */
  }
  DEVICE static uint32_t both(uint32_t two, bool upper) {
    const __half2 numbers = reinterpret_cast<const __half2 &>(two);
    const __half2 c = upper ? __high2half2(numbers) : __low2half2(numbers);
    return reinterpret_cast<const uint32_t &>(c);
  }
  DEVICE static uint32_t two_scales(uint32_t halves) { return product(halves, 0x54005400u); }
  DEVICE static uint32_t product(uint32_t a, uint32_t b) {
    const __half2 c = __hmul2(reinterpret_cast<const __half2 &>(a), reinterpret_cast<const __half2 &>(b));
    return reinterpret_cast<const uint32_t &>(c);
  }
};

/* Two e4m3 scales as halves. */
DEVICE uint32_t gemm_two_scales(uint32_t two) {
  const __half2 halves = __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(two & 0xffffu), __NV_E4M3));
  return reinterpret_cast<const uint32_t &>(halves);
}

/* The two codes of a byte, neighbours in k; `scale` is a pair of equal numbers. `bytes` chooses this byte of codes <<
 * 4, whose upper four bits are the first code, and of codes, whose upper four bits are the second one. Above each byte
 * it chooses the sign eight times. So one shift puts a code's sign and its other bits where a number has them. */
constexpr uint32_t GEMM_FIRST_BYTE = 0xc480, GEMM_NEXT_BYTE = 0x1111;
template <typename T> DEVICE uint32_t decode_two(uint32_t codes, uint32_t bytes, uint32_t scale) {
  return gemm_code<T>::product(gemm_code<T>::bits(permute(codes << 4, codes, bytes)), scale);
}

/* Eight codes, in pairs of neighbours. */
template <typename T> DEVICE void decode_eight(uint32_t codes, uint32_t scale, uint32_t (&pairs)[4]) {
  unrolled_for (uint32_t i = 0; i < 4; i++)
    pairs[i] = decode_two<T>(codes, GEMM_FIRST_BYTE + i * GEMM_NEXT_BYTE, scale);
}

} // namespace
