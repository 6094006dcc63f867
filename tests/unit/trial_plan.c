/* trial_plan.c - see trial_plan.h. */
#include "trial_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/lifetimes.h"

static void *take(uint64_t count, uint64_t bytes) {
  void *memory = calloc(count ? count : 1, bytes);
  cr_assert_not_null(memory);
  return memory;
}

static bool comes_before(const struct trial_plan *p, uint32_t first, uint32_t second) {
  return p->reaches[(uint64_t)second * p->nodes + first];
}

/* ---- Nodes, edges, order ----------------------------------------------------------------------------------------- */

static void find_reaches(struct trial_plan *p) {
  const struct plan *plan = p->plan;
  p->reaches = take((uint64_t)p->nodes * p->nodes, sizeof *p->reaches);
  for (uint32_t n = 0; n < p->nodes; n++)
    for (uint32_t i = plan->begin[n]; i < plan->begin[n + 1]; i++) {
      uint32_t before = plan->predecessors[i];
      if (before >= n) cr_assert_fail("the nodes are in no legal order");
      bool *into = &p->reaches[(uint64_t)n * p->nodes];
      const bool *from = &p->reaches[(uint64_t)before * p->nodes];
      for (uint32_t m = 0; m < n; m++) into[m] |= from[m];
      into[before] = true;
    }
}

static bool moves_for(const struct random_graph *g, const struct plan_node *node, uint32_t task) {
  for (uint32_t i = 0; i < node->tensor_count; i++)
    if (random_graph_touches(g, task, node->tensors[i])) return true;
  return false;
}

/* Each task once, a join between others, and the moves before and after exactly what needs them. */
static void check_nodes(struct trial_plan *p) {
  const struct random_graph *g = p->g;
  memset(p->node_of_task, 0xff, g->task_count * sizeof *p->node_of_task);
  enum node_kind latest = NODE_INPUT;
  bool *is_awaited = take(p->nodes, sizeof *is_awaited);
  for (uint32_t i = 0; i < p->plan->begin[p->nodes]; i++) is_awaited[p->plan->predecessors[i]] = true;
  for (uint32_t n = 0; n < p->nodes; n++) {
    const struct plan_node *node = &p->plan->nodes[n];
    cr_assert_eq(p->plan->is_awaited[n], is_awaited[n]);
    if (node->kind == NODE_JOIN) cr_assert(is_awaited[n] && p->plan->begin[n + 1] > p->plan->begin[n]);
    enum node_kind kind = node->kind == NODE_JOIN ? NODE_TASK : node->kind;
    cr_assert_leq(latest, kind);
    latest = kind;
    if (node->kind != NODE_TASK) continue;
    cr_assert_eq(p->node_of_task[node->index], UINT32_MAX);
    p->node_of_task[node->index] = n;
  }
  for (uint32_t t = 0; t < g->task_count; t++) cr_assert_neq(p->node_of_task[t], UINT32_MAX);
  free(is_awaited);
}

static void check_moves(const struct trial_plan *p) {
  const struct random_graph *g = p->g;
  for (uint32_t n = 0; n < p->nodes; n++) {
    const struct plan_node *node = &p->plan->nodes[n];
    if (node->kind != NODE_INPUT && node->kind != NODE_OUTPUT) continue;
    for (uint32_t t = 0; t < g->task_count; t++) {
      bool is_needed = moves_for(g, node, t);
      for (uint32_t u = 0; u < g->task_count && !is_needed; u++)
        is_needed = moves_for(g, node, u) && (node->kind == NODE_INPUT ? must_precede(g, u, t) : must_precede(g, t, u));
      uint32_t task = p->node_of_task[t];
      bool is_ordered = node->kind == NODE_INPUT ? comes_before(p, n, task) : comes_before(p, task, n);
      if (is_ordered != is_needed) cr_assert_fail("what node %u moves, and task %u", n, t);
    }
  }
}

static void check_order_of_tasks(const struct trial_plan *p) {
  const struct random_graph *g = p->g;
  for (uint32_t t = 0; t < g->task_count; t++)
    for (uint32_t u = 0; u < g->task_count; u++) {
      bool is_ordered = comes_before(p, p->node_of_task[u], p->node_of_task[t]);
      if (is_ordered == must_precede(g, u, t)) continue;
      cr_assert_fail("task %u %s task %u, and its elements say otherwise", t, is_ordered ? "waits for" : "may pass", u);
    }
}

