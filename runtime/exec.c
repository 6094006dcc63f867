/* exec.c - instantiate: addresses for everything, one launchable graph per slot, a warm replay of each. And its end. */
#include "exec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cutter.h"
#include "lane.h"
#include "replay.h"
#include "user_work.h"

static const uint64_t exec_magic = 0x63657865646e6f52;
static const uint64_t warm_replay_timeout_ns = UINT64_C(120) * 1000 * 1000 * 1000;

rondo_status exec_check(const rondo_exec *exec, const char *function) {
  if (!exec) return status_set(RONDO_INVALID_ARGUMENT, "%s: the exec is NULL", function);
  if (exec->magic != exec_magic) return status_set(RONDO_INVALID_STATE, "%s: the exec is closed", function);
  if (!atomic_load_explicit(exec->opened_here, memory_order_relaxed)) return forked_status(function);
  return RONDO_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* How much there is of what an exec keeps. */
struct exec_counts {
  uint32_t tensors, nodes, operands, edges, user_kernels, launches;
  uint64_t user_work_bytes;
};

static uint32_t launches_most(const struct op *op) { return op && op->launches_most ? op->launches_most : 1; }

static struct exec_counts count_all(const rondo_graph *graph, const struct plan *plan) {
  struct exec_counts counts = {
      .tensors = graph->tensor_count, .nodes = plan->node_count, .edges = plan->summary.edge_count};
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

rondo_status rondo_plan_graph(rondo_graph *graph, rondo_plan *summary) {
  rondo_status status = graph_check(graph, "rondo_plan_graph");
  if (status != RONDO_OK) return status;
  if (!summary) return status_set(RONDO_INVALID_ARGUMENT, "rondo_plan_graph: the plan is NULL");
  const struct plan *plan;
  status = plan_of(graph, &plan);
  if (status != RONDO_OK) return status;
  struct exec_counts counts = count_all(graph, plan);
  uint64_t host = exec_bytes(&counts, RONDO_MAX_SLOTS, backend_bytes(&host_device_ops, &counts));
  uint64_t cuda = exec_bytes(&counts, RONDO_MAX_SLOTS, backend_bytes(&cuda_device_ops, &counts));
  uint64_t instantiate_bytes = plan->kept_bytes + pool_take_bytes(host > cuda ? host : cuda);
  *summary = plan->summary;
  summary->host_bytes = plan->planning_bytes > instantiate_bytes ? plan->planning_bytes : instantiate_bytes;
  return RONDO_OK;
}

static rondo_status carve_all(rondo_exec **exec_out, rondo_runtime *runtime, const rondo_graph *graph,
                              const struct plan *plan, uint32_t slot_count) {
  struct exec_counts counts = count_all(graph, plan);
  struct backend_bytes backend = backend_bytes(runtime->ops, &counts);
  uint64_t host_bytes = exec_bytes(&counts, slot_count, backend);
  void *host = NULL;
  pthread_mutex_lock(&runtime->lock);
  rondo_status status = pool_take(&runtime->host_pool, host_bytes, "an exec", false, &host);
  rondo_exec *exec = NULL;
  if (status == RONDO_OK) {
    memset(host, 0, host_bytes);
    exec = cut_exec(&(struct cutter){host, 0}, &counts, slot_count, backend);
    status = pool_carve(&runtime->device_pool, plan->summary.device_bytes, "an exec", &exec->device_extent);
  }
  if (status == RONDO_OK)
    status = pool_carve(&runtime->pinned_pool, plan->summary.pinned_bytes_per_slot * slot_count, "an exec",
                        &exec->pinned_extent);
  if (status == RONDO_OK) {
    runtime->open_execs++;
  } else if (exec) {
    pool_return(&runtime->device_pool, &exec->device_extent);
    pool_give(&runtime->host_pool, exec);
  }
  pthread_mutex_unlock(&runtime->lock);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  exec->runtime = runtime;
  exec->opened_here = runtime->opened_here;
  exec->graph_serial = graph->serial;
  exec->device_memory = pool_memory(&runtime->device_pool, &exec->device_extent);
  exec->pinned_memory = pool_memory(&runtime->pinned_pool, &exec->pinned_extent);
  exec->constant_bytes = plan->summary.constant_bytes;
  exec->device_bytes = plan->summary.device_bytes;
  exec->pinned_bytes = plan->summary.pinned_bytes_per_slot * slot_count;
  exec->host_bytes = host_bytes;
  memset(exec->pinned_memory, 0, plan->summary.pinned_bytes_per_slot * slot_count);
  *exec_out = exec;
  return RONDO_OK;
}

/* Does the device, or a thread, still touch it? On a lost device for ever. */
static bool exec_is_touched(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  bool is_touched = false;
  for (uint32_t s = 0; s < exec->slot_count; s++) {
    struct slot *slot = &exec->slots[s];
    if (slot->device_exec && !slot_done(slot))
      is_touched = true;
    else if (slot->notifies && ops->exec_notify(slot->device_exec, -1) != RONDO_OK)
      is_touched = true;
  }
  return is_touched;
}

/* Nobody gets memory that is still touched. */
static void exec_dismantle(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  bool is_touched = exec_is_touched(exec);
  for (uint32_t s = 0; s < exec->slot_count; s++)
    if (exec->slots[s].device_exec) runtime->ops->exec_destroy(exec->slots[s].device_exec);
  exec->magic = 0;
  atomic_store_explicit(&exec->serial, 0, memory_order_relaxed);
  if (exec->keeps_warm) runtime->ops->keep_warm(runtime->device, false);
  pthread_mutex_lock(&runtime->lock);
  if (!is_touched) {
    pool_return(&runtime->pinned_pool, &exec->pinned_extent);
    pool_return(&runtime->device_pool, &exec->device_extent);
    pool_give(&runtime->host_pool, exec);
  }
  runtime->open_execs--;
  pthread_mutex_unlock(&runtime->lock);
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static void tensors_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    exec->tensors[i] = (struct exec_tensor){.kind = tensor->kind,
                                            .is_view = tensor->root != i,
                                            .bytes = tensor_bytes(tensor),
                                            .device_offset = plan->device_offset[tensor->root],
                                            .pinned_offset = plan->pinned_offset[tensor->root]};
  }
}

static void tasks_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  unsigned char *user_work = exec->user_work;
  uint32_t operands = 0, launches = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    const struct plan_node *node = &plan->nodes[n];
    struct device_node *filled = &exec->nodes[n];
    if (node->kind == NODE_TASK) {
      const struct task *task = &graph->tasks[node->index];
      memcpy(exec->names[n], task->name, NAME_BYTES);
      exec->tasks[n] = graph_op_task(graph, task, &exec->operands[operands]);
      if (task->user_work) {
        filled->user_work = user_work_copy(task->user_work, user_work);
        user_work += user_work_bytes(task->user_work);
      }
    } else {
      plan_node_name(graph, node, exec->names[n]);
      exec->tasks[n] = plan_node_task(graph, node, &exec->operands[operands]);
    }
    exec->tasks[n].name = exec->names[n];
    filled->call.task = &exec->tasks[n];
    filled->call.data = &exec->data[operands];
    filled->first_launch = launches;
    launches += launches_most(exec->tasks[n].op);
    operands += exec->tasks[n].operand_count;
  }
}

