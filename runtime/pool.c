/* pool.c - see pool.h. A runtime carves a handful of extents (one of each pool for an exec, one for a graph), so a
 * sorted array and a linear search are enough, and easy to be sure of. */
#include "pool.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

void pool_init(struct pool *pool, const char *name, void *base, uint64_t capacity_bytes) {
  memset(pool, 0, sizeof *pool);
  pool->name = name;
  pool->base = base;
  pool->capacity_bytes = capacity_bytes;
}

rondo_status pool_carve(struct pool *pool, uint64_t bytes, const char *owner, void **memory) {
  if (bytes > UINT64_MAX / 2)
    return status_set(RONDO_OUT_OF_MEMORY, "%s pool: %s needs %" PRIu64 " bytes", pool->name, owner, bytes);
  uint64_t rounded = pool_round(bytes ? bytes : 1);
  if (pool->extent_count == POOL_MAX_EXTENTS)
    return status_set(RONDO_OUT_OF_MEMORY, "%s pool: %s would be extent %d; there can be no more", pool->name, owner,
                      POOL_MAX_EXTENTS + 1);
  uint64_t offset = 0;
  uint32_t place = 0;
  for (; place < pool->extent_count; place++) {
    const struct pool_extent *next = &pool->extents[place];
    if (next->offset - offset >= rounded) break;
    offset = next->offset + next->bytes;
  }
  if (place == pool->extent_count && (pool->capacity_bytes < offset || pool->capacity_bytes - offset < rounded))
    return status_set(RONDO_OUT_OF_MEMORY,
                      "%s pool: %s needs %" PRIu64 " bytes in one piece; %" PRIu64 " of %" PRIu64
                      " are in use: open the runtime with %s_bytes of at least %" PRIu64,
                      pool->name, owner, rounded, pool->used_bytes, pool->capacity_bytes, pool->name, offset + rounded);
  memmove(&pool->extents[place + 1], &pool->extents[place], (pool->extent_count - place) * sizeof pool->extents[0]);
  pool->extents[place] = (struct pool_extent){offset, rounded};
  pool->extent_count++;
  pool->used_bytes += rounded;
  if (pool->used_bytes > pool->high_water_bytes) pool->high_water_bytes = pool->used_bytes;
  *memory = pool->base + offset;
  return RONDO_OK;
}

void pool_return(struct pool *pool, void *memory) {
  if (!memory) return;
  uint64_t offset = (uint64_t)((unsigned char *)memory - pool->base);
  uint32_t place = 0;
  while (place < pool->extent_count && pool->extents[place].offset != offset) place++;
  assert(place < pool->extent_count);
  pool->used_bytes -= pool->extents[place].bytes;
  pool->extent_count--;
  memmove(&pool->extents[place], &pool->extents[place + 1], (pool->extent_count - place) * sizeof pool->extents[0]);
}
