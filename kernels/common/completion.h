/* completion.h - how the last kernel of a graph says that the replay is done: part of its parameters, shared by host
 * code and kernels. */
#ifndef RONDO_COMPLETION_H
#define RONDO_COMPLETION_H

#include <stdint.h>

/* Kept in device memory, zero before the first replay. The count is the device's own: reading the host's over the bus
 * would cost more than a microsecond. */
struct replay_counter {
  uint64_t count;   /* replays done */
  uint32_t arrived; /* blocks of the last kernel that have finished; zero between replays */
  uint32_t reserved;
};

/* The last kernel increments counter->count and stores it to *word, in pinned memory. word is NULL in any other. */
struct completion {
  struct replay_counter *counter;
  uint64_t *word;
};

#endif
