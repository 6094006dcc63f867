/* bell.h - where threads of a team sleep until there is something to do, and who waits for its end until it is there,
 * without missing it; and without a system call of whoever rings while nobody sleeps.
 *
 * Why no wake-up is lost. `rings` and `sleepers` are sequentially consistent: all threads see what is done to them in
 * one order (C17 7.17.3).
 *
 *     the sleeper                            the ringer
 *     S1  sleepers += 1                      R1  write what `ready` reads
 *     S2  seen = rings                       R2  rings += 1
 *     S3  ready? then no sleep               R3  read sleepers: if 0, nobody has to be woken
 *     S4  FUTEX_WAIT while rings == seen     R4  FUTEX_WAKE
 *
 * If S2 comes after R2 it synchronizes with it, and S3 sees R1, whatever and however much that is. If it comes before,
 * then S1 < S2 < R2 < R3, and the ringer sees the sleeper; and `seen` is an older count than the one R2 writes. The
 * kernel compares and queues under one lock, which R4 takes too: either S4 finds another count and returns, or it is in
 * the queue when R4 comes. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct bell {
  _Alignas(128) _Atomic uint32_t rings;
  _Atomic uint32_t sleepers;
};

/* Sleeps until the bell is rung or `timeout` is over (NULL: never), unless ready(subject); false then, and if it was
 * not ready. May return for no reason. */
bool bell_sleep(struct bell *bell, bool (*ready)(void *subject), void *subject, const struct timespec *timeout);

/* Wakes up to `count` sleepers. */
void bell_wake(struct bell *bell, uint32_t count);
static inline void bell_ring(struct bell *bell, uint32_t count) {
  atomic_fetch_add(&bell->rings, 1);
  if (atomic_load(&bell->sleepers)) bell_wake(bell, count);
}
