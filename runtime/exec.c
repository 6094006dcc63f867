/* exec.c - instantiate: addresses for everything, one launchable graph per slot, a warm replay of each. And its end. */
#include "exec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cutter.h"
#include "lane.h"
#include "planner.h"
#include "program.h"
#include "replay.h"
#include "resident.h"
#include "user_work.h"

static const uint64_t exec_magic = 0x63657865646e6f52;
static const uint64_t warm_replay_timeout_ns = UINT64_C(120) * 1000 * 1000 * 1000;
static const uint64_t notice_patience_ns = UINT64_C(1000) * 1000 * 1000;

rondo_status exec_check(const rondo_exec *exec, const char *function) {
  if (!exec) return status_set(RONDO_INVALID_ARGUMENT, "%s: the exec is NULL", function);
  if (exec->magic != exec_magic) return status_set(RONDO_INVALID_STATE, "%s: the exec is closed", function);
  if (!atomic_load_explicit(exec->opened_here, memory_order_relaxed)) return forked_status(function);
  return RONDO_OK;
}

rondo_status exec_check_outside(const rondo_exec *exec, const char *function) {
  rondo_status status = exec_check(exec, function);
  return status == RONDO_OK ? runtime_check_outside(exec->runtime, function) : status;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* How much there is of what an exec keeps. */
struct exec_counts {
  uint32_t tensors, borrowed, nodes, operands, edges, user_kernels, launches;
  uint64_t user_work_bytes, tensor_name_bytes;
};

static struct exec_counts count_all(const rondo_graph *graph, const struct plan *plan) {
  struct exec_counts counts = {
      .tensors = graph->tensor_count, .nodes = plan->node_count, .edges = plan->summary.edge_count};
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    if (graph->tensors[i].root != i) continue;
    counts.borrowed += graph->tensors[i].lender_serial != 0;
    counts.tensor_name_bytes += strlen(graph->tensors[i].name) + 1;
  }
  for (uint32_t n = 0; n < plan->node_count; n++) {
    const struct plan_node *node = &plan->nodes[n];
    if (node->kind != NODE_TASK) {
      counts.operands += 2 * node->tensor_count;
      counts.launches++;
      continue;
    }
    const struct task *task = &graph->tasks[node->index];
    counts.operands += task->operand_count;
    counts.launches += launches_most(task->op);
    if (!task->user_work) continue;
    counts.user_work_bytes += user_work_bytes(task->user_work);
    counts.user_kernels += task->user_work->image != NULL;
  }
  return counts;
}

/* What the backend needs for each slot, and while it makes one. */
struct backend_bytes {
  uint64_t slot, build;
};

static struct backend_bytes backend_bytes(const struct device_ops *ops, const struct exec_counts *counts) {
  struct device_program program = {.node_count = counts->nodes,
                                   .operand_count = counts->operands,
                                   .user_kernel_count = counts->user_kernels,
                                   .launch_count = counts->launches};
  return (struct backend_bytes){ops->exec_host_bytes(&program),
                                ops->build_host_bytes ? ops->build_host_bytes(&program) : 0};
}

