/* plan.c - see plan.h. What must come before what, an order, what is moved, edges without those that others imply, then
 * lifetimes and places. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "dependencies.h"
#include "join.h"
#include "kernels.h"
#include "lifetimes.h"
#include "order.h"
#include "place.h"

/* Up to so many buffers all conflicts are held at once and a good placement is searched for; beyond, they are placed
 * one after the other. */
enum { DENSE_BUFFERS = 4096 };

/* ---- Memory: measured first and cut afterwards ------------------------------------------------------------------- */

/* Working memory of the planning itself. */
struct scratchpad {
  const struct dependencies *dependencies;
  uint32_t *unit_order;     /* tasks and joins */
  uint32_t *node_of_unit;   /* by task, then by join */
  uint32_t *node_of_tensor; /* moved inputs and outputs */
  uint32_t *buffer_of_tensor;
  struct order_work order;
  struct reach_graph edges;
  struct lifetimes lifetimes;
  uint64_t *bytes, *offsets;
  uint32_t *first, *last;
  uint64_t *keys;
  uint32_t *by_key;
  uint64_t *conflicts; /* of all buffers, unless there are too many */
  void *placing;
};

/* How much of everything there is. */
struct counts {
  uint32_t tensors, tasks, units, nodes, buffers;
  uint64_t unit_edges, edges, accesses; /* edges: at most */
};

static void cut_pad(struct cutter *cutter, const struct counts *counts, struct scratchpad *pad) {
  uint64_t word = sizeof(uint32_t), buffers = counts->buffers;
  pad->unit_order = cut(cutter, counts->units * word);
  pad->node_of_unit = cut(cutter, counts->units * word);
  pad->node_of_tensor = cut(cutter, counts->tensors * word);
  pad->buffer_of_tensor = cut(cutter, counts->tensors * word);
  order_cut(&pad->order, cutter, counts->units, counts->unit_edges);
  pad->edges = (struct reach_graph){counts->nodes, cut(cutter, (counts->nodes + UINT64_C(1)) * word),
                                    cut(cutter, counts->edges * word)};
  lifetimes_cut(&pad->lifetimes, cutter, counts->nodes, counts->buffers, counts->accesses);
  pad->bytes = cut(cutter, buffers * sizeof(uint64_t));
  pad->offsets = cut(cutter, buffers * sizeof(uint64_t));
  pad->first = cut(cutter, buffers * word);
  pad->last = cut(cutter, buffers * word);
  pad->keys = cut(cutter, buffers * sizeof(uint64_t));
  pad->by_key = cut(cutter, buffers * word);
  bool is_dense = counts->buffers <= DENSE_BUFFERS;
  if (is_dense) pad->conflicts = cut(cutter, bit_matrix_bytes(counts->buffers, counts->buffers));
  pad->placing = cut(cutter, (is_dense ? place_work_bytes : place_many_work_bytes)(counts->buffers));
}

static struct plan *cut_plan(struct cutter *cutter, const struct counts *counts, uint32_t edge_count) {
  struct plan *plan = cut(cutter, sizeof *plan), parts = {0};
  parts.nodes = cut(cutter, counts->nodes * sizeof *parts.nodes);
  parts.moved = cut(cutter, counts->tensors * sizeof(uint32_t));
  parts.begin = cut(cutter, (counts->nodes + UINT64_C(1)) * sizeof(uint32_t));
  parts.predecessors = cut(cutter, edge_count * sizeof(uint32_t));
  parts.is_awaited = cut(cutter, counts->nodes * sizeof(bool));
  parts.device_offset = cut(cutter, counts->tensors * sizeof(uint64_t));
  parts.pinned_offset = cut(cutter, counts->tensors * sizeof(uint64_t));
  parts.scratch_offset = cut(cutter, counts->tasks * sizeof(uint64_t));
  parts.buffers = cut(cutter, counts->buffers * sizeof *parts.buffers);
  if (cutter->base) *plan = parts;
  return plan;
}

/* ---- What is moved ----------------------------------------------------------------------------------------------- */

/* Does a copy move it between a slot's pinned memory and the device? */
static bool is_moved(const rondo_graph *graph, uint32_t index, enum tensor_kind kind) {
  const struct tensor *tensor = &graph->tensors[index];
  return tensor->root == index && tensor->kind == kind && !tensor_is_in_place(tensor);
}

