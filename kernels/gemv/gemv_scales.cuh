/* gemv_scales.cuh - the place of a row's scale factors in NVFP4. */
#pragma once

#include "../common/device_code.cuh"
#include "gemv.h"

/* Where the scales of a row begin, and from there those of a multiple of four blocks of 16 elements: both layouts of
 * rondo_scale_layout by one formula. Up to a multiple of 32 rows lie strides.row apart. */
DEVICE uint32_t scales_of_row(const gemv_scale_strides &strides, uint32_t row) {
  return row * strides.row + row / 32 * strides.more_32 + row / 128 * strides.more_128;
}
DEVICE uint32_t offset_of_scale(uint32_t four, uint32_t block) { return block / 4 * four + block % 4; }
