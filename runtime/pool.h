/* pool.h - a fixed pool: extents carved first-fit from one slab. It never grows and never asks anyone for memory. */
#ifndef RONDO_POOL_H
#define RONDO_POOL_H

#include "../kernels/op.h"

enum {
  POOL_ALIGNMENT = 256, /* of every extent: a 128-byte cache line pair, and what TMA and vector loads want */
  POOL_MAX_EXTENTS = 256,
};

struct pool_extent {
  uint64_t offset, bytes;
};

struct pool {
  const char *name; /* "device", "pinned", "host" */
  unsigned char *base;
  uint64_t capacity_bytes, used_bytes, high_water_bytes;
  uint32_t extent_count;
  struct pool_extent extents[POOL_MAX_EXTENTS]; /* by offset, apart from each other */
};

static inline uint64_t pool_round(uint64_t bytes) {
  return (bytes + POOL_ALIGNMENT - 1) / POOL_ALIGNMENT * POOL_ALIGNMENT;
}

void pool_init(struct pool *pool, const char *name, void *base, uint64_t capacity_bytes);

/* Carves bytes (rounded up to the alignment; 0 gives a valid, empty extent of one unit). The content is whatever was
 * there. On failure the text says what was needed, by whom, and how large the pool would have to be. */
rondo_status pool_carve(struct pool *pool, uint64_t bytes, const char *owner, void **memory);

/* Gives an extent back; NULL is a no-op. */
void pool_return(struct pool *pool, void *memory);

#endif
