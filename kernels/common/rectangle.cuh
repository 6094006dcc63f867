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

/* Calls Move<V>::move(p), where V is the type of vectors of p.vector_bytes: 16, 8, 4, 2 or 1. */
template <template <typename V> typename Move, typename Parameters> DEVICE void move_vectors(const Parameters &p) {
  switch (p.vector_bytes) {
  case 16:
    return Move<uint4>::move(p);
  case 8:
    return Move<uint2>::move(p);
  case 4:
    return Move<uint32_t>::move(p);
  case 2:
    return Move<uint16_t>::move(p);
  default:
    return Move<uint8_t>::move(p);
  }
}
