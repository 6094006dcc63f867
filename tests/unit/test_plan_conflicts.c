/* test_plan_conflicts.c - plans of graphs with many conflicts that others imply. */
#include <criterion/criterion.h>

#include "trial_plan.h"

/* ---- Many conflicts that others imply ---------------------------------------------------------------------------- */

enum shape { WINDOWS, ALL_AND_ELEMENTS, ROWS_AND_COLUMNS, MIXED };

/* Of a board: a random window of it, all or an element, a row or a column. */
static uint32_t part_of(struct random_graph *g, uint32_t board, int64_t side, enum shape shape, bool is_first) {
  int64_t row = random_between(g->random, 0, side - 1), column = random_between(g->random, 0, side - 1);
  if (shape == WINDOWS) {
    const int64_t rows = random_between(g->random, 1, side - row);
    return random_graph_tile(g, board, row, rows, column, random_between(g->random, 1, side - column));
  }
  if (shape == ALL_AND_ELEMENTS) return is_first ? board : random_graph_tile(g, board, row, 1, column, 1);
  return is_first ? random_graph_tile(g, board, row, 1, 0, side) : random_graph_tile(g, board, 0, side, column, 1);
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
Test(plan, a_join_is_after_all_even_what_its_first_task_waits_for_otherwise) {
  enum { ROWS = 40, BYSTANDERS = 1200 };
  struct random random = {39};
  struct random_graph g;
  random_graph_begin(&g, &random, 3 * BYSTANDERS, 2 * BYSTANDERS);
  uint32_t board = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){ROWS, 1});
  uint32_t other = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 1, (int64_t[]){1});
  for (int i = 0; i < ROWS; i++)
    random_graph_kernel(
        &g, (struct operand[]){{random_graph_tile(&g, board, i, 1, 0, 1), RONDO_WRITE}, {other, RONDO_WRITE}},
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

/* More lines of tasks, each after the one before it by a state of its line's, than the planner has chains; each task
 * writes a row of its own of a board that all lines share, and some tasks read many rows. So what was known of a group
 * of accesses goes out of date, again and again, though the accesses stay. */
Test(plan, what_is_known_of_more_lines_than_there_are_chains_is_exact) {
  enum { LINES = 40, TASKS = 1600, READERS_EVERY = 9, STEP = 611 };
  struct random random = {40};
  struct seen seen = {0};
  for (int round = 0; round < 4; round++) {
    struct random_graph g;
    uint32_t lines[LINES];
    random_graph_begin(&g, &random, 2 * TASKS + LINES, TASKS);
    uint32_t board = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 2, (int64_t[]){TASKS, 1});
    for (int i = 0; i < LINES; i++) lines[i] = random_graph_root(&g, TENSOR_STATE, RONDO_U8, 1, (int64_t[]){1});
    for (int64_t t = 0; t < TASKS; t++) {
      bool reads = t % READERS_EVERY == 0;
      int64_t rows = reads ? TASKS / 4 : 1;
      int64_t row = reads ? random_between(&random, 0, TASKS - rows) : round % 2 ? t : t * STEP % TASKS;
      struct operand operands[] = {{random_graph_tile(&g, board, row, rows, 0, 1), reads ? RONDO_READ : RONDO_WRITE},
                                   {lines[random_between(&random, 0, LINES - 1)], RONDO_READ_WRITE}};
      random_graph_kernel(&g, operands, reads ? 1 : 2);
    }
    struct trial_plan p;
    trial_plan_begin(&p, &g);
    check_order(&p);
    trial_plan_end(&p, &seen);
    random_graph_end(&g);
  }
}
