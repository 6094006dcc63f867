/* notices.c - see notices.h, and rondo_notify. A notice is written some microseconds after its replay is done. */
#include "notices.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "slot.h"
#include "waiting.h"

/* Takes microseconds, unless the thread that writes the notice is held up. */
static rondo_status notice_wait(const rondo_exec *exec, const struct slot *slot, uint64_t timeout_ns) {
  uint64_t begin_ns = now_ns();
  while (notice_is_due(&slot->notice)) {
    rondo_status status = exec->runtime->ops->health(exec->runtime->device);
    if (status != RONDO_OK) return status;
    if (now_ns() - begin_ns >= timeout_ns)
      return status_set(RONDO_TIMEOUT, "the replays are done, but the notice of slot %u is not written yet",
                        (uint32_t)(slot - exec->slots.items));
    sched_yield();
  }
  return RONDO_OK;
}

rondo_status notices_wait(const rondo_exec *exec, uint64_t timeout_ns) {
  rondo_status status = RONDO_OK;
  uint64_t begin_ns = now_ns();
  for (uint32_t s = 0; s < exec->slots.count && status == RONDO_OK; s++)
    status = notice_wait(exec, &exec->slots.items[s], left_of(timeout_ns, now_ns() - begin_ns));
  return status;
}

/* Waits until the last notice is written, so that its file may be closed. */
rondo_status slot_notify(const rondo_exec *exec, struct slot *slot, int file) {
  rondo_status status = notice_wait(exec, slot, RONDO_FOREVER);
  if (status != RONDO_OK) return status;
  struct notice *notice = &slot->notice;
  notice->is_wanted = file >= 0;
  notice->file = file;
  notice->may_block = notice->is_wanted && !(fcntl(file, F_GETFL) & O_NONBLOCK);
  return RONDO_OK;
}

/* By what it does, since /proc need not be there. A file of no type is one that the kernel made for itself: an eventfd,
 * epoll, a timer. Of these an eventfd alone takes a count, and one of 0 changes nothing and is never waited for. */
static bool is_eventfd(int file) {
  const uint64_t none = 0;
  struct stat about;
  return fstat(file, &about) == 0 && !(about.st_mode & S_IFMT) && write(file, &none, sizeof none) == sizeof none;
}

rondo_status rondo_notify(rondo_slot handle, int file) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_notify", &slot);
  if (status != RONDO_OK) return status;
  if (file != -1 && !is_eventfd(file))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "rondo_notify: slot %u: file %d is not an eventfd: expected an eventfd or -1", handle.index,
                      file);
  if (!slot_done(slot)) return slot_in_flight(handle.exec, handle.index, "rondo_notify");
  return slot_notify(handle.exec, slot, file);
}
