/* test_plan.c - the plan: two tensors that may live together in some legal order never overlap, the peak is never
 * below the lower bound, and what is moved is moved once. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/planner.h"
#include "../support.h"

enum { TENSORS = 40 };

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

static void add_task(rondo_graph *graph, const rondo_argument *arguments, uint32_t count) {
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = count}));
}

/* Random tensors of every kind, a few of them large, random tasks over random rectangles of them; every temporary is
 * written first, every output at some time. */
static rondo_graph *random_graph(struct random *random, uint32_t tasks) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor tensors[TENSORS];
  bool written[TENSORS] = {false};
  for (int i = 0; i < TENSORS; i++) {
    int64_t shape[2] = {random_between(random, 1, 64)};
    shape[1] = random_between(random, 1, i % 8 == 7 ? 2048 : 64);
    switch (random_between(random, 0, 9)) {
    case 0:
    case 1:
      REQUIRE_OK(rondo_input(graph, NULL, RONDO_F32, 2, shape, &tensors[i]));
      written[i] = true;
      break;
    case 2:
      REQUIRE_OK(rondo_state(graph, NULL, RONDO_F32, 2, shape, &tensors[i]));
      written[i] = true;
      break;
    case 3:
    case 4:
      REQUIRE_OK(rondo_output(graph, NULL, RONDO_F32, 2, shape, &tensors[i]));
      break;
    default:
      REQUIRE_OK(rondo_temporary(graph, NULL, RONDO_F32, 2, shape, &tensors[i]));
    }
  }
  for (uint32_t t = 0; t < tasks; t++) {
    rondo_argument arguments[4] = {0};
    uint32_t count = 0;
    uint64_t used = 0;
    for (int i = 0; i < 4; i++) {
      int pick = (int)random_between(random, 0, TENSORS - 1);
      if (used >> pick & 1) continue;
      used |= UINT64_C(1) << pick;
      bool is_first = !written[pick]; /* of all of it, since all of it may be read */
      rondo_access access = is_first ? RONDO_WRITE : (rondo_access)random_between(random, 1, 3);
      written[pick] = true;
      rondo_tensor view = tensors[pick];
      const struct tensor *tensor = &graph->tensors[view.index];
      if (!is_first && random_between(random, 0, 1)) {
        int64_t offset[2], extent[2];
        for (int d = 0; d < 2; d++) {
          offset[d] = random_between(random, 0, tensor->shape[d] - 1);
          extent[d] = random_between(random, 1, tensor->shape[d] - offset[d]);
        }
        REQUIRE_OK(rondo_view(graph, view, offset, extent, &view));
      }
      arguments[count++] = (rondo_argument){.tensor = view, .access = access};
    }
    add_task(graph, arguments, count);
    if (t > 2 && random_between(random, 0, 9) == 0) { /* may be refused: a cycle */
      const rondo_task before = (rondo_task)random_between(random, 0, t);
      rondo_after(graph, before, (rondo_task)random_between(random, 0, t));
    }
  }
  for (int i = 0; i < TENSORS; i++)
    if (graph->tensors[tensors[i].index].kind == TENSOR_OUTPUT && !written[i])
      add_task(graph, &(rondo_argument){.tensor = tensors[i], .access = RONDO_WRITE}, 1);
  return graph;
}

/* A random legal order of the plan's nodes. */
static void random_order(const struct plan *plan, struct random *random, uint32_t *position) {
  bool done[512] = {false};
  for (uint32_t placed = 0; placed < plan->node_count; placed++) {
    uint32_t ready[512], count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
      if (done[n]) continue;
      bool free = true;
      for (uint32_t i = plan->begin[n]; i < plan->begin[n + 1]; i++) free = free && done[plan->predecessors[i]];
      if (free) ready[count++] = n;
    }
    cr_assert_gt(count, 0, "the edges have a cycle");
    uint32_t pick = ready[random_between(random, 0, count - 1)];
    done[pick] = true;
    position[pick] = placed;
  }
}

