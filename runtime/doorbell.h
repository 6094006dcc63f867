/* doorbell.h - what the host and a resident graph tell each other, in the slot's pinned memory. The host writes the
 * word; the kernel in kernels/common/await_bell.cu obeys it.
 *
 * The word has a turn and, below it, the number of replays that were rung. An odd turn puts the graph on the device,
 * the next even one takes it off. The slot's replay before is done when a turn begins, so a graph that finds its own
 * turn, or the even one after it, and a replay that it has not begun, begins it; and else ends if its turn is over. */
#pragma once

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

enum { DOORBELL_TURN_SHIFT = 48, DOORBELL_ALIGNMENT = 16 /* of what the kernel reads in one load */ };

struct doorbell {
  alignas(DOORBELL_ALIGNMENT) uint64_t word;
  uint64_t beat;       /* changes while the host lives. If it does not, the graph ends by itself */
  uint64_t left;       /* by the device, once the graph has ended: the word after it, as far as it was obeyed */
  uint64_t node_count; /* of the kernels in the loop's body, besides the bells */
  uint64_t leaving;    /* by the device: in the word's turn it gives up, unless its next look finds a replay */
};

/* In device memory, zero at first. */
struct doorbell_state {
  alignas(DOORBELL_ALIGNMENT) uint64_t obeyed; /* the word; its turn is that of the last end */
  uint32_t has_left;                           /* what follows in the loop's body does nothing */
  uint32_t has_heard; /* the turn begins with a replay, which the kernel before the loop has heard */
  uint32_t off_count; /* of the kernels, the last ones: they do nothing until the next turn */
};

/* The most kernels in the loop's body, besides the bells. */
enum { DOORBELL_NODES = 128 };

static const uint64_t doorbell_turn = UINT64_C(1) << DOORBELL_TURN_SHIFT;

/* How long the graph waits for a beat. */
static const uint64_t doorbell_patience_ns = UINT64_C(200) * 1000 * 1000;

/* Of the kernel. In the loop's body it stands before the kernels of a replay, and once before the loop. */
struct doorbell_parameters {
  struct doorbell *bell;
  struct doorbell_state *state;
  const uint64_t *nodes; /* the handles of the kernels in the body, in pinned memory with room for DOORBELL_NODES */
  uint64_t loop;         /* the handle of the loop, which ends with 0 */
  uint32_t first;        /* of the nodes: of its replay */
  uint32_t is_before_loop;
};

/* Of the host's threads. */
static inline uint64_t doorbell_word(const struct doorbell *bell) {
  return __atomic_load_n(&bell->word, __ATOMIC_SEQ_CST);
}

static inline uint64_t doorbell_left(const struct doorbell *bell) {
  return __atomic_load_n(&bell->left, __ATOMIC_ACQUIRE);
}

/* Of a replay that was rung in this word: has the graph perhaps not heard it? It says that it gives up, and then looks
 * once more. The host rings, and then asks this. So one of the two sees the other. */
static inline bool doorbell_is_leaving(const struct doorbell *bell, uint64_t word) {
  return __atomic_load_n(&bell->leaving, __ATOMIC_SEQ_CST) >> DOORBELL_TURN_SHIFT == word >> DOORBELL_TURN_SHIFT;
}

/* False: it was not `from`, and *from says what it is. */
static inline bool doorbell_move(struct doorbell *bell, uint64_t *from, uint64_t to) {
  return __atomic_compare_exchange_n(&bell->word, from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline bool doorbell_is_on(uint64_t word) { return word >> DOORBELL_TURN_SHIFT & 1; }