static void check_edges_are_reduced(const struct trial_plan *p) {
  const struct plan *plan = p->plan;
  cr_assert_eq(plan->summary.edge_count, plan->begin[p->nodes]);
  for (uint32_t n = 0; n < p->nodes; n++)
    for (uint32_t i = plan->begin[n]; i < plan->begin[n + 1]; i++)
      for (uint32_t j = plan->begin[n]; j < plan->begin[n + 1]; j++) {
        uint32_t a = plan->predecessors[i], b = plan->predecessors[j];
        if (i != j && (a == b || comes_before(p, a, b))) cr_assert_fail("edge %u to %u is implied by others", a, n);
      }
}

/* Always the first task in the program that waits for nothing any more. */
static void check_program_order(const struct trial_plan *p) {
  const struct random_graph *g = p->g;
  bool *is_placed = take(g->task_count, sizeof *is_placed);
  uint32_t lowest = 0;
  for (uint32_t n = 0; n < p->nodes; n++) {
    if (p->plan->nodes[n].kind != NODE_TASK) continue;
    while (is_placed[lowest]) lowest++;
    uint32_t expected = lowest;
    for (; expected < g->task_count; expected++) {
      bool is_ready = !is_placed[expected];
      for (uint32_t u = 0; u < g->task_count && is_ready; u++) is_ready = !must_precede(g, u, expected) || is_placed[u];
      if (is_ready) break;
    }
    cr_assert_eq(p->plan->nodes[n].index, expected);
    is_placed[expected] = true;
  }
  free(is_placed);
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

/* The buffer of each root tensor and of each task's scratch; UINT32_MAX: none. */
struct owners {
  uint32_t *tensors, *tasks;
};

static struct owners find_owners(const struct trial_plan *p) {
  const struct random_graph *g = p->g;
  struct owners owners = {take(g->tensor_count, sizeof(uint32_t)), take(g->task_count, sizeof(uint32_t))};
  memset(owners.tensors, 0xff, g->tensor_count * sizeof(uint32_t));
  memset(owners.tasks, 0xff, g->task_count * sizeof(uint32_t));
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
    const struct plan_buffer *buffer = &p->plan->buffers[b];
    uint32_t *owner = buffer->is_scratch ? &owners.tasks[buffer->index] : &owners.tensors[buffer->index];
    cr_assert_eq(*owner, UINT32_MAX, "a tensor or a task has two buffers");
    *owner = b;
  }
  return owners;
}

/* Counts an access of the buffer by the node once, and notes it if `accesses` is there; `latest` has a node a buffer.
 */
static void note_access(const struct trial_plan *p, uint32_t n, uint32_t b, uint32_t *latest, uint32_t *end) {
  if (b == UINT32_MAX || latest[b] == n) return;
  latest[b] = n;
  if (p->accesses) p->accesses[end[b]] = n;
  end[b]++;
}

static void note_accesses_of(const struct trial_plan *p, const struct owners *owners, uint32_t n, uint32_t *latest,
                             uint32_t *end) {
  const struct plan_node *node = &p->plan->nodes[n];
  if (node->kind != NODE_TASK) {
    for (uint32_t i = 0; i < node->tensor_count; i++) note_access(p, n, owners->tensors[node->tensors[i]], latest, end);
    return;
  }
  const struct task_operands *operands = &p->g->tasks[node->index];
  note_access(p, n, owners->tasks[node->index], latest, end);
  for (uint32_t i = 0; i < operands->count; i++)
    note_access(p, n, owners->tensors[p->g->areas[operands->operand[i].tensor].root], latest, end);
}

/* Two walks over the nodes: the first counts each buffer's accesses, the second notes them. */
static void find_accesses(struct trial_plan *p) {
  struct owners owners = find_owners(p);
  uint32_t count = p->plan->buffer_count, *latest = take(count, sizeof *latest), *end = take(count, sizeof *end);
  p->access_begin = take(count + 1, sizeof *p->access_begin);
  for (int walk = 0; walk < 2; walk++) {
    memset(latest, 0xff, count * sizeof *latest);
    for (uint32_t n = 0; n < p->nodes; n++) note_accesses_of(p, &owners, n, latest, end);
    if (walk) break;
    for (uint32_t b = 0; b < count; b++) {
      p->access_begin[b + 1] = p->access_begin[b] + end[b];
      end[b] = p->access_begin[b];
    }
    p->accesses = take(p->access_begin[count], sizeof *p->accesses);
  }
  free(owners.tensors), free(owners.tasks), free(latest), free(end);
}

