/* least_squares_sums.cuh - how the kernels that come after qr keep sums over right-hand sides in the range of numbers.
 */
#pragma once

#include "../qr/qr_device.cuh"
#include "least_squares.h"

/* A right-hand side whose largest number is this large is multiplied by 2^-TAKEN_EXPONENT: sums over it would
 * overflow. */
enum { TAKEN_EXPONENT = 32 };
template <typename T> DEVICE bool is_near_largest(T largest) { return largest > range_of<T>::largest * T(0x1p-33); }

/* Numbers up to `largest` are divided by 2^this before they are squared. 0 for zeros, infinities and NaN. */
template <typename T> DEVICE int norm_exponent(T largest) {
  return largest > T(0) && largest <= range_of<T>::largest ? exponent_of(largest) : 0;
}
