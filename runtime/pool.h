/* pool.h - a fixed pool: extents carved from one slab, from its bottom or its top. It never grows and never allocates,
 * not even for its bookkeeping: each extent has a node in its owner's memory, and the pool is a list of these nodes. So
 * the number of extents is not limited, and the slab may be memory that the host cannot reach. */
#pragma once

#include <stdbool.h>

#include "status.h"

enum {
  POOL_ALIGNMENT = 256, /* of every extent: a 128-byte cache line pair, and what TMA and vector loads want */
  POOL_HEADER_BYTES = POOL_ALIGNMENT, /* what pool_take takes besides */
};

/* Stays where it is from carve to return. All zeros: not carved. */
struct pool_extent {
  struct pool_extent *before, *after; /* by offset, apart from each other */
  uint64_t offset, bytes;
  bool is_from_top;
};

struct pool {
  const char *name; /* "device", "pinned", "host" */
  unsigned char *base;
  uint64_t capacity_bytes, used_bytes, high_water_bytes;
  struct pool_extent ends; /* closes the list to a ring: stands below the first extent and above the last */
};

static inline uint64_t pool_round(uint64_t bytes) {
  return (bytes + POOL_ALIGNMENT - 1) / POOL_ALIGNMENT * POOL_ALIGNMENT;
}

/* The pool may not be moved afterwards. */
void pool_init(struct pool *pool, const char *name, void *base, uint64_t capacity_bytes);

/* Carves bytes (rounded up to the alignment; 0 gives a valid, empty extent of one unit) where they first fit, from the
 * bottom or from the top. The content is whatever was there. On failure the text says what was needed, by whom, and how
 * large the pool would have to be. */
rondo_status pool_carve(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent);
rondo_status pool_carve_top(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent);

/* Makes an extent at least so large, by bytes below it: its end and its content stay where they are. An extent from the
 * top has room below it unless others were carved there. On failure nothing has changed. */
rondo_status pool_grow_down(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent);

/* Leaves an extent the last bytes (rounded up) of what it has; 0: gives it back. */
void pool_shrink_up(struct pool *pool, uint64_t bytes, struct pool_extent *extent);

/* 0 if an extent of these bytes could be carved; else the capacity that the pool would need. */
uint64_t pool_capacity_for(const struct pool *pool, uint64_t bytes);

/* Gives an extent back; one that is not carved is a no-op. */
void pool_return(struct pool *pool, struct pool_extent *extent);

static inline unsigned char *pool_memory(const struct pool *pool, const struct pool_extent *extent) {
  return pool->base + extent->offset;
}

/* For a pool in host memory: the node lies before the memory that is taken. pool_give ignores NULL. */
rondo_status pool_take(struct pool *pool, uint64_t bytes, const char *owner, bool from_top, void **memory);
void pool_give(struct pool *pool, void *memory);

/* What pool_take takes of the pool. */
static inline uint64_t pool_take_bytes(uint64_t bytes) { return POOL_HEADER_BYTES + pool_round(bytes ? bytes : 1); }
