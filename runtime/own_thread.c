/* own_thread.c - see own_thread.h. */
#include "own_thread.h"

#include <sched.h>

/* All signals but those that a thread's own instructions raise: the application's handlers run on its own threads. */
void own_thread_block_signals(sigset_t *before) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t blocked;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
  pthread_sigmask(SIG_BLOCK, &blocked, before);
}

void own_thread_restore_signals(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

int own_thread_start(pthread_t *thread, void *(*begin)(void *), void *argument) {
  sigset_t before;
  own_thread_block_signals(&before);
  int error = pthread_create(thread, NULL, begin, argument);
  own_thread_restore_signals(&before);
  return error;
}

void own_thread_begin(const struct cores *cores) {
  if (cores && cores->count) sched_setaffinity(0, sizeof cores->set, cores->set);
}
