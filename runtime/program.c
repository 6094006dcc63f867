/* program.c - see program.h. The exec gets copies of the graph's tensors and tasks, and of the plan's edges. Then each
 * operand gets a source, which a slot turns into an address, and each node learns its settled operands. */
#include "program.h"

#include <string.h>

#include "fault.h"
#include "user_work.h"

uint32_t launches_most(const struct op *op) { return op && op->launches_most ? op->launches_most : 1; }

/* Dense innermost dimensions become one row. */
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

/* A root comes before its views, so its name is there. */
static void tensors_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  char *names = exec->tensor_names;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    const unsigned char *base = tensor_is_resident(tensor) ? exec->memory.device : exec->memory.arena;
    exec->tensors[i] = (struct exec_tensor){.kind = tensor->kind,
                                            .dtype = tensor->dtype,
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

/* Does the task wait for tasks of other ranks? */
static bool task_waits(const struct task *task) {
  if (!task->op || !task->op->waits_for_others) return false;
  const uint32_t with = task->op->waits_with;
  return !with || (with < task->operand_count && task->tensors[with] != NO_TENSOR);
}

static void accesses_fill(rondo_exec *exec, const rondo_graph *graph) {
  for (uint32_t t = 0; t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      struct exec_tensor *root = &exec->tensors[graph->tensors[task->tensors[i]].root];
      root->access |= task_access(task, i);
      if (!task_waits(task)) root->unordered_access |= task_access(task, i);
    }
  }
}

/* Are there tasks that wait for other ranks, and do all read and write one tensor, so that they run one after the
 * other? Then one that waits never takes the place of an earlier one of another rank. */
static bool waits_have_an_order(const rondo_graph *graph) {
  uint32_t shared = NO_TENSOR;
  for (uint32_t t = 0; t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    if (task->user_work && task->user_work->capture) return false; /* which may wait too */
    if (!task_waits(task)) continue;
    for (uint32_t i = task->op->waits_with; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR || task_access(task, i) != RONDO_READ_WRITE) continue;
      const uint32_t root = graph->tensors[task->tensors[i]].root;
      if (shared == NO_TENSOR) shared = root;
      if (root != shared) return false;
    }
  }
  return shared != NO_TENSOR;
}

static void tasks_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  struct cutter user_work = {exec->program.user_work, 0};
  const bool lets_successors_start = waits_have_an_order(graph) && exec->runtime->group->has_own_devices;
  uint32_t operands = 0, launches = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    const struct plan_node *node = &plan->nodes[n];
    struct device_node *filled = &exec->program.nodes[n];
    if (node->kind == NODE_TASK) {
      const struct task *task = &graph->tasks[node->index];
      memcpy(exec->program.names[n], task->name, NAME_BYTES);
      if (!exec->program.called) exec->program.called = exec->program.names[n];
      exec->program.tasks[n] = graph_op_task(graph, task, &exec->program.operands[operands]);
      if (task->user_work) filled->user_work = user_work_cut(&user_work, task->user_work);
    } else {
      plan_node_name(graph, node, exec->program.names[n]);
      exec->program.tasks[n] = plan_node_task(graph, node, &exec->program.operands[operands]);
    }
    exec->program.tasks[n].name = exec->program.names[n];
    filled->call.task = &exec->program.tasks[n];
    filled->call.data = &exec->program.data[operands];
    filled->call.fault = exec->runtime->info.fault;
    filled->call.fault_number = fault_number_of(exec->program.names[n]);
    filled->call.lets_successors_start = lets_successors_start;
    filled->first_launch = launches;
    launches += launches_most(exec->program.tasks[n].op);
    operands += exec->program.tasks[n].operand_count;
  }
}

static void predecessors_fill(rondo_exec *exec, const struct plan *plan) {
  memcpy(exec->program.predecessors, plan->predecessors, plan->summary.edge_count * sizeof *exec->program.predecessors);
  for (uint32_t n = 0; n < plan->node_count; n++) {
    exec->program.nodes[n].predecessors = &exec->program.predecessors[plan->begin[n]];
    exec->program.nodes[n].predecessor_count = plan->begin[n + 1] - plan->begin[n];
  }
}

/* Of the node's operands, in the order of the addresses in its call. */
static struct operand_source *sources_of(const rondo_exec *exec, uint32_t node) {
  return exec->program.sources + (exec->program.nodes[node].call.data - exec->program.data);
}

static void sources_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  for (uint32_t n = 0; n < plan->node_count; n++) {
    struct operand_source *sources = sources_of(exec, n);
    const struct plan_node *node = &plan->nodes[n];
    if (node->kind != NODE_TASK) {
      for (uint32_t i = 0; i < 2 * node->tensor_count; i++) /* sources even, destinations odd */
        sources[i] = (struct operand_source){node->tensors[i / 2], (node->kind == NODE_INPUT) == (i % 2 == 0)};
      continue;
    }
    const struct task *task = &graph->tasks[node->index];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      sources[i] = (struct operand_source){NO_TENSOR, false};
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = graph->tensors[task->tensors[i]].root;
      sources[i] = (struct operand_source){root, plan->allocations[root] == ALLOCATION_SLOT};
    }
    exec->program.nodes[n].call.scratch = exec->memory.arena + plan->scratch_offset[node->index];
  }
}