/* Together with others of its kind? */
static bool is_small(const rondo_graph *graph, uint32_t index) {
  return tensor_bytes(&graph->tensors[index]) <= OP_TRANSFER_BYTES;
}

/* Nodes from `begin` on: for the small tensors together, at most OP_TRANSFER_TENSORS and OP_TRANSFER_BYTES to a node,
 * and for each large one. node_of_tensor and plan are filled unless they are NULL; *moved counts plan->moved. Gives
 * back where the nodes end. */
static uint32_t add_moves(const rondo_graph *graph, enum tensor_kind kind, uint32_t begin, uint32_t *node_of_tensor,
                          struct plan *plan, uint32_t *moved) {
  uint32_t n = begin, count = 0;
  uint64_t bytes = 0;
  for (int large = 0; large < 2; large++)
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      if (!is_moved(graph, t, kind) || is_small(graph, t) == large) continue;
      uint64_t more = tensor_bytes(&graph->tensors[t]);
      bool joins = !large && count > 0 && count < OP_TRANSFER_TENSORS && bytes + more <= OP_TRANSFER_BYTES;
      count = joins ? count + 1 : 1;
      bytes = joins ? bytes + more : more;
      n += !joins;
      if (node_of_tensor) node_of_tensor[t] = n - 1;
      if (!plan) continue;
      if (!joins)
        plan->nodes[n - 1] = (struct plan_node){.kind = kind == TENSOR_INPUT ? NODE_INPUT : NODE_OUTPUT,
                                                .tensors = &plan->moved[*moved]};
      plan->nodes[n - 1].tensor_count = count;
      plan->moved[(*moved)++] = t;
    }
  return n;
}

void plan_node_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]) {
  size_t used = (size_t)snprintf(name, NAME_BYTES, "%s",
                                 node->kind == NODE_JOIN    ? "join"
                                 : node->kind == NODE_INPUT ? "copy in"
                                                            : "copy out");
  for (uint32_t i = 0; i < node->tensor_count && used < NAME_BYTES; i++)
    used +=
        (size_t)snprintf(name + used, NAME_BYTES - used, "%s %s", i ? "," : "", graph->tensors[node->tensors[i]].name);
  if (used >= NAME_BYTES) memcpy(name + NAME_BYTES - 4, "...", 4);
}

