/* test_repeat_body.c - which graphs have several replays in the body of a repeat's loop (runtime/repeat_body.c), and
 * the states that the device keeps there. */
#include <criterion/criterion.h>
#include <rondo_graphs.h>

#include "../../runtime/repeat_body.h"
#include "lone_task.h"

enum { STEPS = 20, BODY = 8, ROWS = 20, WIDTH = 64 };

static rondo_graph *graph;

/* A test that is skipped leaves its graph. */
static void begin(void) {
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
}

TestSuite(repeat_body, .init = begin);

typedef rondo_status (*tensor_kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                    rondo_tensor *);

static rondo_tensor vector(tensor_kind add, const char *name, int64_t count) {
  rondo_tensor made;
  REQUIRE_OK(add(graph, name, RONDO_I32, 1, &count, &made));
  return made;
}

static rondo_tensor matrix(tensor_kind add, const char *name, int64_t rows) {
  rondo_tensor made;
  REQUIRE_OK(add(graph, name, RONDO_F32, 2, (int64_t[]){rows, WIDTH}, &made));
  return made;
}

static void copy(rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = dst}));
}

/* A state of so many numbers that each replay changes. */
static rondo_tensor count(const char *name, int64_t numbers) {
  const rondo_tensor state = vector(rondo_state, name, numbers), by = vector(rondo_input, "by", numbers);
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){.a = state, .b = by, .out = state}));
  return state;
}

/* A new row at a position that moves on. Returns the cache. */
static rondo_tensor append(void) {
  const rondo_tensor cache = matrix(rondo_state, "cache", ROWS), at = vector(rondo_state, "at", 1);
  const rondo_tensor by = vector(rondo_input, "by", 1);
  REQUIRE_OK(rondo_add_append(
      graph, &(rondo_append_desc){.src = matrix(rondo_input, "new", 1), .dst = cache, .position = at}));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){.a = at, .b = by, .out = at}));
  return cache;
}

/* How many replays the body has; *words: of the kept states. The graph is destroyed. */
static uint32_t body_of(uint32_t repeat_steps, uint32_t *words) {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_options options = {
      .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_bytes = 1 << 22};
  struct repeat_kept kept[REPEAT_KEPT] = {0};
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.repeat_steps = repeat_steps}, &exec));
  const uint32_t steps = exec->body_steps;
  repeat_body_keep(exec, kept);
  *words = 0;
  for (int i = 0; i < REPEAT_KEPT; i++) *words += kept[i].count;
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return steps;
}

static void expect(uint32_t steps, uint32_t words) {
  uint32_t found = 0;
  cr_expect_eq(body_of(STEPS, &found), steps);
  cr_expect_eq(found, words, "%u words are kept, expected %u", found, words);
}

Test(repeat_body, no_more_replays_than_a_repeat_may_have) {
  static const uint32_t most[] = {0, 1, 2, 7, 8, 9}, steps[] = {1, 1, 2, 7, BODY, BODY};
  REQUIRE_OK(rondo_graph_destroy(&graph));
  for (int i = 0; i < 6; i++) {
    uint32_t words = 0;
    begin();
    count("counter", 1);
    cr_expect_eq(body_of(most[i], &words), steps[i]);
    cr_expect_eq(words, steps[i] > 1);
  }
}

Test(repeat_body, small_states_are_kept) {
  count("one", 1);
  count("many", REPEAT_KEPT_WORDS - 1);
  expect(BODY, REPEAT_KEPT_WORDS);
}

Test(repeat_body, states_that_change_and_are_too_large_together_prevent_it) {
  count("one", 1);
  count("many", REPEAT_KEPT_WORDS);
  expect(1, 0);
}

Test(repeat_body, more_states_that_change_than_are_kept_prevent_it) {
  for (int i = 0; i <= REPEAT_KEPT; i++) count("counter", 1);
  expect(1, 0);
}

Test(repeat_body, rows_at_a_position_are_the_same_again) {
  append();
  expect(BODY, 1);
}

Test(repeat_body, another_task_on_these_rows_prevents_it) {
  copy(append(), matrix(rondo_output, "seen", ROWS));
  expect(1, 0);
}

Test(repeat_body, states_that_are_only_read_do_not_matter) {
  count("counter", 1);
  copy(matrix(rondo_state, "weights", ROWS), matrix(rondo_output, "seen", ROWS));
  expect(BODY, 1);
}