static bool touches(const rondo_graph *graph, const struct plan *plan, uint32_t node,
                    const struct plan_buffer *buffer) {
  const struct plan_node *n = &plan->nodes[node];
  if (buffer->is_scratch) return n->kind == NODE_TASK && n->index == buffer->index;
  for (uint32_t i = 0; i < n->tensor_count; i++)
    if (n->tensors[i] == buffer->index) return true;
  if (n->kind != NODE_TASK) return false;
  const struct task *task = &graph->tasks[n->index];
  for (uint32_t i = 0; i < task->operand_count; i++)
    if (task->tensors[i] != NO_TENSOR && graph->tensors[task->tensors[i]].root == buffer->index) return true;
  return false;
}

Test(plan, never_overlaps_live_tensors_in_any_legal_order) {
  struct random random = {7}, orders = {8};
  uint64_t shared_graphs = 0;
  for (int round = 0; round < 60; round++) {
    rondo_graph *graph = random_graph(&random, (uint32_t)random_between(&random, 1, 60));
    const struct plan *plan;
    REQUIRE_OK(plan_of(graph, &plan));
    cr_assert_geq(plan->summary.temporary_bytes, plan->summary.lower_bound_bytes);
    cr_assert_leq(plan->summary.temporary_bytes, plan->summary.unshared_bytes);
    shared_graphs += plan->summary.temporary_bytes < plan->summary.unshared_bytes;
    for (int order = 0; order < 8; order++) {
      uint32_t position[512];
      random_order(plan, &orders, position);
      uint32_t first[256], last[256];
      cr_assert_leq(plan->buffer_count, 256);
      for (uint32_t b = 0; b < plan->buffer_count; b++) {
        first[b] = UINT32_MAX;
        last[b] = 0;
        for (uint32_t n = 0; n < plan->node_count; n++) {
          if (!touches(graph, plan, n, &plan->buffers[b])) continue;
          if (position[n] < first[b] || first[b] == UINT32_MAX) first[b] = position[n];
          if (position[n] > last[b]) last[b] = position[n];
        }
      }
      for (uint32_t a = 0; a < plan->buffer_count; a++)
        for (uint32_t b = 0; b < a; b++) {
          const struct plan_buffer *x = &plan->buffers[a], *y = &plan->buffers[b];
          if (first[a] == UINT32_MAX || first[b] == UINT32_MAX) continue;
          bool live_together = first[a] <= last[b] && first[b] <= last[a];
          bool share = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
          cr_assert(!(live_together && share), "round %d: buffers %u and %u", round, a, b);
        }
    }
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
  cr_assert_gt(shared_graphs, 30, "hardly any graph shared bytes: the test would prove little");
}

/* Is node `before` an ancestor of node `after`? Along the plan's edges. */
static bool is_ordered(const struct plan *plan, uint32_t before, uint32_t after) {
  for (uint32_t i = plan->begin[after]; i < plan->begin[after + 1]; i++)
    if (plan->predecessors[i] == before || is_ordered(plan, before, plan->predecessors[i])) return true;
  return false;
}

static const struct plan_buffer no_buffer = {0};

static const struct plan_buffer *buffer_of(const struct plan *plan, uint32_t tensor) {
  for (uint32_t b = 0; b < plan->buffer_count; b++)
    if (!plan->buffers[b].is_scratch && plan->buffers[b].index == tensor) return &plan->buffers[b];
  cr_assert_fail("tensor %u is moved, but has no place on the device", tensor);
  return &no_buffer;
}

Test(plan, what_is_moved_is_moved_once_before_all_that_read_it_and_after_all_that_write_it) {
  struct random random = {13};
  uint32_t shared_nodes[2] = {0};
  for (int round = 0; round < 40; round++) {
    rondo_graph *graph = random_graph(&random, (uint32_t)random_between(&random, 1, 60));
    const struct plan *plan;
    REQUIRE_OK(plan_of(graph, &plan));
    uint32_t moves[4096] = {0};
    for (uint32_t n = 0; n < plan->node_count; n++) {
      const struct plan_node *node = &plan->nodes[n];
      cr_assert_eq(node->tensor_count == 0, node->kind == NODE_TASK);
      cr_assert_leq(node->tensor_count, 8);
      if (node->tensor_count > 1) shared_nodes[node->kind == NODE_OUTPUT]++;
      for (uint32_t i = 0; i < node->tensor_count; i++) {
        uint32_t tensor = node->tensors[i];
        moves[tensor]++;
        cr_assert_eq(graph->tensors[tensor].kind, node->kind == NODE_INPUT ? TENSOR_INPUT : TENSOR_OUTPUT);
        if (node->tensor_count > 1) cr_assert_leq(tensor_bytes(&graph->tensors[tensor]), 65536);
        const struct plan_buffer *buffer = buffer_of(plan, tensor);
        for (uint32_t m = 0; m < plan->node_count; m++)
          if (plan->nodes[m].kind == NODE_TASK && touches(graph, plan, m, buffer))
            cr_assert(node->kind == NODE_INPUT ? is_ordered(plan, n, m) : is_ordered(plan, m, n));
      }
    }
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      const struct tensor *tensor = &graph->tensors[t];
      cr_assert_eq(plan->allocations[t], plan->allocations[tensor->root]);
      cr_assert_eq(plan->allocations[t] == ALLOCATION_RESIDENT, tensor_is_resident(tensor));
      cr_assert_eq(plan->allocations[t] == ALLOCATION_ARENA, tensor->kind == TENSOR_TEMPORARY);
      cr_assert_eq(moves[t], tensor->root == t && plan->allocations[t] == ALLOCATION_MOVED);
    }
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
  cr_assert(shared_nodes[0] > 20 && shared_nodes[1] > 20, "hardly any node moved several: %u in, %u out",
            shared_nodes[0], shared_nodes[1]);
}

Test(plan, parallel_branches_do_not_share_but_a_chain_does) {
  for (int chained = 0; chained < 2; chained++) {
    rondo_graph *graph = NULL;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    rondo_tensor state, step[8];
    REQUIRE_OK(rondo_state(graph, "s", RONDO_U8, 1, (int64_t[]){4096}, &state));
    for (int i = 0; i < 8; i++) {
      REQUIRE_OK(rondo_temporary(graph, NULL, RONDO_U8, 1, (int64_t[]){4096}, &step[i]));
      rondo_argument arguments[] = {{.tensor = chained && i ? step[i - 1] : state, .access = RONDO_READ},
                                    {.tensor = step[i], .access = RONDO_WRITE}};
      REQUIRE_OK(
          rondo_add_kernel(graph, &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = 2}));
    }
    rondo_plan plan;
    REQUIRE_OK(rondo_plan_graph(graph, &plan));
    cr_assert_eq(plan.temporary_bytes, chained ? 2 * 4096 : 8 * 4096);
    cr_assert_eq(plan.constant_bytes, 4096);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(plan, an_empty_graph_needs_next_to_nothing) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.temporary_bytes, 0);
  cr_assert_eq(plan.task_count, 0);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* A graph of one copy in, one copy out, and perhaps more tasks that touch the same tensors. */
static uint32_t moves_of(int64_t elements, bool read_twice, bool read_back) {
  rondo_graph *graph = NULL;
  rondo_tensor in, state, out;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, &elements, &in));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_F32, 1, &elements, &state));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, &elements, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
  if (read_twice) REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = state}));
  if (read_back) REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = out, .dst = state}));
  const struct plan *plan;
  REQUIRE_OK(plan_of(graph, &plan));
  uint32_t moves = plan->node_count - graph->task_count;
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return moves;
}

