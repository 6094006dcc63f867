/* ledger.c - see ledger.h. */
#include "ledger.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct ledger ledger;

static void *ledger_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (++ledger.calls == ledger.fail_at) return NULL;
  cr_assert(alignment && !(alignment & (alignment - 1)), "alignment %zu", alignment);
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  for (int i = 0; i < 64; i++) {
    if (ledger.blocks[i].memory) continue;
    ledger.blocks[i].memory = memory;
    ledger.blocks[i].bytes = bytes;
    ledger.live_count++;
    return memory;
  }
  cr_assert_fail("more than 64 blocks");
  return NULL;
}

static void ledger_release(void *user, void *memory, size_t bytes) {
  (void)user;
  for (int i = 0; i < 64; i++) {
    if (ledger.blocks[i].memory != memory) continue;
    cr_assert_eq(ledger.blocks[i].bytes, bytes, "%zu bytes taken, %zu given back", ledger.blocks[i].bytes, bytes);
    ledger.blocks[i].memory = NULL;
    ledger.live_count--;
    free(memory);
    return;
  }
  cr_assert_fail("what is given back was never taken");
}

const rondo_allocator ledger_allocator = {.allocate = ledger_allocate, .release = ledger_release};

int thread_calls, thread_fail_at;
/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument) {
  if (++thread_calls == thread_fail_at) return EAGAIN;
  return __real_pthread_create(thread, attributes, begin, argument);
}
/* NOLINTEND(bugprone-reserved-identifier) */
