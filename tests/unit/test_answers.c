/* test_answers.c - what rondo.h says about questions of a service's author: inputs that nobody fills, outputs that
 * tasks read, pools for graphs with different numbers of slots, a task that only the host can run. */
#include <criterion/criterion.h>

#include "../support.h"

enum { ROWS = 4, COLUMNS = 16 };
static const int64_t shape[] = {ROWS, COLUMNS};

struct batch {
  rondo_graph *graph;
  rondo_tensor in, out, again;
};

/* again := out := in, so that a task reads an output. */
static struct batch describe(void) {
  struct batch b = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &b.graph));
  REQUIRE_OK(rondo_input(b.graph, "in", RONDO_I32, 2, shape, &b.in));
  REQUIRE_OK(rondo_output(b.graph, "out", RONDO_I32, 2, shape, &b.out));
  REQUIRE_OK(rondo_output(b.graph, "again", RONDO_I32, 2, shape, &b.again));
  REQUIRE_OK(rondo_add_copy(b.graph, &(rondo_copy_desc){.src = b.in, .dst = b.out}));
  REQUIRE_OK(rondo_add_copy(b.graph, &(rondo_copy_desc){.src = b.out, .dst = b.again}));
  return b;
}

/* One row is filled in the first replay, another in the second; in pools of just the bytes for two and for three slots.
 */
static void inputs_stay(rondo_backend backend) {
  struct batch a = describe(), b = describe();
  rondo_graph *graphs[] = {a.graph, b.graph};
  rondo_plan both, one;
  rondo_runtime *runtime = NULL;
  rondo_exec *execs[2] = {NULL};
  rondo_slot slot;
  REQUIRE_OK(rondo_plan_graphs(graphs, 2, &both));
  REQUIRE_OK(rondo_plan_graph(a.graph, &one));
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = backend,
                                         .device_bytes = both.device_bytes,
                                         .pinned_bytes = 2 * one.pinned_bytes_per_slot + 3 * one.pinned_bytes_per_slot,
                                         .host_bytes = both.host_bytes},
                        &runtime));
  for (uint32_t i = 0; i < 2; i++)
    REQUIRE_OK(rondo_instantiate(runtime, graphs[i], &(rondo_exec_options){.slots = 2 + i}, &execs[i]));
  REQUIRE_OK(rondo_acquire(execs[0], &slot));
  for (int32_t replay = 1; replay <= 2; replay++) {
    int32_t *in = rondo_data(slot, a.in);
    for (int i = 0; i < COLUMNS; i++) in[replay * COLUMNS + i] = replay;
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    const int32_t *out = rondo_data(slot, a.out), *again = rondo_data(slot, a.again);
    for (int32_t i = 0; i < ROWS * COLUMNS; i++) {
      int32_t row = i / COLUMNS;
      cr_assert_eq(out[i], row <= replay ? row : 0, "row %d of replay %d is %d", row, replay, out[i]);
      cr_assert_eq(again[i], out[i]);
    }
  }
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_close_exec(&execs[i]));
  REQUIRE_OK(rondo_close(&runtime));
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_graph_destroy(&graphs[i]));
}

BOTH_BACKENDS(answers, rows_that_nobody_fills_stay_and_tasks_read_outputs, inputs_stay)

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

Test(answers, a_task_with_a_host_function_alone_is_refused_on_a_gpu_by_name) {
  require_backend(RONDO_BACKEND_CUDA);
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_argument argument = {.access = RONDO_READ};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_I32, 2, shape, &argument.tensor));
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "only host", .host = no_work, .arguments = &argument, .argument_count = 1}));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20}, &runtime));
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, NULL, &exec), RONDO_UNSUPPORTED, "task 'only host'");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}
