/* plan_places.c - see plan_places.h. */
#include "plan_places.h"

#include <string.h>

#include "floats.h"
#include "lists.h"
#include "place.h"

/* Up to so many buffers all conflicts are held at once and a good placement is searched for; beyond, they are placed
 * one after the other. */
enum { DENSE_BUFFERS = 4096, NO_BUFFER = UINT32_MAX };

void places_cut(struct places *places, struct cutter *cutter, uint32_t node_count, uint32_t tensor_count,
                uint32_t buffer_count, uint64_t access_count) {
  uint64_t word = sizeof(uint32_t), buffers = buffer_count;
  places->buffer_of_tensor = cut(cutter, tensor_count * word);
  lifetimes_cut(&places->lifetimes, cutter, node_count, buffer_count, access_count);
  places->bytes = cut(cutter, buffers * sizeof(uint64_t));
  places->offsets = cut(cutter, buffers * sizeof(uint64_t));
  places->first = cut(cutter, buffers * word);
  places->last = cut(cutter, buffers * word);
  places->keys = cut(cutter, buffers * sizeof(uint64_t));
  places->by_key = cut(cutter, buffers * word);
  bool is_dense = buffer_count <= DENSE_BUFFERS;
  if (is_dense) places->conflicts = cut(cutter, bit_matrix_bytes(buffer_count, buffer_count));
  places->placing = cut(cutter, (is_dense ? place_work_bytes : place_many_work_bytes)(buffer_count));
}

/* ---- Constants, pinned memory, and which buffers there are ------------------------------------------------------- */

static uint64_t task_scratch_bytes(const rondo_graph *graph, const struct task *task) {
  if (!task->op || !task->op->scratch_bytes) return 0;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  const struct floats floats = floats_default();
  const uint64_t bytes = task->op->scratch_bytes(&op_task);
  floats_set(floats);
  return bytes;
}

uint32_t places_scratch_count(const rondo_graph *graph) {
  uint32_t count = 0;
  for (uint32_t t = 0; t < graph->task_count; t++) count += task_scratch_bytes(graph, &graph->tasks[t]) > 0;
  return count;
}

/* Offsets of what shares nothing, and a buffer for each tensor in the arena. */
static void lay_out_tensors(struct places *places, const rondo_graph *graph, struct plan *plan) {
  rondo_plan *summary = &plan->summary;
  uint64_t pinned = PLAN_PINNED_HEADER_BYTES;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    plan->device_offset[i] = plan->pinned_offset[i] = 0;
    places->buffer_of_tensor[i] = NO_BUFFER;
    if (tensor->root != i) continue;
    uint64_t bytes = pool_round(tensor_bytes(tensor));
    enum tensor_place place = (enum tensor_place)plan->places[i];
    if (place == PLACE_ARENA || place == PLACE_MOVED) {
      places->buffer_of_tensor[i] = plan->buffer_count;
      plan->buffers[plan->buffer_count++] = (struct plan_buffer){.index = i, .bytes = bytes};
    }
    if (place == PLACE_MOVED || place == PLACE_SLOT) {
      plan->pinned_offset[i] = pinned;
      pinned += bytes;
    } else if (tensor->lender_serial) {
      summary->borrowed_bytes += bytes;
    } else if (place == PLACE_RESIDENT) {
      plan->device_offset[i] = summary->constant_bytes;
      summary->constant_bytes += bytes;
    }
  }
  summary->pinned_bytes_per_slot = pinned;
}

/* ---- When a buffer lives ----------------------------------------------------------------------------------------- */

/* From the last node to the first, since lists are filled from their ends: they become ascending. */
static void put_accesses(const struct places *places, const rondo_graph *graph, const struct plan *plan,
                         const uint32_t *node_of_task, uint32_t *nodes) {
  uint32_t *begin = places->lifetimes.begin;
  for (uint32_t b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].is_scratch) lists_put(begin, nodes, b, node_of_task[plan->buffers[b].index]);
  for (uint32_t n = plan->node_count; n-- > 0;) {
    const struct plan_node *node = &plan->nodes[n];
    for (uint32_t i = 0; i < node->tensor_count; i++)
      lists_put(begin, nodes, places->buffer_of_tensor[node->tensors[i]], n);
    if (node->kind != NODE_TASK) continue;
    const struct task *task = &graph->tasks[node->index];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t buffer = places->buffer_of_tensor[graph->tensors[task->tensors[i]].root];
      if (buffer != NO_BUFFER) lists_put(begin, nodes, buffer, n);
    }
  }
}