static void predecessors_fill(rondo_exec *exec, const struct plan *plan) {
  memcpy(exec->predecessors, plan->predecessors, plan->summary.edge_count * sizeof *exec->predecessors);
  for (uint32_t n = 0; n < plan->node_count; n++) {
    exec->nodes[n].predecessors = &exec->predecessors[plan->begin[n]];
    exec->nodes[n].predecessor_count = plan->begin[n + 1] - plan->begin[n];
  }
}

/* Of the node's operands, in the order of its call's addresses. */
static struct operand_place *places_of(const rondo_exec *exec, uint32_t node) {
  return exec->places + (exec->nodes[node].call.data - exec->data);
}

static void places_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  for (uint32_t n = 0; n < plan->node_count; n++) {
    struct operand_place *places = places_of(exec, n);
    const struct plan_node *node = &plan->nodes[n];
    if (node->kind != NODE_TASK) {
      for (uint32_t i = 0; i < 2 * node->tensor_count; i++) /* sources even, destinations odd */
        places[i] = (struct operand_place){node->tensors[i / 2], (node->kind == NODE_INPUT) == (i % 2 == 0)};
      continue;
    }
    const struct task *task = &graph->tasks[node->index];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      places[i] = (struct operand_place){NO_TENSOR, false};
      if (task->tensors[i] == NO_TENSOR) continue;
      const struct tensor *root = graph_root(graph, task->tensors[i]);
      places[i] = (struct operand_place){root->root, tensor_is_in_place(root)};
    }
    exec->nodes[n].call.scratch = exec->device_memory + plan->scratch_offset[node->index];
  }
}

