/* gemv_dot.cuh - exact integer dot products of the 16 NVFP4 elements that share a scale.
 *
 * Twice an e2m1 value is an integer of at most 12, so a block is a dot product of bytes (dp4a), and its sum, at most
 * 2304, exact; scales are multiplied in once a block. */
#ifndef RONDO_GEMV_DOT_CUH
#define RONDO_GEMV_DOT_CUH

#include "gemv_formats.cuh"

/* A constant in a register that the compiler cannot see through: it rematerialises a plain one before each use by an
 * instruction that takes no immediate there, which prmt is with two constants. */
__device__ __forceinline__ uint32_t opaque(uint32_t constant) {
  return __shfl_sync(0xffffffffu, threadIdx.x % 32 == 0 ? constant : 0, 0);
}

/* Twice the magnitudes. A set top bit in prmt's selector copies the looked-up byte's sign instead, 0: codes with the
 * sign bit give 0, those with it inverted the rest, so that w x = P x - N x without masks. */
struct tables {
  uint32_t low, high, float_bias;
};
__device__ __forceinline__ tables load_tables() { return {opaque(0x03020100u), 0x0c080604u, opaque(0x4b400000u)}; }

/* Eight codes as bytes of twice the value, in order. */
__device__ __forceinline__ void decode_vector_word(uint32_t codes, uint32_t &first, uint32_t &second) {
  const uint32_t select = 0x32103210u | ((codes & 0x88888888u) >> 1), magnitude = codes & 0x77777777u;
  first = permute(permute(0x03020100u, 0x0c080604u, magnitude), permute(0xfdfeff00u, 0xf4f8fafcu, magnitude), select);
  second = permute(permute(0x03020100u, 0x0c080604u, magnitude >> 16),
                   permute(0xfdfeff00u, 0xf4f8fafcu, magnitude >> 16), select >> 16);
}

/* Four times the dot product of a block. The sum starts at the bits of 1.5 x 2^23, so that read as a float it is that
 * plus the sum. */
__device__ __forceinline__ float dot_of_block(uint32_t first, uint32_t second, const uint32_t *vector,
                                              const tables &t) {
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

#endif