struct op_task plan_node_task(const rondo_graph *graph, const struct plan_node *node, struct op_operand *operands) {
  const struct op *op = node->kind == NODE_JOIN ? &op_join : node->tensor_count == 1 ? &op_copy : &op_transfer;
  struct op_task task = {.op = op, .operand_count = 2 * node->tensor_count, .operands = operands};
  for (uint32_t i = 0; i < task.operand_count; i++) {
    const struct tensor *tensor = &graph->tensors[node->tensors[i / 2]];
    operands[i] = (struct op_operand){.present = true, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(operands[i].shape, tensor->shape, sizeof operands[i].shape);
    memcpy(operands[i].stride, tensor->stride, sizeof operands[i].stride);
    operands[i].access = i % 2 ? RONDO_WRITE : RONDO_READ;
  }
  return task;
}

/* ---- Nodes and edges --------------------------------------------------------------------------------------------- */

/* Numbers all nodes: moves of inputs, tasks and joins in their order, moves of outputs. */
static void number_nodes(const rondo_graph *graph, const struct counts *counts, struct scratchpad *pad) {
  uint32_t n = add_moves(graph, TENSOR_INPUT, 0, pad->node_of_tensor, NULL, NULL);
  for (uint32_t i = 0; i < counts->units; i++) pad->node_of_unit[pad->unit_order[i]] = n++;
  add_moves(graph, TENSOR_OUTPUT, n, pad->node_of_tensor, NULL, NULL);
}

/* What a unit waits for: what was inferred, what rondo_after said, and the moves of its inputs. */
static void add_unit_edges(const rondo_graph *graph, const struct scratchpad *pad, uint32_t unit, uint32_t *edges,
                           uint32_t *used) {
  const struct dependencies *dependencies = pad->dependencies;
  for (uint32_t i = dependencies->begin[unit]; i < dependencies->begin[unit + 1]; i++)
    edges[(*used)++] = pad->node_of_unit[dependencies->predecessors[i]];
  if (unit >= graph->task_count) return;
  const struct task *task = &graph->tasks[unit];
  for (const struct prerequisite *p = task->prerequisites; p; p = p->next)
    edges[(*used)++] = pad->node_of_unit[p->task];
  for (uint32_t i = 0; i < task->operand_count; i++) {
    if (task->tensors[i] == NO_TENSOR) continue;
    uint32_t root = graph->tensors[task->tensors[i]].root;
    if (is_moved(graph, root, TENSOR_INPUT)) edges[(*used)++] = pad->node_of_tensor[root];
  }
}

/* An output's node waits for every task that touches it. They are counted and then filled in, from the end of each
 * node's edges to their begin. */
static void add_output_edges(const rondo_graph *graph, const struct counts *counts, struct scratchpad *pad,
                             uint32_t first_output, uint32_t used) {
  uint32_t *begin = pad->edges.begin;
  memset(begin + first_output, 0, (counts->nodes + UINT64_C(1) - first_output) * sizeof *begin);
  for (int fills = 0; fills < 2; fills++) {
    for (uint32_t t = 0; t < graph->task_count; t++) {
      const struct task *task = &graph->tasks[t];
      for (uint32_t i = 0; i < task->operand_count; i++) {
        if (task->tensors[i] == NO_TENSOR) continue;
        uint32_t root = graph->tensors[task->tensors[i]].root;
        if (!is_moved(graph, root, TENSOR_OUTPUT)) continue;
        uint32_t node = pad->node_of_tensor[root];
        if (fills)
          pad->edges.predecessors[--begin[node]] = pad->node_of_unit[t];
        else
          begin[node]++;
      }
    }
    if (fills) break;
    for (uint32_t n = first_output; n <= counts->nodes; n++) {
      used += n < counts->nodes ? begin[n] : 0;
      begin[n] = used;
    }
  }
}

static void add_edges(const rondo_graph *graph, const struct counts *counts, struct scratchpad *pad) {
  uint32_t used = 0, first_unit = counts->units ? pad->node_of_unit[pad->unit_order[0]] : counts->nodes, n = 0;
  if (!counts->units) first_unit = add_moves(graph, TENSOR_INPUT, 0, NULL, NULL, NULL);
  for (; n < first_unit; n++) pad->edges.begin[n] = 0;
  for (uint32_t i = 0; i < counts->units; i++) {
    pad->edges.begin[n++] = used;
    add_unit_edges(graph, pad, pad->unit_order[i], pad->edges.predecessors, &used);
  }
  add_output_edges(graph, counts, pad, n, used);
}

static void fill_nodes(const rondo_graph *graph, const struct counts *counts, const struct scratchpad *pad,
                       struct plan *plan) {
  uint32_t moved = 0, n = add_moves(graph, TENSOR_INPUT, 0, NULL, plan, &moved);
  for (uint32_t i = 0; i < counts->units; i++) {
    uint32_t unit = pad->unit_order[i];
    plan->nodes[n++] = unit < graph->task_count ? (struct plan_node){.kind = NODE_TASK, .index = unit}
                                                : (struct plan_node){.kind = NODE_JOIN};
  }
  plan->node_count = add_moves(graph, TENSOR_OUTPUT, n, NULL, plan, &moved);
  memcpy(plan->begin, pad->edges.begin, (plan->node_count + UINT64_C(1)) * sizeof(uint32_t));
  memset(plan->is_awaited, 0, plan->node_count * sizeof(bool));
  for (uint32_t i = 0; i < plan->begin[plan->node_count]; i++) {
    plan->predecessors[i] = pad->edges.predecessors[i];
    plan->is_awaited[plan->predecessors[i]] = true;
  }
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

static bool in_arena(const struct tensor *tensor, uint32_t index) {
  return tensor->root == index && !tensor_is_resident(tensor) && !tensor_is_in_place(tensor);
}

static uint64_t task_scratch_bytes(const rondo_graph *graph, const struct task *task) {
  if (!task->op || !task->op->scratch_bytes) return 0;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  return task->op->scratch_bytes(&op_task);
}

/* Counted from `begin[b]` on, then each entry put in its place; see add_output_edges. */
static void put_access(struct lifetimes *lifetimes, bool fills, uint32_t buffer, uint32_t node) {
  if (fills)
    lifetimes->nodes[--lifetimes->begin[buffer]] = node;
  else
    lifetimes->begin[buffer]++;
}

static void list_accesses(const rondo_graph *graph, const struct plan *plan, struct scratchpad *pad, bool fills) {
  struct lifetimes *lifetimes = &pad->lifetimes;
  uint32_t scratch = 0;
  while (scratch < plan->buffer_count && !plan->buffers[scratch].is_scratch) scratch++;
  /* From the last node to the first, since filling goes backwards: the lists become ascending. */
  for (uint32_t n = plan->node_count; n-- > 0;) {
    const struct plan_node *node = &plan->nodes[n];
    for (uint32_t i = 0; i < node->tensor_count; i++)
      put_access(lifetimes, fills, pad->buffer_of_tensor[node->tensors[i]], n);
    if (node->kind != NODE_TASK) continue;
    const struct task *task = &graph->tasks[node->index];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = graph->tensors[task->tensors[i]].root;
      if (in_arena(&graph->tensors[root], root)) put_access(lifetimes, fills, pad->buffer_of_tensor[root], n);
    }
  }
  for (uint32_t b = scratch; b < plan->buffer_count; b++)
    put_access(lifetimes, fills, b, pad->node_of_unit[plan->buffers[b].index]);
}

static void collect_buffers(const rondo_graph *graph, struct plan *plan, struct scratchpad *pad) {
  uint32_t b = 0, *begin = pad->lifetimes.begin;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    if (!in_arena(tensor, i)) continue;
    plan->buffers[b] = (struct plan_buffer){.index = i, .bytes = pool_round(tensor_bytes(tensor))};
    pad->buffer_of_tensor[i] = b++;
  }
  for (uint32_t t = 0; t < graph->task_count; t++) {
    uint64_t scratch = task_scratch_bytes(graph, &graph->tasks[t]);
    if (scratch)
      plan->buffers[b++] = (struct plan_buffer){.is_scratch = true, .index = t, .bytes = pool_round(scratch)};
  }
  plan->buffer_count = b;
  memset(begin, 0, (b + UINT64_C(1)) * sizeof *begin);
  list_accesses(graph, plan, pad, false);
  for (uint32_t i = 0, used = 0; i <= b; i++) {
    used += i < b ? begin[i] : 0;
    begin[i] = used;
  }
  list_accesses(graph, plan, pad, true);
  for (b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    bool is_touched = begin[b] < begin[b + 1];
    buffer->first_node = is_touched ? pad->lifetimes.nodes[begin[b]] : UINT32_MAX;
    buffer->last_node = is_touched ? pad->lifetimes.nodes[begin[b + 1] - 1] : UINT32_MAX;
    if (!is_touched) buffer->bytes = 0; /* a temporary nobody touches */
    pad->bytes[b] = buffer->bytes;
    pad->first[b] = is_touched ? buffer->first_node : 0;
    pad->last[b] = is_touched ? buffer->last_node : 0;
    plan->summary.unshared_bytes += buffer->bytes;
  }
  pad->lifetimes.graph = &pad->edges;
  pad->lifetimes.bytes = pad->bytes;
  lifetimes_prepare(&pad->lifetimes);
}

