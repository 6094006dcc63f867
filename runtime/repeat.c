/* repeat.c - rondo_repeat: many replays in one launch, whose outputs the program reads while later ones run. The host
 * writes the control before the launch; then it only reads `done` and may write `stop` (repeat_control.h). */
#include "repeat_control.h"

#include <inttypes.h>
#include <string.h>

#include "slot.h"
#include "waiting.h"

/* ---- Start ------------------------------------------------------------------------------------------------------- */

static rondo_status has_repeats(rondo_slot handle, const char *function) {
  if (handle.exec->repeat_steps) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: the exec has no repeats: instantiate with repeat_steps", function);
}

/* NULL: `until` is absent. */
static rondo_status find_until(rondo_slot handle, const struct slot *slot, rondo_tensor until, const int32_t **found) {
  const rondo_exec *exec = handle.exec;
  *found = NULL;
  if (!until.serial) return RONDO_OK;
  rondo_status status = exec_tensor_check(exec, until, 1u << TENSOR_OUTPUT | 1u << TENSOR_STATE, true,
                                          "an output or a state", "rondo_repeat: until");
  if (status != RONDO_OK) return status;
  const struct exec_tensor *tensor = &exec->tensors[until.index];
  if (tensor->dtype != RONDO_I32 || tensor->bytes != sizeof(int32_t))
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat: until: '%s' has %" PRIu64 " bytes of %s, expected one i32",
                      tensor->name, tensor->bytes, rondo_dtype_name(tensor->dtype));
  const unsigned char *root =
      tensor->kind == TENSOR_OUTPUT ? slot->pinned + tensor->pinned_offset : exec->tensors[tensor->root].device_memory;
  *found = (const void *)(root + tensor->offset_bytes);
  return RONDO_OK;
}

static rondo_status check_options(rondo_slot handle, const struct slot *slot, const rondo_repeat_options *options,
                                  const int32_t **until) {
  rondo_status status = has_repeats(handle, "rondo_repeat");
  if (status != RONDO_OK) return status;
  if (!options) return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat: the options are NULL");
  if (!options->count || options->count > handle.exec->repeat_steps)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat: count is %u, expected 1 to %u (repeat_steps)",
                      options->count, handle.exec->repeat_steps);
  if (options->value_count > REPEAT_VALUES)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat: %u values, expected at most %d", options->value_count,
                      REPEAT_VALUES);
  if (options->value_count && (!options->values || !options->until.serial))
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat: value_count is %u, but %s", options->value_count,
                      options->values ? "until is absent" : "the values are NULL");
  if (slot->rebound_count)
    return status_set(RONDO_INVALID_STATE, "rondo_repeat: slot %u has bound tensors: rondo_rebind them to NULL",
                      handle.index);
  return find_until(handle, slot, options->until, until);
}

rondo_status rondo_repeat(rondo_slot handle, const rondo_repeat_options *options) {
  struct slot *slot = NULL;
  const int32_t *until = NULL;
  rondo_status status = slot_ready(handle, "rondo_repeat", &slot);
  if (status == RONDO_OK) status = check_options(handle, slot, options, &until);
  if (status != RONDO_OK) return status;
  struct repeat_control *control = slot->repeat.control;
  const uint32_t done_before = repeat_done(control);
  control->count = options->count;
  control->until = until;
  control->value_count = options->value_count;
  if (options->value_count) memcpy(control->values, options->values, options->value_count * sizeof *options->values);
  repeat_set_stop(control, 0);
  repeat_set_done(control, 0);
  status = slot_launch_repeat(handle, slot);
  if (status != RONDO_OK) repeat_set_done(control, done_before);
  return status;
}

/* ---- While it runs ----------------------------------------------------------------------------------------------- */

static rondo_status repeat_slot(rondo_slot handle, const char *function, struct slot **slot) {
  rondo_status status = slot_check(handle, function, slot);
  return status == RONDO_OK ? has_repeats(handle, function) : status;
}

struct step {
  struct slot *slot;
  uint32_t wanted, done;
};

/* The end is looked at first: then all replays of the repeat are counted. */
static bool look_for_step(void *argument) {
  struct step *step = argument;
  const bool has_ended = slot_done(step->slot);
  step->done = repeat_done(step->slot->repeat.control);
  return has_ended || step->done >= step->wanted;
}

rondo_status rondo_repeat_wait(rondo_slot handle, uint32_t replays, uint64_t timeout_ns, uint32_t *done) {
  struct step step = {.wanted = replays};
  rondo_status status = repeat_slot(handle, "rondo_repeat_wait", &step.slot);
  if (status != RONDO_OK) return status;
  if (!done) return status_set(RONDO_INVALID_ARGUMENT, "rondo_repeat_wait: the address of done is NULL");
  const rondo_runtime *runtime = handle.exec->runtime;
  if (!look_for_step(&step)) status = runtime_check_outside(runtime, "rondo_repeat_wait");
  const struct waiting waiting = {
      .runtime = runtime, .look = look_for_step, .subject = &step, .for_what = handle.exec->lane};
  if (status == RONDO_OK) status = wait_until(&waiting, timeout_ns);
  if (status == RONDO_TIMEOUT)
    return status_set(status, "rondo_repeat_wait: slot %u: %u of %u replays are done after %" PRIu64 " ns",
                      handle.index, step.done, replays, timeout_ns);
  if (status == RONDO_OK) *done = step.done;
  return status;
}

const void *rondo_repeat_data(rondo_slot handle, rondo_tensor output, uint32_t replay) {
  struct slot *slot = NULL;
  if (repeat_slot(handle, "rondo_repeat_data", &slot) != RONDO_OK) return NULL;
  if (exec_tensor_check(handle.exec, output, 1u << TENSOR_OUTPUT, false, "an output", "rondo_repeat_data") != RONDO_OK)
    return NULL;
  const struct repeat *repeat = &slot->repeat;
  const uint32_t done = repeat_done(repeat->control);
  if (replay < done)
    return repeat->places + replay * repeat->place_bytes +
           (slot->pinned + handle.exec->tensors[output.index].pinned_offset - repeat->outputs);
  status_set(RONDO_INVALID_STATE, "rondo_repeat_data: slot %u: replay %u is not done, %u are", handle.index, replay,
             done);
  return NULL;
}

rondo_status rondo_repeat_stop(rondo_slot handle) {
  struct slot *slot = NULL;
  rondo_status status = repeat_slot(handle, "rondo_repeat_stop", &slot);
  if (status == RONDO_OK) repeat_set_stop(slot->repeat.control, 1);
  return status;
}