static void collect_buffers(struct places *places, const rondo_graph *graph, const struct reach_graph *edges,
                            const uint32_t *node_of_task, struct plan *plan) {
  for (uint32_t t = 0; t < graph->task_count; t++) {
    uint64_t scratch = task_scratch_bytes(graph, &graph->tasks[t]);
    if (scratch)
      plan->buffers[plan->buffer_count++] =
          (struct plan_buffer){.is_scratch = true, .index = t, .bytes = pool_round(scratch)};
  }
  uint32_t *begin = places->lifetimes.begin, *nodes = places->lifetimes.nodes;
  memset(begin, 0, (plan->buffer_count + UINT64_C(1)) * sizeof *begin);
  put_accesses(places, graph, plan, node_of_task, NULL);
  lists_end(begin, plan->buffer_count, 0);
  put_accesses(places, graph, plan, node_of_task, nodes);
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    bool is_touched = begin[b] < begin[b + 1];
    buffer->first_node = is_touched ? nodes[begin[b]] : UINT32_MAX;
    buffer->last_node = is_touched ? nodes[begin[b + 1] - 1] : UINT32_MAX;
    if (!is_touched) buffer->bytes = 0; /* a temporary nobody touches */
    places->bytes[b] = buffer->bytes;
    places->first[b] = is_touched ? buffer->first_node : 0;
    places->last[b] = is_touched ? buffer->last_node : 0;
    plan->summary.unshared_bytes += buffer->bytes;
  }
  places->lifetimes.graph = edges;
  places->lifetimes.bytes = places->bytes;
  lifetimes_prepare(&places->lifetimes);
}

/* ---- Places in the arena ----------------------------------------------------------------------------------------- */

/* Buffers that all conflict with each other can share nothing. Such sets are grown greedily, from each of the first
 * buffers by key in turn, those of larger keys first. Tasks that no order ties together show here and not in
 * lifetimes_bound. */
static uint64_t bound_by_cliques(const struct bit_matrix *conflicts, uint32_t count, const uint64_t *keys,
                                 struct places *places) {
  enum { SEEDS = 128 };
  uint64_t *candidates = places->offsets; /* a row of bits; the offsets are not there yet */
  place_order(count, keys, places->by_key);
  uint64_t bound = 0;
  for (uint32_t seed = 0; seed < count && seed < SEEDS; seed++) {
    uint32_t first = places->by_key[seed];
    uint64_t clique_bytes = places->bytes[first];
    memcpy(candidates, bit_row(conflicts, first), conflicts->row_words * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
      uint32_t b = places->by_key[i];
      if (!bit_get(candidates, b)) continue;
      clique_bytes += places->bytes[b];
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

static void place_dense(struct plan *plan, struct places *places) {
  rondo_plan *summary = &plan->summary;
  uint32_t count = plan->buffer_count;
  struct bit_matrix conflicts = {places->conflicts, bit_row_words(count)};
  for (uint32_t i = 0; i < count; i++) places->by_key[i] = i;
  for (uint32_t i = 0; i < count; i += REACH_COLUMNS)
    lifetimes_conflicts(&places->lifetimes, &places->by_key[i], count - i < REACH_COLUMNS ? count - i : REACH_COLUMNS,
                        bit_row(&conflicts, i));
  /* Large buffers that live for a short time lead to one kind of sets, those in conflict with much to another. */
  find_pressure(&conflicts, count, places->bytes, places->keys);
  const uint64_t by_bytes = bound_by_cliques(&conflicts, count, places->bytes, places);
  const uint64_t by_pressure = bound_by_cliques(&conflicts, count, places->keys, places);
  uint64_t cliques = by_bytes > by_pressure ? by_bytes : by_pressure;
  if (cliques > summary->lower_bound_bytes) summary->lower_bound_bytes = cliques;
  struct placement_problem problem = {.count = count,
                                      .bytes = places->bytes,
                                      .first = places->first,
                                      .last = places->last,
                                      .conflicts = conflicts,
                                      .lower_bound_bytes = summary->lower_bound_bytes};
  summary->temporary_bytes = place_buffers(&problem, places->offsets, places->placing);
}

/* By birth; what is born together, the larger first. */
static void place_sparse(struct plan *plan, struct places *places) {
  for (uint32_t b = 0; b < plan->buffer_count; b++) places->keys[b] = UINT32_MAX - (uint64_t)places->first[b];
  place_order(plan->buffer_count, places->keys, places->by_key);
  plan->summary.temporary_bytes = place_many(plan->buffer_count, places->bytes, places->by_key, lifetimes_conflicts,
                                             &places->lifetimes, places->offsets, places->placing);
}

void places_find(struct places *places, const rondo_graph *graph, const struct reach_graph *edges,
                 const uint32_t *node_of_task, struct plan *plan) {
  rondo_plan *summary = &plan->summary;
  lay_out_tensors(places, graph, plan);
  collect_buffers(places, graph, edges, node_of_task, plan);
  summary->lower_bound_bytes = lifetimes_bound(&places->lifetimes);
  (plan->buffer_count > DENSE_BUFFERS ? place_sparse : place_dense)(plan, places);
  memset(plan->scratch_offset, 0, graph->task_count * sizeof(uint64_t));
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    buffer->offset = places->offsets[b];
    (buffer->is_scratch ? plan->scratch_offset : plan->device_offset)[buffer->index] = buffer->offset;
  }
  plan->counts_offset = summary->constant_bytes;
  plan->own_bytes = plan->counts_offset + pool_round(PLAN_COUNTS_BYTES);
  summary->device_bytes = plan->own_bytes + summary->temporary_bytes;
}