/* An exec and all that it points to; without memory it only measures. */
static rondo_exec *cut_exec(struct cutter *cutter, const struct exec_counts *counts, uint32_t slot_count,
                            struct backend_bytes backend) {
  rondo_exec *exec = cut(cutter, sizeof *exec), parts = {0};
  parts.tensors = cut(cutter, counts->tensors * sizeof *parts.tensors);
  parts.nodes = cut(cutter, counts->nodes * sizeof *parts.nodes);
  parts.tasks = cut(cutter, counts->nodes * sizeof *parts.tasks);
  parts.operands = cut(cutter, counts->operands * sizeof *parts.operands);
  parts.data = cut(cutter, counts->operands * sizeof *parts.data);
  parts.places = cut(cutter, counts->operands * sizeof *parts.places);
  parts.user_work = cut(cutter, counts->user_work_bytes);
  parts.predecessors = cut(cutter, counts->edges * sizeof *parts.predecessors);
  parts.names = cut(cutter, counts->nodes * sizeof *parts.names);
  parts.tensor_names = cut(cutter, counts->tensor_name_bytes);
  parts.lenders = cut(cutter, counts->borrowed * sizeof *parts.lenders);
  for (uint32_t s = 0; s < slot_count; s++) {
    parts.slots[s].rebound = cut(cutter, counts->tensors * sizeof(void *));
    parts.slots[s].backend_memory = cut(cutter, backend.slot);
  }
  parts.build_memory = cut(cutter, backend.build);
  if (!cutter->base) return NULL;
  parts.slot_count = slot_count;
  parts.tensor_count = counts->tensors;
  parts.node_count = counts->nodes;
  parts.operand_count = counts->operands;
  parts.user_kernel_count = counts->user_kernels;
  parts.launch_count = counts->launches;
  *exec = parts;
  return exec;
}

static uint64_t exec_bytes(const struct exec_counts *counts, uint32_t slot_count, struct backend_bytes backend) {
  struct cutter cutter = {0};
  cut_exec(&cutter, counts, slot_count, backend);
  return cutter.used;
}

