/* notice.h - how a replay tells an eventfd of the caller's that it has ended: what a slot keeps for that, and what a
 * backend does at the end of a replay. */
#ifndef RONDO_NOTICE_H
#define RONDO_NOTICE_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

struct notice {
  bool is_wanted; /* this, the file and whether it may block change only where nothing is in flight, and none is due */
  bool may_block;
  int file;
  _Atomic uint32_t due_count; /* replays whose end may already be seen, with the notice of it still to be written */
};

/* Before the end of the replay can be seen. */
static inline void notice_expect(struct notice *notice) {
  atomic_fetch_add_explicit(&notice->due_count, 1, memory_order_relaxed);
}

/* Of a file that may block: a write to a full one would wait until somebody reads, and who sleeps on it has been woken
 * already. One that does not block refuses the write by itself. */
static inline bool notice_is_full(const struct notice *notice) {
  struct pollfd room = {.fd = notice->file, .events = POLLOUT};
  return notice->may_block && poll(&room, 1, 0) == 0;
}

/* After it can be seen. A file that is full or no more there has nobody to be told. */
static inline void notice_send(struct notice *notice) {
  const uint64_t one = 1;
  if (!notice_is_full(notice))
    while (write(notice->file, &one, sizeof one) < 0 && errno == EINTR) {}
  atomic_fetch_sub_explicit(&notice->due_count, 1, memory_order_release);
}

/* The replay was not begun after all. */
static inline void notice_cancel(struct notice *notice) {
  atomic_fetch_sub_explicit(&notice->due_count, 1, memory_order_relaxed);
}

static inline bool notice_is_due(const struct notice *notice) {
  return atomic_load_explicit(&notice->due_count, memory_order_acquire) != 0;
}

#endif
