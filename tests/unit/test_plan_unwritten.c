/* test_plan_unwritten.c - random graphs of which some read what nothing wrote: the planner refuses exactly those, and
 * names an element that random_graph.c also finds unwritten. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/planner.h"
#include "random_graph.h"

/* "... element [1, 2] of ...": its cell; false where the text names none. */
static bool cell_of_text(const struct random_graph *g, uint32_t root, const char *text, uint32_t *cell) {
  const char *at = strstr(text, "element [");
  if (!at) return false;
  int64_t element[RONDO_MAX_RANK] = {0};
  at += strlen("element [");
  for (uint32_t i = 0; i < g->graph->tensors[root].rank; i++) {
    char *end;
    element[i] = strtol(at, &end, 10);
    cr_assert(element[i] >= 0 && element[i] < g->areas[root].shape[i], "%s", text);
    at = end + strlen(", ");
  }
  *cell = random_graph_cell(g, root, element);
  return true;
}

static uint32_t root_of_text(const struct random_graph *g, const char *text) {
  for (uint32_t i = 0; i < g->tensor_count; i++) {
    char name[NAME_BYTES + 2];
    snprintf(name, sizeof name, "'%s'", g->graph->tensors[i].name);
    if (g->areas[i].root == i && strstr(text, name)) return i;
  }
  cr_assert_fail("no tensor is named in: %s", text);
  return 0;
}

/* The text names an element that is not written, or a tensor of which nothing is. */
static void check_text_of_fault(const struct random_graph *g) {
  const char *text = rondo_error_text();
  uint32_t root = root_of_text(g, text), cell;
  if (g->fault_task != NO_TASK) {
    char task[32];
    snprintf(task, sizeof task, "plan: task %u ", g->fault_task);
    cr_assert_eq(strncmp(text, task, strlen(task)), 0, "%s: expected task %u", text, g->fault_task);
    cr_assert(random_graph_touches(g, g->fault_task, root), "%s", text);
  } else {
    cr_assert_eq(g->graph->tensors[root].kind, TENSOR_OUTPUT, "%s", text);
  }
  uint32_t begin = g->cell_begin[root], end = begin + random_graph_cells(g, root);
  if (cell_of_text(g, root, text, &cell)) {
    begin = cell;
    end = cell + 1;
  }
  for (uint32_t c = begin; c < end; c++)
    if (g->written_at_fault ? g->written_at_fault[c] : g->cells[c].is_written) cr_assert_fail("%s: it is", text);
}

Test(plan, exactly_the_graphs_that_read_what_nothing_wrote_are_refused) {
  struct random random = {37};
  uint32_t planned = 0, read = 0, unfinished = 0, elements = 0;
  const uint32_t rounds = rounds_here(1500);
  for (uint32_t round = 0; round < rounds; round++) {
    struct random_graph g;
    random_graph_begin(&g, &random, 300, 60);
    const uint32_t roots = (uint32_t)random_between(&random, 1, 12);
    random_graph_fill(&g, roots, (uint32_t)random_between(&random, 0, 25), true);
    bool is_unfinished = false;
    for (uint32_t i = 0; i < g.tensor_count; i++)
      is_unfinished = is_unfinished || (g.areas[i].root == i && g.graph->tensors[i].kind == TENSOR_OUTPUT &&
                                        !random_graph_is_written(&g, i));
    const struct plan *plan;
    if (g.fault_task == NO_TASK && !is_unfinished) {
      REQUIRE_OK(plan_of(g.graph, &plan));
      planned++;
    } else {
      REQUIRE_ERROR(plan_of(g.graph, &plan), RONDO_INVALID_ARGUMENT,
                    g.fault_task != NO_TASK ? "which no earlier task writes" : "is written by no task");
      check_text_of_fault(&g);
      read += g.fault_task != NO_TASK;
      unfinished += g.fault_task == NO_TASK;
      elements += strstr(rondo_error_text(), "element [") != NULL;
    }
    random_graph_end(&g);
  }
  cr_assert(planned > rounds / 5 && read > rounds / 10 && unfinished > rounds / 30 && elements > rounds / 30,
            "%u planned, %u read, %u unfinished, %u named", planned, read, unfinished, elements);
}

/* Elements 3 to 14 of four lines of six: all of one line, and halves of its neighbours. */
Test(plan, what_lies_around_a_written_run_of_memory_is_not_written) {
  static const int64_t shape[] = {4, 6}, line[] = {24}, run[] = {12};
  for (int64_t row = 0; row < 3; row++) {
    rondo_graph *graph = NULL;
    rondo_tensor board, flat, middle, source, read, out;
    rondo_plan plan;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    REQUIRE_OK(rondo_temporary(graph, "board", RONDO_U8, 2, shape, &board));
    REQUIRE_OK(rondo_reshape(graph, board, 1, line, &flat));
    REQUIRE_OK(rondo_view(graph, flat, (int64_t[]){3}, run, &middle));
    REQUIRE_OK(rondo_input(graph, "source", RONDO_U8, 1, run, &source));
    REQUIRE_OK(rondo_view(graph, board, (int64_t[]){row, 0}, (int64_t[]){1, 6}, &read));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_U8, 2, (int64_t[]){1, 6}, &out));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = source, .dst = middle}));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = read, .dst = out}));
    if (row == 1)
      REQUIRE_OK(rondo_plan_graph(graph, &plan));
    else
      REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT, "'board'");
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}