/* All tensors that need a place have one, and so has the scratch of every operation that asks for some. */
static void check_buffers_are_there(struct trial_plan *p) {
  const rondo_graph *graph = p->g->graph;
  uint32_t expected = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    bool in_arena = p->plan->allocations[i] == ALLOCATION_ARENA || p->plan->allocations[i] == ALLOCATION_MOVED;
    expected += p->g->areas[i].root == i && in_arena;
  }
  find_accesses(p);
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
    const struct plan_buffer *buffer = &p->plan->buffers[b];
    uint32_t begin = p->access_begin[b], end = p->access_begin[b + 1];
    expected += buffer->is_scratch;
    cr_assert_eq(buffer->first_node, begin < end ? p->accesses[begin] : UINT32_MAX);
    cr_assert_eq(buffer->last_node, begin < end ? p->accesses[end - 1] : UINT32_MAX);
    if (!buffer->is_scratch && begin < end) cr_assert_geq(buffer->bytes, tensor_bytes(&graph->tensors[buffer->index]));
    cr_assert_leq(buffer->offset + buffer->bytes, p->plan->summary.temporary_bytes);
  }
  cr_assert_eq(p->plan->buffer_count, expected);
}

/* Every access of a before every access of b, along every path. */
static bool is_wholly_before(const struct trial_plan *p, uint32_t a, uint32_t b) {
  for (uint32_t i = p->access_begin[a]; i < p->access_begin[a + 1]; i++)
    for (uint32_t j = p->access_begin[b]; j < p->access_begin[b + 1]; j++)
      if (!comes_before(p, p->accesses[i], p->accesses[j])) return false;
  return true;
}

/* The numbers of nodes are a legal order: of two touched buffers only that with the lower first access can be wholly
 * before the other. One that no node touches is before and after all. */
static bool may_live_together(const struct trial_plan *p, uint32_t a, uint32_t b) {
  const struct plan_buffer *x = &p->plan->buffers[a], *y = &p->plan->buffers[b];
  if (!x->bytes || !y->bytes || a == b) return false;
  if (p->access_begin[a] == p->access_begin[a + 1] || p->access_begin[b] == p->access_begin[b + 1]) return false;
  bool a_begins = p->accesses[p->access_begin[a]] < p->accesses[p->access_begin[b]];
  return a_begins ? !is_wholly_before(p, a, b) : !is_wholly_before(p, b, a);
}

/* A buffer lives at a node that follows one of its accesses, or is one, and precedes one. Such nodes lie between its
 * first and its last access, as the numbers of nodes are a legal order. */
uint64_t most_that_lives_at_a_node(const struct trial_plan *p) {
  uint64_t most = 0, *bytes = take(p->nodes, sizeof *bytes);
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
    uint32_t begin = p->access_begin[b], end = p->access_begin[b + 1];
    if (begin == end) continue;
    for (uint32_t n = p->accesses[begin]; n <= p->accesses[end - 1]; n++) {
      bool before = false, after = false;
      for (uint32_t i = begin; i < end; i++) {
        before = before || p->accesses[i] == n || comes_before(p, p->accesses[i], n);
        after = after || p->accesses[i] == n || comes_before(p, n, p->accesses[i]);
      }
      if (before && after) bytes[n] += p->plan->buffers[b].bytes;
    }
  }
  for (uint32_t n = 0; n < p->nodes; n++) most = bytes[n] > most ? bytes[n] : most;
  free(bytes);
  return most;
}