static uint32_t count_buffers(const rondo_graph *graph) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) count += in_arena(&graph->tensors[i], i);
  for (uint32_t t = 0; t < graph->task_count; t++) count += task_scratch_bytes(graph, &graph->tasks[t]) > 0;
  return count;
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

/* Buffers that all conflict with each other can share nothing. Such sets are grown greedily, from each of the first
 * buffers by key in turn, those of larger keys first. Tasks that no order ties together show here and not in
 * lifetimes_bound. */
static uint64_t bound_by_cliques(const struct bit_matrix *conflicts, uint32_t count, const uint64_t *keys,
                                 struct scratchpad *pad) {
  enum { SEEDS = 128 };
  uint64_t *candidates = pad->offsets; /* a row of bits; the offsets are not there yet */
  place_order(count, keys, pad->by_key);
  uint64_t bound = 0;
  for (uint32_t seed = 0; seed < count && seed < SEEDS; seed++) {
    uint32_t first = pad->by_key[seed];
    uint64_t clique_bytes = pad->bytes[first];
    memcpy(candidates, bit_row(conflicts, first), conflicts->row_words * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
      uint32_t b = pad->by_key[i];
      if (!bit_get(candidates, b)) continue;
      clique_bytes += pad->bytes[b];
      const uint64_t *others = bit_row(conflicts, b);
      for (uint32_t w = 0; w < conflicts->row_words; w++) candidates[w] &= others[w];
    }
    if (clique_bytes > bound) bound = clique_bytes;
  }
  return bound;
}

