/* test_plan_random.c - plans of random graphs, held against what random_graph.c says that the graphs mean: the order is
 * the one that the elements ask for and nothing more, and buffers share exactly when every path allows it. What is
 * checked is worked out by brute force over all pairs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/lifetimes.h"
#include "../../runtime/plan.h"
#include "random_graph.h"

/* A plan beside the graph that it was made of. */
struct trial_plan {
  struct random_graph *g;
  const struct plan *plan;
  uint32_t nodes;
  uint32_t *node_of_task;
  bool *reaches; /* [n * nodes + m]: m comes before n along the edges */
  /* By buffer, ascending: the nodes that touch it. */
  uint32_t *access_begin, *accesses;
};

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
  for (uint32_t n = 0; n < p->nodes; n++) {
    const struct plan_node *node = &p->plan->nodes[n];
    bool is_awaited = false;
    for (uint32_t i = p->plan->begin[n + 1]; i < p->plan->begin[p->nodes]; i++)
      is_awaited = is_awaited || p->plan->predecessors[i] == n;
    cr_assert_eq(p->plan->is_awaited[n], is_awaited);
    if (node->kind == NODE_JOIN) cr_assert(is_awaited && p->plan->begin[n + 1] > p->plan->begin[n]);
    enum node_kind kind = node->kind == NODE_JOIN ? NODE_TASK : node->kind;
    cr_assert_leq(latest, kind);
    latest = kind;
    if (node->kind != NODE_TASK) continue;
    cr_assert_eq(p->node_of_task[node->index], UINT32_MAX);
    p->node_of_task[node->index] = n;
  }
  for (uint32_t t = 0; t < g->task_count; t++) cr_assert_neq(p->node_of_task[t], UINT32_MAX);
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

static bool node_touches(const struct trial_plan *p, uint32_t n, const struct plan_buffer *buffer) {
  const struct plan_node *node = &p->plan->nodes[n];
  if (buffer->is_scratch) return node->kind == NODE_TASK && node->index == buffer->index;
  if (node->kind == NODE_TASK) return random_graph_touches(p->g, node->index, buffer->index);
  for (uint32_t i = 0; i < node->tensor_count; i++)
    if (node->tensors[i] == buffer->index) return true;
  return false;
}

/* All tensors that need a place have one, and so has the scratch of every operation that asks for some. */
static void check_buffers_are_there(struct trial_plan *p) {
  const rondo_graph *graph = p->g->graph;
  uint32_t expected = 0, used = 0, room = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    bool in_arena = p->plan->places[i] == PLACE_ARENA || p->plan->places[i] == PLACE_MOVED;
    expected += p->g->areas[i].root == i && in_arena;
  }
  p->access_begin = take(p->plan->buffer_count + 1, sizeof *p->access_begin);
  for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
    const struct plan_buffer *buffer = &p->plan->buffers[b];
    expected += buffer->is_scratch;
    for (uint32_t n = 0; n < p->nodes; n++) {
      if (!node_touches(p, n, buffer)) continue;
      if (used == room) p->accesses = realloc(p->accesses, (room = 2 * room + 64) * sizeof *p->accesses);
      p->accesses[used++] = n;
    }
    p->access_begin[b + 1] = used;
    bool is_touched = p->access_begin[b] < used;
    cr_assert_eq(buffer->first_node, is_touched ? p->accesses[p->access_begin[b]] : UINT32_MAX);
    cr_assert_eq(buffer->last_node, is_touched ? p->accesses[used - 1] : UINT32_MAX);
    if (!buffer->is_scratch && is_touched) cr_assert_geq(buffer->bytes, tensor_bytes(&graph->tensors[buffer->index]));
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

static bool may_live_together(const struct trial_plan *p, uint32_t a, uint32_t b) {
  bool both = p->plan->buffers[a].bytes && p->plan->buffers[b].bytes;
  return both && a != b && !is_wholly_before(p, a, b) && !is_wholly_before(p, b, a);
}

static uint64_t most_that_lives_at_a_node(const struct trial_plan *p) {
  uint64_t most = 0;
  for (uint32_t n = 0; n < p->nodes; n++) {
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < p->plan->buffer_count; b++) {
      bool before = false, after = false;
      for (uint32_t i = p->access_begin[b]; i < p->access_begin[b + 1]; i++) {
        before = before || p->accesses[i] == n || comes_before(p, p->accesses[i], n);
        after = after || p->accesses[i] == n || comes_before(p, n, p->accesses[i]);
      }
      if (before && after) bytes += p->plan->buffers[b].bytes;
    }
    if (bytes > most) most = bytes;
  }
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

