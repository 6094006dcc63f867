/* allocator.c - the default host allocator: mimalloc. The only file that knows it. */
#include <mimalloc.h>

#include "runtime.h"

static void *allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  return mi_malloc_aligned(bytes, alignment);
}

static void release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  mi_free(memory);
}

rondo_allocator allocator_default(void) { return (rondo_allocator){.allocate = allocate, .release = release}; }
