/* plan_layout.c - see plan_layout.h. Offsets of constants, states, inputs and outputs are running sums. Buffers of the
 * arena have lifetimes (lifetimes.c), and placement.c finds their offsets. */
#include "plan_layout.h"

#include <string.h>

#include "first_fit.h"
#include "floats.h"
#include "lists.h"
#include "placement.h"
#include "placement_search.h"

/* Up to this many buffers, all conflicts are in memory at once, and a good placement is searched for. More buffers are
 * placed by one first fit. */
enum { DENSE_BUFFERS = PLACEMENT_SEARCH_MOST, NO_BUFFER = UINT32_MAX };

void layout_cut(struct layout *layout, struct cutter *cutter, uint32_t node_count, uint32_t tensor_count,
                uint32_t buffer_count, uint64_t access_count) {
  uint64_t word = sizeof(uint32_t), buffers = buffer_count;
  layout->buffer_of_tensor = cut(cutter, tensor_count * word);
  lifetimes_cut(&layout->lifetimes, cutter, node_count, buffer_count, access_count);
  layout->bytes = cut(cutter, buffers * sizeof(uint64_t));
  layout->offsets = cut(cutter, buffers * sizeof(uint64_t));
  layout->first = cut(cutter, buffers * word);
  layout->last = cut(cutter, buffers * word);
  layout->keys = cut(cutter, buffers * sizeof(uint64_t));
  layout->by_key = cut(cutter, buffers * word);
  bool is_dense = buffer_count <= DENSE_BUFFERS;
  if (is_dense) layout->conflicts = cut(cutter, bit_matrix_bytes(buffer_count, buffer_count));
  layout->placing = cut(cutter, (is_dense ? placement_work_bytes : first_fit_work_bytes)(buffer_count));
}

/* ---- Constants, pinned memory, and the list of buffers ----------------------------------------------------------- */

static uint64_t task_scratch_bytes(const rondo_graph *graph, const struct task *task) {
  if (!task->op || !task->op->scratch_bytes) return 0;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  const struct floats floats = floats_default();
  const uint64_t bytes = task->op->scratch_bytes(&op_task);
  floats_set(floats);
  return bytes;
}

uint32_t layout_scratch_count(const rondo_graph *graph) {
  uint32_t count = 0;
  for (uint32_t t = 0; t < graph->task_count; t++) count += task_scratch_bytes(graph, &graph->tasks[t]) > 0;
  return count;
}

/* Returns the end of the tensors of this kind, the first of which begins at `pinned`. */
static uint64_t lay_out_pinned(const rondo_graph *graph, struct plan *plan, enum tensor_kind kind, uint64_t pinned) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    if (graph->tensors[i].root != i || graph->tensors[i].kind != kind) continue;
    plan->pinned_offset[i] = pinned;
    pinned += pool_round(tensor_bytes(&graph->tensors[i]));
  }
  return pinned;
}

/* An offset for each tensor that shares no bytes, and a buffer for each tensor in the arena. */
static void lay_out_tensors(struct layout *layout, const rondo_graph *graph, struct plan *plan) {
  rondo_plan *summary = &plan->summary;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    plan->device_offset[i] = plan->pinned_offset[i] = 0;
    layout->buffer_of_tensor[i] = NO_BUFFER;
    if (tensor->root != i) continue;
    uint64_t bytes = pool_round(tensor_bytes(tensor));
    enum allocation allocation = (enum allocation)plan->allocations[i];
    if (allocation == ALLOCATION_ARENA || allocation == ALLOCATION_MOVED) {
      layout->buffer_of_tensor[i] = plan->buffer_count;
      plan->buffers[plan->buffer_count++] = (struct plan_buffer){.index = i, .bytes = bytes};
    }
    if (tensor->lender_serial) {
      summary->borrowed_bytes += bytes;
    } else if (allocation == ALLOCATION_RESIDENT) {
      plan->device_offset[i] = summary->constant_bytes;
      summary->constant_bytes += bytes;
    }
  }
  plan->outputs_offset = lay_out_pinned(graph, plan, TENSOR_INPUT, PLAN_PINNED_HEADER_BYTES);
  summary->pinned_bytes_per_slot = lay_out_pinned(graph, plan, TENSOR_OUTPUT, plan->outputs_offset);
  summary->pinned_bytes_per_step = summary->pinned_bytes_per_slot - plan->outputs_offset;
}

