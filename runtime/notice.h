/* notice.h - the write to an eventfd that ends a replay: the state that a slot keeps for it, and the steps of a
 * backend. */
#pragma once

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

/* A write to a full file that may block would wait until a thread reads. The threads that sleep on a full file have
 * been woken already, so it needs no write. A file that does not block refuses the write by itself. */
static inline bool notice_is_full(const struct notice *notice) {
  struct pollfd room = {.fd = notice->file, .events = POLLOUT};
  return notice->may_block && poll(&room, 1, 0) == 0;
}

/* After the end of the replay can be seen. A file that is full or closed has no thread to wake. */
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
