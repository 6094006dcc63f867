/* slot.c - see slot.h. No allocation and no lock. On the replaying thread no system call of ours, except around the
 * first launch of a slot; the clock is read through the vDSO. */
#include "slot.h"

#include <inttypes.h>

#include "clock.h"
#include "own_thread.h"
#include "waiting.h"

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static rondo_status put_on_device(const rondo_exec *exec, struct slot *slot, void *const *stream,
                                  enum launch_kind kind) {
  const struct device_ops *ops = exec->runtime->ops;
  switch (kind) {
  case LAUNCH_REPEAT:
    return ops->exec_repeat(slot->device_exec);
  case LAUNCH_RING:
    return ops->exec_ring(slot->device_exec);
  default:
    return ops->exec_launch(slot->device_exec, stream);
  }
}

static rondo_status launch(const rondo_exec *exec, struct slot *slot, void *const *stream, enum launch_kind kind) {
  /* Counted before the launch: a thread that polls must not take the old completion for the new one. */
  uint64_t launched = atomic_load_explicit(&slot->launched, memory_order_relaxed);
  atomic_store_explicit(&slot->launched, launched + 1, memory_order_release);
  sigset_t signals;
  if (launched == 0) own_thread_block_signals(&signals); /* a driver may start threads in the first */
  rondo_status status = put_on_device(exec, slot, stream, kind);
  if (launched == 0) own_thread_restore_signals(&signals);
  if (status != RONDO_OK) atomic_store_explicit(&slot->launched, launched, memory_order_release);
  return status;
}

/* First `told` moves past the replay before, then its pointer and lease are overwritten: see tell in any_slot.c. */
static void tell_later(rondo_slot handle, struct slot *slot) {
  atomic_store_explicit(&slot->told, atomic_load_explicit(&slot->launched, memory_order_relaxed), memory_order_relaxed);
  atomic_store_explicit(&slot->user, handle.user, memory_order_release);
  atomic_store_explicit(&slot->user_lease, handle.lease, memory_order_release);
}

rondo_status slot_launch(rondo_slot handle, struct slot *slot, void *const *stream) {
  tell_later(handle, slot);
  const bool rings = slot->bell && !stream && !slot->rebound_count && !slot->notice.is_wanted;
  return launch(handle.exec, slot, stream, rings ? LAUNCH_RING : LAUNCH_REPLAY);
}

rondo_status slot_launch_repeat(rondo_slot handle, struct slot *slot) {
  tell_later(handle, slot);
  return launch(handle.exec, slot, NULL, LAUNCH_REPEAT);
}

rondo_status slot_launch_untold(const rondo_exec *exec, struct slot *slot, enum launch_kind kind) {
  uint64_t launched = atomic_load_explicit(&slot->launched, memory_order_relaxed);
  atomic_store_explicit(&slot->told, launched + 1, memory_order_relaxed);
  rondo_status status = launch(exec, slot, NULL, kind);
  if (status != RONDO_OK) atomic_store_explicit(&slot->told, launched, memory_order_relaxed);
  return status;
}

rondo_status slot_in_flight(const rondo_exec *exec, uint32_t slot, const char *function) {
  rondo_status status = exec->runtime->ops->health(exec->runtime->device);
  return status == RONDO_OK
             ? status_set(RONDO_BUSY, "%s: slot %u is in flight: try again later, or rondo_wait", function, slot)
             : status;
}

/* ---- Wait -------------------------------------------------------------------------------------------------------- */

static rondo_status timed_out(const rondo_exec *exec, const struct slot *slot, uint64_t timeout_ns) {
  return status_set(RONDO_TIMEOUT, "rondo_wait: slot %u is still in flight after %" PRIu64 " ns: wait for it again",
                    (uint32_t)(slot - exec->slots.items), timeout_ns);
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
  for (*slot = 0; *slot < exec->slots.count; ++*slot) {
    status = slot_wait(exec, &exec->slots.items[*slot], left_of(timeout_ns, waited_ns));
    if (status != RONDO_OK) return status;
    waited_ns = now_ns() - begin_ns;
  }
  return RONDO_OK;
}

/* ---- Handles ----------------------------------------------------------------------------------------------------- */

