/* least_squares_f64.cu - least squares of small matrices and panels of f64 in registers. See least_squares_f32.cu. */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F64_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
