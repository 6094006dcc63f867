/* ownership.c - see ownership.h. An exec owns the memory of the constants and states that its graph describes. An exec
 * that borrows them has their addresses in its nodes, and keeps the owner open. */
#include "ownership.h"

#include <stdio.h>
#include <string.h>

/* ---- Owners ------------------------------------------------------------------------------------------------------ */

static rondo_status find_owner(const rondo_exec *exec, const struct tensor *tensor, rondo_exec **owner) {
  uint32_t found = 0, closing = 0;
  for (rondo_exec *other = exec->runtime->execs; other; other = other->next) {
    if (other->graph_serial != tensor->lender_serial) continue;
    closing += other->lending.is_closing;
    if (other->lending.is_closing || !exec_is_open(other)) continue;
    *owner = other;
    found++;
  }
  if (found == 1) return RONDO_OK;
  if (!found && closing)
    return status_set(RONDO_INVALID_STATE,
                      "%s '%s' is borrowed from a graph whose exec another thread closes: instantiate the lender again",
                      tensor_kind_name(tensor->kind), tensor->name);
  if (!found)
    return status_set(
        RONDO_INVALID_STATE,
        "%s '%s' is borrowed from a graph of which no exec is open in this runtime: instantiate that graph "
        "first, and close its exec last",
        tensor_kind_name(tensor->kind), tensor->name);
  return status_set(RONDO_INVALID_STATE,
                    "%s '%s' is borrowed from a graph of which %u execs are open in this runtime: close all except "
                    "the lender",
                    tensor_kind_name(tensor->kind), tensor->name, found);
}

static void note_lender(rondo_exec *exec, rondo_exec *owner) {
  for (uint32_t i = 0; i < exec->lending.lender_count; i++)
    if (exec->lending.lenders[i] == owner) return;
  exec->lending.lenders[exec->lending.lender_count++] = owner;
}

static rondo_status owners_fill(rondo_exec *exec, const rondo_graph *graph) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    struct exec_tensor *kept = &exec->tensors[i];
    if (!tensor_is_resident(tensor)) continue;
    if (tensor->root != i) { /* a view comes after its root */
      const struct exec_tensor *root = &exec->tensors[tensor->root];
      kept->owner = root->owner;
      kept->owner_index = root->owner_index;
      kept->device_memory = root->device_memory;
      continue;
    }
    kept->owner = exec;
    kept->owner_index = i;
    if (!tensor->lender_serial) continue;
    rondo_status status = find_owner(exec, tensor, &kept->owner);
    if (status != RONDO_OK) return status;
    if (tensor->lender_index >= kept->owner->tensor_count)
      return status_set(RONDO_INVALID_STATE,
                        "%s '%s' was added to its graph after rondo_instantiate made the exec that would lend it: "
                        "instantiate the lender again",
                        tensor_kind_name(tensor->kind), tensor->name);
    kept->owner_index = tensor->lender_index;
    kept->device_memory = kept->owner->tensors[tensor->lender_index].device_memory;
    note_lender(exec, kept->owner);
  }
  return RONDO_OK;
}

/* ---- States of several lanes ------------------------------------------------------------------------------------- */

bool borrows_from(const rondo_exec *exec, const rondo_exec *owner) {
  for (uint32_t i = 0; i < exec->lending.lender_count; i++)
    if (exec->lending.lenders[i] == owner) return true;
  return false;
}

/* The accesses of an exec's tasks to a state of the owner. */
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
    const struct exec_tensor *kept = &exec->tensors[i];
    if (kept->root != i || kept->kind != TENSOR_STATE || !kept->access) continue;
    for (const rondo_exec *other = exec->runtime->execs; other; other = other->next) {
      if (other->lane == exec->lane) continue;
      uint32_t others = access_of(other, kept->owner, kept->owner_index);
      if (!others || !((others | kept->access) & RONDO_WRITE)) continue;
      return status_set(RONDO_INVALID_STATE,
                        "state '%s' is %s in lane %u and %s in lane %u: lanes are not ordered: set states_are_ordered "
                        "if the program orders them",
                        graph->tensors[i].name, kept->access & RONDO_WRITE ? "written" : "read", exec->lane,
                        others & RONDO_WRITE ? "written" : "read", other->lane);
    }
  }
  return RONDO_OK;
}

