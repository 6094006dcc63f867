/* resident.c - see resident.h. Memory of constants and states belongs to the exec of the graph that described them; an
 * exec of a graph that borrows them has their addresses in its nodes, and keeps the owner open. */
#include "resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replay.h"

/* ---- Whose they are ---------------------------------------------------------------------------------------------- */

static rondo_status find_owner(const rondo_exec *exec, const struct tensor *tensor, rondo_exec **owner) {
  uint32_t found = 0, closing = 0;
  for (rondo_exec *other = exec->runtime->execs; other; other = other->next) {
    if (other->graph_serial != tensor->lender_serial) continue;
    closing += other->is_closing;
    if (other->is_closing || !exec_is_open(other)) continue;
    *owner = other;
    found++;
  }
  if (found == 1) return RONDO_OK;
  if (!found && closing)
    return status_set(RONDO_INVALID_STATE,
                      "%s '%s' is borrowed from a graph whose exec another thread closes: instantiate the lender anew",
                      tensor_kind_name(tensor->kind), tensor->name);
  if (!found)
    return status_set(
        RONDO_INVALID_STATE,
        "%s '%s' is borrowed from a graph of which no exec is open in this runtime: instantiate that graph "
        "first, and close its exec last",
        tensor_kind_name(tensor->kind), tensor->name);
  return status_set(
      RONDO_INVALID_STATE,
      "%s '%s' is borrowed from a graph of which %u execs are open in this runtime: close all but the one "
      "that is to lend",
      tensor_kind_name(tensor->kind), tensor->name, found);
}

static void note_lender(rondo_exec *exec, rondo_exec *owner) {
  for (uint32_t i = 0; i < exec->lender_count; i++)
    if (exec->lenders[i] == owner) return;
  exec->lenders[exec->lender_count++] = owner;
}

static rondo_status owners_fill(rondo_exec *exec, const rondo_graph *graph) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    struct exec_tensor *place = &exec->tensors[i];
    if (!tensor_is_resident(tensor)) continue;
    if (tensor->root != i) { /* a view: its root was there before */
      const struct exec_tensor *root = &exec->tensors[tensor->root];
      place->owner = root->owner;
      place->owner_index = root->owner_index;
      place->device_memory = root->device_memory;
      continue;
    }
    place->owner = exec;
    place->owner_index = i;
    if (!tensor->lender_serial) continue;
    rondo_status status = find_owner(exec, tensor, &place->owner);
    if (status != RONDO_OK) return status;
    if (tensor->lender_index >= place->owner->tensor_count)
      return status_set(RONDO_INVALID_STATE,
                        "%s '%s' was added to its graph after rondo_instantiate made the exec that would lend it: "
                        "instantiate the lender anew",
                        tensor_kind_name(tensor->kind), tensor->name);
    place->owner_index = tensor->lender_index;
    place->device_memory = place->owner->tensors[tensor->lender_index].device_memory;
    note_lender(exec, place->owner);
  }
  return RONDO_OK;
}

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

static bool borrows_from(const rondo_exec *exec, const rondo_exec *owner) {
  for (uint32_t i = 0; i < exec->lender_count; i++)
    if (exec->lenders[i] == owner) return true;
  return false;
}

/* What the tasks of an exec do with a state of the owner's. */
static uint32_t access_of(const rondo_exec *exec, const rondo_exec *owner, uint32_t owner_index) {
  if (exec == owner) return owner->tensors[owner_index].access;
  uint32_t access = 0;
  for (uint32_t i = 0; borrows_from(exec, owner) && i < exec->tensor_count; i++)
    if (exec->tensors[i].root == i && exec->tensors[i].owner == owner && exec->tensors[i].owner_index == owner_index)
      access |= exec->tensors[i].access;
  return access;
}

