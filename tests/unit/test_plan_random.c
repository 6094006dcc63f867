/* test_plan_random.c - plans of random graphs of everything that can be described, and of wide ones, against
 * trial_plan.h. */
#include <criterion/criterion.h>

#include "trial_plan.h"

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
  const uint32_t rounds = rounds_here(400);
  for (uint32_t round = 0; round < rounds; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 300, 80);
    const uint32_t roots = (uint32_t)random_between(&random, 1, 12);
    random_graph_fill(&g, roots, (uint32_t)random_between(&random, 0, 40), false);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_order(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
  cr_assert(seen.backward > rounds / 4 && seen.refused > rounds * 3 / 4,
            "%lu graphs with edges backwards, %lu cycles refused", seen.backward, seen.refused);
  cr_assert(seen.reshapes > rounds * 15 / 4 && seen.no_boxes > rounds * 3 / 4,
            "%lu reshapes, %lu operands that are no box", seen.reshapes, seen.no_boxes);
}

Test(plan, exactly_the_buffers_that_every_path_keeps_apart_may_share) {
  struct random random = {32};
  struct seen seen = {0};
  const uint32_t rounds = rounds_here(150);
  for (uint32_t round = 0; round < rounds; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 320, 100);
    const uint32_t roots = (uint32_t)random_between(&random, 1, 15);
    random_graph_fill(&g, roots, (uint32_t)random_between(&random, 10, 60), false);
    fill_long(&g, 15, 3);
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_sharing(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
  cr_assert(seen.scratch > rounds * 2 / 3 && seen.shared_bytes > rounds * UINT64_C(660),
            "%lu buffers of scratch, %lu bytes shared", seen.scratch, seen.shared_bytes);
}

/* ---- Wide graphs: joins ------------------------------------------------------------------------------------------ */

/* Writers of tiles, then readers of all, of one of two parts that begin together or of some rows, then writers again.
 */
static void fill_wide(struct random_graph *g, uint32_t rounds) {
  uint32_t width = (uint32_t)random_between(g->random, 16, 40), height = (uint32_t)random_between(g->random, 1, 3);
  uint32_t board = random_graph_root(g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){width, height});
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t i = 0; i < width; i++) {
      uint32_t view = random_graph_tile(g, board, i, 1, random_between(g->random, 0, height - 1), 1);
      random_graph_kernel(g, &(struct operand){view, round % 2 ? RONDO_READ_WRITE : RONDO_WRITE}, 1);
    }
    uint32_t parts[2];
    for (int i = 0; i < 2; i++)
      parts[i] = random_graph_tile(g, board, 0, random_between(g->random, 12, width), 0, height);
    for (uint32_t i = 0; i < (uint32_t)random_between(g->random, 1, 40); i++) {
      int kind = (int)random_between(g->random, 0, 5);
      int64_t row = random_between(g->random, 0, width - 1);
      uint32_t view = kind < 2   ? board
                      : kind < 5 ? parts[kind % 2]
                                 : random_graph_tile(g, board, row, width - row, 0, 1);
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
    random_graph_kernel(&g, &(struct operand){random_graph_tile(&g, board, i, 1, 0, 1), RONDO_WRITE}, 1);
  for (int i = 0; i < MANY; i++) random_graph_kernel(&g, &(struct operand){board, RONDO_READ}, 1);
  const struct plan *plan;
  REQUIRE_OK(plan_of(g.graph, &plan));
  cr_assert_leq(plan->summary.edge_count, 3 * MANY);
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
