/* uploads.c - rondo_upload, rondo_upload_all and rondo_download: the content of an exec's own constants and states,
 * written and read between replays. */
#include <inttypes.h>

#include "ownership.h"
#include "slot.h"

/* An exec that is being made has no slots yet, or is about to replay them for the first time and to zero the states. */
static rondo_status check_slots(const rondo_exec *exec, const char *function) {
  if (!exec_is_open(exec))
    return status_set(RONDO_BUSY, "%s: an exec that borrows from it is being instantiated: try again later", function);
  for (uint32_t s = 0; s < exec->slots.count; s++)
    if (!slot_done(&exec->slots.items[s])) return slot_in_flight(exec, s, function);
  return RONDO_OK;
}

/* Neither the exec nor one that borrows from it may be in flight. Under the same lock a state that will be set counts
 * as used, so no later warm replay touches it; and the exec cannot be closed before transfer_end. */
static rondo_status transfer_begin(rondo_exec *exec, bool sets_state, bool is_upload, const char *function) {
  pthread_mutex_lock(&exec->runtime->group->lock);
  rondo_status status = check_not_closing(exec, function);
  for (const rondo_exec *other = exec->runtime->group->execs; other && status == RONDO_OK; other = other->next)
    if (other == exec || borrows_from(other, exec)) {
      status = check_slots(other, function);
      if (status == RONDO_BUSY && other != exec && exec_is_open(other))
        status = status_set(status, "%s, of an exec that borrows from it", rondo_error_text());
    }
  if (status == RONDO_OK && sets_state) atomic_store(&exec->lending.states_are_used, true);
  if (status == RONDO_OK && is_upload) atomic_store(&exec->lending.was_uploaded, true);
  exec->lending.transfer_count += status == RONDO_OK;
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return status;
}

static void transfer_end(rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->group->lock);
  exec->lending.transfer_count--;
  pthread_mutex_unlock(&exec->runtime->group->lock);
}

static rondo_status resident_check(const rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes,
                                   const char *function) {
  rondo_status status = exec_tensor_check(exec, tensor, 1u << TENSOR_CONSTANT | 1u << TENSOR_STATE, true,
                                          "a constant or a state", function);
  if (status != RONDO_OK) return status;
  const struct exec_tensor *kept = &exec->tensors[tensor.index];
  if (kept->owner != exec)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor '%s' is borrowed: call this with the exec that owns it",
                      function, kept->name);
  if (bytes != kept->bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: %stensor '%s' has %" PRIu64 " byte%s, not %" PRIu64, function,
                      kept->root != tensor.index ? "the view of " : "", kept->name, kept->bytes, PLURAL(kept->bytes),
                      bytes);
  if (!data && bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor '%s': the data is NULL", function, kept->name);
  return RONDO_OK;
}

static rondo_status contents_check(const rondo_exec *exec, const rondo_content *contents, uint32_t count,
                                   const char *function, bool *sets_state, uint64_t *bytes) {
  rondo_status status = exec_check_outside(exec, function);
  if (status == RONDO_OK && !contents && count)
    status = status_set(RONDO_INVALID_ARGUMENT, "%s: the contents are NULL, expected %" PRIu32, function, count);
  for (const rondo_content *content = contents; status == RONDO_OK && content < contents + count; content++) {
    status = resident_check(exec, content->tensor, content->data, content->bytes, function);
    if (status != RONDO_OK || !content->bytes) continue;
    *sets_state = *sets_state || exec->tensors[content->tensor.index].kind == TENSOR_STATE;
    *bytes += content->bytes;
  }
  return status;
}

enum { OTHER_RANKS = RONDO_MAX_LANES };

/* The lanes of the runtime in which tasks may read constants and states of the exec, a bit each; and a bit for all
 * lanes of other ranks. */
static uint32_t lanes_of(const rondo_exec *exec) {
  uint32_t lanes = 1u << exec->lane;
  pthread_mutex_lock(&exec->runtime->group->lock);
  for (const rondo_exec *other = exec->runtime->group->execs; other; other = other->next)
    if (borrows_from(other, exec)) lanes |= 1u << (other->runtime == exec->runtime ? other->lane : OTHER_RANKS);
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return lanes;
}

static struct device_upload upload_at(const struct device_uploads *uploads, uint32_t index) {
  const rondo_content *content = &uploads->contents[index];
  const struct exec_tensor *kept = &uploads->exec->tensors[content->tensor.index];
  bool is_whole = kept->root == content->tensor.index;
  return (struct device_upload){.destination = kept->device_memory + kept->offset_bytes,
                                .source = content->data,
                                .rows = kept->rows,
                                .room_bytes = is_whole ? pool_round(kept->bytes) : kept->bytes};
}

static rondo_status send(rondo_exec *exec, const rondo_content *contents, uint32_t count) {
  const struct device_ops *ops = exec->runtime->ops;
  const struct device_uploads uploads = {.count = count, .at = upload_at, .exec = exec, .contents = contents};
  rondo_status status = ops->memory.upload(exec->runtime->device, exec->lane, &uploads);
  const uint32_t lanes = status == RONDO_OK && ops->memory.await_uploads ? lanes_of(exec) : 0;
  for (uint32_t lane = 0; lane < RONDO_MAX_LANES && status == RONDO_OK; lane++)
    if (lanes >> lane & 1) status = ops->memory.await_uploads(exec->runtime->device, lane);
  if (lanes >> OTHER_RANKS & 1 && status == RONDO_OK) /* no event orders another device's */
    status = ops->drain(exec->runtime->device, exec->lane);
  for (uint32_t i = 0; i < count && status == RONDO_OK; i++)
    if (contents[i].bytes) exec->tensors[exec->tensors[contents[i].tensor.index].root].is_uploaded = true;
  return status;
}

static rondo_status upload(rondo_exec *exec, const rondo_content *contents, uint32_t count, const char *function) {
  bool sets_state = false;
  uint64_t bytes = 0;
  rondo_status status = contents_check(exec, contents, count, function, &sets_state, &bytes);
  if (status == RONDO_OK) status = transfer_begin(exec, sets_state, true, function);
  if (status != RONDO_OK) return status;
  if (bytes) status = send(exec, contents, count);
  transfer_end(exec);
  return status;
}

rondo_status rondo_upload(rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes) {
  return upload(exec, &(rondo_content){tensor, data, bytes}, 1, "rondo_upload");
}

rondo_status rondo_upload_all(rondo_exec *exec, const rondo_content *contents, uint32_t count) {
  return upload(exec, contents, count, "rondo_upload_all");
}

rondo_status rondo_download(rondo_exec *exec, rondo_tensor tensor, void *data, uint64_t bytes) {
  rondo_status status = exec_check_outside(exec, "rondo_download");
  if (status == RONDO_OK) status = resident_check(exec, tensor, data, bytes, "rondo_download");
  if (status == RONDO_OK) status = transfer_begin(exec, false, false, "rondo_download");
  if (status != RONDO_OK) return status;
  const struct exec_tensor *kept = &exec->tensors[tensor.index];
  if (bytes)
    status = exec->runtime->ops->memory.download(exec->runtime->device, exec->lane, data,
                                                 kept->device_memory + kept->offset_bytes, kept->rows);
  transfer_end(exec);
  return status;
}
