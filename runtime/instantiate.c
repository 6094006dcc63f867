/* instantiate.c - rondo_instantiate takes memory, makes executable graphs for each slot, and replays each once.
 * rondo_close_exec takes all this apart. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "any_slot.h"
#include "exec_memory.h"
#include "lane.h"
#include "notices.h"
#include "ownership.h"
#include "planner.h"
#include "program.h"
#include "slot.h"
#include "warm_up.h"

static const uint64_t notice_patience_ns = UINT64_C(1000) * 1000 * 1000;

/* ---- Make ready -------------------------------------------------------------------------------------------------- */

/* Makes all pages resident, so that no replay waits for one. Other execs may run in the lane's arena meanwhile. */
static rondo_status exec_settle(const rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  const struct {
    void *memory;
    uint64_t bytes;
  } parts[] = {{exec->memory.device, exec->memory.device_bytes},
               {exec->memory.pinned, exec->memory.pinned_bytes},
               {exec->memory.arena, exec->memory.arena_bytes}};
  rondo_status status = RONDO_OK;
  for (int i = 0; runtime->ops->memory.settle && i < 3 && status == RONDO_OK; i++)
    status = runtime->ops->memory.settle(runtime->device, parts[i].memory, parts[i].bytes);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  memset(exec->memory.pinned, 0, exec->memory.pinned_bytes);
  return RONDO_OK;
}

/* Does the device, or a thread, still touch the exec? On a lost device for ever. */
static bool exec_is_touched(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slots.count; s++) {
    const struct slot *slot = &exec->slots.items[s];
    if (slot->device_exec && (!slot_done(slot) || notice_is_due(&slot->notice))) return true;
  }
  return false;
}

/* Memory that is still touched is not given back. */
static void exec_dismantle(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  bool is_touched = exec_is_touched(exec), has_ended = true;
  for (uint32_t s = 0; s < exec->slots.count; s++)
    if (exec->slots.items[s].device_exec && !runtime->ops->exec_destroy(exec->slots.items[s].device_exec))
      has_ended = false;
  exec->magic = 0;
  if (exec->keeps_warm) runtime->ops->keep_warm(runtime->device, false);
  pthread_mutex_lock(&runtime->group->lock);
  atomic_store_explicit(&exec->serial, 0, memory_order_relaxed);
  if (!has_ended) ownership_abandon(exec);
  ownership_detach(exec); /* even if it is leaked: it keeps no lender open */
  if (!is_touched && !exec->lending.is_touched) exec_give_back(exec);
  runtime->open_execs--;
  pthread_mutex_unlock(&runtime->group->lock);
}

/* Uploads of borrowed tensors may still be in progress. Uploads to a closed exec are not, since its lane was idle then.
 * No event orders the lane after those of another device, so they are waited for. */
static rondo_status uploads_await(const rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  if (!ops->memory.await_uploads) return RONDO_OK;
  rondo_status status = ops->memory.await_uploads(exec->runtime->device, exec->lane);
  for (uint32_t i = 0; i < exec->lending.lender_count && status == RONDO_OK; i++) {
    const rondo_exec *lender = exec->lending.lenders[i];
    if (lender->runtime == exec->runtime || !atomic_load(&lender->lending.was_uploaded)) continue;
    status = ops->memory.await_uploads(lender->runtime->device, lender->lane);
    if (status == RONDO_OK) status = ops->drain(lender->runtime->device, lender->lane);
  }
  return status;
}

static rondo_status slots_create(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  rondo_status status = uploads_await(exec);
  if (status == RONDO_OK)
    status = ops->memory.zero(exec->runtime->device, exec->lane, exec->slots.items[0].counts, PLAN_COUNTS_BYTES);
  for (uint32_t s = 0; s < exec->slots.count && status == RONDO_OK; s++) {
    struct slot *slot = &exec->slots.items[s];
    for (int i = 0; i < COMPLETION_WORDS; i++) atomic_store(&slot->words[i], i ? UINT64_MAX : 0);
    program_address(exec, slot);
    struct device_program program = program_of(exec, slot);
    status = ops->exec_create(exec->runtime->device, &program, &slot->device_exec);
  }
  return status;
}

static rondo_status keep_warm(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  if (!runtime->ops->keep_warm) return RONDO_OK;
  rondo_status status = runtime->ops->keep_warm(runtime->device, true);
  exec->keeps_warm = status == RONDO_OK;
  return status;
}

/* The host refuses captured work too, so that a graph that repeats there, or is resident, does so on a GPU. */
static rondo_status loops_check(const rondo_graph *graph, const rondo_exec_options *options) {
  const bool repeats = options->repeat_steps, is_resident = options->linger_ns;
  if (options->repeat_steps > REPEAT_STEPS_MOST)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: %u repeat_steps, expected at most %d",
                      options->repeat_steps, REPEAT_STEPS_MOST);
  if (is_resident && options->slots > 1)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: %u slots, expected one of a resident exec, or linger_ns 0",
                      options->slots);
  for (uint32_t t = 0; (repeats || is_resident) && t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    if (task->user_work && task->user_work->capture)
      return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': captured work cannot %s 0", task->name,
                        repeats ? "repeat, expected repeat_steps" : "be resident, expected linger_ns");
  }
  return RONDO_OK;
}