/* ---- All of it --------------------------------------------------------------------------------------------------- */

/* How much there was to see, so that no test passes because its graphs are dull. */
struct seen {
  uint64_t joins, shared_bytes, scratch, backward, refused, reshapes, no_boxes, most_nodes, most_buffers;
};

static void trial_plan_begin(struct trial_plan *p, struct random_graph *g) {
  *p = (struct trial_plan){.g = g, .node_of_task = take(g->task_count, sizeof(uint32_t))};
  REQUIRE_OK(plan_of(g->graph, &p->plan));
  p->nodes = p->plan->node_count;
  find_reaches(p);
}

static void trial_plan_end(struct trial_plan *p, struct seen *seen) {
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

static void check_order(struct trial_plan *p) {
  check_nodes(p);
  check_order_of_tasks(p);
  check_moves(p);
  check_edges_are_reduced(p);
  check_program_order(p);
}

static void check_sharing(struct trial_plan *p) {
  check_buffers_are_there(p);
  check_lifetimes(p);
  check_places(p);
}

static void check_plan(struct random_graph *g, struct seen *seen) {
  struct trial_plan p;
  trial_plan_begin(&p, g);
  check_order(&p);
  check_sharing(&p);
  trial_plan_end(&p, seen);
}

/* ---- Graphs of all kinds ----------------------------------------------------------------------------------------- */

/* Each task reads some of the latest temporaries and writes new ones. */
static void fill_long(struct random_graph *g, uint32_t task_count, uint32_t reach) {
  uint32_t first = g->tensor_count;
  for (uint32_t t = 0; t < task_count; t++) {
    struct operand operands[4];
    uint32_t count = 0, roots = g->tensor_count - first, wanted = (uint32_t)random_between(g->random, 0, 3);
    for (uint32_t i = 0; i < wanted && roots; i++) {
      uint32_t tensor =
          g->tensor_count - 1 - (uint32_t)random_between(g->random, 0, roots < reach ? roots - 1 : reach - 1);
      bool is_there = false;
      for (uint32_t j = 0; j < count; j++) is_there = is_there || operands[j].tensor == tensor;
      if (!is_there) operands[count++] = (struct operand){tensor, i ? RONDO_READ : RONDO_READ_WRITE};
    }
    int64_t elements = random_between(g->random, 1, 8);
    uint32_t fresh = random_graph_root(g, TENSOR_TEMPORARY, RONDO_F64, 1, &elements);
    operands[count++] = (struct operand){fresh, RONDO_WRITE};
    random_graph_kernel(g, operands, count);
  }
}

Test(plan, exactly_the_tasks_whose_elements_conflict_are_ordered) {
  struct random random = {31};
  struct seen seen = {0};
  for (int round = 0; round < 400; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 300, 80);
    random_graph_fill(&g, (uint32_t)random_between(&random, 1, 12), (uint32_t)random_between(&random, 0, 40), false);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_order(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
  cr_assert(seen.backward > 100 && seen.refused > 300, "%lu graphs with edges backwards, %lu cycles refused",
            seen.backward, seen.refused);
  cr_assert(seen.reshapes > 1500 && seen.no_boxes > 300, "%lu reshapes, %lu operands that are no box", seen.reshapes,
            seen.no_boxes);
}

Test(plan, exactly_the_buffers_that_every_path_keeps_apart_may_share) {
  struct random random = {32};
  struct seen seen = {0};
  for (int round = 0; round < 150; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 320, 100);
    random_graph_fill(&g, (uint32_t)random_between(&random, 1, 15), (uint32_t)random_between(&random, 10, 60), false);
    fill_long(&g, 15, 3);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_sharing(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
  cr_assert(seen.scratch > 100 && seen.shared_bytes > 100000, "%lu buffers of scratch, %lu bytes shared", seen.scratch,
            seen.shared_bytes);
}

/* ---- Wide graphs: joins ------------------------------------------------------------------------------------------ */

static uint32_t tile(struct random_graph *g, uint32_t root, int64_t row, int64_t rows, int64_t column,
                     int64_t columns) {
  return random_graph_view(g, root, (int64_t[]){row, column}, (int64_t[]){rows, columns});
}

/* Writers of tiles, then readers of all, of one of two parts that begin together or of some rows, then writers again.
 */
static void fill_wide(struct random_graph *g, uint32_t rounds) {
  uint32_t width = (uint32_t)random_between(g->random, 16, 40), height = (uint32_t)random_between(g->random, 1, 3);
  uint32_t board = random_graph_root(g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){width, height});
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t i = 0; i < width; i++) {
      uint32_t view = tile(g, board, i, 1, random_between(g->random, 0, height - 1), 1);
      random_graph_kernel(g, &(struct operand){view, round % 2 ? RONDO_READ_WRITE : RONDO_WRITE}, 1);
    }
    uint32_t parts[2];
    for (int i = 0; i < 2; i++) parts[i] = tile(g, board, 0, random_between(g->random, 12, width), 0, height);
    for (uint32_t i = 0; i < (uint32_t)random_between(g->random, 1, 40); i++) {
      int kind = (int)random_between(g->random, 0, 5);
      int64_t row = random_between(g->random, 0, width - 1);
      uint32_t view = kind < 2 ? board : kind < 5 ? parts[kind % 2] : tile(g, board, row, width - row, 0, 1);
      struct operand operands[2] = {{view, RONDO_READ}};
      operands[1] = (struct operand){random_graph_root(g, TENSOR_TEMPORARY, RONDO_U8, 1, (int64_t[]){1}), RONDO_WRITE};
      random_graph_kernel(g, operands, 2);
      if (random_between(g->random, 0, 30) == 0)
        random_graph_after(g, (uint32_t)random_between(g->random, 0, g->task_count - 1), g->task_count - 1);
    }
    if (random_between(g->random, 0, 1)) random_graph_kernel(g, &(struct operand){parts[0], RONDO_WRITE}, 1);
  }
}

