/* rectangle.cuh - the indices of a row of a rectangle. A rectangle has rows along its last dimension and `Outer` other
 * dimensions, the outermost first. */
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
