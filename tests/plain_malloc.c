/* plain_malloc.c - stands in for mimalloc, so that a checker sees every block: under the sanitizers and valgrind. */
#include <mimalloc.h>
#include <stdlib.h>

void *mi_malloc(size_t bytes) { return malloc(bytes); }

void mi_free(void *memory) { free(memory); }
