/* test_graph.c - the builder: what it accepts and refuses, and the dependencies that it infers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/dependencies.h"
#include "../support.h"

static const int64_t shape_2d[] = {8, 16};

static rondo_graph *new_graph(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  return graph;
}

static rondo_tensor new_tensor(rondo_graph *graph,
                               rondo_status (*kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                                    rondo_tensor *),
                               const char *name) {
  rondo_tensor tensor;
  REQUIRE_OK(kind(graph, name, RONDO_F32, 2, shape_2d, &tensor));
  return tensor;
}

static rondo_tensor part(rondo_graph *graph, rondo_tensor tensor, int64_t row, int64_t column, int64_t rows,
                         int64_t columns) {
  rondo_tensor view;
  REQUIRE_OK(rondo_view(graph, tensor, (int64_t[]){row, column}, (int64_t[]){rows, columns}, &view));
  return view;
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

/* A task with up to three operands. */
static rondo_task touch(rondo_graph *graph, const char *name, const rondo_argument *arguments, uint32_t count) {
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = name, .host = no_work, .arguments = arguments, .argument_count = count}));
  rondo_task task;
  REQUIRE_OK(rondo_last_task(graph, &task));
  return task;
}

static bool must_follow(rondo_graph *graph, rondo_task task, rondo_task earlier) {
  bool reached = false;
  REQUIRE_OK(dependencies_reach(graph, earlier, task, &reached));
  return reached;
}

Test(graph, null_handles_are_refused) {
  rondo_graph *graph = new_graph();
  rondo_tensor tensor;
  REQUIRE_ERROR(rondo_graph_create(NULL, NULL, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_ERROR(rondo_input(NULL, "x", RONDO_F32, 2, shape_2d, &tensor), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 2, NULL, &tensor), RONDO_INVALID_ARGUMENT, "shape is NULL");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 2, shape_2d, NULL), RONDO_INVALID_ARGUMENT, "NULL");
  REQUIRE_ERROR(rondo_add_kernel(graph, NULL), RONDO_INVALID_ARGUMENT, "description is NULL");
  REQUIRE_ERROR(rondo_add_capture(graph, NULL, NULL), RONDO_INVALID_ARGUMENT, "description is NULL");
  REQUIRE_ERROR(rondo_add_copy(graph, NULL), RONDO_INVALID_ARGUMENT, "NULL");
  REQUIRE_ERROR(rondo_tensor_bytes((rondo_tensor){0}, &(uint64_t){0}), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_plan_graph(graph, NULL), RONDO_INVALID_ARGUMENT, "plan is NULL");
  rondo_graph *alias = graph;
  REQUIRE_OK(rondo_graph_destroy(&graph));
  cr_assert_null(graph);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  (void)alias;
}

