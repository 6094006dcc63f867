/* bell.h - where threads of a team sleep until there is something to do, and who waits for it until it is done, without
 * missing it; and
 * without a system call of whoever has something to do while nobody sleeps.
 *
 * Why no wake-up is lost. `ready` reads one atomic that whoever rings has written just before, and these four are
 * sequentially consistent, so that all threads see them in one order (C17 7.17.3):
 *
 *     the sleeper                            the ringer
 *     S1  sleepers += 1                      R1  write what `ready` reads
 *     S2  seen = rings                       R2  read sleepers: if 0, nobody has to be woken
 *     S3  ready? then no sleep               R3  rings += 1
 *     S4  FUTEX_WAIT while rings == seen     R4  FUTEX_WAKE
 *
 * If S3 comes after R1, the sleeper sees that it is ready. If it comes before, then S1 < S3 < R1 < R2, and the ringer
 * sees the sleeper; and S2 < S3 < R1 < R3, so that `seen` is an older count than the one R3 writes. The kernel compares
 * and queues under one lock, which R4 takes too: either S4 finds another count and returns, or it is in the queue when
 * R4 comes. */
#ifndef RONDO_HOST_BELL_H
#define RONDO_HOST_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct bell {
  _Alignas(128) _Atomic uint32_t rings;
  _Atomic uint32_t sleepers;
};

/* Sleeps until the bell is rung or `timeout` is over (NULL: never), unless ready(subject). May return for no reason. */
void bell_sleep(struct bell *bell, bool (*ready)(const void *subject), const void *subject,
                const struct timespec *timeout);

/* Wakes up to `count` sleepers. What they wait for was written with memory_order_seq_cst. */
void bell_wake(struct bell *bell, uint32_t count);
static inline void bell_ring(struct bell *bell, uint32_t count) {
  if (atomic_load(&bell->sleepers)) bell_wake(bell, count);
}

#endif