/* ---- When a buffer lives ----------------------------------------------------------------------------------------- */

/* From the last node to the first, since lists are filled from their ends: they become ascending. */
static void put_accesses(const struct layout *layout, const rondo_graph *graph, const struct plan *plan,
                         const uint32_t *node_of_task, uint32_t *nodes) {
  uint32_t *begin = layout->lifetimes.begin;
  for (uint32_t b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].is_scratch) lists_put(begin, nodes, b, node_of_task[plan->buffers[b].index]);
  for (uint32_t n = plan->node_count; n-- > 0;) {
    const struct plan_node *node = &plan->nodes[n];
    for (uint32_t i = 0; i < node->tensor_count; i++)
      lists_put(begin, nodes, layout->buffer_of_tensor[node->tensors[i]], n);
    if (node->kind != NODE_TASK) continue;
    const struct task *task = &graph->tasks[node->index];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t buffer = layout->buffer_of_tensor[graph->tensors[task->tensors[i]].root];
      if (buffer != NO_BUFFER) lists_put(begin, nodes, buffer, n);
    }
  }
}

static void collect_buffers(struct layout *layout, const rondo_graph *graph, const struct reach_graph *edges,
                            const uint32_t *node_of_task, struct plan *plan) {
  for (uint32_t t = 0; t < graph->task_count; t++) {
    uint64_t scratch = task_scratch_bytes(graph, &graph->tasks[t]);
    if (scratch)
      plan->buffers[plan->buffer_count++] =
          (struct plan_buffer){.is_scratch = true, .index = t, .bytes = pool_round(scratch)};
  }
  uint32_t *begin = layout->lifetimes.begin, *nodes = layout->lifetimes.nodes;
  memset(begin, 0, (plan->buffer_count + UINT64_C(1)) * sizeof *begin);
  put_accesses(layout, graph, plan, node_of_task, NULL);
  lists_end(begin, plan->buffer_count, 0);
  put_accesses(layout, graph, plan, node_of_task, nodes);
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    bool is_touched = begin[b] < begin[b + 1];
    buffer->first_node = is_touched ? nodes[begin[b]] : UINT32_MAX;
    buffer->last_node = is_touched ? nodes[begin[b + 1] - 1] : UINT32_MAX;
    if (!is_touched) buffer->bytes = 0; /* a temporary that no task touches */
    layout->bytes[b] = buffer->bytes;
    layout->first[b] = is_touched ? buffer->first_node : 0;
    layout->last[b] = is_touched ? buffer->last_node : 0;
    plan->summary.unshared_bytes += buffer->bytes;
  }
  layout->lifetimes.graph = edges;
  layout->lifetimes.bytes = layout->bytes;
  lifetimes_prepare(&layout->lifetimes);
}

/* ---- Offsets in the arena ---------------------------------------------------------------------------------------- */

/* A lower bound of the peak: the bytes of buffers that all conflict with each other. Such sets are grown greedily from
 * each of the first SEEDS buffers by key, larger keys first. Unlike lifetimes_bound, this bound sees buffers of tasks
 * that no order ties together. */
