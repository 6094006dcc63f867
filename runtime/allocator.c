/* allocator.c - see allocator.h. No other file knows mimalloc.
 *
 * Blocks are aligned here, since mi_malloc_aligned of Debian 12 (version 2.0.9) returns small blocks that are not
 * aligned (microsoft/mimalloc#700). The address of the whole block lies before the memory that is handed out. */
#include "allocator.h"

#include <mimalloc.h>
#include <stdint.h>

static void *allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (bytes > SIZE_MAX - alignment - sizeof(void *)) return NULL;
  unsigned char *block = mi_malloc(bytes + alignment + sizeof(void *));
  if (!block) return NULL;
  uintptr_t first = (uintptr_t)block + sizeof(void *);
  void **memory = (void **)(void *)(block + sizeof(void *) + (alignment - first % alignment) % alignment);
  memory[-1] = block;
  return memory;
}

static void release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  if (memory) mi_free(((void **)memory)[-1]);
}

rondo_allocator allocator_default(void) { return (rondo_allocator){.allocate = allocate, .release = release}; }
