/* qr_tile_scaling.cuh - scaling of columns of extreme size, in the registers of a block. Squares of their numbers would
 * overflow or vanish, so kernels multiply such columns by a power of two. */
#pragma once

#include "../common/device_code.cuh"
#include "qr_tile_numbers.cuh"

/* The high word of the largest magnitude in column q of a lane's part. NaN may count or not. */
template <typename T, int P, int Q> DEVICE uint32_t largest_in_column(const T (&a)[P][Q], int q) {
  if constexpr (sizeof(T) == 4) {
    T most[2] = {};
    unrolled_for (int i = 0; i < P; i++) most[i & 1] = fmaxf(most[i & 1], fabsf(a[i][q]));
    return high_word(fmaxf(most[0], most[1]));
  } else {
    uint32_t most[2] = {}, low = 0;
    unrolled_for (int i = 0; i < P; i++) {
      most[i & 1] = max(most[i & 1], high_word(a[i][q]) & 0x7fffffffu);
      low |= (uint32_t)__double2loint(a[i][q]);
    }
    const uint32_t largest = max(most[0], most[1]);
    return largest == 0 && low ? 1 : largest; /* the smallest subnormal numbers have a low word only */
  }
}

template <typename T> DEVICE bool is_extreme(uint32_t word) {
  return word - tile_number<T>::LOW > tile_number<T>::HIGH - tile_number<T>::LOW && word;
}

/* The exponent of the power of two that divides a column with this largest magnitude. It and its inverse are normal. */
template <typename T> DEVICE int exponent_to_take(uint32_t word) {
  constexpr int BIAS = tile_number<T>::BIAS;
  return is_extreme<T>(word) ? max(1 - BIAS, min(BIAS - 1, (int)(word >> tile_number<T>::MANTISSA) - BIAS)) : 0;
}

/* Scales the extreme columns of this lane's part. It is lane `row` of the ROW_LANES that share columns, and has each
 * COLUMN_LANES-th column from `column` on. If some column of the warp is `scaled`, `unscales` gets the inverse factors
 * of all of them. A lane looks at its own part only: an extreme column has an extreme part. */
template <int ROW_LANES, int COLUMN_LANES, typename T, int P, int Q>
DEVICE void scale_extreme_columns(T (&a)[P][Q], int row, int column, T *unscales, bool &scaled) {
  uint32_t most[Q];
  bool any = false;
  unrolled_for (int q = 0; q < Q; q++) {
    most[q] = largest_in_column(a, q);
    any |= is_extreme<T>(most[q]);
  }
  scaled = __any_sync(0xffffffffu, any);
  if (!scaled) return;
  unrolled_for (int q = 0; q < Q; q++) {
    unrolled_for (int offset = 1; offset < ROW_LANES; offset *= 2)
      most[q] = max(most[q], __shfl_xor_sync(0xffffffffu, most[q], offset));
    const int exponent = exponent_to_take<T>(most[q]);
    const T scale = power_of_two<T>(-exponent);
    unrolled_for (int i = 0; i < P; i++) a[i][q] *= scale;
    if (row == 0) unscales[q * COLUMN_LANES + column] = power_of_two<T>(exponent);
  }
  __syncwarp();
}
