/* gemv_bulk.cuh - early bulk copies of weights to shared memory, and the choice of the lane that asks for them. */
#pragma once

#include "gemv_copies.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* What follows each other, at once (PTX ISA, cp.async.bulk): its bytes arrive at the barrier. */
DEVICE void bulk_copy(uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
               "%4;" EARLY ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

/* One lane of a warp whose lanes are all here, and always the same. Of what follows it ptxas knows that it is of
 * one lane: where it must think that lanes differ, it puts a loop over them around each copy and each barrier's init.
 */
DEVICE bool elected() {
  uint32_t is;
  __syncwarp();
  asm volatile("{.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;}" : "=r"(is));
  return is;
}

#endif
