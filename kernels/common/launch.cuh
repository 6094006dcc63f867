/* launch.cuh - the first and the last statement of a kernel, which connect it to its graph: the wait for the
 * predecessors, and the publication of the replay's completion. */
#pragma once

#include "../../runtime/completion.h"
#include "device_code.cuh"

/* The first statement of every kernel that does not fetch early, on every path of every thread.
 *
 * An edge between two of Rondo's kernels is programmatic on chips with griddepcontrol (PTX ISA). The successor's blocks
 * may start while this kernel still runs, which hides their launch. They wait here until this kernel has ended and its
 * writes are visible. Since every kernel waits, a kernel also runs after its predecessors' predecessors.
 * build/check-waits checks this rule. */
DEVICE void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The same, but successors do not start yet. They start after all blocks have called let_successors_start() or ended.
 *
 * Blocks that start early occupy free multiprocessors. Clusters of this kernel would then be spread unevenly over the
 * chip, and would lose a fourth of the bandwidth (H200, attention of one item with 8192 KV rows: 15.1 us instead of
 * 11.2). */
DEVICE void only_wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A kernel of DEFINE_EARLY_KERNEL calls only_wait_for_predecessors() itself, in one place that every path of every
 * thread passes. Before that place it may compute, use shared memory and barriers, and fetch settled operands (op.h):
 * with loads through the read-only path, or with asynchronous copies to shared memory or the L2 cache. Each fetch
 * carries the mark EARLY:
 *
 *   asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" EARLY : "=r"(..) ..);
 *
 * An access that the compiler moved before the wait has no mark, and build/check-waits rejects it. */
#define EARLY " // early"

/* Called between early loads and the wait. `words` depends on all loaded values.
 *
 * ptxas moves loads of the read-only path down to their first use. If that use is after the wait, the loads are no
 * longer early: the gain is lost, and build/check-waits rejects the kernel. This branch uses the loaded values before
 * the wait. The program never takes it: `always_zero` is a kernel parameter, and ptxas does not know its value. */
DEVICE void keep_early(uint32_t always_zero, uint32_t words) {
  if (always_zero) asm volatile("nanosleep.u32 %0;" ::"r"(words));
}

/* Called once by a kernel that fetches early: as its first statement, or after its wait if successors should start
 * later. */
DEVICE void let_successors_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The number of replays that this block has ended, in thread 0; 0 in other threads. */
DEVICE uint64_t replay_count(const completion &done) {
  return done.words && threadIdx.x == 0 ? done.counts[blockIdx.x] : 0;
}

/* The last statement of every kernel, on every path of every thread: a replay never ends if one block does not come
 * here.
 *
 * Each block publishes in its own word, and so no block waits for another. The barrier orders the writes of all threads
 * before the release. A host that acquires the word sees these writes, including those to pinned memory (PTX ISA,
 * memory consistency model, causality order). Blocks, and grids that publish, have one dimension. */
DEVICE void publish(const completion &done, uint64_t count) {
  if (!done.words) return;
  __syncthreads();
  if (threadIdx.x) return;
  uint64_t number;
  /* Volatile, because the compiler moves a plain addition up to the load of the count, long before the barrier. The
   * block would wait for the load there. */
  asm volatile("add.u64 %0, %1, 1;" : "=l"(number) : "l"(count));
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(done.words + blockIdx.x), "l"(number) : "memory");
  done.counts[blockIdx.x] = number;
}

/* The same for kernels without free registers for the count. They load it here, and only the barrier hides the latency
 * of the load. */
DEVICE void publish(const completion &done) { publish(done, replay_count(done)); }

/* Defines a kernel that keeps both rules. `begin` is its first statement, `bounds` its launch bounds and dimensions of
 * a cluster. The last argument is the device function, which the kernel calls with its parameters. */
#define DEFINE_KERNEL_FROM(begin, bounds, parameters, name, ...)                                                       \
  extern "C" __global__ void bounds name(const __grid_constant__ parameters p) {                                       \
    begin;                                                                                                             \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done);                                                                                                   \
  }

/* The same for a list of kernels (launch.h). `threads` is the most threads of a block. `blocks` is the number of blocks
 * that a multiprocessor must be able to hold (0: ptxas may choose). */
#define DEFINE_KERNEL(chips, parameters, name, threads, blocks, ...)                                                   \
  DEFINE_KERNEL_FROM(wait_for_predecessors(), __launch_bounds__(threads, blocks), parameters, name, __VA_ARGS__)

/* The same for kernels that fetch settled operands early. The device function waits for the predecessors itself. */
#define DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, ...)                                             \
  DEFINE_KERNEL_FROM(let_successors_start(), __launch_bounds__(threads, blocks), parameters, name, __VA_ARGS__)

/* The same for kernels whose successors start as blocks end. Blocks of a successor that started early would take the
 * places of this grid's own, and the next blocks of this grid would be spread unevenly over multiprocessors (H200: x of
 * 132 of 256 x 256 in f32 190 us after H and tau, not 52). */
#define DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, ...)                                              \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    only_wait_for_predecessors();                                                                                      \
    __VA_ARGS__(p);                                                                                                    \
    let_successors_start();                                                                                            \
    publish(p.done);                                                                                                   \
  }

/* The same for kernels in clusters. `begin` is wait_for_predecessors(), only_wait_for_predecessors() or, if the device
 * function waits itself, let_successors_start() or (void)0. */
#define DEFINE_CLUSTER_KERNEL(begin, cluster, parameters, name, threads, blocks, ...)                                  \
  DEFINE_KERNEL_FROM(begin, __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, blocks), parameters, name,      \
                     __VA_ARGS__)

/* A kernel of a list that is short and has registers for the count: it loads the count at the beginning. */
#define DEFINE_SHORT_KERNEL(chips, parameters, name, threads, ...)                                                     \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    const uint64_t count = replay_count(p.done);                                                                       \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done, count);                                                                                            \
  }