static uint64_t bound_by_cliques(const struct bit_matrix *conflicts, uint32_t count, const uint64_t *keys,
                                 struct layout *layout) {
  enum { SEEDS = 128 };
  uint64_t *candidates = layout->offsets; /* a row of bits; the offsets are not there yet */
  first_fit_order(count, keys, layout->by_key);
  uint64_t bound = 0;
  for (uint32_t seed = 0; seed < count && seed < SEEDS; seed++) {
    uint32_t first = layout->by_key[seed];
    uint64_t clique_bytes = layout->bytes[first];
    memcpy(candidates, bit_row(conflicts, first), conflicts->row_words * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
      uint32_t b = layout->by_key[i];
      if (!bit_get(candidates, b)) continue;
      clique_bytes += layout->bytes[b];
      const uint64_t *others = bit_row(conflicts, b);
      for (uint32_t w = 0; w < conflicts->row_words; w++) candidates[w] &= others[w];
    }
    if (clique_bytes > bound) bound = clique_bytes;
  }
  return bound;
}

/* By buffer: the bytes of all buffers in conflict with it. */
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

static void place_dense(struct plan *plan, struct layout *layout) {
  rondo_plan *summary = &plan->summary;
  uint32_t count = plan->buffer_count;
  struct bit_matrix conflicts = {layout->conflicts, bit_row_words(count)};
  for (uint32_t i = 0; i < count; i++) layout->by_key[i] = i;
  for (uint32_t i = 0; i < count; i += REACH_COLUMNS)
    lifetimes_conflicts(&layout->lifetimes, &layout->by_key[i], count - i < REACH_COLUMNS ? count - i : REACH_COLUMNS,
                        bit_row(&conflicts, i));
  /* Large buffers with short lives lead to one kind of sets, buffers with many conflicts to another. */
  find_pressure(&conflicts, count, layout->bytes, layout->keys);
  const uint64_t by_bytes = bound_by_cliques(&conflicts, count, layout->bytes, layout);
  const uint64_t by_pressure = bound_by_cliques(&conflicts, count, layout->keys, layout);
  uint64_t cliques = by_bytes > by_pressure ? by_bytes : by_pressure;
  if (cliques > summary->lower_bound_bytes) summary->lower_bound_bytes = cliques;
  struct placement_problem problem = {.count = count,
                                      .bytes = layout->bytes,
                                      .first = layout->first,
                                      .last = layout->last,
                                      .conflicts = conflicts,
                                      .lower_bound_bytes = summary->lower_bound_bytes};
  summary->temporary_bytes = placement_find(&problem, layout->offsets, layout->placing);
}

/* In the order of their first nodes. */
static void place_sparse(struct plan *plan, struct layout *layout) {
  for (uint32_t b = 0; b < plan->buffer_count; b++) layout->keys[b] = UINT32_MAX - (uint64_t)layout->first[b];
  first_fit_order(plan->buffer_count, layout->keys, layout->by_key);
  plan->summary.temporary_bytes = first_fit(plan->buffer_count, layout->bytes, layout->by_key, lifetimes_conflicts,
                                            &layout->lifetimes, layout->offsets, layout->placing);
}

void layout_find(struct layout *layout, const rondo_graph *graph, const struct reach_graph *edges,
                 const uint32_t *node_of_task, struct plan *plan) {
  rondo_plan *summary = &plan->summary;
  lay_out_tensors(layout, graph, plan);
  collect_buffers(layout, graph, edges, node_of_task, plan);
  summary->lower_bound_bytes = lifetimes_bound(&layout->lifetimes);
  (plan->buffer_count > DENSE_BUFFERS ? place_sparse : place_dense)(plan, layout);
  memset(plan->scratch_offset, 0, graph->task_count * sizeof(uint64_t));
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    buffer->offset = layout->offsets[b];
    (buffer->is_scratch ? plan->scratch_offset : plan->device_offset)[buffer->index] = buffer->offset;
  }
  plan->counts_offset = summary->constant_bytes;
  plan->own_bytes = plan->counts_offset + pool_round(PLAN_COUNTS_BYTES);
  summary->device_bytes = plan->own_bytes + summary->temporary_bytes;
}