Test(graph, wrong_shapes_and_dtypes_are_refused) {
  rondo_graph *graph = new_graph();
  rondo_tensor t;
  REQUIRE_ERROR(rondo_input(graph, "x", (rondo_dtype)0, 1, shape_2d, &t), RONDO_INVALID_ARGUMENT, "dtype is 0");
  REQUIRE_ERROR(rondo_input(graph, "x", (rondo_dtype)99, 1, shape_2d, &t), RONDO_INVALID_ARGUMENT, "dtype is 99");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 0, shape_2d, &t), RONDO_INVALID_ARGUMENT, "rank 0");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 5, shape_2d, &t), RONDO_INVALID_ARGUMENT, "rank 5");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 1, (int64_t[]){-1}, &t), RONDO_INVALID_ARGUMENT,
                "dimension 0 is -1");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_NVFP4, 1, (int64_t[]){15}, &t), RONDO_INVALID_ARGUMENT, "expected even");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 2, (int64_t[]){65536, 32769}, &t), RONDO_INVALID_ARGUMENT, "2^31");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_U8, 1, (int64_t[]){(INT64_C(1) << 31) + 1}, &t), RONDO_INVALID_ARGUMENT,
                "2^31");
  REQUIRE_ERROR(rondo_input(graph, "x", RONDO_F32, 3, (int64_t[]){INT64_MAX, INT64_MAX, 0}, &t), RONDO_INVALID_ARGUMENT,
                "2^31");
  REQUIRE_OK(rondo_input(graph, "x", RONDO_U8, 2, (int64_t[]){65536, 32768}, &t));
  REQUIRE_OK(rondo_input(graph, "empty", RONDO_F32, 2, (int64_t[]){0, 5}, &t));
  uint64_t bytes = 1;
  REQUIRE_OK(rondo_tensor_bytes(t, &bytes));
  cr_assert_eq(bytes, 0);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, views_stay_inside_their_tensor) {
  rondo_graph *graph = new_graph(), *other = new_graph();
  rondo_tensor t = new_tensor(graph, rondo_temporary, "t"), v;
  REQUIRE_ERROR(rondo_view(graph, t, (int64_t[]){0, 1}, (int64_t[]){8, 16}, &v), RONDO_INVALID_ARGUMENT,
                "do not fit in 16");
  REQUIRE_ERROR(rondo_view(graph, t, (int64_t[]){-1, 0}, (int64_t[]){1, 1}, &v), RONDO_INVALID_ARGUMENT, "dimension 0");
  REQUIRE_ERROR(rondo_view(graph, t, (int64_t[]){0, INT64_MAX}, (int64_t[]){1, INT64_MAX}, &v), RONDO_INVALID_ARGUMENT,
                "fit");
  REQUIRE_ERROR(rondo_view(other, t, (int64_t[]){0, 0}, (int64_t[]){1, 1}, &v), RONDO_INVALID_ARGUMENT,
                "another graph");
  REQUIRE_ERROR(rondo_view(graph, t, NULL, (int64_t[]){1, 1}, &v), RONDO_INVALID_ARGUMENT, "offset is NULL");
  rondo_tensor outer = part(graph, t, 2, 4, 4, 8), inner = part(graph, outer, 1, 1, 2, 2);
  const struct tensor *tensor = &graph->tensors[inner.index];
  cr_assert_eq(tensor->root, t.index);
  cr_assert_eq(tensor->box.low[0], 3);
  cr_assert_eq(tensor->box.low[1], 5);
  cr_assert_eq(tensor->stride[0], 16);
  rondo_tensor codes;
  REQUIRE_OK(rondo_constant(graph, "w", RONDO_NVFP4, 2, (int64_t[]){4, 32}, &codes));
  REQUIRE_ERROR(rondo_view(graph, codes, (int64_t[]){0, 1}, (int64_t[]){4, 2}, &v), RONDO_INVALID_ARGUMENT, "even");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&other));
}

