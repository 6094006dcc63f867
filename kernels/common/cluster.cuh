/* cluster.cuh - the barrier of a cluster, and accesses to another block's shared memory (PTX ISA, barrier.cluster and
 * mapa).
 *
 * A block may access another block's shared memory only while that block runs. A kernel therefore calls meet_cluster()
 * before the first such access and after the last. */
#pragma once

#include "device_code.cuh"
#include <stdint.h>

DEVICE void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The same in two steps, for kernels with other work between them. */
DEVICE void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
/* Without an order of writes, which waits until all that a thread has written is in memory: where nothing but barriers
 * has been written, whose initialisation has a fence of its own, or after a fence. */
DEVICE void only_arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
DEVICE void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The address in block `rank` of the cluster that corresponds to `address` in this block; both are in shared memory. */
DEVICE uint32_t address_in_block(uint32_t address, uint32_t rank) {
  uint32_t there = address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}

DEVICE uint32_t load_from_block(uint32_t there) {
  uint32_t value = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
#endif
  return value;
}

DEVICE uint32_t add_in_block(uint32_t there, uint32_t value) {
  uint32_t before = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(there), "r"(value) : "memory");
#endif
  return before;
}

DEVICE void store_in_block(uint32_t there, uint64_t value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");
#endif
}