static rondo_status lanes_share(const rondo_exec *exec, const rondo_graph *graph) {
  for (uint32_t i = 0; i < exec->tensor_count; i++) {
    const struct exec_tensor *place = &exec->tensors[i];
    if (place->root != i || place->kind != TENSOR_STATE || !place->access) continue;
    for (const rondo_exec *other = exec->runtime->execs; other; other = other->next) {
      if (other->lane == exec->lane) continue;
      uint32_t others = access_of(other, place->owner, place->owner_index);
      if (!others || !((others | place->access) & RONDO_WRITE)) continue;
      return status_set(
          RONDO_INVALID_STATE,
          "state '%s' is %s in lane %u and %s in lane %u: nothing orders lanes, so say states_are_ordered "
          "if the program does",
          graph->tensors[i].name, place->access & RONDO_WRITE ? "written" : "read", exec->lane,
          others & RONDO_WRITE ? "written" : "read", other->lane);
    }
  }
  return RONDO_OK;
}

/* ---- Attach and detach ------------------------------------------------------------------------------------------- */

rondo_status residents_attach(rondo_exec *exec, const rondo_graph *graph, const rondo_exec_options *options) {
  rondo_status status = owners_fill(exec, graph);
  if (status == RONDO_OK && !options->states_are_ordered) status = lanes_share(exec, graph);
  if (status != RONDO_OK) {
    exec->lender_count = 0;
    return status;
  }
  for (uint32_t i = 0; i < exec->tensor_count; i++) exec->tensors[i].is_uploaded = options->constants_begin_as_zeros;
  exec->next = exec->runtime->execs;
  exec->runtime->execs = exec;
  return RONDO_OK;
}

static bool was_replayed(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slot_count; s++)
    if (atomic_load_explicit(&exec->slots[s].launched, memory_order_relaxed) > exec->warm_replays) return true;
  return false;
}

void residents_detach(rondo_exec *exec) {
  rondo_exec **link = &exec->runtime->execs;
  while (*link && *link != exec) link = &(*link)->next;
  if (!*link) return; /* it was never attached */
  *link = exec->next;
  if (!was_replayed(exec)) return;
  for (uint32_t i = 0; i < exec->lender_count; i++) atomic_store(&exec->lenders[i]->states_are_used, true);
}

/* Adds an exec to "'a', 'b'": the first tasks of some. */
static void name_exec(const rondo_exec *exec, uint32_t number, char text[RESIDENTS_TEXT]) {
  enum { NAMED_MOST = 3 };
  const size_t used = number ? strlen(text) : 0;
  if (number < NAMED_MOST)
    snprintf(text + used, RESIDENTS_TEXT - used, "%s'%s'", number ? ", " : "", exec->called ? exec->called : "");
  else if (number == NAMED_MOST)
    snprintf(text + used, RESIDENTS_TEXT - used, " and others");
}

static uint32_t count_borrowers(const rondo_exec *exec, char text[RESIDENTS_TEXT]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *other = exec->runtime->execs; other; other = other->next)
    if (borrows_from(other, exec)) name_exec(other, count++, text);
  return count;
}

uint32_t residents_execs(const rondo_runtime *runtime, char text[RESIDENTS_TEXT]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *exec = runtime->execs; exec; exec = exec->next) name_exec(exec, count++, text);
  return count;
}

rondo_status check_not_closing(const rondo_exec *exec, const char *function) {
  if (!exec->is_closing) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: another thread closes the exec", function);
}

rondo_status residents_close(rondo_exec *exec, const char *function) {
  char borrowers[RESIDENTS_TEXT];
  pthread_mutex_lock(&exec->runtime->lock);
  uint32_t borrower_count = count_borrowers(exec, borrowers);
  rondo_status status = check_not_closing(exec, function);
  if (status == RONDO_OK && borrower_count)
    status = status_set(RONDO_INVALID_STATE, "%s: %u open exec%s its constants or states: close first %s %s", function,
                        borrower_count, borrower_count == 1 ? " borrows" : "s borrow",
                        borrower_count == 1 ? "that of task" : "those of tasks", borrowers);
  if (status == RONDO_OK && exec->transfer_count)
    status = status_set(RONDO_INVALID_STATE, "%s: another thread uploads to the exec or downloads from it", function);
  if (status == RONDO_OK) exec->is_closing = true;
  pthread_mutex_unlock(&exec->runtime->lock);
  return status;
}

void residents_reopen(rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->lock);
  exec->is_closing = false;
  pthread_mutex_unlock(&exec->runtime->lock);
}

/* ---- The warm replay --------------------------------------------------------------------------------------------- */

