/* decoder_integers.cuh - products of NVFP4's codes and a vector as integers, for kernels that the number of
 * instructions a code bounds.
 *
 * Twice a code's value is an integer. A number of the vector is its group's power of two times high * high_step + low,
 * two signed bytes; a group has 16 numbers. A lane's 16 bytes of a row are two groups. The eight columns of
 * mma.m16n8k32's operand B keep the lanes of a quad apart: column 2 t has the high bytes of lane t's numbers, column 2
 * t + 1 the low bytes, and both are zero at the other lanes' k. So each lane has its own groups' sums in its own
 * registers, and multiplies two sums by the scale, not 16 codes. */
#pragma once

#include <cuda_fp16.h>

#include "decoder_shared.cuh"

/* Numbers are integers up to 2^14 times a power of two. */
constexpr uint32_t number_bits = 14;
constexpr int high_step = 144; /* no power of two, since a product with one would be an instruction of the logic pipe */
/* What takes back that codes come twice. */
constexpr float codes_factor = 0.5f;

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

/* prmt looks four codes up in a table of eight bytes; for a code with its sign set it returns the byte's sign instead.
 * So a look-up of the codes gives the bytes of positive codes, and zeros. A look-up with inverted signs gives the bytes
 * of negative codes, and -1 for positive ones, whose own table has one more. Both are multiplied by the same numbers
 * into the same sums. */
enum : uint32_t {
  POSITIVE_LOW = 0x04030200u,
  POSITIVE_HIGH = 0x0d090705u,
  NEGATIVE_LOW = 0xfdfeff00u,
  NEGATIVE_HIGH = 0xf4f8fafcu
};

/* By the multiply pipe, since the logic pipe bounds a tile. */
DEVICE uint32_t upper_half(uint32_t word) {
  uint32_t half;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(half) : "r"(word), "r"(0x0100), "r"(0));
  return half;
}
DEVICE void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t *b) {
  const int32_t c[4] = {d[0], d[1], d[2], d[3]};
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

/* The low words of the tables. They come from shared memory, so that they stay in registers: constants, or values equal
 * in all lanes, the compiler would move to registers for each look-up. */
struct code_tables {
  uint32_t positive, negative;

  code_tables() = default;
  DEVICE explicit code_tables(uint32_t here) {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < 2) store_word(here + lane * 4, lane ? NEGATIVE_LOW : POSITIVE_LOW);
    __syncwarp();
    const uint2 two = load_two_words(here);
    positive = two.x, negative = two.y;
  }
  DEVICE uint32_t positives(uint32_t codes) const { return permute(positive, POSITIVE_HIGH, codes); }
  DEVICE uint32_t negatives(uint32_t turned) const { return permute(negative, NEGATIVE_HIGH, turned); }
};

/* A lane's codes of two rows in a slot; and as bytes, operands A of each word's products. */
struct slot_codes {
  uint32_t row[4], second_row[4];
  DEVICE explicit slot_codes(uint32_t slot) { load_four_words(slot, row), load_four_words(slot + 512, second_row); }
};
struct code_bytes {
  uint32_t positive[4][4], negative[4][4];

  DEVICE code_bytes(const slot_codes &codes, const code_tables &tables) {
    unrolled_for (int w = 0; w < 4; w++)
      unrolled_for (int row = 0; row < 2; row++) {
        const uint32_t code = row ? codes.second_row[w] : codes.row[w], turned = code ^ 0x88888888u;
        positive[w][row] = tables.positives(code), positive[w][row + 2] = tables.positives(upper_half(code));
        negative[w][row] = tables.negatives(turned), negative[w][row + 2] = tables.negatives(upper_half(turned));
      }
  }
  DEVICE void multiply(int32_t (&sums)[4], int w, const uint32_t *b) const {
    multiply_bytes(sums, positive[w], b);
    multiply_bytes(sums, negative[w], b);
  }
};
/* The same added byte by byte: half of the registers, and six instructions more for eight codes. */
struct added_bytes {
  uint32_t of_word[4][4];

  DEVICE void take(const code_bytes &bytes) {
    unroll<4, 4>([&](int w, int i) {
      of_word[w][i] =
          (bytes.positive[w][i] + (bytes.negative[w][i] & 0x7f7f7f7fu)) ^ (bytes.negative[w][i] & 0x80808080u);
    });
  }
  DEVICE void multiply(int32_t (&sums)[4], int w, const uint32_t *b) const { multiply_bytes(sums, of_word[w], b); }
};

/* Of the lower two bytes: exact. */
DEVICE float2 of_two_e4m3(uint32_t two) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
  return __half22float2(*reinterpret_cast<const __half2 *>(&halves));
}

/* The sums of a lane's two rows with its numbers, times its two groups' powers and the rows' scales: integers below
 * 2^22, exact in f32. */
