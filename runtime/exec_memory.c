/* exec_memory.c - see exec_memory.h. An exec is one piece of the host pool, an extent of the device pool and one of the
 * pinned pool, and it shares its lane's arena. Each piece is measured by the function that later cuts it. */
#include "exec_memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cutter.h"
#include "lane.h"
#include "ownership.h"
#include "planner.h"
#include "program.h"
#include "user_work.h"

/* ---- Host memory: measured first and cut afterwards -------------------------------------------------------------- */

/* The counts of all that an exec keeps. */
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

static struct device_exec_bytes backend_bytes(const struct device_ops *ops, const struct exec_counts *counts) {
  return ops->exec_bytes(&(struct device_program){.node_count = counts->nodes,
                                                  .operand_count = counts->operands,
                                                  .user_kernel_count = counts->user_kernels,
                                                  .launch_count = counts->launches});
}

/* An exec and all that it points to. Without memory it only measures. */
static rondo_exec *cut_exec(struct cutter *cutter, const struct exec_counts *counts, uint32_t slot_count,
                            struct device_exec_bytes backend) {
  rondo_exec *exec = cut(cutter, sizeof *exec), parts = {0};
  parts.tensors = cut(cutter, counts->tensors * sizeof *parts.tensors);
  parts.program.nodes = cut(cutter, counts->nodes * sizeof *parts.program.nodes);
  parts.program.tasks = cut(cutter, counts->nodes * sizeof *parts.program.tasks);
  parts.program.operands = cut(cutter, counts->operands * sizeof *parts.program.operands);
  parts.program.data = cut(cutter, counts->operands * sizeof *parts.program.data);
  parts.program.sources = cut(cutter, counts->operands * sizeof *parts.program.sources);
  parts.program.user_work = cut(cutter, counts->user_work_bytes);
  parts.program.predecessors = cut(cutter, counts->edges * sizeof *parts.program.predecessors);
  parts.program.names = cut(cutter, counts->nodes * sizeof *parts.program.names);
  parts.tensor_names = cut(cutter, counts->tensor_name_bytes);
  parts.lending.lenders = cut(cutter, counts->borrowed * sizeof *parts.lending.lenders);
  for (uint32_t s = 0; s < slot_count; s++) {
    parts.slots.items[s].rebound = cut(cutter, counts->tensors * sizeof(void *));
    parts.slots.items[s].backend_memory = cut(cutter, backend.slot);
  }
  parts.program.build_memory = cut(cutter, backend.build);
  if (!cutter->base) return NULL;
  parts.slots.count = slot_count;
  parts.tensor_count = counts->tensors;
  parts.program.node_count = counts->nodes;
  parts.program.operand_count = counts->operands;
  parts.program.user_kernel_count = counts->user_kernels;
  parts.program.launch_count = counts->launches;
  *exec = parts;
  return exec;
}

static uint64_t exec_bytes(const struct exec_counts *counts, uint32_t slot_count, struct device_exec_bytes backend) {
  struct cutter cutter = {0};
  cut_exec(&cutter, counts, slot_count, backend);
  return cutter.used;
}

/* ---- The sum of several graphs ----------------------------------------------------------------------------------- */

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
    sum.pinned_bytes_per_step += one.pinned_bytes_per_step;
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

/* ---- All pools --------------------------------------------------------------------------------------------------- */

/* Of all slots, with the places of the steps of their repeats, and the nodes of a resident exec at the end. A sum that
 * no pool has does not overflow. */
static uint64_t pinned_bytes_of(const struct plan *plan, const rondo_exec_options *options) {
  const uint64_t slot_bytes = plan->summary.pinned_bytes_per_slot, step_bytes = plan->summary.pinned_bytes_per_step;
  const uint64_t most = UINT64_MAX / 4 / RONDO_MAX_SLOTS, steps = options->repeat_steps;
  const uint64_t bell_bytes = options->linger_ns ? DOORBELL_NODES * sizeof(uint64_t) : 0;
  return (slot_bytes + bell_bytes + (step_bytes && steps > most / step_bytes ? most : steps * step_bytes)) *
         options->slots;
}

static_assert(PLAN_DOORBELL_OFFSET + sizeof(struct doorbell) <= PLAN_CONTROL_OFFSET, "the bell fits");
static_assert(PLAN_DOORBELL_OFFSET % DOORBELL_ALIGNMENT == 0, "the bell is aligned");
static_assert(COMPLETION_WORDS * sizeof(uint64_t) % DOORBELL_ALIGNMENT == 0, "its state is aligned");
static_assert(PLAN_CONTROL_OFFSET + sizeof(struct repeat_control) <= PLAN_PINNED_HEADER_BYTES, "the control fits");