static bool writes_borrowed_state(const rondo_exec *exec, uint32_t tensor) {
  const struct exec_tensor *place = &exec->tensors[tensor];
  return place->root == tensor && place->kind == TENSOR_STATE && place->owner != exec && place->access & RONDO_WRITE;
}

/* Or is being read: a warm replay would be seen. */
static bool may_hold_something(const rondo_exec *owner) {
  if (atomic_load(&owner->states_are_used) || owner->transfer_count || was_replayed(owner)) return true;
  for (const rondo_exec *other = owner->runtime->execs; other; other = other->next)
    if (borrows_from(other, owner) && was_replayed(other)) return true;
  return false;
}

bool residents_allow_warming(rondo_exec *exec) {
  bool forbidden = false;
  pthread_mutex_lock(&exec->runtime->lock);
  for (uint32_t i = 0; i < exec->tensor_count && !forbidden; i++)
    forbidden = writes_borrowed_state(exec, i) && may_hold_something(exec->tensors[i].owner);
  if (!forbidden) exec->warm_replays = 1;
  pthread_mutex_unlock(&exec->runtime->lock);
  return !forbidden;
}

rondo_status residents_zero(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  rondo_status status = ops->zero(exec->runtime->device, exec->lane, exec->device_memory, exec->constant_bytes);
  for (uint32_t i = 0; exec->warm_replays && i < exec->tensor_count && status == RONDO_OK; i++)
    if (writes_borrowed_state(exec, i))
      status = ops->zero(exec->runtime->device, exec->lane, exec->tensors[i].device_memory, exec->tensors[i].bytes);
  return status;
}

/* ---- Upload and download ----------------------------------------------------------------------------------------- */

rondo_status exec_tensor_check(const rondo_exec *exec, rondo_tensor tensor, uint32_t kinds, bool views,
                               const char *expected, const char *function) {
  if (!tensor.serial) return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor is absent (all zeros)", function);
  if (tensor.serial != exec->graph_serial)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor belongs to another graph than the exec was made from",
                      function);
  if (tensor.index >= exec->tensor_count)
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "%s: tensor %u was added to the graph after rondo_instantiate, when there were %u: instantiate it anew",
        function, tensor.index, exec->tensor_count);
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  bool is_view = place->root != tensor.index && !views;
  if (!is_view && (kinds >> place->kind & 1u)) return RONDO_OK;
  if (is_view)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor is a view of %s '%s', expected the whole of %s", function,
                      tensor_kind_name(place->kind), place->name, expected);
  return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor '%s' is of kind %s, expected %s", function, place->name,
                    tensor_kind_name(place->kind), expected);
}

/* One that is being made has no slots yet, or is about to replay them for the first time, and to zero the states. */
static rondo_status check_slots(const rondo_exec *exec, const char *function) {
  if (!exec_is_open(exec))
    return status_set(RONDO_BUSY, "%s: an exec that borrows from it is being instantiated: try again later", function);
  for (uint32_t s = 0; s < exec->slot_count; s++)
    if (!slot_done(&exec->slots[s])) return slot_in_flight(exec, s, function);
  return RONDO_OK;
}

/* Neither the exec nor one that borrows from it may be in flight. Under the same lock a state that is about to be set
 * counts as used: whatever is instantiated from here on leaves it alone; and nobody closes the exec before
 * transfer_end. */
static rondo_status transfer_begin(rondo_exec *exec, bool sets_state, const char *function) {
  pthread_mutex_lock(&exec->runtime->lock);
  rondo_status status = check_not_closing(exec, function);
  for (const rondo_exec *other = exec->runtime->execs; other && status == RONDO_OK; other = other->next)
    if (other == exec || borrows_from(other, exec)) {
      status = check_slots(other, function);
      if (status == RONDO_BUSY && other != exec && exec_is_open(other))
        status = status_set(status, "%s, of an exec that borrows from it", rondo_error_text());
    }
  if (status == RONDO_OK && sets_state) atomic_store(&exec->states_are_used, true);
  exec->transfer_count += status == RONDO_OK;
  pthread_mutex_unlock(&exec->runtime->lock);
  return status;
}

