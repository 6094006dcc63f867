/* gemv_stream_nvfp4.cu - the kernels of gemv_stream.cuh for vectors in NVFP4. */
#include "gemv_stream.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
GEMV_STREAM(DEFINE_STREAM_KERNEL, rondo_gemv_stream_nvfp4, RONDO_NVFP4)
#endif
