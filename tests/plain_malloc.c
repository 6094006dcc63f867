/* plain_malloc.c - stands in for mimalloc where a checker is to see every block: under the sanitizers and valgrind. */
#include <mimalloc.h>
#include <stdlib.h>

void *mi_malloc_aligned(size_t bytes, size_t alignment) {
  void *memory = NULL;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

void mi_free(void *memory) { free(memory); }
