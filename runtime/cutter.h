/* cutter.h - one piece of memory for many arrays. The same function first measures, with a cutter that has no memory,
 * and then cuts, with a cutter that has the measured number of bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct cutter {
  unsigned char *base; /* NULL while measuring; aligned to 64 */
  uint64_t used;
};

static inline void *cut(struct cutter *cutter, uint64_t bytes) {
  void *piece = cutter->base ? cutter->base + cutter->used : NULL;
  cutter->used += (bytes + 63) / 64 * 64;
  return piece;
}