Test(graph, only_overlapping_rectangles_with_a_writer_make_edges) {
  rondo_graph *graph = new_graph();
  rondo_tensor t = new_tensor(graph, rondo_temporary, "t"), u = new_tensor(graph, rondo_temporary, "u");
  rondo_tensor left = part(graph, t, 0, 0, 8, 8), right = part(graph, t, 0, 8, 8, 8),
               middle = part(graph, t, 3, 7, 2, 2);
  rondo_task write_left = touch(graph, "left", (rondo_argument[]){{.tensor = left, .access = RONDO_WRITE}}, 1);
  rondo_task write_right = touch(graph, "right", (rondo_argument[]){{.tensor = right, .access = RONDO_WRITE}}, 1);
  rondo_task read_middle = touch(graph, "middle", (rondo_argument[]){{.tensor = middle, .access = RONDO_READ}}, 1);
  rondo_task read_left = touch(graph, "again", (rondo_argument[]){{.tensor = left, .access = RONDO_READ}}, 1);
  rondo_task write_u = touch(graph, "u", (rondo_argument[]){{.tensor = u, .access = RONDO_WRITE}}, 1);
  rondo_task rewrite = touch(graph, "rewrite", (rondo_argument[]){{.tensor = left, .access = RONDO_READ_WRITE}}, 1);
  cr_assert(!must_follow(graph, write_right, write_left));
  cr_assert(must_follow(graph, read_middle, write_left));
  cr_assert(must_follow(graph, read_middle, write_right));
  cr_assert(must_follow(graph, read_left, write_left));
  cr_assert(!must_follow(graph, read_left, write_right));
  cr_assert(!must_follow(graph, read_left, read_middle));
  for (rondo_task t2 = 0; t2 < write_u; t2++) cr_assert(!must_follow(graph, write_u, t2));
  cr_assert(must_follow(graph, rewrite, read_middle), "a write waits for earlier readers");
  cr_assert(must_follow(graph, rewrite, write_right), "through the reader of both");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, after_adds_an_edge_and_refuses_a_cycle) {
  rondo_graph *graph = new_graph();
  rondo_tensor a = new_tensor(graph, rondo_temporary, "a"), b = new_tensor(graph, rondo_temporary, "b"),
               c = new_tensor(graph, rondo_temporary, "c");
  rondo_task first = touch(graph, "first", (rondo_argument[]){{.tensor = a, .access = RONDO_WRITE}}, 1);
  rondo_task second = touch(graph, "second", (rondo_argument[]){{.tensor = b, .access = RONDO_WRITE}}, 1);
  rondo_task third = touch(graph, "third", (rondo_argument[]){{.tensor = c, .access = RONDO_WRITE}}, 1);
  REQUIRE_OK(rondo_after(graph, first, third)); /* against program order */
  REQUIRE_OK(rondo_after(graph, third, second));
  cr_assert(must_follow(graph, first, second));
  REQUIRE_ERROR(rondo_after(graph, second, first), RONDO_INVALID_ARGUMENT, "close a cycle");
  REQUIRE_ERROR(rondo_after(graph, first, first), RONDO_INVALID_ARGUMENT, "close a cycle");
  REQUIRE_ERROR(rondo_after(graph, 3, first), RONDO_INVALID_ARGUMENT, "task 3 does not exist");
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.edge_count, 2);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, overlapping_operands_of_one_task_are_refused) {
  rondo_graph *graph = new_graph();
  rondo_tensor t = new_tensor(graph, rondo_temporary, "t");
  rondo_tensor left = part(graph, t, 0, 0, 8, 9), right = part(graph, t, 0, 8, 8, 8);
  rondo_argument both[] = {{.tensor = left, .access = RONDO_READ}, {.tensor = right, .access = RONDO_WRITE}};
  REQUIRE_ERROR(rondo_add_kernel(
                    graph, &(rondo_kernel_desc){.name = "k", .host = no_work, .arguments = both, .argument_count = 2}),
                RONDO_INVALID_ARGUMENT, "describe: task 0 'k': argument 0 and argument 1 overlap");
  both[1].access = RONDO_READ;
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "k", .host = no_work, .arguments = both, .argument_count = 2}));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, foreign_tensors_constants_and_bad_arguments_are_refused) {
  rondo_graph *graph = new_graph(), *other = new_graph();
  rondo_tensor foreign = new_tensor(other, rondo_temporary, "f"), constant = new_tensor(graph, rondo_constant, "w");
  rondo_kernel_desc desc = {.name = "k", .host = no_work, .argument_count = 1};
  desc.arguments = (rondo_argument[]){{.tensor = foreign, .access = RONDO_READ}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT,
                "task 0 'k': argument 0 belongs to another graph");
  desc.arguments = (rondo_argument[]){{.tensor = constant, .access = RONDO_WRITE}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "would write the constant 'w'");
  desc.arguments = (rondo_argument[]){{.tensor = constant}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT,
                "argument 0, tensor 'w': access is not set: RONDO_READ, RONDO_WRITE or RONDO_READ_WRITE");
  desc.arguments = (rondo_argument[]){{.tensor = constant, .access = (rondo_access)4}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "access 4 does not exist");
  desc.arguments = (rondo_argument[]){{.tensor = {graph, 77, constant.serial}, .access = RONDO_READ}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "not a tensor of this graph");
  desc.arguments = (rondo_argument[]){{.value = NULL, .bytes = 4}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "neither a tensor nor a value");
  desc.arguments = NULL;
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "arguments are NULL");
  desc.argument_count = 17;
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "more than 16");
  desc = (rondo_kernel_desc){.name = "k"};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "neither an image nor a host function");
  desc = (rondo_kernel_desc){.name = "k", .image = "x"};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "no function name");
  desc = (rondo_kernel_desc){.name = "k", .host = no_work, .block = {1024, 2, 1}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "block of 2048 threads");
  desc = (rondo_kernel_desc){.name = "k", .host = no_work, .grid = {1, 70000, 1}};
  REQUIRE_ERROR(rondo_add_kernel(graph, &desc), RONDO_INVALID_ARGUMENT, "grid[1]");
  cr_assert_eq(graph->task_count, 0, "a refused task leaves nothing behind");
  rondo_task task;
  REQUIRE_ERROR(rondo_last_task(graph, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&other));
}

Test(graph, limits_are_kept_and_say_what_to_raise) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 2, .tasks = 1}, &graph));
  rondo_tensor a = new_tensor(graph, rondo_temporary, "a"), b = new_tensor(graph, rondo_temporary, "b"), c;
  (void)b;
  REQUIRE_ERROR(rondo_input(graph, "c", RONDO_F32, 2, shape_2d, &c), RONDO_OUT_OF_MEMORY, "limits.tensors");
  REQUIRE_ERROR(rondo_view(graph, a, (int64_t[]){0, 0}, shape_2d, &c), RONDO_OUT_OF_MEMORY, "limits.tensors");
  touch(graph, "one", (rondo_argument[]){{.tensor = a, .access = RONDO_WRITE}}, 1);
  REQUIRE_ERROR(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "two", .host = no_work}), RONDO_OUT_OF_MEMORY,
                "limits.tasks");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_ERROR(rondo_graph_create(NULL, &(rondo_graph_limits){.tasks = 300000}, &graph), RONDO_INVALID_ARGUMENT,
                "262144");
}

