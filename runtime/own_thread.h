/* own_thread.h - threads that the library starts: they take none of the application's signals, and run on all cores
 * that the process was given, wherever the thread that starts them is pinned. */
#ifndef RONDO_OWN_THREAD_H
#define RONDO_OWN_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* The cores that the process was given before it pinned any thread to some of them; at least 1. */
uint32_t own_thread_cores(void);
/* As pthread_create, with the signals blocked. */
int own_thread_start(pthread_t *thread, void *(*begin)(void *), void *argument);
/* The first call of such a thread. */
void own_thread_spread(void);

#endif