static rondo_status summarise(rondo_graph *graph, const char *function, rondo_plan *summary, uint64_t *planning_bytes) {
  rondo_status status = graph_check(graph, function);
  if (status != RONDO_OK) return status;
  const struct plan *plan;
  status = plan_of(graph, &plan);
  if (status != RONDO_OK) return status;
  struct exec_counts counts = count_all(graph, plan);
  uint64_t host = exec_bytes(&counts, RONDO_MAX_SLOTS, backend_bytes(&host_device_ops, &counts));
  uint64_t cuda = exec_bytes(&counts, RONDO_MAX_SLOTS, backend_bytes(&cuda_device_ops, &counts));
  *summary = plan->summary;
  summary->host_bytes = plan->kept_bytes + pool_take_bytes(host > cuda ? host : cuda);
  *planning_bytes = plan->planning_bytes;
  return RONDO_OK;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static rondo_status plan_graphs(rondo_graph *const *graphs, uint32_t graph_count, const char *function,
                                rondo_plan *plan) {
  rondo_plan sum = {0};
  uint64_t planning_most = 0;
  if (!plan) return status_set(RONDO_INVALID_ARGUMENT, "%s: the plan is NULL", function);
  if (graph_count && !graphs)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the graphs are NULL, and their count is %u", function, graph_count);
  for (uint32_t i = 0; i < graph_count; i++) {
    rondo_plan one;
    uint64_t planning_bytes;
    rondo_status status = summarise(graphs[i], function, &one, &planning_bytes);
    if (status != RONDO_OK) return status;
    sum.device_bytes += one.device_bytes - one.temporary_bytes;
    sum.pinned_bytes_per_slot += one.pinned_bytes_per_slot;
    sum.host_bytes += one.host_bytes;
    sum.constant_bytes += one.constant_bytes;
    sum.borrowed_bytes += one.borrowed_bytes;
    sum.temporary_bytes = larger(sum.temporary_bytes, one.temporary_bytes);
    sum.unshared_bytes += one.unshared_bytes;
    sum.lower_bound_bytes = larger(sum.lower_bound_bytes, one.lower_bound_bytes);
    sum.task_count += one.task_count;
    sum.edge_count += one.edge_count;
    planning_most = larger(planning_most, planning_bytes);
  }
  sum.device_bytes += sum.temporary_bytes;
  sum.host_bytes = graph_count == 1 ? larger(sum.host_bytes, planning_most) : sum.host_bytes + planning_most;
  *plan = sum;
  return RONDO_OK;
}

rondo_status rondo_plan_graphs(rondo_graph *const *graphs, uint32_t graph_count, rondo_plan *plan) {
  return plan_graphs(graphs, graph_count, "rondo_plan_graphs", plan);
}

rondo_status rondo_plan_graph(rondo_graph *graph, rondo_plan *plan) {
  return plan_graphs(&graph, 1, "rondo_plan_graph", plan);
}

/* Before the runtime's other execs can find it: whoever looks whether it is at rest reads the words. */
static void slots_place(rondo_exec *exec, const struct plan *plan) {
  uint64_t *counts = (void *)(exec->device_memory + plan->counts_offset);
  for (uint32_t s = 0; s < exec->slot_count; s++) {
    struct slot *slot = &exec->slots[s];
    slot->pinned = exec->pinned_memory + s * plan->summary.pinned_bytes_per_slot;
    slot->words = (_Atomic uint64_t *)(void *)slot->pinned;
    slot->counts = counts + (size_t)s * COMPLETION_WORDS;
  }
}

/* Memory of all pools, the lane's arena, and what the graph borrows. The runtime's lock is held; what was taken when it
 * failed is given back by exec_give_back. */
static rondo_status exec_take(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan,
                              const rondo_exec_options *options) {
  rondo_runtime *runtime = exec->runtime;
  uint64_t pinned_bytes = plan->summary.pinned_bytes_per_slot * exec->slot_count;
  if (runtime->arenas[exec->lane].is_profiled)
    return status_set(RONDO_BUSY, "another thread profiles in lane %u", exec->lane);
  rondo_status status = pool_carve(&runtime->device_pool, plan->own_bytes, "an exec", &exec->device_extent);
  if (status == RONDO_OK) status = pool_carve(&runtime->pinned_pool, pinned_bytes, "an exec", &exec->pinned_extent);
  if (status == RONDO_OK) status = arena_take(runtime, exec->lane, plan->summary.temporary_bytes);
  if (status != RONDO_OK) return status;
  exec->arena_bytes = plan->summary.temporary_bytes;
  exec->device_memory = pool_memory(&runtime->device_pool, &exec->device_extent);
  exec->pinned_memory = pool_memory(&runtime->pinned_pool, &exec->pinned_extent);
  exec->arena_memory = arena_memory(runtime, exec->lane, exec->arena_bytes);
  exec->constant_bytes = plan->summary.constant_bytes;
  exec->device_bytes = plan->own_bytes;
  exec->pinned_bytes = pinned_bytes;
  slots_place(exec, plan);
  program_fill(exec, graph, plan);
  return residents_attach(exec, graph, options);
}

static void exec_give_back(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  residents_detach(exec);
  if (exec->arena_memory) arena_give(runtime, exec->lane);
  pool_return(&runtime->pinned_pool, &exec->pinned_extent);
  pool_return(&runtime->device_pool, &exec->device_extent);
  pool_give(&runtime->host_pool, exec);
}

/* Memory of an exec's own and the growth of its lane's arena, as exec_take takes them: they need not be one piece. */
static bool device_pool_has(rondo_runtime *runtime, const struct plan *plan, uint32_t lane) {
  struct pool *pool = &runtime->device_pool;
  struct pool_extent extent = {0};
  const uint64_t high_water_bytes = pool->high_water_bytes;
  bool has_both = pool_carve(pool, plan->own_bytes, "an exec", &extent) == RONDO_OK &&
                  arena_take(runtime, lane, plan->summary.temporary_bytes) == RONDO_OK;
  if (has_both) arena_give(runtime, lane);
  pool_return(pool, &extent);
  pool->high_water_bytes = high_water_bytes;
  return has_both;
}

/* A pool was too small: all that are, at once, so that nobody opens a runtime for each. Where none of them is, an arena
 * could not grow past its neighbour: what was said of it stays. */
static rondo_status pools_too_small(rondo_runtime *runtime, const struct plan *plan, const rondo_exec_options *options,
                                    uint64_t host_bytes) {
  enum { POOLS = 3 };
  const uint64_t arena_bytes = arena_growth(runtime, options->lane, plan->summary.temporary_bytes);
  const struct {
    const struct pool *pool;
    uint64_t bytes;
  } needs[POOLS] = {{&runtime->device_pool, pool_round(plan->own_bytes) + arena_bytes},
                    {&runtime->pinned_pool, pool_round(plan->summary.pinned_bytes_per_slot * options->slots)},
                    {&runtime->host_pool, pool_take_bytes(host_bytes)}};
  const bool has_device_memory = device_pool_has(runtime, plan, options->lane);
  char lack[POOLS * 112] = "", wanted[POOLS * 48] = ""; /* of the largest numbers too */
  size_t lack_used = 0, wanted_used = 0;
  for (int i = 0; i < POOLS; i++) {
    const struct pool *pool = needs[i].pool;
    const uint64_t capacity_bytes = pool_capacity_for(pool, needs[i].bytes);
    if (!capacity_bytes || (i == 0 && has_device_memory)) continue;
    lack_used +=
        (size_t)snprintf(lack + lack_used, sizeof lack - lack_used,
                         "%s%s pool: %" PRIu64 " bytes are needed, %" PRIu64 " of %" PRIu64 " are in use",
                         lack_used ? "; " : "", pool->name, needs[i].bytes, pool->used_bytes, pool->capacity_bytes);
    wanted_used +=
        (size_t)snprintf(wanted + wanted_used, sizeof wanted - wanted_used, "%s%s_bytes of at least %" PRIu64,
                         wanted_used ? ", " : "", pool->name, capacity_bytes);
  }
  if (!lack_used) return status_set(RONDO_OUT_OF_MEMORY, "instantiate: %s", rondo_error_text());
  return status_set(RONDO_OUT_OF_MEMORY, "instantiate: %s: open the runtime with %s", lack, wanted);
}

static rondo_status exec_make(rondo_exec **exec_out, rondo_runtime *runtime, const rondo_graph *graph,
                              const struct plan *plan, const rondo_exec_options *options) {
  struct exec_counts counts = count_all(graph, plan);
  struct backend_bytes backend = backend_bytes(runtime->ops, &counts);
  uint64_t host_bytes = exec_bytes(&counts, options->slots, backend);
  void *host = NULL;
  pthread_mutex_lock(&runtime->lock);
  rondo_status status = runtime_may_open(runtime);
  if (status == RONDO_OK) status = pool_take(&runtime->host_pool, host_bytes, "an exec", false, &host);
  if (status == RONDO_OK) {
    memset(host, 0, host_bytes);
    rondo_exec *exec = *exec_out = cut_exec(&(struct cutter){host, 0}, &counts, options->slots, backend);
    exec->runtime = runtime;
    exec->opened_here = runtime->opened_here;
    exec->graph_serial = graph->serial;
    exec->lane = options->lane;
    exec->host_bytes = host_bytes;
    status = exec_take(exec, graph, plan, options);
    if (status == RONDO_OK)
      runtime->open_execs++;
    else
      exec_give_back(exec);
  }
  const bool lacks_memory = status == RONDO_OUT_OF_MEMORY;
  if (lacks_memory) pools_too_small(runtime, plan, options, host_bytes);
  pthread_mutex_unlock(&runtime->lock);
  if (lacks_memory) return RONDO_OUT_OF_MEMORY;
  return status == RONDO_OK ? status : status_set(status, "instantiate: %s", rondo_error_text());
}

/* Pages that no replay has to wait for. Others may be at work in the lane's arena. */
static rondo_status exec_settle(const rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  const struct {
    void *memory;
    uint64_t bytes;
  } parts[] = {{exec->device_memory, exec->device_bytes},
               {exec->pinned_memory, exec->pinned_bytes},
               {exec->arena_memory, exec->arena_bytes}};
  rondo_status status = RONDO_OK;
  for (int i = 0; runtime->ops->settle && i < 3 && status == RONDO_OK; i++)
    status = runtime->ops->settle(runtime->device, parts[i].memory, parts[i].bytes);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  memset(exec->pinned_memory, 0, exec->pinned_bytes);
  return RONDO_OK;
}

/* Does the device, or a thread, still touch it? On a lost device for ever. */
static bool exec_is_touched(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slot_count; s++) {
    const struct slot *slot = &exec->slots[s];
    if (slot->device_exec && (!slot_done(slot) || notice_is_due(&slot->notice))) return true;
  }
  return false;
}

