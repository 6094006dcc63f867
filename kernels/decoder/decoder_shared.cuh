/* decoder_shared.cuh - what the kernels of a layer's gated half have in common, beside what they send and copy as its
 * attention half does. */
#ifndef RONDO_DECODER_SHARED_CUH
#define RONDO_DECODER_SHARED_CUH

#include "../common/barrier.cuh"
#include "../common/launch.cuh"
#include "../gemv/gemv_operands.cuh"
#include "decoder_copy.cuh"
#include "decoder_send.cuh"
#include "decoder_words.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ words load_words(uint32_t from) {
  words v;
  load_four_words(from, v.word);
  return v;
}

#endif
#endif
