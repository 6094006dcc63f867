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

/* How many replays are done; of use to thread 0. */
__device__ __forceinline__ uint64_t replay_count(const completion &done) {
  return done.word && threadIdx.x == 0 ? done.counter->count : 0;
}

/* The block's place among those that have arrived, from 0 on; the last one, `last`, puts the count back to zero. */
__device__ __forceinline__ uint32_t arrive(const completion &done, uint32_t last) {
  uint32_t place;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(place)
               : "l"(&done.counter->arrived), "r"(last)
               : "memory");
  return place;
}

/* The last statement of every kernel, on every path of every thread: a replay whose blocks do not all arrive here never
 * ends. The block that arrives last publishes the replay's number. The barrier and the atomic order all blocks' writes
 * before it; the release at system scope passes them on, those to pinned memory too, to the host that acquires the word
 * (PTX ISA, memory consistency model, causality order). Blocks have one dimension. */
__device__ __forceinline__ void publish(const completion &done, uint64_t count) {
  if (!done.word) return;
  __syncthreads();
  if (threadIdx.x) return;
  const uint32_t last = gridDim.x * gridDim.y * gridDim.z - 1;
  if (last && arrive(done, last) != last) return;
  uint64_t number;
  asm volatile("add.u64 %0, %1, 1;" : "=l"(number) : "l"(count)); /* volatile: or it moves up and waits for the count */
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(done.word), "l"(number) : "memory");
  done.counter->count = number;
}

/* The same for kernels that have no registers to hold the count in: read here, its latency hides behind the barrier and
 * the atomic only. */
__device__ __forceinline__ void publish(const completion &done) { publish(done, replay_count(done)); }

#endif
