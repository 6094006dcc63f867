/* gemm_wgmma_few_rows.cu - compiles kernels of gemm_wgmma.cuh. */
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#include "gemm_wgmma.cuh"

GEMM_WGMMA_FEW_ROWS_KERNELS(DEFINE_GEMM)

#endif
