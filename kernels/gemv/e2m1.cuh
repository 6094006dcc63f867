/* e2m1.cuh - eight e2m1 codes as halves, in the cheapest way of the chip.
 *
 * sm_100a converts a byte of codes by one instruction (cvt.rn.f16x2.e2m1x2, in machine code F2FP.F16.E2M1.UNPACK_B,
 * which takes any byte of a register), so eight codes take four. On other chips, bits s|eem at 15|11..9 of a half are
 * the value times 2^-14, subnormal 0.5 included (Marlin's trick, vllm csrc/quantization/gptq_marlin/dequant.h). Eight
 * codes take eleven instructions, and the halves have another order. One order and factor for both would cost sm_100a
 * twice the instructions. So order and factor are constants of the chip, and the vectors are permuted to the order, at
 * no cost if they are converted too. Code that multiplies by a scale divides by 2^E2M1_EXPONENT with it. Only
 * device code may ask for the order and the factor: on the host both are those of other chips.
 *
 * build/check-kernels looks for the instruction in the machine code. The code for sm_100a has never run. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#include "../common/device_code.cuh"
#define E2M1_FUNCTION DEVICE
#else
#define E2M1_FUNCTION static inline /* a test runs the same lines on the host */
#endif

/* Each nibble of the selector picks a byte, 0 to 3 from `low`, 4 to 7 from `high`. */
E2M1_FUNCTION uint32_t take_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDACC__
  return __byte_perm(low, high, selector);
#else
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t byte = selector >> 4 * i & 7;
    result |= ((byte < 4 ? low : high) >> byte % 4 * 8 & 0xffu) << 8 * i;
  }
  return result;
#endif
}

/* Eight codes as bf16 times 2^-126, subnormal 0.5 included: eem at bits 8..6, in pairs (0,4) (1,5) (2,6) (3,7), on all
 * chips. Four instructions more than as halves; but a vector in bf16 then needs none but these of order_as_bf16. */
E2M1_FUNCTION void decode_e2m1_bf16(uint32_t codes, uint32_t *pairs) {
  pairs[0] = (codes << 12 & 0x80008000u) | (codes << 6 & 0x01c001c0u);
  pairs[1] = (codes << 8 & 0x80008000u) | (codes << 2 & 0x01c001c0u);
  pairs[2] = (codes << 4 & 0x80008000u) | (codes >> 2 & 0x01c001c0u);
  pairs[3] = (codes & 0x80008000u) | (codes >> 6 & 0x01c001c0u);
}

E2M1_FUNCTION void order_as_bf16(const uint32_t *words, uint32_t *pairs) {
  pairs[0] = take_bytes(words[0], words[2], 0x5410), pairs[1] = take_bytes(words[0], words[2], 0x7632);
  pairs[2] = take_bytes(words[1], words[3], 0x5410), pairs[3] = take_bytes(words[1], words[3], 0x7632);
}

#ifdef __CUDA_ARCH_FEAT_SM100_ALL

enum { E2M1_EXPONENT = 0 };

/* Which of the eight is in half `place` of the pairs. */
E2M1_FUNCTION int e2m1_element(int place) { return place; }

E2M1_FUNCTION void decode_e2m1(uint32_t codes, uint32_t *pairs) {
  asm("{.reg .b8 byte<4>; mov.b32 {byte0, byte1, byte2, byte3}, %4;\n"
      "cvt.rn.f16x2.e2m1x2 %0, byte0; cvt.rn.f16x2.e2m1x2 %1, byte1;\n"
      "cvt.rn.f16x2.e2m1x2 %2, byte2; cvt.rn.f16x2.e2m1x2 %3, byte3;}"
      : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
      : "r"(codes));
}

/* Eight 16-bit numbers, as they lie in memory, in the order of the pairs. */
E2M1_FUNCTION void order_as_e2m1(const uint32_t *words, uint32_t *pairs) {
  unrolled_for (int i = 0; i < 4; i++) pairs[i] = words[i];
}

#else

/* The halves are the values times 2^E2M1_EXPONENT. */
enum { E2M1_EXPONENT = -14 };

/* (0,2) (4,6) (1,3) (5,7) */
E2M1_FUNCTION int e2m1_element(int place) { return place / 2 % 2 * 4 + place % 2 * 2 + place / 4; }

E2M1_FUNCTION void decode_e2m1(uint32_t codes, uint32_t *pairs) {
  uint32_t even = (codes << 4 & 0x80808080u) | (codes << 1 & 0x0e0e0e0eu);
  uint32_t odd = (codes & 0x80808080u) | (codes >> 3 & 0x0e0e0e0eu);
  pairs[0] = take_bytes(even, 0, 0x1404), pairs[1] = take_bytes(even, 0, 0x3424);
  pairs[2] = take_bytes(odd, 0, 0x1404), pairs[3] = take_bytes(odd, 0, 0x3424);
}

E2M1_FUNCTION void order_as_e2m1(const uint32_t *words, uint32_t *pairs) {
  pairs[0] = take_bytes(words[0], words[1], 0x5410), pairs[1] = take_bytes(words[2], words[3], 0x5410);
  pairs[2] = take_bytes(words[0], words[1], 0x7632), pairs[3] = take_bytes(words[2], words[3], 0x7632);
}

#endif