/* By buffer: the bytes of all that it conflicts with. */
static void find_pressure(const struct bit_matrix *conflicts, uint32_t count, const uint64_t *bytes,
                          uint64_t *pressure) {
  for (uint32_t b = 0; b < count; b++) {
    const uint64_t *row = bit_row(conflicts, b);
    pressure[b] = 0;
    for (uint32_t c = bits_next(row, conflicts->row_words, 0); c < count;
         c = bits_next(row, conflicts->row_words, c + 1))
      pressure[b] += bytes[c];
  }
}

static void place_dense(struct plan *plan, struct scratchpad *pad) {
  rondo_plan *summary = &plan->summary;
  uint32_t count = plan->buffer_count;
  struct bit_matrix conflicts = {pad->conflicts, bit_row_words(count)};
  for (uint32_t i = 0; i < count; i++) pad->by_key[i] = i;
  for (uint32_t i = 0; i < count; i += REACH_COLUMNS)
    lifetimes_conflicts(&pad->lifetimes, &pad->by_key[i], count - i < REACH_COLUMNS ? count - i : REACH_COLUMNS,
                        bit_row(&conflicts, i));
  /* Large buffers that live for a short time lead to one kind of sets, those in conflict with much to another. */
  find_pressure(&conflicts, count, pad->bytes, pad->keys);
  const uint64_t by_bytes = bound_by_cliques(&conflicts, count, pad->bytes, pad);
  const uint64_t by_pressure = bound_by_cliques(&conflicts, count, pad->keys, pad);
  uint64_t cliques = by_bytes > by_pressure ? by_bytes : by_pressure;
  if (cliques > summary->lower_bound_bytes) summary->lower_bound_bytes = cliques;
  struct placement_problem problem = {.count = count,
                                      .bytes = pad->bytes,
                                      .first = pad->first,
                                      .last = pad->last,
                                      .conflicts = conflicts,
                                      .lower_bound_bytes = summary->lower_bound_bytes};
  summary->temporary_bytes = place_buffers(&problem, pad->offsets, pad->placing);
}

/* By birth; what is born together, the larger first. */
static void place_sparse(struct plan *plan, struct scratchpad *pad) {
  for (uint32_t b = 0; b < plan->buffer_count; b++) pad->keys[b] = UINT32_MAX - (uint64_t)pad->first[b];
  place_order(plan->buffer_count, pad->keys, pad->by_key);
  plan->summary.temporary_bytes = place_many(plan->buffer_count, pad->bytes, pad->by_key, lifetimes_conflicts,
                                             &pad->lifetimes, pad->offsets, pad->placing);
}

