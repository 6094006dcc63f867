/* replay.c - the hot path: rondo_acquire, rondo_data, rondo_replay, rondo_poll, rondo_wait, rondo_release; and the same
 * for slots of several execs. */
#include "bind.h"
#include "clock.h"
#include "notices.h"
#include "slot.h"
#include "waiting.h"

rondo_status rondo_acquire(rondo_exec *exec, rondo_slot *handle) {
  rondo_status status = exec_check(exec, "rondo_acquire");
  if (status != RONDO_OK) return status;
  if (!handle) return status_set(RONDO_INVALID_ARGUMENT, "rondo_acquire: the slot's address is NULL");
  if (slot_take(exec, handle)) return RONDO_OK;
  status = exec->runtime->ops->health(exec->runtime->device); /* of a lost device no slot comes back */
  return status == RONDO_OK ? status_set(RONDO_BUSY,
                                         "rondo_acquire: %u slot%s of the exec %s held: release one, or instantiate "
                                         "with more (%d at most)",
                                         exec->slots.count, PLURAL(exec->slots.count),
                                         exec->slots.count == 1 ? "is" : "are all", RONDO_MAX_SLOTS)
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

rondo_status rondo_replay(rondo_slot handle) {
  struct slot *slot = NULL;
  rondo_status status = slot_ready(handle, "rondo_replay", &slot);
  return status == RONDO_OK ? slot_launch(handle, slot, NULL) : status;
}

rondo_status rondo_replay_on(rondo_slot handle, void *stream) {
  struct slot *slot = NULL;
  rondo_status status = slot_ready(handle, "rondo_replay_on", &slot);
  if (status != RONDO_OK) return status;
  if (!handle.exec->runtime->info.lanes[handle.exec->lane].stream)
    return status_set(RONDO_UNSUPPORTED, "rondo_replay_on: the host backend has no streams: expected rondo_replay");
  return slot_launch(handle, slot, &stream);
}

/* A replay may be done between the two looks, and the device be lost after it. Its result stands, for this call as for
 * the next. */
static rondo_status done_after_all(const struct slot *slot, rondo_status status) {
  return slot_done(slot) ? RONDO_OK : status;
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

/* ---- Several ranks ----------------------------------------------------------------------------------------------- */

/* Puts the place in the array after the error text. */
static rondo_status all_failed(rondo_status status, uint32_t index) {
  return status_set(status, "%s (slots[%u])", rondo_error_text(), index);
}

static rondo_status all_check(const rondo_slot *slots, uint32_t count, const char *function) {
  if (slots || !count) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "%s: the slots are NULL, and their count is %u", function, count);
}

/* Is the slot at `index` ready, none of those before it, and its device not lost? The others would wait for it in vain.
 */
static rondo_status ready_once(const rondo_slot *slots, uint32_t index, const char *function) {
  struct slot *slot = NULL;
  rondo_status status = slot_ready(slots[index], function, &slot);
  if (status == RONDO_OK) status = slots[index].exec->runtime->ops->check(slots[index].exec->runtime->device, "replay");
  for (uint32_t i = 0; i < index && status == RONDO_OK; i++)
    if (slots[i].exec == slots[index].exec && slots[i].index == slots[index].index)
      status = status_set(RONDO_INVALID_ARGUMENT, "%s: the slot is slots[%u] too", function, i);
  return status;
}

rondo_status rondo_replay_all(const rondo_slot *slots, uint32_t count) {
  static const char function[] = "rondo_replay_all";
  rondo_status status = all_check(slots, count, function);
  for (uint32_t i = 0; i < count && status == RONDO_OK; i++) {
    status = ready_once(slots, i, function);
    if (status != RONDO_OK) return all_failed(status, i);
  }
  for (uint32_t i = 0; i < count && status == RONDO_OK; i++) {
    status = slot_launch(slots[i], &slots[i].exec->slots.items[slots[i].index], NULL);
    if (status != RONDO_OK) return all_failed(status, i);
  }
  return status;
}

rondo_status rondo_wait_all(const rondo_slot *slots, uint32_t count, uint64_t timeout_ns) {
  static const char function[] = "rondo_wait_all";
  rondo_status status = all_check(slots, count, function);
  const uint64_t begin_ns = now_ns();
  for (uint32_t i = 0; i < count && status == RONDO_OK; i++) {
    status = rondo_wait(slots[i], left_of(timeout_ns, i ? now_ns() - begin_ns : 0));
    if (status != RONDO_OK) return all_failed(status, i);
  }
  return status;
}
