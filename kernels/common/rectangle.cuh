/* rectangle.cuh - a row of a rectangle by its number: rows along the last dimension, counted over the Outer dimensions
 * around them, outermost first. */
#ifndef RONDO_RECTANGLE_CUH
#define RONDO_RECTANGLE_CUH

#include <stdint.h>

/* Calls take(i, index) for each dimension i of more than one element: the row's index along it. */
template <int Outer, typename Take>
__device__ __forceinline__ void row_indices(uint32_t row, const uint32_t (&extent)[Outer], const Take &take) {
#pragma unroll
  for (int i = Outer - 1; i >= 0; i--) {
    if (extent[i] == 1) continue;
    uint32_t outer = row / extent[i];
    take(i, row - outer * extent[i]);
    row = outer;
  }
}

#endif
