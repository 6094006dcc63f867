/* least_squares_f64.cu - least squares of small matrices and panels of f64 in registers. See least_squares_f32.cu. 88
 * to 254 registers on sm_90a, none spilled, and up to 196 KB of shared memory; 0.98 to 1.20 of the time of H and tau.
 */
#include "least_squares_tile.cuh"

LEAST_SQUARES_F64_KERNELS(DEFINE_LEAST_SQUARES_KERNEL)
