/* least_squares_f32.cu - least squares of small matrices and panels of f32 in registers, in any layout. Bound as H and
 * tau are (qr_tile_f32.cu): by the chain of steps. Times are in README.md. */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F32_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