/* Nobody gets memory that is still touched. */
static void exec_dismantle(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  bool is_touched = exec_is_touched(exec);
  for (uint32_t s = 0; s < exec->slot_count; s++)
    if (exec->slots[s].device_exec) runtime->ops->exec_destroy(exec->slots[s].device_exec);
  exec->magic = 0;
  if (exec->keeps_warm) runtime->ops->keep_warm(runtime->device, false);
  pthread_mutex_lock(&runtime->lock);
  atomic_store_explicit(&exec->serial, 0, memory_order_relaxed);
  residents_detach(exec); /* leaked or not: it does not keep those that it borrowed from open */
  if (!is_touched) exec_give_back(exec);
  runtime->open_execs--;
  pthread_mutex_unlock(&runtime->lock);
}

/* ---- Instantiate ------------------------------------------------------------------------------------------------- */

/* What it borrows may be on its way to the device; what a closed exec was sent has come, as its lane was idle then. */
static rondo_status slots_create(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  rondo_status status = ops->await_uploads ? ops->await_uploads(exec->runtime->device, exec->lane) : RONDO_OK;
  if (status == RONDO_OK)
    status = ops->zero(exec->runtime->device, exec->lane, exec->slots[0].counts, PLAN_COUNTS_BYTES);
  for (uint32_t s = 0; s < exec->slot_count && status == RONDO_OK; s++) {
    struct slot *slot = &exec->slots[s];
    for (int i = 0; i < COMPLETION_WORDS; i++) atomic_store(&slot->words[i], i ? UINT64_MAX : 0);
    program_address(exec, slot);
    struct device_program program = program_of(exec, slot);
    status = ops->exec_create(exec->runtime->device, &program, &slot->device_exec);
  }
  return status;
}

