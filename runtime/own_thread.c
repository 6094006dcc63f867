/* own_thread.c - see own_thread.h. */
#include "own_thread.h"

#include <sched.h>

#include "floats.h"

/* All signals but those that a thread's own instructions raise: the application's handlers run on its own threads. */
void own_thread_block_signals(sigset_t *before) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t blocked;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
  pthread_sigmask(SIG_BLOCK, &blocked, before);
}

void own_thread_restore_signals(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

/* The default size is what the stack's limit was when the program began, and may be anything; host functions may count
 * on it where it is larger. */
static void ask_for_stack(pthread_attr_t *attributes) {
  size_t bytes = 0;
  if (pthread_attr_getstacksize(attributes, &bytes) == 0 && bytes < OWN_STACK_BYTES)
    pthread_attr_setstacksize(attributes, OWN_STACK_BYTES);
}

int own_thread_start(pthread_t *thread, void *(*begin)(void *), void *argument) {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error) return error;
  ask_for_stack(&attributes);
  sigset_t before;
  own_thread_block_signals(&before);
  error = pthread_create(thread, &attributes, begin, argument);
  own_thread_restore_signals(&before);
  pthread_attr_destroy(&attributes);
  return error;
}

void own_thread_begin(const struct cores *cores) {
  floats_default();
  if (cores && cores->count) sched_setaffinity(0, sizeof cores->set, cores->set);
}