/* ---- Attach and detach ------------------------------------------------------------------------------------------- */

rondo_status ownership_attach(rondo_exec *exec, const rondo_graph *graph, const rondo_exec_options *options) {
  rondo_status status = owners_fill(exec, graph);
  if (status == RONDO_OK && !options->states_are_ordered) status = lanes_share(exec, graph);
  if (status != RONDO_OK) {
    exec->lending.lender_count = 0;
    return status;
  }
  for (uint32_t i = 0; i < exec->tensor_count; i++) exec->tensors[i].is_uploaded = options->constants_begin_as_zeros;
  exec->next = exec->runtime->execs;
  exec->runtime->execs = exec;
  return RONDO_OK;
}

bool was_replayed(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slots.count; s++)
    if (atomic_load_explicit(&exec->slots.items[s].launched, memory_order_relaxed) > exec->warm_replays) return true;
  return false;
}

void ownership_detach(rondo_exec *exec) {
  rondo_exec **link = &exec->runtime->execs;
  while (*link && *link != exec) link = &(*link)->next;
  if (!*link) return; /* it was never attached */
  *link = exec->next;
  if (!was_replayed(exec)) return;
  for (uint32_t i = 0; i < exec->lending.lender_count; i++)
    atomic_store(&exec->lending.lenders[i]->lending.states_are_used, true);
}

/* ---- Close ------------------------------------------------------------------------------------------------------- */

/* Appends the name of an exec's first task: "'a', 'b'". */
static void name_exec(const rondo_exec *exec, uint32_t number, char text[EXEC_NAMES_BYTES]) {
  enum { NAMED_MOST = 3 };
  const size_t used = number ? strlen(text) : 0;
  if (number < NAMED_MOST)
    snprintf(text + used, EXEC_NAMES_BYTES - used, "%s'%s'", number ? ", " : "",
             exec->program.called ? exec->program.called : "");
  else if (number == NAMED_MOST)
    snprintf(text + used, EXEC_NAMES_BYTES - used, " and others");
}

static uint32_t count_borrowers(const rondo_exec *exec, char text[EXEC_NAMES_BYTES]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *other = exec->runtime->execs; other; other = other->next)
    if (borrows_from(other, exec)) name_exec(other, count++, text);
  return count;
}

uint32_t ownership_name_execs(const rondo_runtime *runtime, char text[EXEC_NAMES_BYTES]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *exec = runtime->execs; exec; exec = exec->next) name_exec(exec, count++, text);
  return count;
}

rondo_status check_not_closing(const rondo_exec *exec, const char *function) {
  if (!exec->lending.is_closing) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: another thread closes the exec", function);
}

rondo_status ownership_close(rondo_exec *exec, const char *function) {
  char borrowers[EXEC_NAMES_BYTES];
  pthread_mutex_lock(&exec->runtime->lock);
  uint32_t borrower_count = count_borrowers(exec, borrowers);
  rondo_status status = check_not_closing(exec, function);
  if (status == RONDO_OK && borrower_count)
    status = status_set(RONDO_INVALID_STATE, "%s: %u open exec%s its constants or states: first close %s %s", function,
                        borrower_count, borrower_count == 1 ? " borrows" : "s borrow",
                        borrower_count == 1 ? "that of task" : "those of tasks", borrowers);
  if (status == RONDO_OK && exec->lending.transfer_count)
    status = status_set(RONDO_INVALID_STATE, "%s: another thread uploads to the exec or downloads from it", function);
  if (status == RONDO_OK) exec->lending.is_closing = true;
  pthread_mutex_unlock(&exec->runtime->lock);
  return status;
}

void ownership_reopen(rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->lock);
  exec->lending.is_closing = false;
  pthread_mutex_unlock(&exec->runtime->lock);
}
