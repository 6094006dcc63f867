/* tensor_copy.cuh - bulk tensor copies, and the barriers and cluster operations that they need, sm_90 (PTX ISA,
 * cp.async.bulk.tensor, mbarrier and barrier.cluster). Each function wraps one instruction. uint32_t addresses are of
 * shared memory. */
#pragma once

#include <stdint.h>

#include "barrier.cuh"
#include "cluster.cuh"
#include "device_code.cuh"

/* ---- Barriers for a part of a block's warps ---------------------------------------------------------------------- */

DEVICE void warps_meet(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
DEVICE void warps_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/* The warps of a warpgroup meet at one of the block's numbered barriers. Returns 1 if `here` is true in any of their
 * threads. */
DEVICE uint32_t warpgroup_any(uint32_t barrier, bool here) {
  uint32_t any;
  asm volatile("{\n.reg .pred here, any;\nsetp.ne.u32 here, %1, 0;\n"
               "barrier.cta.red.or.aligned.pred any, %2, 128, here;\nselp.u32 %0, 1, 0, any;\n}"
               : "=r"(any)
               : "r"((uint32_t)here), "r"(barrier)
               : "memory");
  return any;
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

DEVICE void tensor_prefetch(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/* Copies a box of the tensor. Its first element has these coordinates, the innermost first. */
DEVICE void tensor_copy(uint32_t to, const void *map, int c0, int c1, int c2, int c3, int c4, uint32_t barrier,
                        uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
               "{%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "l"(policy)
               : "memory");
}
/* The same to all blocks of the cluster in the mask `blocks`. In each of them the box has the same address, and the
 * barrier at the same address counts the bytes. */
DEVICE void tensor_copy_to(uint16_t blocks, uint32_t to, const void *map, int c0, int c1, int c2, int c3, int c4,
                           uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "h"(blocks), "l"(policy)
               : "memory");
}
/* The same two functions for a tensor of four dimensions. */
DEVICE void tensor_copy(uint32_t to, const void *map, int c0, int c1, int c2, int c3, uint32_t barrier,
                        uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
               "{%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier), "l"(policy)
               : "memory");
}
DEVICE void tensor_copy_to(uint16_t blocks, uint32_t to, const void *map, int c0, int c1, int c2, int c3,
                           uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier), "h"(blocks), "l"(policy)
               : "memory");
}
/* The same two functions for a tensor of three dimensions. */
DEVICE void tensor_copy(uint32_t to, const void *map, int c0, int c1, int c2, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
               "{%2, %3, %4}], [%5], %6;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier), "l"(policy)
               : "memory");
}
DEVICE void tensor_copy_to(uint16_t blocks, uint32_t to, const void *map, int c0, int c1, int c2, uint32_t barrier,
                           uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to),
               "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier), "h"(blocks), "l"(policy)
               : "memory");
}
/* Copies a box from shared memory to a tensor of three dimensions. Elements outside the tensor are dropped. */
DEVICE void tensor_store(const void *map, int c0, int c1, int c2, uint32_t from, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;" ::"l"(map),
      "r"(c0), "r"(c1), "r"(c2), "r"(from), "l"(policy)
      : "memory");
}
DEVICE void tensor_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* Waits until at most `Pending` of this thread's newest groups of stores still read shared memory. */
template <int Pending> DEVICE void tensor_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
/* Waits until all of this thread's stores have been written. */
DEVICE void tensor_store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/* Makes this thread's writes to shared memory visible to later products and bulk copies. */
DEVICE void writes_reach_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE uint64_t read_once_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
DEVICE uint64_t read_often_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* ---- Clusters (see also cluster.cuh and send.cuh) ---------------------------------------------------------------- */

DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/* Arrives at a barrier of another block. Without .release.cluster, which would add a fence of all memory: the products
 * that read the stage have ended, and so the other block's copies may overwrite it. */
DEVICE void barrier_arrive_there(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void or_there(uint32_t address, uint32_t bits) {
  asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
}
/* Stores one number in another block. It is visible there after meet_cluster. */
DEVICE void store_there(uint32_t address, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
