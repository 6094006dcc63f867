/* rectangle.cuh - the indices of a row of a rectangle, and the vectors that copies move. A rectangle has rows along its
 * last dimension and `Outer` other dimensions, the outermost first. */
#pragma once

#include "device_code.cuh"
#include <stdint.h>

/* Calls take(i, index) with the index of row number `row` in each dimension i that has more than one element. */
template <int Outer, typename Take>
DEVICE void row_indices(uint32_t row, const uint32_t (&extent)[Outer], const Take &take) {
  unrolled_for (int i = Outer - 1; i >= 0; i--) {
    if (extent[i] == 1) continue;
    uint32_t outer = row / extent[i];
    take(i, row - outer * extent[i]);
    row = outer;
  }
}

/* The offsets of one vector in src and in dst, in vectors; a vector with a negative dst is dropped. */
struct vector_offsets {
  int64_t src, dst;
};

/* Consecutive threads take consecutive vectors. A thread has `Unroll` loads in flight before its first store. */
template <typename V, uint32_t Unroll, typename Parameters, typename OffsetsOf>
DEVICE void move_vectors_of(const Parameters &p, const OffsetsOf &offsets_of) {
  const uint32_t step = gridDim.x * blockDim.x;
  for (uint32_t begin = blockIdx.x * blockDim.x + threadIdx.x; begin < p.total; begin += Unroll * step) {
    V value[Unroll];
    int64_t to[Unroll];
    unrolled_for (uint32_t u = 0; u < Unroll; u++) {
      const uint32_t index = begin + u * step;
      to[u] = -1;
      if (index >= p.total) continue;
      const vector_offsets at = offsets_of(index);
      to[u] = at.dst;
      value[u] = ((const V *)p.src)[at.src];
    }
    unrolled_for (uint32_t u = 0; u < Unroll; u++)
      if (to[u] >= 0) ((V *)p.dst)[to[u]] = value[u];
  }
}

/* Moves p.total vectors of p.vector_bytes, which are 16, 8, 4, 2 or 1, from p.src to p.dst. */
template <uint32_t Unroll, typename Parameters, typename OffsetsOf>
DEVICE void move_vectors(const Parameters &p, const OffsetsOf &offsets_of) {
  switch (p.vector_bytes) {
  case 16:
    return move_vectors_of<uint4, Unroll>(p, offsets_of);
  case 8:
    return move_vectors_of<uint2, Unroll>(p, offsets_of);
  case 4:
    return move_vectors_of<uint32_t, Unroll>(p, offsets_of);
  case 2:
    return move_vectors_of<uint16_t, Unroll>(p, offsets_of);
  default:
    return move_vectors_of<uint8_t, Unroll>(p, offsets_of);
  }
}
