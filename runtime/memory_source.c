/* memory_source.c - see memory_source.h. */
#include "memory_source.h"

#include <inttypes.h>

#include "allocator.h"

rondo_status memory_source_of(rondo_runtime *runtime, const rondo_allocator *allocator, const char *function,
                              struct memory_source *source) {
  if (runtime && allocator)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "%s: with a runtime, memory comes from its host pool: expected no allocator", function);
  if (allocator && (!allocator->allocate || !allocator->release))
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the allocator lacks allocate or release", function);
  *source = (struct memory_source){.runtime = runtime};
  if (allocator) source->allocator = *allocator;
  return RONDO_OK;
}

static rondo_status take(struct memory_source source, uint64_t bytes, const char *owner, bool from_top, void **memory) {
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->group->lock);
    rondo_status status = pool_take(&source.runtime->host_pool, bytes, owner, from_top, memory);
    pthread_mutex_unlock(&source.runtime->group->lock);
    return status;
  }
  rondo_allocator allocator = source.allocator.allocate ? source.allocator : allocator_default();
  *memory = allocator.allocate(allocator.user, bytes, POOL_ALIGNMENT);
  if (*memory) return RONDO_OK;
  return status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes for %s", bytes, owner);
}

rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory) {
  return take(source, bytes, owner, false, memory);
}

rondo_status memory_take_for_now(struct memory_source source, uint64_t bytes, const char *owner, void **memory) {
  return take(source, bytes, owner, true, memory);
}

void memory_give(struct memory_source source, void *memory, uint64_t bytes) {
  if (!memory) return;
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->group->lock);
    pool_give(&source.runtime->host_pool, memory);
    pthread_mutex_unlock(&source.runtime->group->lock);
  } else {
    rondo_allocator allocator = source.allocator.allocate ? source.allocator : allocator_default();
    allocator.release(allocator.user, memory, bytes);
  }
}