Test(repeat_body, a_function_of_the_programs_own_prevents_it) {
  rondo_argument argument = {.tensor = vector(rondo_state, "counter", 1), .access = RONDO_READ_WRITE};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "own", .arguments = &argument, .argument_count = 1, .host = nothing}));
  expect(1, 0);
}

Test(repeat_body, tasks_of_more_nodes_than_there_may_be_prevent_it) {
  rondo_tensor last = vector(rondo_input, "x", 1);
  for (int i = 0; i < 130; i++) {
    const rondo_tensor next = vector(rondo_temporary, "next", 1);
    copy(last, next);
    last = next;
  }
  copy(last, vector(rondo_output, "y", 1));
  expect(1, 0);
}

/* Its positions and tokens are kept, and attention alone touches each cache. */
Test(repeat_body, a_llama_that_feeds_back_has_several_replays) {
  rondo_graph_llama_tensors tensors = {0};
  rondo_llama_layer layers[2];
  tensors.layers = layers;
  REQUIRE_OK(rondo_graph_llama(graph,
                               &(rondo_graph_llama_desc){.layers = 2,
                                                         .hidden = 64,
                                                         .query_heads = 2,
                                                         .kv_heads = 1,
                                                         .head_dimension = 32,
                                                         .feed_forward = 64,
                                                         .vocabulary = 96,
                                                         .context = 33,
                                                         .dtype = RONDO_BF16,
                                                         .weights = RONDO_BF16,
                                                         .tied_embedding = 1,
                                                         .feed_back = 1},
                               &tensors));
  expect(BODY, 2);
}

/* ---- A stop ------------------------------------------------------------------------------------------------------ */

struct stopped {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor cache, at, row, by, seen;
};

/* Each replay writes its number in a row of the cache, and counts. */
static struct stopped stopped_open(rondo_backend backend) {
  struct stopped s = {0};
  rondo_plan plan;
  s.cache = matrix(rondo_state, "cache", ROWS), s.at = vector(rondo_state, "at", 1);
  s.by = vector(rondo_input, "by", 1), s.row = matrix(rondo_input, "row", 1), s.seen = vector(rondo_output, "seen", 1);
  REQUIRE_OK(rondo_add_append(graph, &(rondo_append_desc){.src = s.row, .dst = s.cache, .position = s.at}));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){.a = s.at, .b = s.by, .out = s.at}));
  copy(s.at, s.seen);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  rondo_options options = {.backend = backend,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = plan.pinned_bytes_per_slot + STEPS * plan.pinned_bytes_per_step};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, &(rondo_exec_options){.repeat_steps = STEPS}, &s.exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  cr_assert_eq(s.exec->body_steps, BODY);
  *(int32_t *)rondo_data(s.slot, s.by) = 1;
  for (int i = 0; i < WIDTH; i++) ((float *)rondo_data(s.slot, s.row))[i] = 7;
  return s;
}

/* `at` rows are written, and no other. */
static void require_rows(const struct stopped *s, uint32_t at) {
  static float rows[ROWS][WIDTH];
  int32_t found = -1;
  REQUIRE_OK(rondo_download(s->exec, s->at, &found, sizeof found));
  cr_assert_eq(found, (int32_t)at);
  REQUIRE_OK(rondo_download(s->exec, s->cache, rows, sizeof rows));
  for (uint32_t i = 0; i < ROWS; i++)
    for (uint32_t j = 0; j < WIDTH; j++) cr_assert_eq(rows[i][j], i < at ? 7 : 0, "row %u after %u replays", i, at);
}

/* After as many replays as the host happens to see first. */
static void stop(rondo_backend backend) {
  static const float zeros[ROWS * WIDTH];
  struct stopped s = stopped_open(backend);
  for (uint32_t round = 0; round < 400; round++) {
    uint32_t done = 0;
    REQUIRE_OK(rondo_upload(s.exec, s.cache, zeros, sizeof zeros));
    REQUIRE_OK(rondo_upload(s.exec, s.at, &(int32_t){0}, sizeof(int32_t)));
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS}));
    REQUIRE_OK(rondo_repeat_wait(s.slot, round % STEPS, RONDO_FOREVER, &done));
    REQUIRE_OK(rondo_repeat_stop(s.slot));
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
    cr_assert(done >= 1 && done >= round % STEPS);
    for (uint32_t i = 0; i < done; i++)
      cr_assert_eq(*(const int32_t *)rondo_repeat_data(s.slot, s.seen, i), (int32_t)i + 1);
    require_rows(&s, done);
  }
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_close(&s.runtime));
}
BOTH_BACKENDS(repeat_body, a_stop_leaves_what_the_last_replay_left, stop)
