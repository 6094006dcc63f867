/* gemm_wgmma_e4m3.cu - compiles kernels of gemm_wgmma.cuh for X and W in e4m3. */
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#include "gemm_wgmma.cuh"

GEMM_E4M3_KERNELS(DEFINE_GEMM)

#endif