/* The planner's own lifetimes over this plan's edges, asked for the buffers in a random order and in batches. */
static void check_lifetimes(const struct trial_plan *p) {
  const struct plan *plan = p->plan;
  uint32_t count = plan->buffer_count, used = p->access_begin[count];
  struct lifetimes lifetimes = {0};
  struct cutter cutter = {0};
  lifetimes_cut(&lifetimes, &cutter, p->nodes, count, used);
  void *memory = aligned_alloc(64, cutter.used + 64);
  cr_assert_not_null(memory);
  cutter = (struct cutter){memory, 0};
  lifetimes_cut(&lifetimes, &cutter, p->nodes, count, used);
  uint64_t *bytes = take(count, sizeof *bytes);
  for (uint32_t b = 0; b < count; b++) bytes[b] = plan->buffers[b].bytes;
  memcpy(lifetimes.begin, p->access_begin, (count + 1) * sizeof *p->access_begin);
  if (used) memcpy(lifetimes.nodes, p->accesses, used * sizeof *p->accesses);
  lifetimes.graph = &(struct reach_graph){p->nodes, plan->begin, plan->predecessors};
  lifetimes.bytes = bytes;
  lifetimes_prepare(&lifetimes);
  uint64_t bound = most_that_lives_at_a_node(p);
  cr_assert_eq(lifetimes_bound(&lifetimes), bound);
  cr_assert_geq(plan->summary.lower_bound_bytes, bound);

  uint32_t words = bit_row_words(count), *batch = take(count, sizeof *batch);
  uint64_t *rows = take((uint64_t)REACH_COLUMNS * words, sizeof *rows);
  for (uint32_t b = 0; b < count; b++) {
    uint32_t other = (uint32_t)random_between(p->g->random, 0, b);
    batch[b] = batch[other];
    batch[other] = b;
  }
  for (uint32_t begin = 0, size; begin < count; begin += size) {
    size = (uint32_t)random_between(p->g->random, 1, count - begin < REACH_COLUMNS ? count - begin : REACH_COLUMNS);
    memset(rows, 0xaa, (uint64_t)REACH_COLUMNS * words * sizeof *rows);
    lifetimes_conflicts(&lifetimes, batch + begin, size, rows);
    for (uint32_t x = 0; x < size; x++)
      for (uint32_t b = 0; b < count; b++)
        if (bit_get(rows + (uint64_t)x * words, b) != may_live_together(p, batch[begin + x], b))
          cr_assert_fail("buffers %u and %u", batch[begin + x], b);
  }
  free(memory), free(bytes), free(batch), free(rows);
}

static void check_places(const struct trial_plan *p) {
  const rondo_plan *summary = &p->plan->summary;
  uint64_t unshared = 0;
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
    const struct plan_buffer *x = &p->plan->buffers[b];
    unshared += x->bytes;
    for (uint32_t a = 0; a < b; a++) {
      const struct plan_buffer *y = &p->plan->buffers[a];
      bool share = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
      if (share && may_live_together(p, a, b)) cr_assert_fail("buffers %u and %u share bytes", a, b);
    }
  }
  cr_assert_eq(summary->unshared_bytes, unshared);
  cr_assert_leq(summary->temporary_bytes, unshared);
  cr_assert_geq(summary->temporary_bytes, summary->lower_bound_bytes);
}
void trial_plan_begin(struct trial_plan *p, struct random_graph *g) {
  *p = (struct trial_plan){.g = g, .node_of_task = take(g->task_count, sizeof(uint32_t))};
  REQUIRE_OK(plan_of(g->graph, &p->plan));
  p->nodes = p->plan->node_count;
  find_reaches(p);
}

void trial_plan_end(struct trial_plan *p, struct seen *seen) {
  for (uint32_t n = 0; n < p->nodes; n++) seen->joins += p->plan->nodes[n].kind == NODE_JOIN;
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) seen->scratch += p->plan->buffers[b].is_scratch;
  seen->shared_bytes += p->plan->summary.unshared_bytes - p->plan->summary.temporary_bytes;
  seen->backward += p->g->graph->has_backward_edges;
  seen->refused += p->g->refused_count;
  seen->reshapes += p->g->reshape_count;
  for (uint32_t t = 0; t < p->g->task_count; t++)
    for (uint32_t i = 0; i < p->g->tasks[t].count; i++)
      seen->no_boxes += !p->g->graph->tensors[p->g->tasks[t].operand[i].tensor].is_box;
  if (p->nodes > seen->most_nodes) seen->most_nodes = p->nodes;
  if (p->plan->buffer_count > seen->most_buffers) seen->most_buffers = p->plan->buffer_count;
  free(p->node_of_task), free(p->reaches), free(p->access_begin), free(p->accesses);
}

void check_order(struct trial_plan *p) {
  check_nodes(p);
  check_order_of_tasks(p);
  check_moves(p);
  check_edges_are_reduced(p);
  check_program_order(p);
}

void check_sharing(struct trial_plan *p) {
  check_buffers_are_there(p);
  check_lifetimes(p);
  check_places(p);
}

void check_plan(struct random_graph *g, struct seen *seen) {
  struct trial_plan p;
  trial_plan_begin(&p, g);
  check_order(&p);
  check_sharing(&p);
  trial_plan_end(&p, seen);
}
