/* own_thread.c - see own_thread.h. */
#include "own_thread.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>

/* As the program began: what taskset, numactl or a batch system gave it. A thread that is pinned, as the one that
 * replays should be, passes that on to the threads it starts; a team on one core would be no team. */
static cpu_set_t cores_at_start[8];
static bool cores_are_known;

__attribute__((constructor)) static void note_cores(void) {
  cores_are_known = sched_getaffinity(0, sizeof cores_at_start, cores_at_start) == 0;
}

uint32_t own_thread_cores(void) {
  int count = cores_are_known ? CPU_COUNT_S(sizeof cores_at_start, cores_at_start) : 1;
  return count < 1 ? 1 : (uint32_t)count;
}

void own_thread_spread(void) {
  if (cores_are_known) sched_setaffinity(0, sizeof cores_at_start, cores_at_start);
}

/* All signals but those that a thread's own instructions raise: the application's handlers run on its own threads. */
static sigset_t signals_of_others(void) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&set, own[i]);
  return set;
}

int own_thread_start(pthread_t *thread, void *(*begin)(void *), void *argument) {
  sigset_t blocked = signals_of_others(), before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  int error = pthread_create(thread, NULL, begin, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}
