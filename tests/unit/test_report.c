/* test_report.c - the reports name every task and tensor, stay well-formed whatever the names are, and say why they
 * cannot be written. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support.h"

static rondo_graph *two_copies(void) {
  rondo_graph *graph = NULL;
  rondo_tensor in, middle, out;
  int64_t shape[] = {128, 256}; /* too large to stay in pinned memory */
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "an \"input\" <&>", RONDO_F32, 2, shape, &in));
  REQUIRE_OK(rondo_temporary(graph, "middle", RONDO_F32, 2, shape, &middle));
  REQUIRE_OK(rondo_output(graph, "result", RONDO_F32, 2, shape, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "first", .src = in, .dst = middle}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "second", .src = middle, .dst = out}));
  return graph;
}

static char *written(rondo_status (*report)(rondo_graph *, const char *), rondo_graph *graph) {
  char path[] = "/tmp/rondo-report-XXXXXX";
  int descriptor = mkstemp(path);
  cr_assert_geq(descriptor, 0);
  REQUIRE_OK(report(graph, path));
  char *text = calloc(1, 1 << 16);
  FILE *file = fdopen(descriptor, "r");
  fread(text, 1, (1 << 16) - 1, file);
  fclose(file);
  unlink(path);
  return text;
}

static int occurrences(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) count++;
  return count;
}

Test(report, dot_names_every_task_and_draws_every_edge) {
  rondo_graph *graph = two_copies();
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "[label="), 4, "%s", text);
  cr_assert_eq(occurrences(text, " -> "), 3, "%s", text);
  cr_assert_not_null(strstr(text, "first\\ncopy"));
  cr_assert_null(strstr(text, "\"input\""), "a quote in a name must not end the label: %s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* Three inputs that move together, each read by two tasks. */
static rondo_graph *three_inputs(void) {
  static const char *const names[] = {"a", "b", "c"};
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 3; i++) {
    rondo_tensor in, state;
    REQUIRE_OK(rondo_input(graph, names[i], RONDO_F32, 1, (int64_t[]){4 + i}, &in));
    for (int reader = 0; reader < 2; reader++) {
      REQUIRE_OK(rondo_state(graph, "kept", RONDO_F32, 1, (int64_t[]){4 + i}, &state));
      REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "reader", .src = in, .dst = state}));
    }
  }
  return graph;
}

Test(report, dot_draws_what_moves_together_as_one) {
  rondo_graph *graph = three_inputs();
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "[label="), 1 + 6, "%s", text);
  cr_assert_eq(occurrences(text, "n0 -> "), 6, "%s", text);
  cr_assert_eq(occurrences(text, " -> "), 6, "%s", text);
  cr_assert_not_null(strstr(text, "\"a\\nin [4] f32\\nb\\nin [5] f32\\nc\\nin [6] f32\""), "%s", text);
  free(text);
  text = written(rondo_write_plan_svg, graph);
  cr_assert_eq(occurrences(text, "<title>"), 3, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, plan_svg_draws_one_box_a_tensor) {
  rondo_graph *graph = two_copies();
  char *text = written(rondo_write_plan_svg, graph);
  cr_assert_eq(occurrences(text, "<title>"), 3, "%s", text);
  cr_assert_eq(occurrences(text, "<g>"), occurrences(text, "</g>"));
  cr_assert_null(strstr(text, "<&>"));
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

static rondo_status explain_host(rondo_graph *graph, const char *path) { return rondo_explain(graph, 0, path); }
static rondo_status explain_hopper(rondo_graph *graph, const char *path) { return rondo_explain(graph, 90, path); }

Test(report, explain_says_what_runs_each_task) {
  rondo_graph *graph = two_copies();
  char *text = written(explain_host, graph);
  cr_assert_eq(occurrences(text, "host, "), 4, "%s", text);
  cr_assert_eq(occurrences(text, "completion"), 0, "%s", text);
  free(text);
  text = written(explain_hopper, graph);
  cr_assert_eq(occurrences(text, "rondo_copy"), 4, "%s", text);
  cr_assert_eq(occurrences(text, "completion: rondo_done"), 1, "%s", text);
  free(text);
  REQUIRE_ERROR(rondo_explain(graph, 75, "/tmp/x"), RONDO_INVALID_ARGUMENT, "chip 75");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, explain_shows_what_moves_and_what_publishes_completion) {
  rondo_graph *graph = three_inputs();
  char *text = written(explain_hopper, graph);
  cr_assert_eq(occurrences(text, ": transfer: rondo_transfer grid 3x1x1"), 1, "%s", text);
  cr_assert_eq(occurrences(text, "completion: 6 blocks"), 1, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, an_unwritable_path_is_a_clear_error) {
  rondo_graph *graph = two_copies();
  REQUIRE_ERROR(rondo_write_dot(graph, "/nonexistent/x.dot"), RONDO_IO_ERROR, "'/nonexistent/x.dot' cannot be written");
  REQUIRE_ERROR(rondo_write_dot(graph, NULL), RONDO_INVALID_ARGUMENT, "path is NULL");
  REQUIRE_ERROR(rondo_write_dot(NULL, "/tmp/x"), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_write_plan_svg(graph, "/dev/full"), RONDO_IO_ERROR, "not written whole");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
