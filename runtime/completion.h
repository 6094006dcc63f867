/* completion.h - the words by which the last kernels of a graph publish that the replay is done. They are part of the
 * kernels' parameters, shared by host code and kernels. */
#pragma once

#include <stdint.h>

/* Of a slot, and the most blocks that publish: one line of the cache to look at. Measured on an H200, sixteen gain half
 * of what eight do, and 32 lose. */
enum { COMPLETION_WORDS = 8 };

/* For each block of a kernel that publishes: a word in pinned memory, where the host looks, and a count of the replays
 * in device memory, zero before the first. The count is the device's own: reading the host's over the bus would cost
 * more than a microsecond. words is NULL in a kernel that does not publish. */
struct completion {
  uint64_t *counts;
  uint64_t *words;
};
