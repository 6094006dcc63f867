/* await_bell.cu - the kernel of one thread that stands before each replay in a resident graph, and waits until the host
 * rings or takes the graph off the device (runtime/doorbell.h).
 *
 * The kernels of the replay follow it, whatever it finds. So when the graph ends, it turns those of its replay and of
 * all later ones in the loop's body into kernels that do nothing; before the loop they are turned on again. The driver
 * itself has the code of cudaGraphSetConditional and cudaGraphKernelNodeSetEnabled, so nothing is linked to this file.
 */
#include "await_bell.h"
#include "launch.cuh"

/* Both words in one trip over the bus, which takes a microsecond. */
DEVICE void load_doorbell(const doorbell *bell, uint64_t &word, uint64_t &beat) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(word), "=l"(beat) : "l"(bell) : "memory");
}

DEVICE uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* True: a replay begins. False: the graph ends, since its turn is over or the host's beat stopped. */
DEVICE bool wait_for_ring(const doorbell *bell, uint64_t obeyed) {
  uint64_t word, beat, last_beat, last_ns = now_ns();
  load_doorbell(bell, word, last_beat);
  for (;;) {
    const uint32_t later = (uint32_t)((word - obeyed) >> DOORBELL_TURN_SHIFT) & 0xffff; /* 1: its own turn */
    if ((word - obeyed) & (doorbell_turn - 1) && later <= 2) break;
    if (later != 1) return false;
    load_doorbell(bell, word, beat);
    const uint64_t ns = now_ns();
    if (beat != last_beat) last_ns = ns;
    last_beat = beat;
    if (ns - last_ns > doorbell_patience_ns) return false;
  }
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  let_successors_start();
  return true;
}

/* The last `count` nodes. */
DEVICE void enable(const doorbell_parameters &p, uint32_t node_count, uint32_t count, bool on) {
  for (uint32_t i = node_count - count; i < node_count; i++)
    cudaGraphKernelNodeSetEnabled(reinterpret_cast<cudaGraphDeviceNode_t>(p.nodes[i]), on);
  __threadfence();
}

DEVICE void begin_turn(const doorbell_parameters &p) {
  enable(p, (uint32_t)p.bell->node_count, p.state->off_count, true);
  p.state->off_count = 0;
  p.state->has_left = 0;
}

/* The last statement, as publish in launch.cuh. The host learns of a graph that has ended. */
DEVICE void publish(const doorbell_parameters &p, bool ends) {
  if (!ends) return;
  const uint64_t obeyed = p.state->obeyed + 2 * doorbell_turn;
  const uint32_t node_count = (uint32_t)p.bell->node_count;
  enable(p, node_count, node_count - p.first, false);
  p.state->obeyed = obeyed;
  p.state->off_count = node_count - p.first;
  p.state->has_left = 1;
  cudaGraphSetConditional(p.loop, 0);
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&p.bell->left), "l"(obeyed) : "memory");
}

/* The replay's kernels may start once the bell has rung, not before: they may fetch inputs early. */
#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    only_wait_for_predecessors();                                                                                      \
    if (p.is_before_loop) begin_turn(p);                                                                               \
    const bool has_left = p.is_before_loop || p.state->has_left;                                                       \
    const uint64_t obeyed = p.state->obeyed;                                                                           \
    const bool rings = !has_left && wait_for_ring(p.bell, obeyed);                                                     \
    if (rings) p.state->obeyed = obeyed + 1;                                                                           \
    publish(p, !has_left && !rings);                                                                                   \
  }
AWAIT_BELL_KERNELS(DEFINE)
