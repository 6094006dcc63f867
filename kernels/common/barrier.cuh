/* barrier.cuh - barriers in shared memory (PTX ISA, mbarrier). Each function wraps one instruction; the waits loop. */
#pragma once

#include "device_code.cuh"
#include <stdint.h>

DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/* After this, asynchronous copies of this block, and of other blocks of the cluster, may use the initialised
 * barriers. */
DEVICE void barriers_are_initialised() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives, and adds `bytes` to the bytes that the phase expects: it ends only after their arrival. */
DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* Has the phase of this parity ended? */
DEVICE bool barrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t has;
  asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
               "selp.u32 %0, 1, 0, done;\n}"
               : "=r"(has)
               : "r"(barrier), "r"(parity)
               : "memory");
  return has;
}
/* Waits until the phase of this parity has ended. */
DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

/* The same, and the writes of other blocks of the cluster are visible afterwards. */
DEVICE void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}
