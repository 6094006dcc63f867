/* cluster.cuh - the blocks of a cluster meet, and write into each other's shared memory (PTX ISA, mapa and
 * barrier.cluster). A block may touch another's only once that has begun and until it ends: kernels meet before the
 * first time and behind the last. */
#ifndef RONDO_CLUSTER_CUH
#define RONDO_CLUSTER_CUH

#include <stdint.h>

__device__ __forceinline__ void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The same in two steps, for where there is something else to do. */
__device__ __forceinline__ void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The place in block `rank` of the cluster that is `address` in this one; both are in shared memory. */
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, uint32_t rank) {
  uint32_t there = address;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}

__device__ __forceinline__ uint32_t load_from_block(uint32_t there) {
  uint32_t value = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
#endif
  return value;
}

__device__ __forceinline__ uint32_t add_in_block(uint32_t there, uint32_t value) {
  uint32_t before = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(there), "r"(value) : "memory");
#endif
  return before;
}

__device__ __forceinline__ void store_in_block(uint32_t there, uint64_t value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");
#endif
}

#endif
