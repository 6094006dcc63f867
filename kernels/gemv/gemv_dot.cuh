/* gemv_dot.cuh - exact integer dot products of the 16 NVFP4 elements that share a scale.
 *
 * Twice an e2m1 value is an integer of at most 12. So the product of two blocks is a dot product of bytes (dp4a), and
 * its sum, at most 2304, is exact. Scales are multiplied in once a block. */
#pragma once

#include "gemv_addresses.cuh"

/* A constant in a register that the compiler cannot see through: it rematerialises a plain one before each use by an
 * instruction that takes no immediate there, which prmt is with two constants. */
DEVICE uint32_t opaque(uint32_t constant) { return __shfl_sync(0xffffffffu, threadIdx.x % 32 == 0 ? constant : 0, 0); }

/* Twice the magnitudes. A set top bit in prmt's selector copies the looked-up byte's sign instead, 0: codes with the
 * sign bit give 0, those with it inverted the rest, so that w x = P x - N x without masks. */
struct tables {
  uint32_t low, high, float_bias;
};
DEVICE tables load_tables() { return {opaque(0x03020100u), 0x0c080604u, opaque(0x4b400000u)}; }

/* Eight codes as bytes of twice the value, in order. */
DEVICE void decode_vector_word(uint32_t codes, uint32_t &first, uint32_t &second) {
  const uint32_t select = 0x32103210u | ((codes & 0x88888888u) >> 1), magnitude = codes & 0x77777777u;
  first = permute(permute(0x03020100u, 0x0c080604u, magnitude), permute(0xfdfeff00u, 0xf4f8fafcu, magnitude), select);
  second = permute(permute(0x03020100u, 0x0c080604u, magnitude >> 16),
                   permute(0xfdfeff00u, 0xf4f8fafcu, magnitude >> 16), select >> 16);
}

/* Four times the dot product of a block. The sum starts at the bits of 1.5 x 2^23, so that read as a float it is that
 * plus the sum. */
DEVICE float dot_of_block(uint32_t first, uint32_t second, const uint32_t *vector, const tables &t) {
  const uint32_t opposite_first = first ^ 0x88888888u, opposite_second = second ^ 0x88888888u;
  int above = (int)t.float_bias, below = 0;
  above = __dp4a((int)permute(t.low, t.high, first), (int)vector[0], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_first), (int)vector[0], below);
  above = __dp4a((int)permute(t.low, t.high, first >> 16), (int)vector[1], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_first >> 16), (int)vector[1], below);
  above = __dp4a((int)permute(t.low, t.high, second), (int)vector[2], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_second), (int)vector[2], below);
  above = __dp4a((int)permute(t.low, t.high, second >> 16), (int)vector[3], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_second >> 16), (int)vector[3], below);
  return __int_as_float(above - below) - 12582912.0f;
}

/* The lanes' parts of one vector, of 1024 elements a slice, as loaded; beyond the end zeros. `element` is the first of
 * this lane, which has 32 of a slice. */
enum { INTEGER_SLICE = 1024 };
template <int Slices> struct raw_integers {
  words codes[Slices];
  uint32_t scales[Slices];
};

template <int Slices> DEVICE void load_integers(const gemv_parameters &p, uint32_t element, raw_integers<Slices> &raw) {
  unrolled_for (int s = 0; s < Slices; s++) {
    const uint32_t at = element + INTEGER_SLICE * s;
    raw.codes[s] = words(), raw.scales[s] = 0;
    if (at >= p.k) continue;
    raw.codes[s] = load_vector(vector_from(p, 0, at / 32));
    raw.scales[s] = load_vector_scales(vector_scales_from(p, 0, at / 16));
  }
}

/* The same as bytes of twice the value. */
template <int Slices> struct integers {
  uint32_t bytes[Slices][8];
  __half2 scales[Slices]; /* a quarter: dot products are four times */
};

template <int Slices> DEVICE void convert_integers(const raw_integers<Slices> &raw, integers<Slices> &out) {
  unrolled_for (int s = 0; s < Slices; s++) {
    unrolled_for (int i = 0; i < 4; i++)
      decode_vector_word(raw.codes[s].word[i], out.bytes[s][2 * i], out.bytes[s][2 * i + 1]);
    out.scales[s] = __hmul2(half2_of_e4m3(raw.scales[s]), half2_of(0x34003400u));
  }
}

/* This lane's share of a row times the vector. */
template <int Slices>
DEVICE float dot_of_row(const words (&weights)[Slices], const uint32_t (&scales)[Slices],
                        const integers<Slices> &vector, const tables &t) {
  float even = 0, odd = 0;
  unrolled_for (int s = 0; s < Slices; s++) {
    /* Exact in f16: at most 8 bits, a multiple of 2^-20, at most 50176. */
    const __half2 product = __hmul2(half2_of_e4m3(scales[s]), vector.scales[s]);
    const uint32_t *word = weights[s].word;
    even = __fmaf_rn(dot_of_block(word[0], word[1], vector.bytes[s], t), __low2float(product), even);
    odd = __fmaf_rn(dot_of_block(word[2], word[3], vector.bytes[s] + 4, t), __high2float(product), odd);
  }
  return even + odd;
}
