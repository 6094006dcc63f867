/* exchange_gather.h - the sum over all ranks of one vector of f32, within the kernels before and after it: layer halves
 * (kernels/decoder). Then an exchange is no task of its own, and its way over the link hides behind the end of a
 * kernel.
 *
 * A kernel stores its parts of the vector into the states of all ranks, its own too, and in its own state the vector x
 * to which the sum is added. The next kernel reads all ranks' parts in its own state. Each pair of numbers is its own
 * flag: zero says "not there yet", and +0 goes as -0. So the next kernel may read before the kernel before has ended,
 * and all parts of a rank say that this rank's kernel has passed its own wait for predecessors.
 *
 * Sums have numbers: those of earlier replays, which the counters have, and those before in the graph, which the host
 * tells. Four slots take turns by these. Kernel k, which takes sum k and gives k + 1, clears the slot of k - 1, whose
 * readers have ended. Another rank stores sum k + 3 there in its kernel k + 2, so after kernel k + 1 here has sent, so
 * after kernel k here has ended. Only the kernel that takes the last sum of a graph moves the counters on: each block
 * its own, so that none waits for another. Blocks of earlier kernels have read theirs by then, and those of the next
 * replay begin after it. */
#pragma once

#include <stdint.h>

enum {
  EXCHANGE_GATHER_NUMBERS = 2048, /* of the vector, at most */
  EXCHANGE_GATHER_PARTS = 16,     /* of a rank, at most */
  EXCHANGE_GATHER_BLOCKS = 128,   /* of the kernel, at most: each has a counter */
  EXCHANGE_GATHER_SLOTS = 4,
  EXCHANGE_GATHER_HEAD = EXCHANGE_GATHER_BLOCKS * 4,
  EXCHANGE_GATHER_VECTOR = EXCHANGE_GATHER_NUMBERS * 4,
  EXCHANGE_GATHER_SLOT = (EXCHANGE_GATHER_PARTS + 1) * EXCHANGE_GATHER_VECTOR,                /* parts, then x */
  EXCHANGE_GATHER_BYTES = EXCHANGE_GATHER_HEAD + EXCHANGE_GATHER_SLOTS * EXCHANGE_GATHER_SLOT /* of a row of a state */
};

/* What a kernel is told. The counters are in the row of this rank in its own state. */
struct exchange_gather {
  uint64_t *fault; /* runtime/fault.h */
  uint64_t fault_number, timeout_ns;
  unsigned char *here;     /* the room in row 0 of this rank's state */
  unsigned char *there[8]; /* the room of this rank in the state of rank r */
  uint32_t row_bytes;      /* from row to row of `here` */
  uint32_t rank, ranks;
  uint32_t parts;   /* of each rank in the sum that the kernel takes; 0: it takes none */
  uint32_t before;  /* sums before the one that it takes, or if it takes none, gives */
  uint32_t gives;   /* 1: its parts go to all ranks; 0: to the task's tensors */
  uint32_t settled; /* 1: the context of attention is, and may be read before the predecessors end */
};
