/* program.c - see program.h. */
#include "program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replay.h"
#include "user_work.h"

uint32_t launches_most(const struct op *op) { return op && op->launches_most ? op->launches_most : 1; }

/* Merges the innermost directions as far as they lie one behind the other. */
static struct device_rows rows_of(const struct tensor *tensor) {
  struct device_rows rows = {.bytes = rondo_dtype_bits(tensor->dtype), .count = {1, 1, 1}};
  uint32_t level = 0;
  for (uint32_t i = tensor->rank; i-- > 0;) { /* in bits until the end: an nvfp4 element is half a byte */
    uint64_t pitch_bits = (uint64_t)tensor->stride[i] * rondo_dtype_bits(tensor->dtype);
    if (level == 0 && (pitch_bits == rows.bytes || tensor->shape[i] == 1)) {
      rows.bytes *= (uint64_t)tensor->shape[i];
      continue;
    }
    rows.count[level] = (uint64_t)tensor->shape[i];
    rows.pitch_bytes[level++] = pitch_bits / 8;
  }
  rows.bytes /= 8;
  return rows;
}

/* A root comes before its views. */
static void tensors_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  char *names = exec->tensor_names;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    const unsigned char *base = tensor_is_resident(tensor) ? exec->device_memory : exec->arena_memory;
    exec->tensors[i] = (struct exec_tensor){.kind = tensor->kind,
                                            .root = tensor->root,
                                            .bytes = tensor_bytes(tensor),
                                            .device_memory = (unsigned char *)base + plan->device_offset[tensor->root],
                                            .pinned_offset = plan->pinned_offset[tensor->root],
                                            .offset_bytes = tensor_offset_bytes(tensor),
                                            .rows = rows_of(tensor)};
    exec->tensors[i].name = tensor->root == i ? names : exec->tensors[tensor->root].name;
    if (tensor->root == i) names = stpcpy(names, tensor->name) + 1;
  }
}

static void accesses_fill(rondo_exec *exec, const rondo_graph *graph) {
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++) {
      uint32_t tensor = graph->tasks[t].tensors[i];
      if (tensor != NO_TENSOR) exec->tensors[graph->tensors[tensor].root].access |= task_access(&graph->tasks[t], i);
    }
}

static void tasks_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  struct cutter user_work = {exec->user_work, 0};
  uint32_t operands = 0, launches = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    const struct plan_node *node = &plan->nodes[n];
    struct device_node *filled = &exec->nodes[n];
    if (node->kind == NODE_TASK) {
      const struct task *task = &graph->tasks[node->index];
      memcpy(exec->names[n], task->name, NAME_BYTES);
      if (!exec->called) exec->called = exec->names[n];
      exec->tasks[n] = graph_op_task(graph, task, &exec->operands[operands]);
      if (task->user_work) filled->user_work = user_work_cut(&user_work, task->user_work);
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
      uint32_t root = graph->tensors[task->tensors[i]].root;
      places[i] = (struct operand_place){root, plan->allocations[root] == ALLOCATION_SLOT};
    }
    exec->nodes[n].call.scratch = exec->arena_memory + plan->scratch_offset[node->index];
  }
}

/* From the launch of a replay until the task's kernels have ended nobody else writes it: no task in front in the order,
 * nor the node that copies an input to the device. Who writes behind waits for those who read. By whole tensors: a line
 * of the cache that is fetched early holds a rectangle's neighbours too. A buffer of the caller's that takes a tensor's
 * place overlaps no other. */
static bool is_settled(const rondo_exec *exec, struct operand_place place) {
  if (place.tensor == NO_TENSOR) return false;
  const struct exec_tensor *root = &exec->tensors[place.tensor];
  bool is_copied = root->kind == TENSOR_INPUT && !place.in_slot;
  return !is_copied && !root->is_written;
}

