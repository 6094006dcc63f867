/* await_bell.cu - the kernel of one warp that stands before each replay in a resident graph, and waits until the host
 * rings or takes the graph off the device (runtime/doorbell.h).
 *
 * The kernels of the replay follow it, whatever it finds. So when the graph ends, it turns those of its replay and of
 * all later ones in the loop's body into kernels that do nothing; before the loop they are turned on again. The driver
 * itself has the code of cudaGraphSetConditional and cudaGraphKernelNodeSetEnabled, so nothing is linked to this file.
 */
#include "await_bell.h"
#include "launch.cuh"
#include "ptx.cuh"

/* Both words in one trip over the bus, which takes a microsecond. What the host wrote before the word is visible. */
DEVICE void load_doorbell(const doorbell *bell, uint64_t &word, uint64_t &beat) {
  asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(word), "=l"(beat) : "l"(bell) : "memory");
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
  uint64_t word, beat, last_beat = 0, last_ns = nanoseconds();
  for (;;) {
    load_doorbell(bell, word, beat);
    const uint64_t ns = nanoseconds();
    if (is_rung(obeyed, word)) return true;
    if (turns_since(obeyed, word) != 1) return false;
    if (beat != last_beat) last_ns = ns;
    last_beat = beat;
    if (ns - last_ns > doorbell_patience_ns) return is_rung_after_all(bell, obeyed);
  }
}

/* Of the state, in one load. */
struct known {
  uint64_t obeyed;
  uint32_t has_left, has_heard;
};
static_assert(offsetof(doorbell_state, has_left) == 8 && offsetof(doorbell_state, has_heard) == 12, "load_known");

DEVICE known load_known(const doorbell_state *state) {
  known known;
  uint64_t words;
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(known.obeyed), "=l"(words) : "l"(state) : "memory");
  known.has_left = (uint32_t)words, known.has_heard = (uint32_t)(words >> 32);
  return known;
}

/* The nodes from p.first on, or all, a part of them in each thread. They are asked for before they are needed, since a
 * trip over the bus takes a microsecond. */
enum { NODES = DOORBELL_NODES / AWAIT_BELL_THREADS };
struct nodes {
  uint64_t handles[NODES], count;
};

DEVICE uint64_t load_pinned(const uint64_t *from) {
  uint64_t word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

DEVICE uint32_t node_of(const doorbell_parameters &p, uint32_t i) {
  return (p.is_before_loop ? 0 : p.first) + i * AWAIT_BELL_THREADS + threadIdx.x;
}

DEVICE void load_nodes(const doorbell_parameters &p, nodes &nodes) {
  nodes.count = load_pinned(&p.bell->node_count);
  unrolled_for (uint32_t i = 0; i < NODES; i++)
    nodes.handles[i] = node_of(p, i) < DOORBELL_NODES ? load_pinned(p.nodes + node_of(p, i)) : 0;
}

DEVICE void enable(const doorbell_parameters &p, const nodes &nodes, uint32_t count, bool on) {
  unrolled_for (uint32_t i = 0; i < NODES; i++)
    if (node_of(p, i) < nodes.count && node_of(p, i) + count >= nodes.count)
      cudaGraphKernelNodeSetEnabled(reinterpret_cast<cudaGraphDeviceNode_t>(nodes.handles[i]), on);
  __threadfence();
  __syncthreads();
}

/* The host has rung before it launched the graph, unless it takes the graph off already. */
DEVICE void begin_turn(const doorbell_parameters &p, nodes &nodes, uint64_t obeyed) {
  const uint32_t off_count = p.state->off_count;
  uint64_t word, beat;
  load_doorbell(p.bell, word, beat);
  load_nodes(p, nodes);
  enable(p, nodes, off_count, true);
  if (threadIdx.x) return;
  p.state->off_count = 0;
  p.state->has_left = 0;
  p.state->has_heard = is_rung(obeyed, word);
  set_leaving(p.bell, 0);
}

/* The replay is counted before the ring, since the bell's last write should not delay the first kernel. The replay's
 * kernels may start once the bell has rung, not before: they may fetch inputs early. */
DEVICE bool await(const doorbell_parameters &p, nodes &nodes, const known &known) {
  bool rings = false;
  if (threadIdx.x == 0) {
    uint64_t word, beat;
    p.state->obeyed = known.obeyed + 1;
    if (known.has_heard)
      p.state->has_heard = 0;
    else
      load_doorbell(p.bell, word, beat);
    rings = known.has_heard || is_rung(known.obeyed, word);
  }
  rings = __syncthreads_or(rings);
  if (!rings) {
    load_nodes(p, nodes); /* while there is time */
    rings = __syncthreads_or(threadIdx.x == 0 && wait_for_ring(p.bell, known.obeyed));
  }
  if (rings) let_successors_start();
  return rings;
}

/* True: the graph ends. */
DEVICE bool run(const doorbell_parameters &p, nodes &nodes, const known &known) {
  if (p.is_before_loop) begin_turn(p, nodes, known.obeyed);
  return !p.is_before_loop && !known.has_left && !await(p, nodes, known);
}

/* The last statement, as publish in launch.cuh. The host learns of a graph that has ended. */
DEVICE void publish(const doorbell_parameters &p, const nodes &nodes, uint64_t obeyed, bool ends) {
  if (!ends) return;
  const uint32_t count = (uint32_t)nodes.count - p.first;
  enable(p, nodes, count, false);
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
    nodes nodes;                                                                                                       \
    const known known = load_known(p.state);                                                                           \
    const bool ends = run(p, nodes, known);                                                                            \
    publish(p, nodes, known.obeyed, ends);                                                                             \
  }
AWAIT_BELL_KERNELS(DEFINE)
