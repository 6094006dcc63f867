/* gemm_wgmma_small.cu - compiles kernels of gemm_wgmma.cuh. */
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#include "gemm_wgmma.cuh"

GEMM_WGMMA_SMALL_KERNELS(DEFINE_GEMM)

#endif