/* The user's own work has ended when what follows it starts. */
static bool follows_own_kernel(const rondo_exec *exec, const struct device_node *node) {
  for (uint32_t i = 0; i < node->predecessor_count; i++)
    if (!exec->nodes[node->predecessors[i]].user_work) return true;
  return false;
}

static void writes_note(const rondo_exec *exec, const rondo_graph *graph, const struct task *task) {
  for (uint32_t i = 0; i < task->operand_count; i++)
    if (task->tensors[i] != NO_TENSOR && task_access(task, i) & RONDO_WRITE)
      exec->tensors[graph->tensors[task->tensors[i]].root].is_written = true;
}

static void settled_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  for (uint32_t n = 0; n < exec->node_count; n++) {
    struct device_node *node = &exec->nodes[n];
    const uint32_t operand_count = follows_own_kernel(exec, node) ? node->call.task->operand_count : 0;
    for (uint32_t i = 0; i < operand_count; i++)
      if (is_settled(exec, places_of(exec, n)[i])) node->call.settled_operands |= 1u << i;
    if (plan->nodes[n].kind == NODE_TASK) writes_note(exec, graph, &graph->tasks[plan->nodes[n].index]);
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
  return place.in_slot ? slot->pinned + tensor->pinned_offset : tensor->device_memory;
}

/* Addresses of a node's operands in one slot. */
static void node_address(rondo_exec *exec, const struct slot *slot, uint32_t node) {
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

struct device_program program_of(const rondo_exec *exec, struct slot *slot) {
  return (struct device_program){.nodes = exec->nodes,
                                 .node_count = exec->node_count,
                                 .lane = exec->lane,
                                 .operand_count = exec->operand_count,
                                 .user_kernel_count = exec->user_kernel_count,
                                 .launch_count = exec->launch_count,
                                 .data = exec->data,
                                 .counts = slot->counts,
                                 .words = slot->words,
                                 .notice = &slot->notice,
                                 .host_memory = slot->backend_memory,
                                 .build_memory = exec->build_memory};
}

void program_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  tensors_fill(exec, graph, plan);
  accesses_fill(exec, graph);
  tasks_fill(exec, graph, plan);
  predecessors_fill(exec, plan);
  places_fill(exec, graph, plan);
  settled_fill(exec, graph, plan);
}

void program_address(rondo_exec *exec, const struct slot *slot) {
  for (uint32_t n = 0; n < exec->node_count; n++) node_address(exec, slot, n);
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
    node_address(exec, slot, n);
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
    /* The buffer may have stood in for what was never uploaded. */
    if (!memory && exec->tensors[tensor].kind == TENSOR_CONSTANT) slot->constants_are_set = false;
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
  rondo_status status = exec_tensor_check(exec, tensor, ~(1u << TENSOR_TEMPORARY), false,
                                          "an input, output, constant or state", "rondo_rebind");
  if (status != RONDO_OK) return status;
  if ((uintptr_t)memory % POOL_ALIGNMENT)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_rebind: tensor '%s': the buffer %p is not aligned to %d bytes",
                      exec->tensors[tensor.index].name, memory, POOL_ALIGNMENT);
  for (uint32_t n = 0; n < exec->node_count; n++)
    if (exec->nodes[n].user_work && exec->nodes[n].user_work->capture && node_touches(exec, n, tensor.index))
      return status_set(RONDO_UNSUPPORTED, "rondo_rebind: task '%s' captured the address of tensor '%s'",
                        exec->names[n], exec->tensors[tensor.index].name);
  return tensor_bind(exec, slot, tensor.index, memory);
}

rondo_status exec_unbind(rondo_exec *exec, struct slot *slot) {
  rondo_status status = RONDO_OK;
  for (uint32_t t = 0; slot->rebound_count && t < exec->tensor_count && status == RONDO_OK; t++)
    if (slot->rebound[t]) status = tensor_bind(exec, slot, t, NULL);
  return status;
}
