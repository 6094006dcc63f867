/* replay.c - the hot path: acquire, fill, replay, poll, wait, release. No allocation, no lock, and on the replaying
 * thread no system call of ours (the clock is read through the vDSO), but around the first launch of a slot. */
#include "replay.h"
#include "clock.h"
#include "own_thread.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* stream NULL: the lane's. */
static rondo_status launch(const rondo_exec *exec, struct slot *slot, void *const *stream) {
  const struct device_ops *ops = exec->runtime->ops;
  /* Counted before the launch: whoever polls from another thread must not take the old completion for the new one. */
  uint64_t launched = atomic_load_explicit(&slot->launched, memory_order_relaxed);
  atomic_store_explicit(&slot->launched, launched + 1, memory_order_release);
  sigset_t signals;
  if (launched == 0) own_thread_block_signals(&signals); /* a driver may start threads in the first */
  rondo_status status = stream ? ops->exec_launch_on(slot->device_exec, *stream) : ops->exec_launch(slot->device_exec);
  if (launched == 0) own_thread_restore_signals(&signals);
  if (status != RONDO_OK) atomic_store_explicit(&slot->launched, launched, memory_order_release);
  return status;
}

rondo_status slot_launch(const rondo_exec *exec, struct slot *slot) {
  uint64_t launched = atomic_load_explicit(&slot->launched, memory_order_relaxed);
  atomic_store_explicit(&slot->told, launched + 1, memory_order_relaxed);
  rondo_status status = launch(exec, slot, NULL);
  if (status != RONDO_OK) atomic_store_explicit(&slot->told, launched, memory_order_relaxed);
  return status;
}

rondo_status slot_in_flight(const rondo_exec *exec, uint32_t slot, const char *function) {
  rondo_status status = exec->runtime->ops->health(exec->runtime->device);
  return status == RONDO_OK
             ? status_set(RONDO_BUSY, "%s: slot %u is in flight: try again later, or rondo_wait", function, slot)
             : status;
}

/* A device may be lost behind a replay that was done between the two looks: its result stands, for this call as for the
 * next. */
static rondo_status done_after_all(const struct slot *slot, rondo_status status) {
  return slot_done(slot) ? RONDO_OK : status;
}

static rondo_status timed_out(const rondo_exec *exec, const struct slot *slot, uint64_t timeout_ns) {
  return status_set(RONDO_TIMEOUT,
                    "rondo_wait: slot %u was not done in time: it is in flight after %" PRIu64
                    " ns, and can be waited for again",
                    (uint32_t)(slot - exec->slots), timeout_ns);
}

static bool look_at_slot(void *slot) { return slot_done(slot); }

rondo_status slot_wait(const rondo_exec *exec, struct slot *slot, uint64_t timeout_ns) {
  const struct waiting waiting = {.runtime = exec->runtime,
                                  .look = look_at_slot,
                                  .subject = slot,
                                  .for_what = exec->lane,
                                  .patience = &slot->patience};
  rondo_status status = wait_until(&waiting, timeout_ns);
  return status == RONDO_TIMEOUT ? timed_out(exec, slot, timeout_ns) : status;
}

rondo_status slots_wait(rondo_exec *exec, uint64_t timeout_ns, uint32_t *slot) {
  rondo_status status = RONDO_OK;
  uint64_t begin_ns = now_ns(), waited_ns = 0;
  for (*slot = 0; *slot < exec->slot_count; ++*slot) {
    status = slot_wait(exec, &exec->slots[*slot], left_of(timeout_ns, waited_ns));
    if (status != RONDO_OK) return status;
    waited_ns = now_ns() - begin_ns;
  }
  return RONDO_OK;
}

/* ---- Notices ----------------------------------------------------------------------------------------------------- */

/* Microseconds, unless whoever writes it is held up. */
static rondo_status notice_wait(const rondo_exec *exec, const struct slot *slot, uint64_t timeout_ns) {
  uint64_t begin_ns = now_ns();
  while (notice_is_due(&slot->notice)) {
    rondo_status status = exec->runtime->ops->health(exec->runtime->device);
    if (status != RONDO_OK) return status;
    if (now_ns() - begin_ns >= timeout_ns)
      return status_set(RONDO_TIMEOUT, "the replays are done, but the notice of slot %u is still to be written",
                        (uint32_t)(slot - exec->slots));
    sched_yield();
  }
  return RONDO_OK;
}