static rondo_status slot_refused(rondo_slot handle, const char *function) {
  if (!handle.exec) return status_set(RONDO_INVALID_ARGUMENT, "%s: the slot's exec is NULL", function);
  if (!handle.serial || atomic_load_explicit(&handle.exec->serial, memory_order_relaxed) != handle.serial)
    return status_set(RONDO_INVALID_STATE, "%s: the slot's exec is closed", function);
  forked_status(function);
  return RONDO_INVALID_STATE;
}

rondo_status slot_released(rondo_slot handle, const char *function) {
  return status_set(RONDO_INVALID_STATE, "%s: slot %u was released: call rondo_acquire again", function, handle.index);
}

/* The memory of a closed exec is still there, with any content: so its serial is checked before anything else is read.
 */
rondo_status slot_check(rondo_slot handle, const char *function, struct slot **slot) {
  if (!handle.exec || !handle.serial ||
      atomic_load_explicit(&handle.exec->serial, memory_order_relaxed) != handle.serial ||
      !atomic_load_explicit(handle.exec->opened_here, memory_order_relaxed))
    return slot_refused(handle, function);
  if (handle.index >= handle.exec->slots.count)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: slot %u does not exist: the exec has %u", function, handle.index,
                      handle.exec->slots.count);
  *slot = &handle.exec->slots.items[handle.index];
  if (atomic_load_explicit(&(*slot)->lease, memory_order_relaxed) != handle.lease)
    return slot_released(handle, function);
  return RONDO_OK;
}

static rondo_status constants_check(const rondo_exec *exec, struct slot *slot, const char *function) {
  for (uint32_t i = 0; i < exec->tensor_count; i++) {
    const struct exec_tensor *kept = &exec->tensors[i];
    bool is_read = kept->root == i && kept->kind == TENSOR_CONSTANT && kept->access && kept->bytes;
    if (!is_read || slot->rebound[i] || kept->owner->tensors[kept->owner_index].is_uploaded) continue;
    return status_set(RONDO_INVALID_STATE,
                      "%s: constant '%s'%s has never been uploaded: call rondo_upload, or instantiate with "
                      "constants_begin_as_zeros",
                      function, kept->name, kept->owner == exec ? "" : ", borrowed from another exec,");
  }
  slot->constants_are_set = true;
  return RONDO_OK;
}

/* Constants are checked at the slot's first replay, and again after a constant's buffer is unbound. */
rondo_status slot_ready(rondo_slot handle, const char *function, struct slot **slot) {
  rondo_status status = slot_check(handle, function, slot);
  if (status != RONDO_OK) return status;
  if (!slot_done(*slot)) return slot_in_flight(handle.exec, handle.index, function);
  return (*slot)->constants_are_set ? RONDO_OK : constants_check(handle.exec, *slot, function);
}

/* ---- Leases ------------------------------------------------------------------------------------------------------ */

bool slot_take(rondo_exec *exec, rondo_slot *handle) {
  uint32_t first = atomic_load_explicit(&exec->slots.next_free, memory_order_relaxed);
  for (uint32_t i = 0; i < exec->slots.count; i++) {
    uint32_t index = (first + i) % exec->slots.count;
    struct slot *slot = &exec->slots.items[index];
    uint32_t lease = atomic_load_explicit(&slot->lease, memory_order_relaxed);
    if (lease % 2 || !atomic_compare_exchange_strong_explicit(&slot->lease, &lease, lease + 1, memory_order_acquire,
                                                              memory_order_relaxed))
      continue; /* held, or another thread was faster */
    atomic_store_explicit(&exec->slots.next_free, (index + 1) % exec->slots.count, memory_order_relaxed);
    *handle = (rondo_slot){.exec = exec,
                           .index = index,
                           .lease = lease + 1,
                           .serial = atomic_load_explicit(&exec->serial, memory_order_relaxed)};
    if (slot->repeat.control) repeat_set_done(slot->repeat.control, 0); /* a new holder has repeated nothing */
    return true;
  }
  return false;
}

/* The next holder may close the exec, so it is not looked at after the exchange. */
bool slot_give(rondo_exec *exec, struct slot *slot, uint32_t lease) {
  const rondo_runtime *runtime = exec->runtime;
  if (!atomic_compare_exchange_strong_explicit(&slot->lease, &lease, lease + 1, memory_order_release,
                                               memory_order_relaxed))
    return false;
  if (runtime->ops->rest) runtime->ops->rest->ring(runtime->device);
  return true;
}
