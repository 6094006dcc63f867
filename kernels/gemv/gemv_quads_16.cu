/* gemv_quads_16.cu - the kernels of gemv_quads.cuh for weights in f16 and bf16. */
#include "gemv_quads.cuh"

GEMV_QUADS_16_KERNELS(DEFINE_QUADS_KERNEL)
GEMV_ROWS_16_KERNELS(DEFINE_ROWS_KERNEL)

#if __CUDA_ARCH__ >= 900
GEMV_CLUSTERS_16_KERNELS(DEFINE_QUADS_CLUSTER)
#endif
