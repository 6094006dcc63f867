/* warm_up.c - see warm_up.h. A warm replay writes states. That is harmless for the exec's own states, which are zeroed
 * afterwards. It is harmless for a borrowed state only while that state is known to be all zeros. */
#include "warm_up.h"

#include <inttypes.h>
#include <stdio.h>

#include "ownership.h"
#include "program.h"
#include "slot.h"

static const uint64_t warm_replay_timeout_ns = UINT64_C(120) * 1000 * 1000 * 1000;

static bool writes_borrowed_state(const rondo_exec *exec, uint32_t tensor) {
  const struct exec_tensor *kept = &exec->tensors[tensor];
  return kept->root == tensor && kept->kind == TENSOR_STATE && kept->owner != exec && kept->access & RONDO_WRITE;
}

/* May its states hold something else than zeros, or be read now, so that a warm replay would be seen? */
static bool may_hold_something(const rondo_exec *owner) {
  if (atomic_load(&owner->lending.states_are_used) || owner->lending.transfer_count || was_replayed(owner)) return true;
  for (const rondo_exec *other = owner->runtime->group->execs; other; other = other->next)
    if (borrows_from(other, owner) && was_replayed(other)) return true;
  return false;
}

static bool allows_warm_up(rondo_exec *exec) {
  bool forbidden = program_waiting_task(exec) != NULL;
  pthread_mutex_lock(&exec->runtime->group->lock);
  for (uint32_t i = 0; i < exec->tensor_count && !forbidden; i++)
    forbidden = writes_borrowed_state(exec, i) && may_hold_something(exec->tensors[i].owner);
  if (!forbidden) /* besides, a repeat of one replay, and one that leaves the graph on the device */
    exec->warm_replays = 1u + (exec->repeat_steps != 0) + (exec->slots.items[0].bell != NULL);
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return !forbidden;
}

rondo_status exec_zero(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  rondo_status status =
      ops->memory.zero(exec->runtime->device, exec->lane, exec->memory.device, exec->memory.constant_bytes);
  for (uint32_t i = 0; exec->warm_replays && i < exec->tensor_count && status == RONDO_OK; i++)
    if (writes_borrowed_state(exec, i))
      status =
          ops->memory.zero(exec->runtime->device, exec->lane, exec->tensors[i].device_memory, exec->tensors[i].bytes);
  return status;
}

/* A warm replay that does not end cannot be taken apart, so the device is lost. */
static rondo_status give_up(const rondo_runtime *runtime, uint32_t slot) {
  char cause[96];
  snprintf(cause, sizeof cause, "instantiate: the warm replay of slot %u was not done after 120 s", slot);
  return runtime->ops->lose(runtime->device, cause);
}

static rondo_status warm_replay(rondo_exec *exec, uint32_t index, enum launch_kind kind) {
  struct slot *slot = &exec->slots.items[index];
  rondo_status status = slot_launch_untold(exec, slot, kind);
  if (status == RONDO_OK) status = slot_wait(exec, slot, warm_replay_timeout_ns);
  return status == RONDO_TIMEOUT ? give_up(exec->runtime, index) : status;
}

static rondo_status warm_repeat(rondo_exec *exec, uint32_t index) {
  struct repeat_control *control = exec->slots.items[index].repeat.control;
  control->count = 1;
  rondo_status status = warm_replay(exec, index, LAUNCH_REPEAT);
  if (status == RONDO_OK && repeat_done(control) != 1)
    status = status_set(RONDO_INTERNAL, "instantiate: the warm repeat of slot %u ended after %u replays, expected 1",
                        index, repeat_done(control));
  if (status == RONDO_OK) repeat_set_done(control, 0);
  return status;
}

static rondo_status slot_warm_up(rondo_exec *exec, uint32_t index) {
  const struct slot *slot = &exec->slots.items[index];
  rondo_status status = warm_replay(exec, index, LAUNCH_REPLAY);
  if (status == RONDO_OK && exec->repeat_steps) status = warm_repeat(exec, index);
  if (status == RONDO_OK && slot->bell) status = warm_replay(exec, index, LAUNCH_RING);
  for (int i = 0; i < COMPLETION_WORDS && status == RONDO_OK; i++) {
    uint64_t replays = atomic_load(&slot->words[i]);
    if (replays == exec->warm_replays || (i && replays == UINT64_MAX)) continue;
    status = status_set(RONDO_INTERNAL, "instantiate: slot %u completed %" PRIu64 " warm replays, expected %u", index,
                        replays, exec->warm_replays);
  }
  return status;
}

/* Constants and states begin as zeros. Every lazy cost of the first launch is paid here, and what that wrote is zeroed
 * again. Without a warm-up, since none is wanted, a borrowed state may already hold something or a task would wait for
 * other ranks, the first replay pays what is left to pay. */
rondo_status exec_make_ready(rondo_exec *exec, bool without_warm_up) {
  bool warms_up = !without_warm_up && allows_warm_up(exec);
  rondo_status status = exec_zero(exec);
  for (uint32_t s = 0; warms_up && s < exec->slots.count && status == RONDO_OK; s++) status = slot_warm_up(exec, s);
  return warms_up && status == RONDO_OK ? exec_zero(exec) : status;
}
