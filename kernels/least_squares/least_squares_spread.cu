/* least_squares_spread.cu - least squares with one right-hand side in the tiles of 1024 rows. */
#include "least_squares_spread.cuh"

LEAST_SQUARES_SPREAD_F32_KERNELS(DEFINE_LEAST_SQUARES_SPREAD_KERNEL)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000
LEAST_SQUARES_SPREAD_F64_KERNELS(DEFINE_LEAST_SQUARES_SPREAD_KERNEL)
#endif
