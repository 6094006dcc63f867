/* ledger.h - the memory and threads that the library takes of the system: counted, and refused on demand. */
#pragma once

#include <stddef.h>

#include <rondo.h>

/* Records what it gave, fails at the n-th call, and insists on having it back as it was asked for. */
struct ledger {
  int calls, fail_at, live_count;
  struct {
    void *memory;
    size_t bytes;
  } blocks[64];
};
extern struct ledger ledger;
extern const rondo_allocator ledger_allocator;

/* pthread_create of whatever the test program links, for the library's calls and its own: the n-th fails. */
extern int thread_calls, thread_fail_at;
