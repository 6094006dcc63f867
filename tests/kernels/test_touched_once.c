/* test_touched_once.c - the inputs and outputs that a plan may leave in pinned memory: those of tasks that touch them
 * once. */
#include <criterion/criterion.h>

#include "../../runtime/graph.h"
#include "../support.h"

/* How many inputs and outputs of a graph its tasks touch once. */
static int touched_once(const rondo_graph *graph) {
  int count = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++)
    count += !graph->tensors[i].is_touched_often && graph->tensors[i].reader_count <= 1;
  return count;
}

/* One task of QR, or of least squares where `sides` is not 0. */
static int of_task(int64_t batch, int64_t m, int64_t n, bool with_h, int64_t sides) {
  rondo_graph *graph;
  rondo_tensor a, b, one, other;
  const int64_t k = m < n ? m : n;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "a", RONDO_F32, 3, (int64_t[]){batch, n, m}, &a));
  if (sides) {
    REQUIRE_OK(rondo_input(graph, "b", RONDO_F32, 3, (int64_t[]){batch, sides, m}, &b));
    REQUIRE_OK(rondo_output(graph, "x", RONDO_F32, 3, (int64_t[]){batch, sides, n}, &one));
    REQUIRE_OK(rondo_add_least_squares(
        graph, &(rondo_least_squares_desc){.layout = RONDO_COLUMN_MAJOR, .a = a, .b = b, .x = one}));
  } else if (with_h) {
    REQUIRE_OK(rondo_output(graph, "h", RONDO_F32, 3, (int64_t[]){batch, n, m}, &one));
    REQUIRE_OK(rondo_output(graph, "tau", RONDO_F32, 2, (int64_t[]){batch, k}, &other));
    REQUIRE_OK(rondo_add_qr(graph, &(rondo_qr_desc){.layout = RONDO_COLUMN_MAJOR, .a = a, .h = one, .tau = other}));
  } else {
    REQUIRE_OK(rondo_output(graph, "q", RONDO_F32, 3, (int64_t[]){batch, k, m}, &one));
    REQUIRE_OK(rondo_output(graph, "r", RONDO_F32, 3, (int64_t[]){batch, n, k}, &other));
    REQUIRE_OK(rondo_add_qr(graph, &(rondo_qr_desc){.layout = RONDO_COLUMN_MAJOR, .a = a, .q = one, .r = other}));
  }
  int count = touched_once(graph);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return count;
}

Test(touched_once, a_tile_of_qr_touches_all_it_is_given_once) {
  cr_expect_eq(of_task(16, 16, 16, true, 0), 3);
  cr_expect_eq(of_task(16, 16, 16, false, 0), 3);
  cr_expect_eq(of_task(1, 500, 30, true, 0), 3);
  cr_expect_eq(of_task(1, 128, 128, false, 0), 3);
}

Test(touched_once, matrices_beyond_the_tiles_are_touched_again) {
  cr_expect_eq(of_task(1, 8, 200, true, 0), 0);
  cr_expect_eq(of_task(1, 8, 200, false, 0), 0);
  cr_expect_eq(of_task(1, 1100, 8, true, 0), 0);
}

Test(touched_once, least_squares_touch_a_once_for_as_many_right_hand_sides_as_ride_at_once) {
  cr_expect_eq(of_task(4, 24, 4, false, 1), 3);
  cr_expect_eq(of_task(4, 24, 4, false, 2), 0);
  cr_expect_eq(of_task(1, 200, 32, false, 2), 3);
  cr_expect_eq(of_task(1, 200, 150, false, 1), 0);
}

Test(touched_once, a_matrix_that_two_tasks_read_is_moved) {
  rondo_graph *graph;
  rondo_tensor a, outs[2];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "a", RONDO_F32, 2, (int64_t[]){32, 32}, &a));
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_output(graph, i ? "one" : "other", RONDO_F32, 2, (int64_t[]){32, 32}, &outs[i]));
    REQUIRE_OK(rondo_add_triangular_inverse(graph, &(rondo_triangular_inverse_desc){.a = a, .out = outs[i]}));
  }
  cr_expect_eq(touched_once(graph), 2, "the outputs, not a");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
