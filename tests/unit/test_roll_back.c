/* test_roll_back.c - the calls that add several things add all of them or none, in everything that a graph keeps. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../support.h"
#include "ledger.h"

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

/* A user's task over a tensor, with values that take room in the graph's chunks. */
static void touch(rondo_graph *graph, rondo_tensor tensor, rondo_access access, int values) {
  static const unsigned char value[64];
  rondo_argument arguments[RONDO_MAX_ARGUMENTS] = {{.tensor = tensor, .access = access}};
  for (int i = 0; i < values; i++) arguments[1 + i] = (rondo_argument){.value = value, .bytes = 64};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = 1 + (uint32_t)values}));
}

Test(roll_back, leaves_the_graph_and_its_memory_as_they_were) {
  for (int planned = 0; planned < 2; planned++)
    for (int tasks = 0; tasks < 200; tasks += 40) { /* up to several chunks */
      rondo_graph *graph = NULL;
      rondo_tensor in, out, some, other;
      struct graph_mark mark;
      rondo_plan before, after;
      rondo_task first, last;
      REQUIRE_OK(rondo_graph_create(
          NULL, &(rondo_graph_limits){.tensors = 64, .tasks = 400, .allocator = &ledger_allocator}, &graph));
      REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
      REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){1000}, &out));
      REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
      if (tasks > 40) touch(graph, in, RONDO_READ, 15);
      REQUIRE_OK(rondo_last_task(graph, &first));
      if (planned) REQUIRE_OK(rondo_plan_graph(graph, &before));
      const struct plan *kept = graph->made.plan;
      struct tensor tensors[2];
      memcpy(tensors, graph->tensors, sizeof tensors);
      int live_count = ledger.live_count;

      REQUIRE_OK(graph_begin(graph, "some_function", &mark));
      REQUIRE_OK(rondo_temporary(graph, "some", RONDO_F32, 1, (int64_t[]){500}, &some));
      REQUIRE_OK(rondo_temporary(graph, "other", RONDO_F32, 1, (int64_t[]){500}, &other));
      for (int t = 0; t < tasks; t++) touch(graph, t % 2 ? in : out, RONDO_READ_WRITE, 15);
      touch(graph, some, RONDO_WRITE, 3);
      touch(graph, other, RONDO_WRITE, 3);
      REQUIRE_OK(rondo_last_task(graph, &last));
      REQUIRE_OK(rondo_after(graph, last - 1, last)); /* backwards */
      REQUIRE_OK(rondo_plan_graph(graph, &after));
      cr_assert_eq(graph_end(graph, &mark, status_set(RONDO_UNSUPPORTED, "describe: tensor 'x': a reason")),
                   RONDO_UNSUPPORTED);
      cr_assert_str_eq(rondo_error_text(), "describe: some_function: tensor 'x': a reason");

      cr_assert_eq(graph->made.plan, kept);
      cr_assert_eq(ledger.live_count, live_count, "%d tasks", tasks);
      cr_assert(!graph->has_backward_edges);
      for (int i = 0; i < 2; i++) {
        cr_assert_eq(graph->tensors[i].reader_count, tensors[i].reader_count);
        cr_assert_eq(graph->tensors[i].is_touched_often, tensors[i].is_touched_often);
      }
      REQUIRE_OK(rondo_last_task(graph, &last));
      cr_assert_eq(last, first);
      rondo_graph *again = NULL; /* the same plan as a graph that never had more */
      REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 64, .tasks = 400}, &again));
      REQUIRE_OK(rondo_input(again, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
      REQUIRE_OK(rondo_output(again, "out", RONDO_F32, 1, (int64_t[]){1000}, &out));
      REQUIRE_OK(rondo_add_copy(again, &(rondo_copy_desc){.src = in, .dst = out}));
      if (tasks > 40) touch(again, in, RONDO_READ, 15);
      REQUIRE_OK(rondo_plan_graph(again, &before));
      REQUIRE_OK(rondo_plan_graph(graph, &after));
      cr_assert(!memcmp(&before, &after, sizeof before));
      REQUIRE_OK(rondo_graph_destroy(&again));
      REQUIRE_OK(rondo_graph_destroy(&graph));
      cr_assert_eq(ledger.live_count, 0);
    }
}

Test(roll_back, gives_back_the_room_that_was_used_of_a_chunk) {
  rondo_graph *graph = NULL;
  rondo_tensor in;
  struct graph_mark mark;
  REQUIRE_OK(rondo_graph_create(
      NULL, &(rondo_graph_limits){.tensors = 64, .tasks = 400, .allocator = &ledger_allocator}, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
  touch(graph, in, RONDO_READ, 1);
  int live_count = ledger.live_count;
  for (int round = 0; round < 100; round++) {
    REQUIRE_OK(graph_begin(graph, "some_function", &mark));
    touch(graph, in, RONDO_READ, 15);
    cr_assert_neq(graph_end(graph, &mark, status_set(RONDO_OUT_OF_MEMORY, "a reason")), RONDO_OK);
  }
  touch(graph, in, RONDO_READ, 15);
  cr_assert_eq(ledger.live_count, live_count, "the chunk has room for it");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  cr_assert_eq(ledger.live_count, 0);
}

Test(roll_back, keeps_what_succeeded_and_drops_the_plan_of_before) {
  rondo_graph *graph = NULL;
  rondo_tensor in, out, other;
  struct graph_mark mark, inner;
  rondo_plan plan;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){1000}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.task_count, 1);
  REQUIRE_OK(graph_begin(graph, "outer", &mark));
  touch(graph, in, RONDO_READ, 0);
  REQUIRE_OK(graph_begin(graph, "inner", &inner));
  REQUIRE_OK(rondo_state(graph, "other", RONDO_F32, 1, (int64_t[]){4}, &other));
  touch(graph, other, RONDO_WRITE, 0);
  cr_assert_neq(graph_end(graph, &inner, status_set(RONDO_OUT_OF_MEMORY, "a reason")), RONDO_OK);
  cr_assert_str_eq(rondo_error_text(), "describe: inner: a reason");
  touch(graph, in, RONDO_READ, 0);
  REQUIRE_OK(graph_end(graph, &mark, RONDO_OK));
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.task_count, 3);
  cr_assert_eq(graph->tensor_count, 2);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_ERROR(graph_begin(NULL, "outer", &mark), RONDO_INVALID_ARGUMENT, "describe: outer: the graph is NULL");
}
