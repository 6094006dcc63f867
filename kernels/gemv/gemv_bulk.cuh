/* gemv_bulk.cuh - early bulk copies of weights to shared memory. */
#pragma once

#include "../common/elected.cuh"
#include "gemv_copies.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* What follows each other, at once (PTX ISA, cp.async.bulk): its bytes arrive at the barrier. */
DEVICE void bulk_copy(uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
               "%4;" EARLY ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

#endif