/* A tensor is settled if nothing writes it between the launch of the replay and the end of this task: no earlier task,
 * and not the node that copies an input to the device. Later writers already wait for this reader. Whole tensors count,
 * since a cache line that is fetched early holds neighbours of a rectangle. A bound buffer overlaps no other tensor. */
static bool is_settled(const rondo_exec *exec, struct operand_source source) {
  if (source.tensor == NO_TENSOR) return false;
  const struct exec_tensor *root = &exec->tensors[source.tensor];
  bool is_copied = root->kind == TENSOR_INPUT && !source.in_slot;
  return !is_copied && !root->is_written;
}

/* False: no kernel of Rondo precedes the node, so there is nothing to overlap with. The user's own work has ended
 * before its successors start. */
static bool follows_own_kernel(const rondo_exec *exec, const struct device_node *node) {
  for (uint32_t i = 0; i < node->predecessor_count; i++)
    if (!exec->program.nodes[node->predecessors[i]].user_work) return true;
  return false;
}

static void writes_note(const rondo_exec *exec, const rondo_graph *graph, const struct task *task) {
  for (uint32_t i = 0; i < task->operand_count; i++)
    if (task->tensors[i] != NO_TENSOR && task_access(task, i) & RONDO_WRITE)
      exec->tensors[graph->tensors[task->tensors[i]].root].is_written = true;
}

static void settled_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  for (uint32_t n = 0; n < exec->program.node_count; n++) {
    struct device_node *node = &exec->program.nodes[n];
    const uint32_t operand_count = follows_own_kernel(exec, node) ? node->call.task->operand_count : 0;
    for (uint32_t i = 0; i < operand_count; i++)
      if (is_settled(exec, sources_of(exec, n)[i])) node->call.settled_operands |= 1u << i;
    if (plan->nodes[n].kind == NODE_TASK) writes_note(exec, graph, &graph->tasks[plan->nodes[n].index]);
  }
}

static bool is_io(const struct exec_tensor *tensor) {
  return tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_OUTPUT;
}

/* A bound buffer replaces the pinned memory of an input or output, and the device memory of a constant or state. */
static unsigned char *address_of(const rondo_exec *exec, const struct slot *slot, struct operand_source source) {
  const struct exec_tensor *tensor = &exec->tensors[source.tensor];
  if (slot->rebound[source.tensor] && source.in_slot == is_io(tensor)) return slot->rebound[source.tensor];
  return source.in_slot ? slot->pinned + tensor->pinned_offset : tensor->device_memory;
}

void program_address_node(rondo_exec *exec, const struct slot *slot, uint32_t node) {
  const struct op_call *call = &exec->program.nodes[node].call;
  void **data = exec->program.data + (call->data - exec->program.data);
  for (uint32_t i = 0; i < call->task->operand_count; i++) {
    struct operand_source source = sources_of(exec, node)[i];
    if (source.tensor != NO_TENSOR)
      data[i] = address_of(exec, slot, source) + call->task->operands[i].offset_bytes;
    else if (exec->program.nodes[node].user_work)
      data[i] = user_value(exec->program.nodes[node].user_work, i);
  }
}

bool program_touches(const rondo_exec *exec, uint32_t node, uint32_t tensor) {
  for (uint32_t i = 0; i < exec->program.tasks[node].operand_count; i++) {
    struct operand_source source = sources_of(exec, node)[i];
    if (source.tensor == tensor && source.in_slot == is_io(&exec->tensors[tensor])) return true;
  }
  return false;
}

const char *program_waiting_task(const rondo_exec *exec) {
  for (uint32_t n = 0; n < exec->program.node_count; n++) {
    const struct op_task *task = &exec->program.tasks[n];
    const struct user_work *work = exec->program.nodes[n].user_work;
    if (task->op ? op_waits(task) : work && work->called_library) return exec->program.names[n];
  }
  return NULL;
}

struct device_program program_of(const rondo_exec *exec, struct slot *slot) {
  return (struct device_program){.nodes = exec->program.nodes,
                                 .node_count = exec->program.node_count,
                                 .lane = exec->lane,
                                 .operand_count = exec->program.operand_count,
                                 .user_kernel_count = exec->program.user_kernel_count,
                                 .launch_count = exec->program.launch_count,
                                 .data = exec->program.data,
                                 .counts = slot->counts,
                                 .words = slot->words,
                                 .repeat = slot->repeat,
                                 .bell = slot->bell,
                                 .bell_nodes = slot->bell_nodes,
                                 .bell_state = (void *)(slot->counts + COMPLETION_WORDS),
                                 .linger_ns = exec->linger_ns,
                                 .notice = &slot->notice,
                                 .host_memory = slot->backend_memory,
                                 .build_memory = exec->program.build_memory};
}

void program_fill(rondo_exec *exec, const rondo_graph *graph, const struct plan *plan) {
  tensors_fill(exec, graph, plan);
  accesses_fill(exec, graph);
  tasks_fill(exec, graph, plan);
  predecessors_fill(exec, plan);
  sources_fill(exec, graph, plan);
  settled_fill(exec, graph, plan);
}

void program_address(rondo_exec *exec, const struct slot *slot) {
  for (uint32_t n = 0; n < exec->program.node_count; n++) program_address_node(exec, slot, n);
}