static void place_all(const rondo_graph *graph, struct plan *plan, struct scratchpad *pad) {
  rondo_plan *summary = &plan->summary;
  uint64_t pinned = PLAN_PINNED_HEADER_BYTES;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    plan->device_offset[i] = plan->pinned_offset[i] = 0;
    if (tensor->root != i) continue;
    uint64_t bytes = pool_round(tensor_bytes(tensor));
    if (tensor->lender_serial) {
      summary->borrowed_bytes += bytes;
    } else if (tensor_is_resident(tensor)) {
      plan->device_offset[i] = summary->constant_bytes;
      summary->constant_bytes += bytes;
    } else if (tensor->kind != TENSOR_TEMPORARY) {
      plan->pinned_offset[i] = pinned;
      pinned += bytes;
    }
  }
  summary->pinned_bytes_per_slot = pinned;
  summary->lower_bound_bytes = lifetimes_bound(&pad->lifetimes);
  if (plan->buffer_count > DENSE_BUFFERS)
    place_sparse(plan, pad);
  else
    place_dense(plan, pad);
  memset(plan->scratch_offset, 0, graph->task_count * sizeof(uint64_t));
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    buffer->offset = pad->offsets[b];
    (buffer->is_scratch ? plan->scratch_offset : plan->device_offset)[buffer->index] = buffer->offset;
  }
  plan->counts_offset = summary->constant_bytes;
  plan->own_bytes = plan->counts_offset + pool_round(PLAN_COUNTS_BYTES);
  summary->device_bytes = plan->own_bytes + summary->temporary_bytes;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static struct counts count_all(const rondo_graph *graph, const struct dependencies *dependencies) {
  struct counts counts = {.tensors = graph->tensor_count,
                          .tasks = graph->task_count,
                          .units = dependencies->task_count + dependencies->join_count,
                          .buffers = count_buffers(graph)};
  counts.nodes = add_moves(graph, TENSOR_INPUT, 0, NULL, NULL, NULL) + counts.units;
  counts.nodes = add_moves(graph, TENSOR_OUTPUT, counts.nodes, NULL, NULL, NULL);
  counts.unit_edges = dependencies->begin[counts.units];
  for (uint32_t t = 0; t < graph->task_count; t++) {
    for (const struct prerequisite *p = graph->tasks[t].prerequisites; p; p = p->next) counts.unit_edges++;
    counts.accesses += graph->tasks[t].operand_count;
  }
  counts.edges = counts.unit_edges + counts.accesses;
  counts.accesses += counts.tensors + counts.tasks; /* moves, and scratch */
  return counts;
}

static rondo_status plan_make(rondo_graph *graph, const struct dependencies *dependencies, const struct counts *counts,
                              struct scratchpad *pad) {
  order_find(&pad->order, graph, dependencies, pad->unit_order);
  number_nodes(graph, counts, pad);
  add_edges(graph, counts, pad);
  reach_reduce(&pad->edges, pad->lifetimes.rows);

  uint32_t edge_count = pad->edges.begin[counts->nodes];
  struct cutter cutter = {0};
  cut_plan(&cutter, counts, edge_count);
  void *memory;
  rondo_status status = memory_take(graph->source, cutter.used, "planning", &memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){memory, 0};
  struct plan *plan = cut_plan(&cutter, counts, edge_count);
  plan->source = graph->source;
  plan->memory_bytes = cutter.used;
  fill_nodes(graph, counts, pad, plan);
  plan->summary.task_count = graph->task_count;
  plan->summary.edge_count = edge_count;
  collect_buffers(graph, plan, pad);
  place_all(graph, plan, pad);
  graph->plan = plan;
  return RONDO_OK;
}

rondo_status plan_of(rondo_graph *graph, const struct plan **plan) {
  if (!graph->plan) {
    const struct dependencies *dependencies;
    rondo_status status = dependencies_of(graph, true, &dependencies);
    if (status != RONDO_OK) return status;
    struct counts counts = count_all(graph, dependencies);
    struct scratchpad pad = {.dependencies = dependencies};
    struct cutter cutter = {0};
    cut_pad(&cutter, &counts, &pad);
    uint64_t pad_bytes = cutter.used;
    void *memory;
    status = memory_take_for_now(graph->source, pad_bytes, "planning", &memory);
    if (status == RONDO_OK) {
      cutter = (struct cutter){memory, 0};
      cut_pad(&cutter, &counts, &pad);
      status = plan_make(graph, dependencies, &counts, &pad);
      memory_give(graph->source, memory, pad_bytes);
    }
    if (status != RONDO_OK) {
      dependencies_drop(graph); /* a failed call keeps nothing */
      return status;
    }
    struct plan *made = graph->plan;
    made->kept_bytes = pool_take_bytes(dependencies->memory_bytes) + pool_take_bytes(made->memory_bytes);
    made->planning_bytes = made->kept_bytes + pool_take_bytes(pad_bytes);
    if (dependencies_most_bytes(graph) > made->planning_bytes) made->planning_bytes = dependencies_most_bytes(graph);
    dependencies_drop(graph);
  }
  *plan = graph->plan;
  return RONDO_OK;
}

void plan_drop(rondo_graph *graph) {
  if (graph->plan) memory_give(graph->source, graph->plan, graph->plan->memory_bytes);
  graph->plan = NULL;
}