static void transfer_end(rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->lock);
  exec->transfer_count--;
  pthread_mutex_unlock(&exec->runtime->lock);
}

static rondo_status resident_check(const rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes,
                                   const char *function) {
  rondo_status status = exec_tensor_check(exec, tensor, 1u << TENSOR_CONSTANT | 1u << TENSOR_STATE, true,
                                          "a constant or a state", function);
  if (status != RONDO_OK) return status;
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  if (place->owner != exec)
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "%s: tensor '%s' is borrowed: its content is that of the exec it belongs to, which is what to call this with",
        function, place->name);
  if (bytes != place->bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: %stensor '%s' has %" PRIu64 " byte%s, not %" PRIu64, function,
                      place->root != tensor.index ? "the view of " : "", place->name, place->bytes,
                      PLURAL(place->bytes), bytes);
  if (!data && bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor '%s': the data is NULL", function, place->name);
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

/* The lanes in which what the exec holds may be read, a bit each. */
static uint32_t lanes_of(const rondo_exec *exec) {
  uint32_t lanes = 1u << exec->lane;
  pthread_mutex_lock(&exec->runtime->lock);
  for (const rondo_exec *other = exec->runtime->execs; other; other = other->next)
    if (borrows_from(other, exec)) lanes |= 1u << other->lane;
  pthread_mutex_unlock(&exec->runtime->lock);
  return lanes;
}

static struct device_upload upload_at(const struct device_uploads *uploads, uint32_t index) {
  const rondo_content *content = &uploads->contents[index];
  const struct exec_tensor *place = &uploads->exec->tensors[content->tensor.index];
  bool is_whole = place->root == content->tensor.index;
  return (struct device_upload){.destination = place->device_memory + place->offset_bytes,
                                .source = content->data,
                                .rows = place->rows,
                                .room_bytes = is_whole ? pool_round(place->bytes) : place->bytes};
}

static rondo_status send(rondo_exec *exec, const rondo_content *contents, uint32_t count) {
  const struct device_ops *ops = exec->runtime->ops;
  const struct device_uploads uploads = {.count = count, .at = upload_at, .exec = exec, .contents = contents};
  rondo_status status = ops->upload(exec->runtime->device, exec->lane, &uploads);
  const uint32_t lanes = status == RONDO_OK && ops->await_uploads ? lanes_of(exec) : 0;
  for (uint32_t lane = 0; lane < RONDO_MAX_LANES && status == RONDO_OK; lane++)
    if (lanes >> lane & 1) status = ops->await_uploads(exec->runtime->device, lane);
  for (uint32_t i = 0; i < count && status == RONDO_OK; i++)
    if (contents[i].bytes) exec->tensors[exec->tensors[contents[i].tensor.index].root].is_uploaded = true;
  return status;
}

static rondo_status upload(rondo_exec *exec, const rondo_content *contents, uint32_t count, const char *function) {
  bool sets_state = false;
  uint64_t bytes = 0;
  rondo_status status = contents_check(exec, contents, count, function, &sets_state, &bytes);
  if (status == RONDO_OK) status = transfer_begin(exec, sets_state, function);
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
  if (status == RONDO_OK) status = transfer_begin(exec, false, "rondo_download");
  if (status != RONDO_OK) return status;
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  if (bytes)
    status = exec->runtime->ops->download(exec->runtime->device, exec->lane, data,
                                          place->device_memory + place->offset_bytes, place->rows);
  transfer_end(exec);
  return status;
}

rondo_status constants_check(const rondo_exec *exec, struct slot *slot, const char *function) {
  for (uint32_t i = 0; i < exec->tensor_count; i++) {
    const struct exec_tensor *place = &exec->tensors[i];
    bool is_read = place->root == i && place->kind == TENSOR_CONSTANT && place->access && place->bytes;
    if (!is_read || slot->rebound[i] || place->owner->tensors[place->owner_index].is_uploaded) continue;
    return status_set(RONDO_INVALID_STATE,
                      "%s: constant '%s'%s has never been uploaded: rondo_upload it, or instantiate with "
                      "constants_begin_as_zeros",
                      function, place->name, place->owner == exec ? "" : ", borrowed from another exec,");
  }
  slot->constants_are_set = true;
  return RONDO_OK;
}
