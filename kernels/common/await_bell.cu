/* await_bell.cu - the kernel of one warp that stands before each replay in a resident graph, and waits until the host
 * rings or takes the graph off the device (runtime/doorbell.h).
 *
 * The kernels of the replay follow it, whatever it finds. So when the graph ends, it turns those of its replay and of
 * all later ones in the loop's body into kernels that do nothing; before the loop they are turned on again. The driver
 * itself has the code of cudaGraphSetConditional and cudaGraphKernelNodeSetEnabled, so nothing is linked to this file.
 */
#include "await_bell.h"
#include "launch.cuh"

/* Both words in one trip over the bus, which takes a microsecond. What the host wrote before the word is visible. */
DEVICE void load_doorbell(const doorbell *bell, uint64_t &word, uint64_t &beat) {
  asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(word), "=l"(beat) : "l"(bell) : "memory");
}

DEVICE uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* 1: the bell's own turn. */
DEVICE uint32_t turns_since(uint64_t obeyed, uint64_t word) {
  return (uint32_t)((word - obeyed) >> DOORBELL_TURN_SHIFT) & 0xffff;
}

DEVICE bool is_rung(uint64_t obeyed, uint64_t word) {
  return (word - obeyed) & (doorbell_turn - 1) && turns_since(obeyed, word) <= 2;
}

DEVICE void set_leaving(doorbell *bell, uint64_t word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(&bell->leaving), "l"(word) : "memory");
}

/* The host may ring at the same time (doorbell_is_leaving). */
DEVICE bool is_rung_after_all(doorbell *bell, uint64_t obeyed) {
  uint64_t word, beat;
  set_leaving(bell, obeyed + doorbell_turn);
  asm volatile("fence.sc.sys;" ::: "memory");
  load_doorbell(bell, word, beat);
  if (!is_rung(obeyed, word)) return false;
  set_leaving(bell, 0);
  return true;
}

/* Of one thread. True: a replay begins. False: the graph ends, since its turn is over or the host's beat stopped. */
DEVICE bool wait_for_ring(doorbell *bell, uint64_t obeyed) {
  uint64_t word, beat, last_beat = 0, last_ns = now_ns();
  for (;;) {
    load_doorbell(bell, word, beat);
    const uint64_t ns = now_ns();
    if (is_rung(obeyed, word)) return true;
    if (turns_since(obeyed, word) != 1) return false;
    if (beat != last_beat) last_ns = ns;
    last_beat = beat;
    if (ns - last_ns > doorbell_patience_ns) return is_rung_after_all(bell, obeyed);
  }
}

/* The last `count` nodes, each by another thread. */
DEVICE void enable(const doorbell_parameters &p, uint32_t count, bool on) {
  const uint32_t node_count = (uint32_t)p.bell->node_count;
  for (uint32_t i = node_count - count + threadIdx.x; i < node_count; i += blockDim.x)
    cudaGraphKernelNodeSetEnabled(reinterpret_cast<cudaGraphDeviceNode_t>(p.nodes[i]), on);
  __threadfence();
  __syncthreads();
}

DEVICE void begin_turn(const doorbell_parameters &p) {
  enable(p, p.state->off_count, true);
  if (threadIdx.x) return;
  p.state->off_count = 0;
  p.state->has_left = 0;
  set_leaving(p.bell, 0);
}

/* The replay is counted before the ring, since the bell's last write should not delay the first kernel. The replay's
 * kernels may start once the bell has rung, not before: they may fetch inputs early. */
DEVICE bool await(const doorbell_parameters &p, uint64_t obeyed) {
  bool rings = false;
  if (threadIdx.x == 0) {
    p.state->obeyed = obeyed + 1;
    rings = wait_for_ring(p.bell, obeyed);
  }
  rings = __syncthreads_or(rings);
  if (rings) let_successors_start();
  return rings;
}

/* True: the graph ends. */
DEVICE bool run(const doorbell_parameters &p, uint64_t obeyed) {
  if (p.is_before_loop) begin_turn(p);
  return !p.is_before_loop && !p.state->has_left && !await(p, obeyed);
}

/* The last statement, as publish in launch.cuh. The host learns of a graph that has ended. */
DEVICE void publish(const doorbell_parameters &p, uint64_t obeyed, bool ends) {
  if (!ends) return;
  const uint32_t count = (uint32_t)p.bell->node_count - p.first;
  enable(p, count, false);
  if (threadIdx.x) return;
  obeyed += 2 * doorbell_turn;
  p.state->obeyed = obeyed;
  p.state->off_count = count;
  p.state->has_left = 1;
  cudaGraphSetConditional(p.loop, 0);
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&p.bell->left), "l"(obeyed) : "memory");
}

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    only_wait_for_predecessors();                                                                                      \
    const uint64_t obeyed = p.state->obeyed;                                                                           \
    const bool ends = run(p, obeyed);                                                                                  \
    publish(p, obeyed, ends);                                                                                          \
  }
AWAIT_BELL_KERNELS(DEFINE)
