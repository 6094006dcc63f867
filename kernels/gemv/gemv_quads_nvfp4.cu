/* gemv_quads_nvfp4.cu - the kernels of gemv_quads.cuh for weights in NVFP4. */
#include "gemv_quads.cuh"

GEMV_QUADS_NVFP4_KERNELS(DEFINE_QUADS_KERNEL)
#if __CUDA_ARCH__ >= 900
GEMV_NEWER_NVFP4_KERNELS(DEFINE_QUADS_KERNEL)
#endif