/* A warm replay that does not end can neither be waited for nor be taken apart. */
static rondo_status give_up(const rondo_runtime *runtime, uint32_t slot) {
  char cause[96];
  snprintf(cause, sizeof cause, "instantiate: the warm replay of slot %u was not done after 120 s", slot);
  return runtime->ops->lose(runtime->device, cause);
}

static rondo_status slot_warm_up(rondo_exec *exec, uint32_t index) {
  struct slot *slot = &exec->slots[index];
  rondo_status status = slot_launch(exec, slot);
  if (status == RONDO_OK) status = slot_wait(exec, slot, warm_replay_timeout_ns);
  if (status == RONDO_TIMEOUT) status = give_up(exec->runtime, index);
  for (int i = 0; i < COMPLETION_WORDS && status == RONDO_OK; i++) {
    uint64_t replays = atomic_load(&slot->words[i]);
    if (replays == 1 || (i && replays == UINT64_MAX)) continue;
    status = status_set(RONDO_INTERNAL, "instantiate: slot %u completed %" PRIu64 " warm replays, expected 1", index,
                        replays);
  }
  return status;
}

/* Constants and states begin as zeros. Every lazy cost of the first launch is paid here, and what that wrote is zeroed
 * again. Without a warm-up, since none is wanted or a borrowed state may already hold something, the first replay pays
 * what is left to pay. */
static rondo_status make_ready(rondo_exec *exec, bool without_warm_up) {
  bool warms_up = !without_warm_up && residents_allow_warming(exec);
  rondo_status status = residents_zero(exec);
  for (uint32_t s = 0; warms_up && s < exec->slot_count && status == RONDO_OK; s++) status = slot_warm_up(exec, s);
  return warms_up && status == RONDO_OK ? residents_zero(exec) : status;
}