static bool is_io(const struct exec_tensor *tensor) {
  return tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_OUTPUT;
}

/* A buffer of the caller's takes the place of an input's or output's pinned memory, but of a constant's or state's
 * device memory. */
static unsigned char *address_of(const rondo_exec *exec, const struct slot *slot, struct operand_place place) {
  const struct exec_tensor *tensor = &exec->tensors[place.tensor];
  if (slot->rebound[place.tensor] && place.in_slot == is_io(tensor)) return slot->rebound[place.tensor];
  return place.in_slot ? slot->pinned + tensor->pinned_offset : exec->device_memory + tensor->device_offset;
}

/* Addresses of a node's operands in one slot. */
static void addresses_fill(rondo_exec *exec, const struct slot *slot, uint32_t node) {
  const struct op_call *call = &exec->nodes[node].call;
  void **data = exec->data + (call->data - exec->data);
  for (uint32_t i = 0; i < call->task->operand_count; i++) {
    struct operand_place place = places_of(exec, node)[i];
    if (place.tensor != NO_TENSOR)
      data[i] = address_of(exec, slot, place) + call->task->operands[i].offset_bytes;
    else if (exec->nodes[node].user_work)
      data[i] = user_value(exec->nodes[node].user_work, i);
  }
}

static struct device_program program_of(const rondo_exec *exec, const struct slot *slot) {
  return (struct device_program){.nodes = exec->nodes,
                                 .node_count = exec->node_count,
                                 .lane = exec->lane,
                                 .operand_count = exec->operand_count,
                                 .user_kernel_count = exec->user_kernel_count,
                                 .launch_count = exec->launch_count,
                                 .data = exec->data,
                                 .counts = slot->counts,
                                 .words = slot->words,
                                 .host_memory = slot->backend_memory,
                                 .build_memory = exec->build_memory};
}

/* ---- Instantiate ------------------------------------------------------------------------------------------------- */

