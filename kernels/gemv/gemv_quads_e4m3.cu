/* gemv_quads_e4m3.cu - the kernels of gemv_quads.cuh for weights in e4m3. */
#include "gemv_quads.cuh"

GEMV_QUADS_E4M3_KERNELS(DEFINE_QUADS_KERNEL)
#if __CUDA_ARCH__ >= 900
GEMV_NEWER_E4M3_KERNELS(DEFINE_QUADS_KERNEL)
GEMV_CLUSTERS_E4M3_KERNELS(DEFINE_QUADS_CLUSTER)
#endif
