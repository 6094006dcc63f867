/* decoder_copy.cuh - asynchronous copies of settled operands to shared memory, before the wait (EARLY in launch.cuh).
 * Whole lines go to the L2 cache. */
#ifndef RONDO_DECODER_COPY_CUH
#define RONDO_DECODER_COPY_CUH

#include "../common/launch.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void copy_early_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" EARLY ::"r"(to), "l"(from) : "memory");
}
/* To the L2 cache alone: multiples of 16 bytes. */
__device__ __forceinline__ void prefetch_early(const void *from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" EARLY ::"l"(from), "r"(bytes) : "memory");
}
template <int Bytes> __device__ __forceinline__ void copy_early(uint32_t to, const void *from) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" EARLY ::"r"(to), "l"(from), "n"(Bytes) : "memory");
}

#endif
#endif