Test(plan, many_that_wait_for_many_wait_for_a_join_and_for_nothing_more) {
  struct random random = {33};
  struct seen seen = {0};
  for (int round = 0; round < 60; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 1200, 500);
    fill_wide(&g, (uint32_t)random_between(&random, 1, 5));
    check_plan(&g, &seen);
    random_graph_end(&g);
  }
  cr_assert_gt(seen.joins, 120);
}

Test(plan, edges_of_many_that_wait_for_many_are_as_many_as_the_tasks) {
  enum { MANY = 400 };
  struct random random = {34};
  struct random_graph g;
  random_graph_begin(&g, &random, 4 * MANY, 2 * MANY);
  uint32_t board = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){MANY, 1});
  for (int i = 0; i < MANY; i++)
    random_graph_kernel(&g, &(struct operand){tile(&g, board, i, 1, 0, 1), RONDO_WRITE}, 1);
  for (int i = 0; i < MANY; i++) random_graph_kernel(&g, &(struct operand){board, RONDO_READ}, 1);
  const struct plan *plan;
  REQUIRE_OK(plan_of(g.graph, &plan));
  cr_assert_leq(plan->summary.edge_count, 3 * MANY);
  random_graph_end(&g);
}

/* ---- Many conflicts that others imply ---------------------------------------------------------------------------- */

enum shape { WINDOWS, ALL_AND_ELEMENTS, ROWS_AND_COLUMNS, MIXED };

/* Of a board: a random window of it, all or an element, a row or a column. */
static uint32_t part_of(struct random_graph *g, uint32_t board, int64_t side, enum shape shape, bool is_first) {
  int64_t row = random_between(g->random, 0, side - 1), column = random_between(g->random, 0, side - 1);
  if (shape == WINDOWS)
    return tile(g, board, row, random_between(g->random, 1, side - row), column,
                random_between(g->random, 1, side - column));
  if (shape == ALL_AND_ELEMENTS) return is_first ? board : tile(g, board, row, 1, column, 1);
  return is_first ? tile(g, board, row, 1, 0, side) : tile(g, board, 0, side, column, 1);
}

/* A task reads what the shape has first, the next one writes what it has second, and so on; or who does what is random,
 * and some tasks have a part of a second board. */
