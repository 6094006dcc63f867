/* ownership.c - see ownership.h. An exec owns the memory of the constants and states that its graph describes. An exec
 * that borrows them has their addresses in its nodes, and keeps the owner open. */
#include "ownership.h"

#include <stdio.h>
#include <string.h>

/* ---- Owners ------------------------------------------------------------------------------------------------------ */

/* An exec of the own runtime hides those of others: a graph may be instantiated in each. */
static rondo_status find_owner(const rondo_exec *exec, const struct tensor *tensor, rondo_exec **owner) {
  const char *where = exec->runtime->group->ranks == 1 ? "this runtime" : "this runtime or its group";
  uint32_t found = 0, closing = 0;
  bool is_near = false;
  for (rondo_exec *other = exec->runtime->group->execs; other; other = other->next) {
    if (other->graph_serial != tensor->lender_serial) continue;
    closing += other->lending.is_closing;
    if (other->lending.is_closing || !exec_is_open(other)) continue;
    if (is_near && other->runtime != exec->runtime) continue;
    if (!is_near && other->runtime == exec->runtime) {
      is_near = true;
      found = 0;
    }
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
        "%s '%s' is borrowed from a graph of which no exec is open in %s: instantiate that graph first, and close its "
        "exec last",
        tensor_kind_name(tensor->kind), tensor->name, where);
  return status_set(RONDO_INVALID_STATE,
                    "%s '%s' is borrowed from a graph of which %u execs are open in %s: close all except the lender",
                    tensor_kind_name(tensor->kind), tensor->name, found, where);
}