rondo_status notices_wait(const rondo_exec *exec, uint64_t timeout_ns) {
  rondo_status status = RONDO_OK;
  uint64_t begin_ns = now_ns();
  for (uint32_t s = 0; s < exec->slot_count && status == RONDO_OK; s++)
    status = notice_wait(exec, &exec->slots[s], left_of(timeout_ns, now_ns() - begin_ns));
  return status;
}

/* -1: none any more. Of a slot that is not in flight. None is on its way then: the file may go. */
static rondo_status slot_notify(const rondo_exec *exec, struct slot *slot, int file) {
  rondo_status status = notice_wait(exec, slot, RONDO_FOREVER);
  if (status != RONDO_OK) return status;
  struct notice *notice = &slot->notice;
  notice->is_wanted = file >= 0;
  notice->file = file;
  notice->may_block = notice->is_wanted && !(fcntl(file, F_GETFL) & O_NONBLOCK);
  return RONDO_OK;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

static rondo_status slot_refused(rondo_slot handle, const char *function) {
  if (!handle.exec) return status_set(RONDO_INVALID_ARGUMENT, "%s: the slot's exec is NULL", function);
  if (!handle.serial || atomic_load_explicit(&handle.exec->serial, memory_order_relaxed) != handle.serial)
    return status_set(RONDO_INVALID_STATE, "%s: the slot's exec is closed", function);
  forked_status(function);
  return RONDO_INVALID_STATE;
}

static rondo_status slot_released(rondo_slot handle, const char *function) {
  return status_set(RONDO_INVALID_STATE, "%s: slot %u was released: rondo_acquire gives one anew", function,
                    handle.index);
}

/* Of a closed exec the memory is still there, with anything in it: no more than the serial is looked at. */
rondo_status slot_check(rondo_slot handle, const char *function, struct slot **slot) {
  if (!handle.exec || !handle.serial ||
      atomic_load_explicit(&handle.exec->serial, memory_order_relaxed) != handle.serial ||
      !atomic_load_explicit(handle.exec->opened_here, memory_order_relaxed))
    return slot_refused(handle, function);
  if (handle.index >= handle.exec->slot_count)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: slot %u does not exist: the exec has %u", function, handle.index,
                      handle.exec->slot_count);
  *slot = &handle.exec->slots[handle.index];
  if (atomic_load_explicit(&(*slot)->lease, memory_order_relaxed) != handle.lease)
    return slot_released(handle, function);
  return RONDO_OK;
}

bool slot_take(rondo_exec *exec, rondo_slot *handle) {
  uint32_t first = atomic_load_explicit(&exec->next_slot, memory_order_relaxed);
  for (uint32_t i = 0; i < exec->slot_count; i++) {
    uint32_t index = (first + i) % exec->slot_count;
    struct slot *slot = &exec->slots[index];
    uint32_t lease = atomic_load_explicit(&slot->lease, memory_order_relaxed);
    if (lease % 2 || !atomic_compare_exchange_strong_explicit(&slot->lease, &lease, lease + 1, memory_order_acquire,
                                                              memory_order_relaxed))
      continue; /* held, or somebody else was faster */
    atomic_store_explicit(&exec->next_slot, (index + 1) % exec->slot_count, memory_order_relaxed);
    *handle = (rondo_slot){.exec = exec,
                           .index = index,
                           .lease = lease + 1,
                           .serial = atomic_load_explicit(&exec->serial, memory_order_relaxed)};
    return true;
  }
  return false;
}

/* Whoever gets the slot may close the exec: it is not looked at afterwards. */
bool slot_give(rondo_exec *exec, struct slot *slot, uint32_t lease) {
  const rondo_runtime *runtime = exec->runtime;
  if (!atomic_compare_exchange_strong_explicit(&slot->lease, &lease, lease + 1, memory_order_release,
                                               memory_order_relaxed))
    return false;
  if (runtime->ops->ring) runtime->ops->ring(runtime->device);
  return true;
}

rondo_status rondo_acquire(rondo_exec *exec, rondo_slot *handle) {
  rondo_status status = exec_check(exec, "rondo_acquire");
  if (status != RONDO_OK) return status;
  if (!handle) return status_set(RONDO_INVALID_ARGUMENT, "rondo_acquire: the slot's address is NULL");
  if (slot_take(exec, handle)) return RONDO_OK;
  status = exec->runtime->ops->health(exec->runtime->device); /* of a lost device no slot comes back */
  return status == RONDO_OK ? status_set(RONDO_BUSY,
                                         "rondo_acquire: %u slot%s of the exec %s held: release one, or instantiate "
                                         "with more (%d at most)",
                                         exec->slot_count, PLURAL(exec->slot_count),
                                         exec->slot_count == 1 ? "is" : "are all", RONDO_MAX_SLOTS)
                            : status;
}

