/* gemm_wgmma_nvfp4.cu - compiles kernels of gemm_wgmma.cuh for W in NVFP4. */
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#include "gemm_wgmma.cuh"

GEMM_NVFP4_KERNELS(DEFINE_GEMM)

#endif
