/* decoder_shared.cuh - shared by the kernels of the feed forward half; send.cuh and decoder_copy.cuh are shared
 * with attention. */
#ifndef RONDO_DECODER_SHARED_CUH
#define RONDO_DECODER_SHARED_CUH

#include "../common/barrier.cuh"
#include "../common/launch.cuh"
#include "../gemv/gemv_operands.cuh"
#include "decoder_copy.cuh"
#include "../common/send.cuh"
#include "../common/shared_words.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ words load_words(uint32_t from) {
  words v;
  load_four_words(from, v.word);
  return v;
}

#endif
#endif
