/* gemv_stream_16.cu - the kernels of gemv_stream.cuh for vectors in f16 and bf16. */
#include "gemv_stream.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
GEMV_STREAM_16_KERNELS(DEFINE_STREAM_KERNEL)
#endif
