/* pool.c - see pool.h. A runtime carves some extents for each graph and exec, and none in a replay. So a list and a
 * linear search are enough, and easy to verify. */
#include "pool.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static_assert(sizeof(struct pool_extent) <= POOL_HEADER_BYTES, "the node of pool_take fits in front");

void pool_init(struct pool *pool, const char *name, void *base, uint64_t capacity_bytes) {
  memset(pool, 0, sizeof *pool);
  pool->name = name;
  pool->base = base;
  pool->capacity_bytes = capacity_bytes;
  pool->ends.before = pool->ends.after = &pool->ends;
}

static uint64_t begin_of(const struct pool *pool, const struct pool_extent *extent) {
  return extent == &pool->ends ? pool->capacity_bytes / POOL_ALIGNMENT * POOL_ALIGNMENT : extent->offset;
}

static uint64_t end_of(const struct pool *pool, const struct pool_extent *extent) {
  return extent == &pool->ends ? 0 : extent->offset + extent->bytes;
}

/* Between an extent and the one below it. */
static uint64_t gap_below(const struct pool *pool, const struct pool_extent *extent) {
  return begin_of(pool, extent) - end_of(pool, extent->before);
}

/* In a larger pool what came from the top lies higher, so that there is more room in the middle. */
static uint64_t capacity_with(const struct pool *pool, uint64_t more_bytes) {
  const struct pool_extent *above = &pool->ends;
  while (above->before != &pool->ends && above->before->is_from_top) above = above->before;
  return end_of(pool, above->before) + more_bytes + (begin_of(pool, &pool->ends) - begin_of(pool, above));
}

static rondo_status too_small(const struct pool *pool, const char *owner, uint64_t bytes, uint64_t more_bytes) {
  return status_set(RONDO_OUT_OF_MEMORY,
                    "%s pool: %s needs %" PRIu64 " bytes in one piece; %" PRIu64 " of %" PRIu64
                    " are in use: open the runtime with %s_bytes of at least %" PRIu64,
                    pool->name, owner, bytes, pool->used_bytes, pool->capacity_bytes, pool->name,
                    capacity_with(pool, more_bytes));
}

uint64_t pool_capacity_for(const struct pool *pool, uint64_t bytes) {
  const uint64_t rounded = pool_round(bytes ? bytes : 1);
  const struct pool_extent *above = pool->ends.after;
  while (above != &pool->ends && gap_below(pool, above) < rounded) above = above->after;
  const uint64_t capacity_bytes = capacity_with(pool, rounded);
  return gap_below(pool, above) >= rounded || capacity_bytes <= pool->capacity_bytes ? 0 : capacity_bytes;
}

static rondo_status round_checked(const struct pool *pool, const char *owner, uint64_t bytes, uint64_t *rounded) {
  if (bytes > UINT64_MAX / 2)
    return status_set(RONDO_OUT_OF_MEMORY, "%s pool: %s needs %" PRIu64 " bytes", pool->name, owner, bytes);
  *rounded = pool_round(bytes ? bytes : 1);
  return RONDO_OK;
}

static void use(struct pool *pool, uint64_t bytes) {
  pool->used_bytes += bytes;
  if (pool->used_bytes > pool->high_water_bytes) pool->high_water_bytes = pool->used_bytes;
}

/* The neighbours of a node that has just got its place. */
static void link_in(struct pool_extent *extent) {
  extent->before->after = extent;
  extent->after->before = extent;
}

static rondo_status carve(struct pool *pool, uint64_t bytes, const char *owner, bool from_top,
                          struct pool_extent *extent) {
  uint64_t rounded = 0;
  rondo_status status = round_checked(pool, owner, bytes, &rounded);
  if (status != RONDO_OK) return status;
  struct pool_extent *above = from_top ? &pool->ends : pool->ends.after;
  const struct pool_extent *last = from_top ? pool->ends.after : &pool->ends;
  while (above != last && gap_below(pool, above) < rounded) above = from_top ? above->before : above->after;
  if (gap_below(pool, above) < rounded) return too_small(pool, owner, rounded, rounded);
  *extent = (struct pool_extent){.before = above->before,
                                 .after = above,
                                 .offset = from_top ? begin_of(pool, above) - rounded : end_of(pool, above->before),
                                 .bytes = rounded,
                                 .is_from_top = from_top};
  link_in(extent);
  use(pool, rounded);
  return RONDO_OK;
}

rondo_status pool_carve(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent) {
  return carve(pool, bytes, owner, false, extent);
}

rondo_status pool_carve_top(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent) {
  return carve(pool, bytes, owner, true, extent);
}

rondo_status pool_grow_down(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent) {
  uint64_t rounded = 0;
  rondo_status status = round_checked(pool, owner, bytes, &rounded);
  if (status != RONDO_OK || rounded <= extent->bytes) return status;
  uint64_t more_bytes = rounded - extent->bytes;
  if (gap_below(pool, extent) < more_bytes) return too_small(pool, owner, rounded, more_bytes);
  extent->offset -= more_bytes;
  extent->bytes = rounded;
  use(pool, more_bytes);
  return RONDO_OK;
}

void pool_return(struct pool *pool, struct pool_extent *extent) {
  if (!extent->bytes) return;
  pool->used_bytes -= extent->bytes;
  extent->before->after = extent->after;
  extent->after->before = extent->before;
  *extent = (struct pool_extent){0};
}

void pool_shrink_up(struct pool *pool, uint64_t bytes, struct pool_extent *extent) {
  uint64_t rounded = pool_round(bytes);
  if (!rounded) pool_return(pool, extent);
  if (rounded >= extent->bytes) return;
  uint64_t less_bytes = extent->bytes - rounded;
  extent->offset += less_bytes;
  extent->bytes = rounded;
  pool->used_bytes -= less_bytes;
}

rondo_status pool_take(struct pool *pool, uint64_t bytes, const char *owner, bool from_top, void **memory) {
  struct pool_extent extent;
  uint64_t wanted = bytes > UINT64_MAX / 2 ? bytes : pool_take_bytes(bytes);
  rondo_status status = (from_top ? pool_carve_top : pool_carve)(pool, wanted, owner, &extent);
  if (status != RONDO_OK) return status;
  struct pool_extent *header = (void *)pool_memory(pool, &extent);
  *header = extent;
  link_in(header);
  *memory = (unsigned char *)header + POOL_HEADER_BYTES;
  return RONDO_OK;
}

void pool_give(struct pool *pool, void *memory) {
  if (memory) pool_return(pool, (void *)((unsigned char *)memory - POOL_HEADER_BYTES));
}