Test(plan, only_what_is_small_and_touched_once_stays_in_pinned_memory) {
  cr_assert_eq(moves_of(16384, false, false), 0);
  cr_assert_eq(moves_of(16385, false, false), 2);
  cr_assert_eq(moves_of(4096, true, false), 1, "the input is read by two tasks");
  cr_assert_eq(moves_of(4096, false, true), 1, "the output is read back");
}

/* An input that two tasks read, or an output that is written and read back. */
static void add_moved(rondo_graph *graph, bool is_input, int64_t bytes) {
  rondo_tensor moved, state;
  REQUIRE_OK(rondo_state(graph, NULL, RONDO_U8, 1, &bytes, &state));
  REQUIRE_OK((is_input ? rondo_input : rondo_output)(graph, NULL, RONDO_U8, 1, &bytes, &moved));
  rondo_tensor first = is_input ? moved : state, second = is_input ? state : moved;
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = first, .dst = second}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = moved, .dst = state}));
}

Test(plan, small_moved_tensors_share_nodes_in_groups_of_eight) {
  enum { SMALL = 8192, LARGE = 65537 };
  static const struct {
    uint32_t small, large; /* tensors */
    uint32_t groups;
  } cases[] = {{1, 0, 1}, {2, 0, 1}, {8, 0, 1}, {9, 0, 2}, {0, 3, 0}, {3, 2, 1}, {17, 1, 3}};
  for (uint32_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
    bool is_input = c % 2;
    uint32_t small = cases[c / 2].small, large = cases[c / 2].large, groups = cases[c / 2].groups, seen = 0;
    rondo_graph *graph = NULL;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    for (uint32_t i = 0; i < small || i < large; i++) {
      if (i < large) add_moved(graph, is_input, LARGE);
      if (i < small) add_moved(graph, is_input, SMALL);
    }
    const struct plan *plan;
    REQUIRE_OK(plan_of(graph, &plan));
    cr_assert_eq(plan->node_count, graph->task_count + groups + large, "case %u", c);
    uint32_t begin = is_input ? 0 : graph->task_count;
    for (uint32_t n = begin; n < begin + groups + large; n++) {
      const struct plan_node *node = &plan->nodes[n];
      uint32_t left = small - 8 * (n - begin);
      cr_assert_eq(node->kind, is_input ? NODE_INPUT : NODE_OUTPUT);
      cr_assert_eq(node->tensor_count, n - begin >= groups ? 1 : left < 8 ? left : 8, "case %u", c);
      for (uint32_t i = 0; i < node->tensor_count; i++) {
        cr_assert_eq(tensor_bytes(&graph->tensors[node->tensors[i]]), n - begin < groups ? SMALL : LARGE);
        seen++;
      }
    }
    cr_assert_eq(seen, small + large);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(plan, small_moved_tensors_share_nodes_of_64_kb_at_most) {
  rondo_graph *graph = NULL;
  const struct plan *plan;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 3; i++) add_moved(graph, true, 32768);
  add_moved(graph, true, 65536);
  REQUIRE_OK(plan_of(graph, &plan));
  cr_assert_eq(plan->node_count, graph->task_count + 3);
  for (uint32_t n = 0; n < 3; n++) cr_assert_eq(plan->nodes[n].tensor_count, n ? 1 : 2);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* A join pays where a second task wants the same many edges, not where one task names the same tensor again. */
Test(plan, a_task_that_reads_the_same_tensor_twice_makes_no_join) {
  enum { WRITERS = 20 };
  rondo_graph *graph = NULL;
  rondo_tensor state, row;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, NULL, RONDO_F32, 1, (int64_t[]){WRITERS}, &state));
  for (int64_t i = 0; i < WRITERS; i++) {
    REQUIRE_OK(rondo_view(graph, state, &i, (int64_t[]){1}, &row));
    add_task(graph, &(rondo_argument){.tensor = row, .access = RONDO_WRITE}, 1);
  }
  rondo_argument read = {.tensor = state, .access = RONDO_READ}, reads[] = {read, read, read};
  const struct plan *plan;
  add_task(graph, reads, 3);
  REQUIRE_OK(plan_of(graph, &plan));
  cr_assert_eq(plan->node_count, WRITERS + 1);
  cr_assert_eq(plan->summary.edge_count, WRITERS);
  add_task(graph, reads, 3);
  REQUIRE_OK(plan_of(graph, &plan));
  cr_assert_eq(plan->node_count, WRITERS + 3, "two readers and a join");
  cr_assert_eq(plan->summary.edge_count, 2 * WRITERS + 1, "the first reader's, the join's, the second reader's");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

enum shape { WINDOWS, FIXED_WINDOWS, ALL_AND_ELEMENTS, ROWS_AND_COLUMNS, ROWS_AND_COLUMNS_OF_STRIPES, SHAPES };

/* Of a square state, what the task of this number touches. */
static rondo_argument part_of(rondo_graph *graph, rondo_tensor state, int64_t side, enum shape shape, int64_t number,
                              struct random *random) {
  enum { STRIPES = 8 };
  int64_t offset[] = {0, 0}, extent[] = {side, side}, stripe = number / 2 % STRIPES;
  rondo_argument part = {.tensor = state, .access = number % 2 ? RONDO_WRITE : RONDO_READ};
  if (shape == WINDOWS || shape == FIXED_WINDOWS) {
    part.access = (rondo_access)random_between(random, 1, 3);
    for (int d = 0; d < 2; d++) {
      extent[d] = shape == WINDOWS ? random_between(random, 1, side) : side / 4;
      offset[d] = random_between(random, 0, side - extent[d]);
    }
  } else if (shape == ALL_AND_ELEMENTS && number % 2) {
    offset[0] = number / 2 / side, offset[1] = number / 2 % side, extent[0] = extent[1] = 1;
  } else if (shape == ROWS_AND_COLUMNS) {
    offset[number % 2] = number / 2 % side, extent[number % 2] = 1;
  } else if (shape == ROWS_AND_COLUMNS_OF_STRIPES) {
    int64_t width = side / STRIPES;
    offset[1] = stripe * width, extent[1] = width;
    if (number % 2)
      offset[1] += number / 2 / STRIPES % width, extent[1] = 1;
    else
      offset[0] = number / 2 / STRIPES % side, extent[0] = 1;
  }
  REQUIRE_OK(rondo_view(graph, state, offset, extent, &part.tensor));
  return part;
}

/* Each task conflicts with thousands before it, and is ordered after nearly all of them by the latest few. */
Test(plan, takes_memory_for_the_edges_that_are_left_and_not_for_all_conflicts) {
  const int64_t task_count = rounds_here(8192);
  const rondo_graph_limits limits = {.tensors = (uint32_t)task_count + 1, .tasks = (uint32_t)task_count};
  struct random random = {41};
  for (enum shape shape = 0; shape < SHAPES; shape++) {
    int64_t side = shape == ROWS_AND_COLUMNS || shape == ROWS_AND_COLUMNS_OF_STRIPES ? task_count / 2 : 256;
    rondo_graph *graph = NULL;
    rondo_tensor state;
    const struct plan *plan;
    REQUIRE_OK(rondo_graph_create(NULL, &limits, &graph));
    REQUIRE_OK(rondo_state(graph, NULL, RONDO_U8, 2, (int64_t[]){side, side}, &state));
    for (int64_t t = 0; t < task_count; t++) {
      rondo_argument part = part_of(graph, state, side, shape, t, &random);
      add_task(graph, &part, 1);
    }
    REQUIRE_OK(plan_of(graph, &plan));
    cr_assert_lt(plan->planning_bytes, 600 * task_count, "shape %d", shape);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}