/* Before other threads can find the exec in the group's list, since they read the words. */
static void slots_place(rondo_exec *exec, const struct plan *plan) {
  uint64_t *counts = (void *)(exec->memory.device + plan->counts_offset);
  const uint64_t slot_bytes = exec->memory.pinned_bytes / exec->slots.count;
  for (uint32_t s = 0; s < exec->slots.count; s++) {
    struct slot *slot = &exec->slots.items[s];
    slot->pinned = exec->memory.pinned + s * slot_bytes;
    slot->words = (_Atomic uint64_t *)(void *)slot->pinned;
    slot->counts = counts + (size_t)s * COMPLETION_WORDS;
    if (exec->linger_ns && exec->runtime->ops->exec_ring) {
      slot->bell = (void *)(slot->pinned + PLAN_DOORBELL_OFFSET);
      slot->bell_nodes = (uint64_t *)(void *)(slot->pinned + slot_bytes) - DOORBELL_NODES;
    }
    if (!exec->repeat_steps) continue;
    slot->repeat = (struct repeat){.control = (void *)(slot->pinned + PLAN_CONTROL_OFFSET),
                                   .outputs = slot->pinned + plan->outputs_offset,
                                   .places = slot->pinned + plan->summary.pinned_bytes_per_slot,
                                   .place_bytes = plan->summary.pinned_bytes_per_step};
  }
}

/* Takes memory of all pools and of the lane's arena, and finds the owners of borrowed tensors. The group's lock is
 * held. After an error exec_give_back gives back what was taken. */
static rondo_status exec_take(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan,
                              const rondo_exec_options *options) {
  rondo_runtime *runtime = exec->runtime;
  uint64_t pinned_bytes = pinned_bytes_of(plan, options);
  if (runtime->arenas[exec->lane].is_profiled)
    return status_set(RONDO_BUSY, "another thread profiles in lane %u", exec->lane);
  rondo_status status = pool_carve(&runtime->device_pool, plan->own_bytes, "an exec", &exec->memory.device_extent);
  if (status == RONDO_OK)
    status = pool_carve(&runtime->pinned_pool, pinned_bytes, "an exec", &exec->memory.pinned_extent);
  if (status == RONDO_OK) status = arena_take(runtime, exec->lane, plan->summary.temporary_bytes);
  if (status != RONDO_OK) return status;
  exec->memory.arena_bytes = plan->summary.temporary_bytes;
  exec->memory.device = pool_memory(&runtime->device_pool, &exec->memory.device_extent);
  exec->memory.pinned = pool_memory(&runtime->pinned_pool, &exec->memory.pinned_extent);
  exec->memory.arena = arena_memory(runtime, exec->lane, exec->memory.arena_bytes);
  exec->memory.constant_bytes = plan->summary.constant_bytes;
  exec->memory.device_bytes = plan->own_bytes;
  exec->memory.pinned_bytes = pinned_bytes;
  slots_place(exec, plan);
  program_fill(exec, graph, plan);
  return ownership_attach(exec, graph, options);
}

void exec_give_back(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  ownership_detach(exec);
  if (exec->memory.arena) arena_give(runtime, exec->lane);
  pool_return(&runtime->pinned_pool, &exec->memory.pinned_extent);
  pool_return(&runtime->device_pool, &exec->memory.device_extent);
  pool_give(&runtime->host_pool, exec);
}

/* Tries to take the exec's own memory and the growth of the arena, as exec_take does: they need not be one piece. */
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

/* A pool was too small. The text names all pools that are, so that the program opens a runtime once, not once for each.
 * If none is, an arena could not grow past its neighbour, and the text stays. */
static rondo_status pools_too_small(rondo_runtime *runtime, const struct plan *plan, const rondo_exec_options *options,
                                    uint64_t host_bytes) {
  enum { POOLS = 3 };
  const uint64_t arena_bytes = arena_growth(runtime, options->lane, plan->summary.temporary_bytes);
  const struct {
    const struct pool *pool;
    uint64_t bytes;
  } needs[POOLS] = {{&runtime->device_pool, pool_round(plan->own_bytes) + arena_bytes},
                    {&runtime->pinned_pool, pool_round(pinned_bytes_of(plan, options))},
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

rondo_status exec_make(rondo_exec **exec_out, rondo_runtime *runtime, const rondo_graph *graph, const struct plan *plan,
                       const rondo_exec_options *options) {
  struct exec_counts counts = count_all(graph, plan);
  struct device_exec_bytes backend = backend_bytes(runtime->ops, &counts);
  uint64_t host_bytes = exec_bytes(&counts, options->slots, backend);
  void *host = NULL;
  pthread_mutex_lock(&runtime->group->lock);
  rondo_status status = runtime_may_open(runtime);
  if (status == RONDO_OK) status = pool_take(&runtime->host_pool, host_bytes, "an exec", false, &host);
  if (status == RONDO_OK) {
    memset(host, 0, host_bytes);
    rondo_exec *exec = *exec_out = cut_exec(&(struct cutter){host, 0}, &counts, options->slots, backend);
    exec->runtime = runtime;
    exec->opened_here = runtime->opened_here;
    exec->graph_serial = graph->serial;
    exec->lane = options->lane;
    exec->repeat_steps = options->repeat_steps;
    exec->linger_ns = options->linger_ns;
    exec->memory.host_bytes = host_bytes;
    status = exec_take(exec, graph, plan, options);
    if (status == RONDO_OK)
      runtime->open_execs++;
    else
      exec_give_back(exec);
  }
  const bool lacks_memory = status == RONDO_OUT_OF_MEMORY;
  if (lacks_memory) pools_too_small(runtime, plan, options, host_bytes);
  pthread_mutex_unlock(&runtime->group->lock);
  if (lacks_memory) return RONDO_OUT_OF_MEMORY;
  return status == RONDO_OK ? status : status_set(status, "instantiate: %s", rondo_error_text());
}
