/* exchange_gather.h - the sum over all ranks of one vector of f32, as the first step of a kernel that goes on with it:
 * a layer half (kernels/decoder). Then an exchange is no task of its own.
 *
 * Each cluster of the kernel adds up its rank's terms, and the first one sends the sum to all other ranks. Each waits
 * for their sums by itself. A sum is its own flag, as in exchanges.h. Since all clusters read it, none clears it: the
 * next sum does, when the kernel of this one has ended. So three slots take turns: sum s clears the slot of s - 1, and
 * other ranks send s + 2 into it after they ended s + 1, so after this rank has sent s + 1, which it does after s
 * ended. */
#pragma once

#include <stdint.h>

enum {
  EXCHANGE_GATHER_NUMBERS = 2048, /* of the vector, at most */
  EXCHANGE_GATHER_BLOCKS = 128,   /* of the kernel, at most: each has a counter */
  EXCHANGE_GATHER_SLOTS = 3,
  EXCHANGE_GATHER_HEAD = EXCHANGE_GATHER_BLOCKS * 4,
  EXCHANGE_GATHER_SLOT = EXCHANGE_GATHER_NUMBERS * 4,
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
};