Test(graph, values_are_written_before_they_are_read) {
  rondo_graph *graph = new_graph();
  rondo_tensor t = new_tensor(graph, rondo_temporary, "scores"), o = new_tensor(graph, rondo_output, "o");
  rondo_plan plan;
  REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT, "output 'o' is written by no task");
  rondo_argument arguments[] = {{.tensor = t, .access = RONDO_READ}, {.tensor = o, .access = RONDO_WRITE}};
  touch(graph, "use", arguments, 2);
  REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT,
                "plan: task 0 'use' reads temporary 'scores', which no earlier task writes");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* Rows of a temporary written one by one, in some order, then read whole. */
Test(graph, every_element_is_written_before_it_is_read) {
  for (int missing = -1; missing < 4; missing++) {
    rondo_graph *graph = new_graph();
    rondo_tensor t, out;
    rondo_plan plan;
    REQUIRE_OK(rondo_temporary(graph, "t", RONDO_F32, 2, (int64_t[]){4, 6}, &t));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){4, 6}, &out));
    for (int i = 0; i < 4; i++) {
      rondo_tensor left, right;
      int64_t row = (i * 3 + 1) % 4;
      REQUIRE_OK(rondo_view(graph, t, (int64_t[]){row, 0}, (int64_t[]){1, 2}, &left));
      REQUIRE_OK(rondo_view(graph, t, (int64_t[]){row, 2}, (int64_t[]){1, row == missing ? 3 : 4}, &right));
      touch(graph, "left", (rondo_argument[]){{.tensor = left, .access = RONDO_WRITE}}, 1);
      touch(graph, "right", (rondo_argument[]){{.tensor = right, .access = RONDO_WRITE}}, 1);
    }
    rondo_argument arguments[] = {{.tensor = t, .access = RONDO_READ}, {.tensor = out, .access = RONDO_WRITE}};
    touch(graph, "use", arguments, 2);
    if (missing < 0) {
      REQUIRE_OK(rondo_plan_graph(graph, &plan));
    } else {
      char text[128];
      snprintf(text, sizeof text, "task 8 'use' reads element [%d, 5] of temporary 't', which no earlier task writes",
               missing);
      REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT, text);
    }
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(graph, what_is_written_later_does_not_count) {
  rondo_graph *graph = new_graph();
  rondo_tensor t, top, bottom, out;
  rondo_plan plan;
  REQUIRE_OK(rondo_temporary(graph, "t", RONDO_F32, 2, (int64_t[]){2, 8}, &t));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){2, 8}, &out));
  REQUIRE_OK(rondo_view(graph, t, (int64_t[]){0, 0}, (int64_t[]){1, 8}, &top));
  REQUIRE_OK(rondo_view(graph, t, (int64_t[]){1, 0}, (int64_t[]){1, 8}, &bottom));
  touch(graph, "top", (rondo_argument[]){{.tensor = top, .access = RONDO_WRITE}}, 1);
  rondo_argument arguments[] = {{.tensor = t, .access = RONDO_READ}, {.tensor = out, .access = RONDO_WRITE}};
  touch(graph, "use", arguments, 2);
  touch(graph, "bottom", (rondo_argument[]){{.tensor = bottom, .access = RONDO_WRITE}}, 1);
  REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT, "reads element [1, 0] of temporary 't'");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, every_element_of_an_output_is_written) {
  rondo_graph *graph = new_graph();
  rondo_tensor out, part;
  rondo_plan plan;
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 3, (int64_t[]){2, 3, 4}, &out));
  REQUIRE_OK(rondo_view(graph, out, (int64_t[]){0, 0, 0}, (int64_t[]){2, 2, 4}, &part));
  touch(graph, "part", (rondo_argument[]){{.tensor = part, .access = RONDO_WRITE}}, 1);
  REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT,
                "element [0, 2, 0] of output 'out' is written by no task");
  REQUIRE_OK(rondo_view(graph, out, (int64_t[]){0, 2, 0}, (int64_t[]){2, 1, 4}, &part));
  touch(graph, "rest", (rondo_argument[]){{.tensor = part, .access = RONDO_WRITE}}, 1);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, shapes_whose_strides_would_overflow_are_refused) {
  rondo_graph *graph = new_graph();
  rondo_tensor t;
  const int64_t huge = INT64_C(1) << 31;
  REQUIRE_ERROR(rondo_state(graph, "t", RONDO_F32, 4, (int64_t[]){0, huge, huge, huge}, &t), RONDO_INVALID_ARGUMENT,
                "2^31");
  REQUIRE_OK(rondo_state(graph, "t", RONDO_F32, 4, (int64_t[]){0, 1, huge, 1}, &t));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