static rondo_status slots_create(rondo_exec *exec, const struct plan *plan) {
  const struct device_ops *ops = exec->runtime->ops;
  uint64_t *counts = (void *)(exec->device_memory + plan->counts_offset);
  rondo_status status = ops->zero(exec->runtime->device, exec->lane, counts, PLAN_COUNTS_BYTES);
  for (uint32_t s = 0; s < exec->slot_count && status == RONDO_OK; s++) {
    struct slot *slot = &exec->slots[s];
    slot->pinned = exec->pinned_memory + s * plan->summary.pinned_bytes_per_slot;
    slot->words = (_Atomic uint64_t *)(void *)slot->pinned;
    slot->counts = counts + (size_t)s * COMPLETION_WORDS;
    for (int i = 0; i < COMPLETION_WORDS; i++) atomic_store(&slot->words[i], i ? UINT64_MAX : 0);
    for (uint32_t n = 0; n < exec->node_count; n++) addresses_fill(exec, slot, n);
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

/* Every lazy cost of the first launch is paid here, on zeroed inputs; constants and states are zeroed again behind it.
 */
static rondo_status warm_up(rondo_exec *exec) {
  const struct device_ops *ops = exec->runtime->ops;
  rondo_status status = ops->zero(exec->runtime->device, exec->lane, exec->device_memory, exec->constant_bytes);
  for (uint32_t s = 0; s < exec->slot_count && status == RONDO_OK; s++) {
    struct slot *slot = &exec->slots[s];
    status = slot_launch(exec, slot);
    if (status == RONDO_OK) status = slot_wait(exec, slot, warm_replay_timeout_ns);
    if (status == RONDO_TIMEOUT) status = give_up(exec->runtime, s);
    for (int i = 0; i < COMPLETION_WORDS && status == RONDO_OK; i++) {
      uint64_t replays = atomic_load(&slot->words[i]);
      if (replays == 1 || (i && replays == UINT64_MAX)) continue;
      status =
          status_set(RONDO_INTERNAL, "instantiate: slot %u completed %" PRIu64 " warm replays, expected 1", s, replays);
    }
  }
  if (status == RONDO_OK)
    status = ops->zero(exec->runtime->device, exec->lane, exec->device_memory, exec->constant_bytes);
  return status;
}

static rondo_status keep_warm(rondo_exec *exec) {
  rondo_runtime *runtime = exec->runtime;
  if (!runtime->ops->keep_warm) return RONDO_OK;
  rondo_status status = runtime->ops->keep_warm(runtime->device, true);
  exec->keeps_warm = status == RONDO_OK;
  return status;
}

rondo_status rondo_instantiate(rondo_runtime *runtime, rondo_graph *graph, const rondo_exec_options *options,
                               rondo_exec **exec_out) {
  rondo_status status = runtime_check(runtime, "rondo_instantiate");
  if (status == RONDO_OK) status = graph_check(graph, "rondo_instantiate");
  if (status == RONDO_OK) status = runtime_check_outside(runtime, "rondo_instantiate");
  if (status != RONDO_OK) return status;
  if (!exec_out) return status_set(RONDO_INVALID_ARGUMENT, "rondo_instantiate: the exec's address is NULL");
  uint32_t slot_count = options && options->slots ? options->slots : 1;
  if (slot_count > RONDO_MAX_SLOTS)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: %u slots, expected 1 to %d", slot_count, RONDO_MAX_SLOTS);
  uint32_t lane = options ? options->lane : 0;
  status = lane_exists(runtime, lane, "instantiate");
  if (status == RONDO_OK) status = runtime->ops->health(runtime->device);
  if (status != RONDO_OK) return status;
  const struct plan *plan;
  status = plan_of(graph, &plan);
  if (status != RONDO_OK) return status_set(status, "instantiate: %s", rondo_error_text());
  rondo_exec *exec = NULL;
  status = carve_all(&exec, runtime, graph, plan, slot_count);
  if (status != RONDO_OK) return status;
  exec->lane = lane;
  tensors_fill(exec, graph, plan);
  tasks_fill(exec, graph, plan);
  predecessors_fill(exec, plan);
  places_fill(exec, graph, plan);
  uint64_t free_bytes = runtime_free_bytes(runtime);
  status = slots_create(exec, plan);
  if (status == RONDO_OK) status = warm_up(exec);
  if (status == RONDO_OK) {
    uint64_t left_bytes = runtime_free_bytes(runtime);
    /* Others may have given some back meanwhile. */
    exec->driver_bytes = left_bytes && left_bytes < free_bytes ? free_bytes - left_bytes : 0;
  }
  if (status == RONDO_OK && options && options->keep_warm) status = keep_warm(exec);
  if (status != RONDO_OK) {
    char cause[512]; /* what is done now may fail too, and leave its own text */
    snprintf(cause, sizeof cause, "%s", rondo_error_text());
    runtime->ops->drain(runtime->device, lane); /* a warm replay may still run */
    exec_dismantle(exec);
    return status_set(status, "%s", cause);
  }
  exec->magic = exec_magic;
  atomic_store_explicit(&exec->serial, serial_draw(), memory_order_relaxed);
  *exec_out = exec;
  return RONDO_OK;
}

rondo_status rondo_close_exec_within(rondo_exec **exec_address, uint64_t timeout_ns) {
  if (!exec_address || !*exec_address) return RONDO_OK;
  rondo_exec *exec = *exec_address;
  rondo_status status = exec_check(exec, "rondo_close_exec");
  if (status == RONDO_OK) status = runtime_check_outside(exec->runtime, "rondo_close_exec");
  if (status != RONDO_OK) return status;
  uint32_t slot = 0;
  status = slots_wait(exec, timeout_ns, &slot);
  if (status == RONDO_TIMEOUT) {
    char cause[128];
    snprintf(cause, sizeof cause, "rondo_close_exec_within: slot %u was not done after %" PRIu64 " ns", slot,
             timeout_ns);
    status = exec->runtime->ops->lose(exec->runtime->device, cause);
  } else {
    status = RONDO_OK; /* a device that was lost before ends the wait early; closing goes on */
  }
  exec_dismantle(exec);
  *exec_address = NULL;
  return status;
}

rondo_status rondo_close_exec(rondo_exec **exec_address) {
  return rondo_close_exec_within(exec_address, RONDO_FOREVER);
}

rondo_status rondo_exec_info(rondo_exec *exec, rondo_exec_usage *usage) {
  rondo_status status = exec_check(exec, "rondo_exec_info");
  if (status != RONDO_OK) return status;
  if (!usage) return status_set(RONDO_INVALID_ARGUMENT, "rondo_exec_info: the usage is NULL");
  *usage = (rondo_exec_usage){.device_bytes = exec->device_bytes,
                              .pinned_bytes = exec->pinned_bytes,
                              .host_bytes = exec->host_bytes,
                              .driver_bytes = exec->driver_bytes,
                              .lane = exec->lane,
                              .slot_count = exec->slot_count,
                              .node_count = exec->node_count};
  return RONDO_OK;
}

/* ---- Constants and states ---------------------------------------------------------------------------------------- */

rondo_status exec_tensor_check(const rondo_exec *exec, rondo_tensor tensor, uint32_t kinds, const char *expected,
                               const char *function) {
  if (tensor.serial != exec->graph_serial || tensor.index >= exec->tensor_count)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor belongs to another graph", function);
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  if (!place->is_view && (kinds >> place->kind & 1u)) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor %u is %s%s, expected %s", function, tensor.index,
                    place->is_view ? "a view of a tensor of kind " : "of kind ", tensor_kind_name(place->kind),
                    expected);
}

static rondo_status resident_check(const rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes,
                                   const char *function) {
  rondo_status status = exec_check(exec, function);
  if (status == RONDO_OK) status = runtime_check_outside(exec->runtime, function);
  if (status != RONDO_OK) return status;
  status =
      exec_tensor_check(exec, tensor, 1u << TENSOR_CONSTANT | 1u << TENSOR_STATE, "a constant or a state", function);
  if (status != RONDO_OK) return status;
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  if (bytes != place->bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor %u has %" PRIu64 " bytes, not %" PRIu64, function,
                      tensor.index, place->bytes, bytes);
  if (!data && bytes) return status_set(RONDO_INVALID_ARGUMENT, "%s: the data is NULL", function);
  for (uint32_t s = 0; s < exec->slot_count; s++)
    if (!slot_done(&exec->slots[s])) return slot_in_flight(exec, s, function);
  return RONDO_OK;
}

rondo_status rondo_upload(rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes) {
  rondo_status status = resident_check(exec, tensor, data, bytes, "rondo_upload");
  if (status != RONDO_OK || !bytes) return status;
  return exec->runtime->ops->upload(exec->runtime->device, exec->lane,
                                    exec->device_memory + exec->tensors[tensor.index].device_offset, data, bytes);
}

rondo_status rondo_download(rondo_exec *exec, rondo_tensor tensor, void *data, uint64_t bytes) {
  rondo_status status = resident_check(exec, tensor, data, bytes, "rondo_download");
  if (status != RONDO_OK || !bytes) return status;
  return exec->runtime->ops->download(exec->runtime->device, exec->lane, data,
                                      exec->device_memory + exec->tensors[tensor.index].device_offset, bytes);
}

/* ---- Buffers of the caller's ------------------------------------------------------------------------------------- */

static bool node_touches(const rondo_exec *exec, uint32_t node, uint32_t tensor) {
  for (uint32_t i = 0; i < exec->tasks[node].operand_count; i++) {
    struct operand_place place = places_of(exec, node)[i];
    if (place.tensor == tensor && place.in_slot == is_io(&exec->tensors[tensor])) return true;
  }
  return false;
}

/* Gives every node that touches the tensor the address that slot->rebound says. The nodes are all slots', of which each
 * may have its own thread. */
static rondo_status nodes_rebind(rondo_exec *exec, struct slot *slot, uint32_t tensor) {
  rondo_status status = RONDO_OK;
  struct device_program program = program_of(exec, slot);
  pthread_mutex_lock(&exec->runtime->lock);
  for (uint32_t n = 0; n < exec->node_count && status == RONDO_OK; n++) {
    if (!node_touches(exec, n, tensor)) continue;
    addresses_fill(exec, slot, n);
    status = exec->runtime->ops->exec_rebind(slot->device_exec, &program, n);
  }
  pthread_mutex_unlock(&exec->runtime->lock);
  return status;
}

static rondo_status tensor_bind(rondo_exec *exec, struct slot *slot, uint32_t tensor, void *memory) {
  void *before = slot->rebound[tensor];
  slot->rebound[tensor] = memory;
  rondo_status status = nodes_rebind(exec, slot, tensor);
  if (status == RONDO_OK) {
    slot->rebound_count += (memory ? 1u : 0) - (before ? 1u : 0);
    return RONDO_OK;
  }
  char cause[256];
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  slot->rebound[tensor] = before;
  /* If that fails too, half of the tasks have one address and half the other. */
  if (nodes_rebind(exec, slot, tensor) != RONDO_OK) return exec->runtime->ops->lose(exec->runtime->device, cause);
  return status_set(status, "%s", cause);
}

rondo_status exec_rebind(rondo_exec *exec, struct slot *slot, rondo_tensor tensor, void *memory) {
  rondo_status status =
      exec_tensor_check(exec, tensor, ~(1u << TENSOR_TEMPORARY), "an input, output, constant or state", "rondo_rebind");
  if (status != RONDO_OK) return status;
  if ((uintptr_t)memory % POOL_ALIGNMENT)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_rebind: the buffer %p is not aligned to %d bytes", memory,
                      POOL_ALIGNMENT);
  for (uint32_t n = 0; n < exec->node_count; n++)
    if (exec->nodes[n].user_work && exec->nodes[n].user_work->capture && node_touches(exec, n, tensor.index))
      return status_set(RONDO_UNSUPPORTED, "rondo_rebind: task '%s' captured the address of tensor %u", exec->names[n],
                        tensor.index);
  return tensor_bind(exec, slot, tensor.index, memory);
}

rondo_status exec_unbind(rondo_exec *exec, struct slot *slot) {
  rondo_status status = RONDO_OK;
  for (uint32_t t = 0; slot->rebound_count && t < exec->tensor_count && status == RONDO_OK; t++)
    if (slot->rebound[t]) status = tensor_bind(exec, slot, t, NULL);
  return status;
}
