/* memory_source.h - where graphs and plans get their host memory: from a runtime's host pool, from an allocator, or, if
 * there is neither, from mimalloc. The memory is not cleared, and is given back with the number of bytes with which it
 * was taken. */
#pragma once

#include "runtime.h"

struct memory_source {
  rondo_runtime *runtime;
  rondo_allocator allocator;
};

/* Errors: both a runtime and an allocator; an allocator without one of its functions. */
rondo_status memory_source_of(rondo_runtime *runtime_or_null, const rondo_allocator *allocator_or_null,
                              const char *function, struct memory_source *source);
rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory);
/* The same from the other end of a pool, for memory that is given back before the call returns. Memory that stays then
 * lies together. */
rondo_status memory_take_for_now(struct memory_source source, uint64_t bytes, const char *owner, void **memory);
void memory_give(struct memory_source source, void *memory, uint64_t bytes);
