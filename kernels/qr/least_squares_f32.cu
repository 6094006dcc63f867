/* least_squares_f32.cu - least squares of small matrices and panels of f32 in registers, in any layout. 53 to 252
 * registers on sm_90a, none spilled, and up to 142 KB of shared memory. With one right-hand side they take 0.95 to 1.30
 * of the time of H and tau (qr_tile_f32.cu), which are bound as those are: by the chain of steps. */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F32_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
