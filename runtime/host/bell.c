/* bell.c - see bell.h. It uses the futex system call (futex(2)), which has no function in libc. */
#include "bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

bool bell_sleep(struct bell *bell, bool (*ready)(void *subject), void *subject, const struct timespec *timeout) {
  atomic_fetch_add(&bell->sleepers, 1);
  uint32_t seen = atomic_load(&bell->rings);
  bool is_ready = ready(subject);
  if (!is_ready) syscall(SYS_futex, &bell->rings, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
  atomic_fetch_sub(&bell->sleepers, 1);
  return is_ready;
}

void bell_wake(struct bell *bell, uint32_t count) {
  syscall(SYS_futex, &bell->rings, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}
