/* allocations.h - counts every call of this process that takes or gives back memory: the C library's, mimalloc's and
 * the kernel's, from whatever library and thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define ALLOCATION_CALLS(X) \
  X(malloc) X(calloc) X(realloc) X(aligned_alloc) X(posix_memalign) X(memalign) X(valloc) X(strdup) X(free) \
  X(mi_malloc) X(mi_free) X(mmap) X(mmap64) X(munmap) X(mremap) X(brk) X(sbrk)
/* clang-format on */

enum allocation_call {
#define X(name) CALL_##name,
  ALLOCATION_CALLS(X)
#undef X
      ALLOCATION_CALL_COUNT
};

struct allocations {
  uint64_t ours;    /* by the thread that counts, and by whatever the program, with Rondo in it, called elsewhere */
  uint64_t foreign; /* by threads of other libraries on their own account, such as the CUDA driver's */
};

/* From here on calls count, on all threads. Forgets what was counted before. */
void allocations_count(void);
/* No longer. For the thread that began it. */
struct allocations allocations_stop(void);
/* "malloc 3, free 2, the first from ...": what was counted of ours, and the first stack, a foreign one if none is ours.
 */
void allocations_describe(char *text, size_t bytes);

/* Makes each of the calls once on purpose. NULL if all of them were seen, else the name of one that was not. */
const char *allocations_unseen(void);
