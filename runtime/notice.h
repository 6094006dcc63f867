/* notice.h - how a backend's exec tells a file of the caller's, an eventfd mostly, that a replay has ended: for the two
 * implementations of device_ops.exec_notify. */
#ifndef RONDO_NOTICE_H
#define RONDO_NOTICE_H

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"

struct notice {
  bool is_wanted; /* this and the file change only where nothing is in flight */
  int file;
  _Atomic uint32_t due_count; /* replays whose end may already be seen, with the notice of it still to be written */
};

/* Before the end of the replay can be seen. */
static inline void notice_expect(struct notice *notice) {
  atomic_fetch_add_explicit(&notice->due_count, 1, memory_order_relaxed);
}

/* After it can be seen. A file that is full or no more there has nobody to be told. */
static inline void notice_send(struct notice *notice) {
  const uint64_t one = 1;
  while (write(notice->file, &one, sizeof one) < 0 && errno == EINTR) {}
  atomic_fetch_sub_explicit(&notice->due_count, 1, memory_order_release);
}

/* -1: no more notices. None is on its way any more then: the file, and the exec, may go. RONDO_DEVICE_LOST if one is
 * but does not come, RONDO_TIMEOUT if it has not come yet: the file is full, and nobody reads it. */
static inline rondo_status notice_change(struct notice *notice, int file, uint64_t timeout_ns,
                                         const struct device_ops *ops, struct device *device) {
  uint64_t begin_ns = now_ns();
  while (atomic_load_explicit(&notice->due_count, memory_order_acquire)) {
    rondo_status status = ops->health(device);
    if (status != RONDO_OK) return status;
    if (now_ns() - begin_ns >= timeout_ns) return status_set(RONDO_TIMEOUT, "the file to notify is full");
    sched_yield();
  }
  notice->is_wanted = file >= 0;
  notice->file = file;
  return RONDO_OK;
}

#endif