/* What is wrong with the call, whatever the plan is. */
static rondo_status instantiate_check(rondo_runtime *runtime, const rondo_graph *graph,
                                      const rondo_exec_options *options, rondo_exec *const *exec) {
  rondo_status status = runtime_check(runtime, "rondo_instantiate");
  if (status == RONDO_OK) status = graph_check(graph, "rondo_instantiate");
  if (status == RONDO_OK) status = runtime_check_outside(runtime, "rondo_instantiate");
  if (status != RONDO_OK) return status;
  if (!exec) return status_set(RONDO_INVALID_ARGUMENT, "rondo_instantiate: the exec's address is NULL");
  if (options->slots > RONDO_MAX_SLOTS)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: %u slots, expected 1 to %d", options->slots,
                      RONDO_MAX_SLOTS);
  status = loops_check(graph, options);
  if (status == RONDO_OK) status = lane_exists(runtime, options->lane, "instantiate");
  return status == RONDO_OK ? runtime->ops->health(runtime->device) : status;
}

/* Turns memory into graphs that can be replayed. */
static rondo_status exec_build(rondo_exec *exec, const rondo_exec_options *options) {
  const rondo_runtime *runtime = exec->runtime;
  const uint64_t free_bytes = runtime_free_bytes(runtime);
  rondo_status status = exec_settle(exec);
  if (status == RONDO_OK) status = slots_create(exec);
  if (status == RONDO_OK) status = exec_make_ready(exec, options->without_warm_up);
  if (status != RONDO_OK) return status;
  /* Other users of the GPU may have given some back meanwhile. */
  const uint64_t left_bytes = runtime_free_bytes(runtime);
  exec->memory.driver_bytes = left_bytes && left_bytes < free_bytes ? free_bytes - left_bytes : 0;
  return options->keep_warm ? keep_warm(exec) : RONDO_OK;
}

/* Takes a half-built exec apart. */
static rondo_status instantiate_failed(rondo_exec *exec, rondo_status status) {
  const rondo_runtime *runtime = exec->runtime;
  char cause[512]; /* the calls below may fail too, with a text of their own */
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  runtime->ops->drain(runtime->device, exec->lane); /* a warm replay may still run */
  if (exec->warm_replays) exec_zero(exec);          /* or has written borrowed states */
  exec_dismantle(exec);
  return status_set(status, "%s", cause);
}

rondo_status rondo_instantiate(rondo_runtime *runtime, rondo_graph *graph, const rondo_exec_options *options_or_null,
                               rondo_exec **exec_out) {
  rondo_exec_options options = options_or_null ? *options_or_null : (rondo_exec_options){0};
  if (!options.slots) options.slots = 1;
  rondo_status status = instantiate_check(runtime, graph, &options, exec_out);
  if (status != RONDO_OK) return status;
  const struct plan *plan;
  status = plan_of(graph, &plan);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  rondo_exec *exec = NULL;
  status = exec_make(&exec, runtime, graph, plan, &options);
  if (status != RONDO_OK) return status;
  status = exec_build(exec, &options);
  if (status != RONDO_OK) return instantiate_failed(exec, status);
  exec->magic = exec_magic;
  atomic_store_explicit(&exec->serial, serial_draw(), memory_order_release); /* the states are zeros */
  *exec_out = exec;
  return RONDO_OK;
}

/* ---- Close ------------------------------------------------------------------------------------------------------- */

/* RONDO_TIMEOUT: the replays are done, but not all notices are written; the device is not lost then. A device that was
 * lost before ends the wait early, and closing goes on. */
static rondo_status exec_end(rondo_exec *exec, uint64_t timeout_ns, const char *function) {
  uint32_t slot = 0;
  rondo_status status = slots_wait(exec, timeout_ns, &slot);
  if (status == RONDO_TIMEOUT) {
    char cause[128];
    snprintf(cause, sizeof cause, "%s: slot %u was not done after %" PRIu64 " ns", function, slot, timeout_ns);
    return exec->runtime->ops->lose(exec->runtime->device, cause);
  }
  if (status == RONDO_OK) status = notices_wait(exec, timeout_ns == RONDO_FOREVER ? RONDO_FOREVER : notice_patience_ns);
  return status == RONDO_TIMEOUT ? status_set(status, "%s: %s: the exec stays open", function, rondo_error_text())
                                 : RONDO_OK;
}

static rondo_status close_within(rondo_exec **exec_address, uint64_t timeout_ns, const char *function) {
  if (!exec_address || !*exec_address) return RONDO_OK;
  rondo_exec *exec = *exec_address;
  rondo_status status = exec_check_outside(exec, function);
  if (status != RONDO_OK) return status;
  status = ownership_close(exec, function);
  if (status != RONDO_OK) return status;
  status = exec_end(exec, timeout_ns, function);
  if (status == RONDO_TIMEOUT) {
    ownership_reopen(exec);
    return status;
  }
  exec_dismantle(exec);
  *exec_address = NULL;
  return status;
}

rondo_status rondo_close_exec_within(rondo_exec **exec_address, uint64_t timeout_ns) {
  return close_within(exec_address, timeout_ns, "rondo_close_exec_within");
}

rondo_status rondo_close_exec(rondo_exec **exec_address) {
  return close_within(exec_address, RONDO_FOREVER, "rondo_close_exec");
}

rondo_status rondo_exec_info(rondo_exec *exec, rondo_exec_usage *usage) {
  rondo_status status = exec_check(exec, "rondo_exec_info");
  if (status != RONDO_OK) return status;
  if (!usage) return status_set(RONDO_INVALID_ARGUMENT, "rondo_exec_info: the usage's address is NULL");
  *usage = (rondo_exec_usage){.device_bytes = exec->memory.device_bytes,
                              .arena_bytes = exec->memory.arena_bytes,
                              .pinned_bytes = exec->memory.pinned_bytes,
                              .host_bytes = exec->memory.host_bytes,
                              .driver_bytes = exec->memory.driver_bytes,
                              .lane = exec->lane,
                              .slot_count = exec->slots.count,
                              .node_count = exec->program.node_count};
  slots_count(exec, &usage->free_slot_count, &usage->in_flight_slot_count);
  return RONDO_OK;
}