static void fill_conflicts(struct random_graph *g, enum shape shape, uint32_t task_count, int64_t side, bool in_turn) {
  uint32_t boards[2];
  for (int i = 0; i < 2; i++) {
    boards[i] = random_graph_root(g, i ? TENSOR_STATE : TENSOR_TEMPORARY, RONDO_U8, 2, (int64_t[]){side, side});
    random_graph_kernel(g, &(struct operand){boards[i], RONDO_WRITE}, 1);
  }
  for (uint32_t t = 0; t < task_count; t++) {
    struct operand operands[2];
    uint32_t count = in_turn ? 1 : (uint32_t)random_between(g->random, 1, 2);
    for (uint32_t i = 0; i < count; i++) {
      enum shape own = shape == MIXED ? (enum shape)random_between(g->random, WINDOWS, MIXED - 1) : shape;
      bool is_first = in_turn ? t % 2 == 0 : random_between(g->random, 0, 1);
      rondo_access access = in_turn && own != WINDOWS ? is_first ? RONDO_READ : RONDO_WRITE
                                                      : (rondo_access)random_between(g->random, 1, 3);
      operands[i] = (struct operand){part_of(g, boards[i], side, own, is_first), access};
    }
    random_graph_kernel(g, operands, count);
  }
}

Test(plan, what_many_conflicts_imply_is_exact) {
  struct random random = {36};
  struct seen seen = {0};
  for (int round = 0; round < 64; round++) {
    struct random_graph g;
    uint32_t tasks = (uint32_t)random_between(&random, 1, 400);
    random_graph_begin(&g, &random, 1000, 500);
    fill_conflicts(&g, (enum shape)(round % 4), tasks, random_between(&random, 1, 40), round / 4 % 2);
    check_plan(&g, &seen);
    random_graph_end(&g);
  }
}

/* Groups of groups of accesses, and chains that were left behind; once with few elements, once with many. */
Test(plan, what_thousands_of_conflicts_imply_is_exact) {
  struct random random = {38};
  struct seen seen = {0};
  for (int round = 0; round < 2; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 11000, 5000);
    fill_conflicts(&g, round ? WINDOWS : MIXED, 4900, round ? 90 : 6, round);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_order(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
}

/* The second reader of the board waits for one of its writers by another tensor first; the third one has nothing but
 * the join. Meanwhile so many tasks stand side by side that nobody remembers what comes before the first reader. */
Test(plan, a_join_is_behind_all_even_what_its_first_task_waits_for_otherwise) {
  enum { ROWS = 40, BYSTANDERS = 1200 };
  struct random random = {39};
  struct random_graph g;
  random_graph_begin(&g, &random, 3 * BYSTANDERS, 2 * BYSTANDERS);
  uint32_t board = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){ROWS, 1});
  uint32_t other = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 1, (int64_t[]){1});
  for (int i = 0; i < ROWS; i++)
    random_graph_kernel(&g, (struct operand[]){{tile(&g, board, i, 1, 0, 1), RONDO_WRITE}, {other, RONDO_WRITE}},
                        i == ROWS - 5 ? 2 : 1);
  random_graph_kernel(&g, &(struct operand){board, RONDO_READ}, 1);
  for (int i = 0; i < BYSTANDERS; i++) {
    uint32_t own = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 1, (int64_t[]){1});
    random_graph_kernel(&g, &(struct operand){own, RONDO_WRITE}, 1);
  }
  for (int i = 0; i < 2; i++)
    random_graph_kernel(&g, (struct operand[]){{i ? board : other, RONDO_READ}, {board, RONDO_READ}}, 2 - (uint32_t)i);
  struct trial_plan p;
  struct seen seen = {0};
  trial_plan_begin(&p, &g);
  check_order(&p);
  trial_plan_end(&p, &seen);
  cr_assert_eq(seen.joins, 1);
  random_graph_end(&g);
}

/* ---- More nodes and more buffers than one pass takes ------------------------------------------------------------- */

/* Several passes of reach.c and lifetimes.c, and too many buffers to search a placement for. */
Test(plan, plans_of_thousands_are_as_exact) {
  struct random random = {35};
  struct seen seen = {0};
  for (int round = 0; round < 2; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 5000, 4800);
    fill_long(&g, 4200, round ? 1000 : 8);
    if (!round) fill_wide(&g, 2);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_order(&p);
    check_sharing(&p);
    cr_assert_eq(p.plan->summary.lower_bound_bytes, most_that_lives_at_a_node(&p), "of so many there is no other");
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
  cr_assert(seen.most_nodes > 4096 && seen.most_buffers > 4096 && seen.joins &&
            seen.shared_bytes > UINT64_C(100) * 4096);
}
