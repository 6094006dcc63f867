/* least_squares_f32.cu - least squares of small matrices and panels of f32 in registers, in any layout. 54 to 244
 * registers on sm_90a, none spilled, and up to 140 KB of shared memory. With one right-hand side they take 0.96 to 1.32
 * of the time of H and tau (qr_tile_f32.cu), which are bound as those are: by the chain of steps. */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F32_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