template <typename Bytes>
DEVICE void multiply_codes(const Bytes &bytes, float2 powers, const uint32_t (&b)[8], uint32_t scales,
                           uint32_t second_scales, float2 &sum) {
  const float2 scale = of_two_e4m3(scales), second_scale = of_two_e4m3(second_scales);
  unroll<2>([&](int block) {
    int32_t sums[4] = {};
    unrolled_for (int w = 2 * block; w < 2 * block + 2; w++) bytes.multiply(sums, w, b + 2 * w);
    const float of_row = sums[0] * high_step + sums[1], of_second = sums[2] * high_step + sums[3];
    sum.x = fmaf(of_row, (block ? scale.y : scale.x) * (block ? powers.y : powers.x), sum.x);
    sum.y = fmaf(of_second, (block ? second_scale.y : second_scale.x) * (block ? powers.y : powers.x), sum.y);
  });
}

/* A lane's numbers of a chunk, as operand B. */
DEVICE void load_numbers(uint32_t from, uint32_t (&b)[8]) {
  unroll<2>([&](int i) {
    uint32_t four[4];
    load_four_words(from + i * 16, four);
    unroll<4>([&](int j) { b[4 * i + j] = four[j]; });
  });
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The power of two that makes numbers up to `most` (its bits) integers; and its inverse, NaN if it is not finite. */
struct block_power {
  float up, down;
  DEVICE explicit block_power(uint32_t most) {
    const uint32_t exponent = max(most >> 23, number_bits);
    up = __uint_as_float((253 + number_bits - min(exponent, 254u)) << 23);
    down = __uint_as_float(exponent == 255 ? 0x7fffffffu : (exponent + 1 - number_bits) << 23);
  }
};
/* The bytes of a number times `up`, in the lowest bits. A large constant, added to a float, makes it an integer in its
 * lowest bits: conversion instructions run at a fifth of this rate. */
DEVICE void split(float number, float up, uint32_t &high, uint32_t &low) {
  constexpr float round = 0x1.8p23f, step = high_step;
  const float rounded = fmaf(number, up, round), highs = fmaf(rounded - round, 1 / step, round);
  high = __float_as_uint(highs), low = __float_as_uint(fmaf(-step, highs - round, rounded));
}

/* Two numbers a lane, eight lanes a group: integers times the group's power of two. Even lanes get the high bytes of
 * their own and their neighbour's numbers, odd lanes the low bytes. */
struct scaled_numbers {
  uint32_t bytes;
  float power;

  DEVICE explicit scaled_numbers(const float2 &two) {
    uint32_t most = max(__float_as_uint(two.x) & 0x7fffffffu, __float_as_uint(two.y) & 0x7fffffffu);
    unrolled_for (int d = 1; d < 8; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    const block_power of_block(most);
    uint32_t high[2], low[2];
    split(two.x, of_block.up, high[0], low[0]), split(two.y, of_block.up, high[1], low[1]);
    power = of_block.down;
    const bool odd = threadIdx.x % 2;
    const uint32_t highs = permute(high[0], high[1], 0x0040), lows = permute(low[0], low[1], 0x0040),
                   other = __shfl_xor_sync(0xffffffffu, odd ? highs : lows, 1);
    bytes = odd ? permute(other, lows, 0x5410) : permute(highs, other, 0x5410);
  }
  /* Of a pair: the address of the lane's bytes, with low bytes `low` after the high ones. */
  static DEVICE uint32_t place(uint32_t pair, uint32_t low) { return pair / 2 * 4 + (pair % 2 ? low : 0); }
  /* To all blocks of a cluster of eight: bytes from `to` on, powers from `to_powers` on. */
  DEVICE void send(uint32_t pair, uint32_t to, uint32_t low, uint32_t to_powers, uint32_t barrier) const {
    unroll<8>([&](uint32_t block) {
      send_word(address_in_block(to + place(pair, low), block), bytes, address_in_block(barrier, block));
    });
    const uint32_t block = threadIdx.x % 8;
    send_word(address_in_block(to_powers + pair / 8 * 4, block), __float_as_uint(power),
              address_in_block(barrier, block));
  }
};

/* ---- For attention ----------------------------------------------------------------------------------------------- */

/* As scaled_numbers, with one number a lane and sixteen lanes a scale group, to the group's `to` and `to_low`. The
 * upper sixteen lanes have the same numbers and store the low bytes. */
DEVICE void store_scaled(float number, uint32_t to, uint32_t to_low, uint32_t to_power) {
  uint32_t most = __float_as_uint(number) & 0x7fffffffu, high, low;
  unrolled_for (int d = 1; d < 16; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
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
template <typename Bytes> DEVICE void multiply_codes(const Bytes &bytes, const code_places &at, float2 &sum) {
  uint32_t b[8];
  load_numbers(at.numbers, b);
  multiply_codes(bytes, load_shared_two(at.powers), b, load_half_word(at.scales), load_half_word(at.scales_8), sum);
}

/* Of a quad. */
DEVICE float2 sums_of_quad(float2 sum) { return {quad_sum(sum.x), quad_sum(sum.y)}; }
