/* least_squares_f32.cu - least squares of small matrices and panels of f32 in registers, in any layout
 * (least_squares_tile.cuh). README.md has the times. */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F32_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
