/* launch.cuh - where a kernel meets the rest of its graph: its first statement and its last. */
#ifndef RONDO_LAUNCH_CUH
#define RONDO_LAUNCH_CUH

#include "../../runtime/completion.h"

/* The first statement of every kernel that does not fetch early, on every path of every thread. An edge between two of
 * Rondo's kernels is programmatic on chips that have it (PTX ISA, griddepcontrol): the successor's blocks may start
 * while this kernel still runs, so that launching costs them nothing, and wait here until it has ended and its writes
 * can be seen. Because each kernel waits, "before" holds along chains too. build/check-waits keeps the rule. */
__device__ __forceinline__ void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Without letting successors start: they start when all blocks have done so, or ended. Those that start early take what
 * multiprocessors are free, and clusters among them are then spread unevenly over the chip, which costs a fourth of the
 * bandwidth for as long as they run (H200, attention of one item with 8192 KV rows: 15.1 us against 11.2). */
__device__ __forceinline__ void only_wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A kernel of DEFINE_EARLY_KERNEL calls wait_for_predecessors() itself, in one place that every path of every thread
 * comes by. Before it may stand arithmetic, shared memory and barriers, and fetches of what is settled (op.h): loads
 * through the read-only path, and asynchronous copies to shared memory or the L2 cache. Each of these says so:
 *
 *   asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" EARLY : "=r"(..) ..);
 *
 * Whatever else the compiler moves before the wait has no such mark, and build/check-waits refuses it. */
#define EARLY " // early"

/* Between early loads and the wait: `words` is made of all that they load. ptxas moves loads of the read-only path to
 * their uses, behind the wait, and then nothing is gained (measured, and refused by build/check-waits). It does not
 * across this branch, which uses them and is never taken: `never` is a parameter, and 0. */
__device__ __forceinline__ void keep_early(uint32_t never, uint32_t words) {
  if (never) asm volatile("nanosleep.u32 %0;" ::"r"(words));
}

/* Once in a kernel that fetches early: its first statement, or behind the wait where successors are to start later. */
__device__ __forceinline__ void let_successors_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* How many replays this block has ended; of use to thread 0. */
__device__ __forceinline__ uint64_t replay_count(const completion &done) {
  return done.words && threadIdx.x == 0 ? done.counts[blockIdx.x] : 0;
}

/* The last statement of every kernel, on every path of every thread: a replay whose blocks do not all arrive here never
 * ends. Each block publishes in a word of its own, so that none waits for another. The barrier orders the writes of all
 * its threads before the release, which passes them on, those to pinned memory too, to the host that acquires the word
 * (PTX ISA, memory consistency model, causality order). Blocks and the grids that publish have one dimension. */
__device__ __forceinline__ void publish(const completion &done, uint64_t count) {
  if (!done.words) return;
  __syncthreads();
  if (threadIdx.x) return;
  uint64_t number;
  /* Volatile, because the compiler puts a plain addition right behind the load of the count, long before the barrier,
   * and there the block waits for it. */
  asm volatile("add.u64 %0, %1, 1;" : "=l"(number) : "l"(count));
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(done.words + blockIdx.x), "l"(number) : "memory");
  done.counts[blockIdx.x] = number;
}

/* The same for kernels that have no registers to hold the count in: read here, its latency hides behind the barrier
 * only. */
__device__ __forceinline__ void publish(const completion &done) { publish(done, replay_count(done)); }

/* For a list of kernels (launch.h): one that keeps both rules. `threads` is the most of a block, `blocks` how many of
 * them a multiprocessor must hold at least (0: ptxas may choose), and what is behind is called with the parameters. */
#define DEFINE_KERNEL(chips, parameters, name, threads, blocks, ...)                                                   \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    wait_for_predecessors();                                                                                           \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done);                                                                                                   \
  }

/* The same for kernels that fetch what is settled before they wait, and wait themselves. */
#define DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, ...)                                             \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    let_successors_start();                                                                                            \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done);                                                                                                   \
  }

/* The same for kernels that are short and have registers to hold the count in. */
#define DEFINE_SHORT_KERNEL(chips, parameters, name, threads, ...)                                                     \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    const uint64_t count = replay_count(p.done);                                                                       \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done, count);                                                                                            \
  }

#endif