void *rondo_data(rondo_slot handle, rondo_tensor tensor) {
  struct slot *slot = NULL;
  if (slot_check(handle, "rondo_data", &slot) != RONDO_OK) return NULL;
  if (exec_tensor_check(handle.exec, tensor, 1u << TENSOR_INPUT | 1u << TENSOR_OUTPUT, false, "an input or an output",
                        "rondo_data") != RONDO_OK)
    return NULL;
  return slot->pinned + handle.exec->tensors[tensor.index].pinned_offset;
}

/* Constants are asked for at the slot's first replay, and then no more. */
rondo_status slot_ready(rondo_slot handle, const char *function, struct slot **slot) {
  rondo_status status = slot_check(handle, function, slot);
  if (status != RONDO_OK) return status;
  if (!slot_done(*slot)) return slot_in_flight(handle.exec, handle.index, function);
  return (*slot)->constants_are_set ? RONDO_OK : constants_check(handle.exec, *slot, function);
}

/* The replay before is told of no more, before anything of it is overwritten: see tell in any_slot.c. */
static rondo_status replay(rondo_slot handle, struct slot *slot, void *const *stream) {
  atomic_store_explicit(&slot->told, atomic_load_explicit(&slot->launched, memory_order_relaxed), memory_order_relaxed);
  atomic_store_explicit(&slot->user, handle.user, memory_order_release);
  atomic_store_explicit(&slot->user_lease, handle.lease, memory_order_release);
  return launch(handle.exec, slot, stream);
}

rondo_status rondo_replay(rondo_slot handle) {
  struct slot *slot = NULL;
  rondo_status status = slot_ready(handle, "rondo_replay", &slot);
  return status == RONDO_OK ? replay(handle, slot, NULL) : status;
}

rondo_status rondo_replay_on(rondo_slot handle, void *stream) {
  struct slot *slot = NULL;
  rondo_status status = slot_ready(handle, "rondo_replay_on", &slot);
  if (status != RONDO_OK) return status;
  if (!handle.exec->runtime->ops->exec_launch_on)
    return status_set(RONDO_UNSUPPORTED, "rondo_replay_on: the host backend has no streams: expected rondo_replay");
  return replay(handle, slot, &stream);
}

rondo_status rondo_poll(rondo_slot handle) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_poll", &slot);
  if (status != RONDO_OK || slot_done(slot)) return status;
  status = handle.exec->runtime->ops->health(handle.exec->runtime->device);
  return status == RONDO_OK ? RONDO_BUSY : done_after_all(slot, status);
}

rondo_status rondo_wait(rondo_slot handle, uint64_t timeout_ns) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_wait", &slot);
  if (status == RONDO_OK && !slot_done(slot)) status = runtime_check_outside(handle.exec->runtime, "rondo_wait");
  if (status != RONDO_OK) return status;
  return slot_wait(handle.exec, slot, timeout_ns);
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
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_notify: slot %u: file %d is no eventfd, expected one or -1",
                      handle.index, file);
  if (!slot_done(slot)) return slot_in_flight(handle.exec, handle.index, "rondo_notify");
  return slot_notify(handle.exec, slot, file);
}

rondo_status rondo_release(rondo_slot handle) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_release", &slot);
  if (status != RONDO_OK) return status;
  if (!slot_done(slot)) return slot_in_flight(handle.exec, handle.index, "rondo_release");
  status = exec_unbind(handle.exec, slot);
  if (status == RONDO_OK && slot->notice.is_wanted) status = slot_notify(handle.exec, slot, -1);
  if (status != RONDO_OK) return status;
  return slot_give(handle.exec, slot, handle.lease) ? RONDO_OK : slot_released(handle, "rondo_release");
}

rondo_status rondo_rebind(rondo_slot handle, rondo_tensor tensor, void *memory) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_rebind", &slot);
  if (status != RONDO_OK) return status;
  if (!slot_done(slot)) return slot_in_flight(handle.exec, handle.index, "rondo_rebind");
  return exec_rebind(handle.exec, slot, tensor, memory);
}
