/* launch.cuh - where a kernel meets the rest of its graph: its first statement and its last. */
#ifndef RONDO_LAUNCH_CUH
#define RONDO_LAUNCH_CUH

#include "completion.h"

/* The first statement of every kernel, on every path of every thread. An edge between two of Rondo's kernels is
 * programmatic on chips that have it (PTX ISA, griddepcontrol): the successor's blocks may start while this kernel
 * still runs, so that launching costs them nothing, and wait here until it has ended and its writes can be seen.
 * Because each kernel waits, "before" holds along chains too. build/check-waits keeps the rule. */
__device__ __forceinline__ void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The replay's number, read ahead of publish, so that its latency hides behind the kernel's work. */
__device__ __forceinline__ uint64_t replay_number(const completion &done) {
  return done.word && threadIdx.x == 0 ? done.counter->count + 1 : 0;
}

/* The last statement of a kernel that can be the last of a graph; by all threads. The block that finishes last
 * publishes the replay's number: fences and the atomic order the other blocks' writes before it, the release at system
 * scope passes them on, those to pinned memory too, to the host that acquires the word. */
__device__ __forceinline__ void publish(const completion &done, uint64_t number) {
  if (!done.word) return;
  __syncthreads();
  if (threadIdx.x) return;
  if (gridDim.x > 1) {
    __threadfence();
    if (atomicInc(&done.counter->arrived, gridDim.x - 1) != gridDim.x - 1) return; /* wraps to zero at the last */
    __threadfence();
  }
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(done.word), "l"(number) : "memory");
  done.counter->count = number;
}

#endif
