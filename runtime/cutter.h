/* cutter.h - one piece of memory for many arrays: the same function measures with a cutter that has no memory, and cuts
 * with one that has as much as was measured. */
#ifndef RONDO_CUTTER_H
#define RONDO_CUTTER_H

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

#endif