/* What a lost device has is not lent to other ranks. */
static rondo_status check_rank(const rondo_exec *exec, const struct tensor *tensor, const rondo_runtime *owner) {
  rondo_status status = owner == exec->runtime ? RONDO_OK : owner->ops->health(owner->device);
  return status == RONDO_OK ? status
                            : status_set(status, "%s '%s' is borrowed from rank %u: %s", tensor_kind_name(tensor->kind),
                                         tensor->name, owner->rank, rondo_error_text());
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
    if (status == RONDO_OK) status = check_rank(exec, tensor, kept->owner->runtime);
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

struct accesses {
  uint32_t all, unordered; /* see exec_tensor */
};

/* The accesses of an exec's tasks to a state of the owner. */
static struct accesses accesses_of(const rondo_exec *exec, const rondo_exec *owner, uint32_t owner_index) {
  struct accesses accesses = {0};
  if (exec != owner && !borrows_from(exec, owner)) return accesses;
  for (uint32_t i = 0; i < exec->tensor_count; i++) {
    const struct exec_tensor *kept = &exec->tensors[i];
    if (kept->root != i || kept->owner != owner || kept->owner_index != owner_index) continue;
    accesses.all |= kept->access;
    accesses.unordered |= kept->unordered_access;
  }
  return accesses;
}

/* Tasks of two ranks that wait for each other keep their order themselves. */
static bool may_share(const rondo_exec *exec, struct accesses accesses, const rondo_exec *other,
                      struct accesses others) {
  if (other->runtime == exec->runtime && other->lane == exec->lane) return true;
  if (other->runtime != exec->runtime && !accesses.unordered && !others.unordered) return true;
  return !accesses.all || !others.all || !((accesses.all | others.all) & RONDO_WRITE);
}

/* "written in lane 1", and in a group "written in lane 1 of rank 0". */
static const char *describe_use(const rondo_exec *exec, struct accesses accesses, char text[48]) {
  int used = snprintf(text, 48, "%s in lane %u", accesses.all & RONDO_WRITE ? "written" : "read", exec->lane);
  if (exec->runtime->group->ranks > 1) snprintf(text + used, 48 - (size_t)used, " of rank %u", exec->runtime->rank);
  return text;
}

static rondo_status lanes_share(const rondo_exec *exec, const rondo_graph *graph) {
  char use[48], other_use[48];
  for (uint32_t i = 0; i < exec->tensor_count; i++) {
    const struct exec_tensor *kept = &exec->tensors[i];
    const struct accesses accesses = {kept->access, kept->unordered_access};
    if (kept->root != i || kept->kind != TENSOR_STATE || !kept->access) continue;
    for (const rondo_exec *other = exec->runtime->group->execs; other; other = other->next) {
      const struct accesses others = accesses_of(other, kept->owner, kept->owner_index);
      if (may_share(exec, accesses, other, others)) continue;
      return status_set(RONDO_INVALID_STATE,
                        "state '%s' is %s and %s: lanes are not ordered: set states_are_ordered if the program orders "
                        "them",
                        graph->tensors[i].name, describe_use(exec, accesses, use),
                        describe_use(other, others, other_use));
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
  exec->next = exec->runtime->group->execs;
  exec->runtime->group->execs = exec;
  return RONDO_OK;
}

bool was_replayed(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slots.count; s++)
    if (atomic_load_explicit(&exec->slots.items[s].launched, memory_order_relaxed) > exec->warm_replays) return true;
  return false;
}

void ownership_detach(rondo_exec *exec) {
  rondo_exec **link = &exec->runtime->group->execs;
  while (*link && *link != exec) link = &(*link)->next;
  if (!*link) return; /* it was never attached */
  *link = exec->next;
  if (!was_replayed(exec)) return;
  for (uint32_t i = 0; i < exec->lending.lender_count; i++)
    atomic_store(&exec->lending.lenders[i]->lending.states_are_used, true);
}

void ownership_abandon(rondo_exec *exec) {
  for (uint32_t i = 0; i < exec->lending.lender_count; i++) {
    rondo_exec *lender = exec->lending.lenders[i];
    if (lender->runtime == exec->runtime) continue;
    lender->lending.is_touched = true;
    lender->runtime->is_touched = true;
  }
}

/* ---- Close ------------------------------------------------------------------------------------------------------- */

/* Appends the name of an exec's first task: "'a', 'b'", and in a group "'a' of rank 0, 'b' of rank 1". */
static void name_exec(const rondo_exec *exec, uint32_t number, char text[EXEC_NAMES_BYTES]) {
  enum { NAMED_MOST = 3 };
  const size_t used = number ? strlen(text) : 0;
  char rank[24] = "";
  if (exec->runtime->group->ranks > 1) snprintf(rank, sizeof rank, " of rank %u", exec->runtime->rank);
  if (number < NAMED_MOST)
    snprintf(text + used, EXEC_NAMES_BYTES - used, "%s'%s'%s", number ? ", " : "",
             exec->program.called ? exec->program.called : "", rank);
  else if (number == NAMED_MOST)
    snprintf(text + used, EXEC_NAMES_BYTES - used, " and others");
}

static uint32_t count_borrowers(const rondo_exec *exec, char text[EXEC_NAMES_BYTES]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *other = exec->runtime->group->execs; other; other = other->next)
    if (borrows_from(other, exec)) name_exec(other, count++, text);
  return count;
}

uint32_t ownership_name_execs(const rondo_runtime *runtime, char text[EXEC_NAMES_BYTES]) {
  uint32_t count = 0;
  text[0] = '\0';
  for (const rondo_exec *exec = runtime->group->execs; exec; exec = exec->next)
    if (exec->runtime == runtime) name_exec(exec, count++, text);
  return count;
}

rondo_status check_not_closing(const rondo_exec *exec, const char *function) {
  if (!exec->lending.is_closing) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: another thread closes the exec", function);
}

rondo_status ownership_close(rondo_exec *exec, const char *function) {
  char borrowers[EXEC_NAMES_BYTES];
  pthread_mutex_lock(&exec->runtime->group->lock);
  uint32_t borrower_count = count_borrowers(exec, borrowers);
  rondo_status status = check_not_closing(exec, function);
  if (status == RONDO_OK && borrower_count)
    status = status_set(RONDO_INVALID_STATE, "%s: %u open exec%s its constants or states: first close %s %s", function,
                        borrower_count, borrower_count == 1 ? " borrows" : "s borrow",
                        borrower_count == 1 ? "that of task" : "those of tasks", borrowers);
  if (status == RONDO_OK && exec->lending.transfer_count)
    status = status_set(RONDO_INVALID_STATE, "%s: another thread uploads to the exec or downloads from it", function);
  if (status == RONDO_OK) exec->lending.is_closing = true;
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return status;
}

void ownership_reopen(rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->group->lock);
  exec->lending.is_closing = false;
  pthread_mutex_unlock(&exec->runtime->group->lock);
}
