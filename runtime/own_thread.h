/* own_thread.h - threads that the library starts: none of the application's signals, the default floating-point state,
 * a stack that all code of Rondo's fits, and the cores that were found when the runtime was opened. */
#ifndef RONDO_OWN_THREAD_H
#define RONDO_OWN_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "cores.h"

/* As pthread_create, with the signals blocked and at least OWN_STACK_BYTES of stack. */
int own_thread_start(pthread_t *thread, void *(*begin)(void *), void *argument);
/* The first call of such a thread. NULL: it stays where it was started. */
void own_thread_begin(const struct cores *cores);

/* Of which the build lets a function take a part only: see -Wframe-larger-than in build.ninja. */
enum { OWN_STACK_BYTES = 1 << 20 };

/* Around calls in which others start threads, the driver above all: these inherit what is blocked. */
void own_thread_block_signals(sigset_t *before);
void own_thread_restore_signals(const sigset_t *before);

#endif
