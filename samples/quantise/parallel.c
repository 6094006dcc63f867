/* parallel.c - see parallel.h. The threads live as long as the loop: starting them costs microseconds, and the loops
 * take milliseconds. Each thread takes the next index, so that a slow one holds up nobody. */
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 64 };

struct loop {
  int64_t count;
  atomic_int_fast64_t next;
  void (*work)(void *context, int64_t index);
  void *context;
};

static void *take_indices(void *argument) {
  struct loop *loop = argument;
  for (int64_t index; (index = atomic_fetch_add(&loop->next, 1)) < loop->count;) loop->work(loop->context, index);
  return NULL;
}

static int64_t processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set) < MOST_THREADS ? CPU_COUNT(&set) : MOST_THREADS;
}

void in_parallel(int64_t count, void (*work)(void *context, int64_t index), void *context) {
  struct loop loop = {.count = count, .work = work, .context = context};
  pthread_t threads[MOST_THREADS];
  const int64_t wanted = (count < processors() ? count : processors()) - 1; /* the caller is one more */
  int64_t started = 0;
  while (started < wanted && pthread_create(&threads[started], NULL, take_indices, &loop) == 0) started++;
  take_indices(&loop);
  for (int64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