static rondo_status keep_warm(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  if (!runtime->ops->keep_warm) return RONDO_OK;
  rondo_status status = runtime->ops->keep_warm(runtime->device, true);
  exec->keeps_warm = status == RONDO_OK;
  return status;
}

rondo_status rondo_instantiate(rondo_runtime *runtime, rondo_graph *graph, const rondo_exec_options *options_or_null,
                               rondo_exec **exec_out) {
  rondo_exec_options options = options_or_null ? *options_or_null : (rondo_exec_options){0};
  if (!options.slots) options.slots = 1;
  rondo_status status = runtime_check(runtime, "rondo_instantiate");
  if (status == RONDO_OK) status = graph_check(graph, "rondo_instantiate");
  if (status == RONDO_OK) status = runtime_check_outside(runtime, "rondo_instantiate");
  if (status != RONDO_OK) return status;
  if (!exec_out) return status_set(RONDO_INVALID_ARGUMENT, "rondo_instantiate: the exec's address is NULL");
  if (options.slots > RONDO_MAX_SLOTS)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: %u slots, expected 1 to %d", options.slots,
                      RONDO_MAX_SLOTS);
  status = lane_exists(runtime, options.lane, "instantiate");
  if (status == RONDO_OK) status = runtime->ops->health(runtime->device);
  if (status != RONDO_OK) return status;
  const struct plan *plan;
  status = plan_of(graph, &plan);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  rondo_exec *exec = NULL;
  status = exec_make(&exec, runtime, graph, plan, &options);
  if (status != RONDO_OK) return status;
  uint64_t free_bytes = runtime_free_bytes(runtime);
  status = exec_settle(exec);
  if (status == RONDO_OK) status = slots_create(exec);
  if (status == RONDO_OK) status = make_ready(exec, options.without_warm_up);
  if (status == RONDO_OK) {
    uint64_t left_bytes = runtime_free_bytes(runtime);
    /* Others may have given some back meanwhile. */
    exec->driver_bytes = left_bytes && left_bytes < free_bytes ? free_bytes - left_bytes : 0;
  }
  if (status == RONDO_OK && options.keep_warm) status = keep_warm(exec);
  if (status != RONDO_OK) {
    char cause[512]; /* what is done now may fail too, and leave its own text */
    snprintf(cause, sizeof cause, "%s", rondo_error_text());
    runtime->ops->drain(runtime->device, options.lane); /* a warm replay may still run */
    if (exec->warm_replays) residents_zero(exec);       /* or has written what is borrowed and stays */
    exec_dismantle(exec);
    return status_set(status, "%s", cause);
  }
  exec->magic = exec_magic;
  atomic_store_explicit(&exec->serial, serial_draw(), memory_order_relaxed);
  *exec_out = exec;
  return RONDO_OK;
}

/* RONDO_TIMEOUT: the replays are done, and yet not all is written that tells of it. Nothing is lost then. A device that
 * was lost before ends the wait early; closing goes on. */
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
  status = residents_close(exec, function);
  if (status != RONDO_OK) return status;
  status = exec_end(exec, timeout_ns, function);
  if (status == RONDO_TIMEOUT) {
    residents_reopen(exec);
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
  *usage = (rondo_exec_usage){.device_bytes = exec->device_bytes,
                              .arena_bytes = exec->arena_bytes,
                              .pinned_bytes = exec->pinned_bytes,
                              .host_bytes = exec->host_bytes,
                              .driver_bytes = exec->driver_bytes,
                              .lane = exec->lane,
                              .slot_count = exec->slot_count,
                              .node_count = exec->node_count};
  slots_count(exec, &usage->free_slot_count, &usage->in_flight_slot_count);
  return RONDO_OK;
}
