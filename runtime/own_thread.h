/* own_thread.h - threads that the library starts. They block the application's signals, have the default floating-point
 * state and a stack that is large enough for all code of Rondo, and run on the cores that were found at open. */
#pragma once

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
