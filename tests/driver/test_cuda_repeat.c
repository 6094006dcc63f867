/* test_cuda_repeat.c - rondo_repeat on the fake driver: one launch of a loop, whose nodes run in any order that their
 * edges allow, and the driver's failures. */
#include <pthread.h>
#include <string.h>

#include "driver_support.h"

TestSuite(repeat, .init = driver_setup, .timeout = 300);

enum { COUNT = 64, STEPS = 12, SLOTS = 2, UNKNOWN_ERROR = 999 };

/* Four kernels side by side, so that a node precedes them, a state that each replay mixes, and two outputs. The first
 * element of a counter counts the replays. */
struct subject {
  rondo_graph *graph;
  rondo_tensor x, state, y, counter, one, counted;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
};

static void describe(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->x = add_vector(rondo_input, s->graph, "x", COUNT);
  s->state = add_vector(rondo_state, s->graph, "state", COUNT);
  s->y = add_vector(rondo_output, s->graph, "y", COUNT);
  s->counter = add_vector(rondo_state, s->graph, "counter", 1);
  s->one = add_vector(rondo_input, s->graph, "one", 1);
  s->counted = add_vector(rondo_output, s->graph, "counted", 1);
  add_mixed_state(s->graph, s->x, s->state, s->y, COUNT);
  rondo_tensor next = add_vector(rondo_temporary, s->graph, "next", 1);
  add_mix(s->graph, "count", s->counter, s->one, next, 1, 0);
  add_copy(s->graph, "advance", next, s->counter);
  add_copy(s->graph, "counted", s->counter, s->counted);
}

static rondo_options repeat_options(rondo_graph *graph, rondo_backend backend) {
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  rondo_options options = options_for(graph, backend, SLOTS);
  options.pinned_bytes += (uint64_t)SLOTS * STEPS * plan.pinned_bytes_per_step;
  return options;
}

static const rondo_exec_options exec_options = {.slots = SLOTS, .repeat_steps = STEPS};

static void fill(const struct subject *s) {
  uint32_t *x = rondo_data(s->slot, s->x), *one = rondo_data(s->slot, s->one);
  for (uint32_t i = 0; i < COUNT; i++) x[i] = i * 77;
  *one = 1;
}

static struct subject subject_open(rondo_backend backend) {
  struct subject s = {0};
  describe(&s);
  rondo_options options = repeat_options(s.graph, backend);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, &exec_options, &s.exec));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  fill(&s);
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  require_clean("after close");
}

/* What replays one by one leave on the host, of y and of `counted`. */
struct expected {
  uint32_t y[STEPS][COUNT], counted[STEPS];
};

static struct expected one_by_one(void) {
  static struct expected expected;
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  for (int i = 0; i < STEPS; i++) {
    REQUIRE_OK(rondo_replay(s.slot));
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    memcpy(expected.y[i], rondo_data(s.slot, s.y), sizeof expected.y[i]);
    expected.counted[i] = *(uint32_t *)rondo_data(s.slot, s.counted);
  }
  subject_close(&s);
  return expected;
}

static void require_step(const struct subject *s, const struct expected *expected, uint32_t i) {
  const uint32_t *y = rondo_repeat_data(s->slot, s->y, i), *counted = rondo_repeat_data(s->slot, s->counted, i);
  cr_assert(!memcmp(y, expected->y[i], sizeof expected->y[i]), "replay %u", i);
  cr_assert_eq(*counted, expected->counted[i]);
}

static void zero_states(const struct subject *s) {
  static const uint32_t zeros[COUNT];
  REQUIRE_OK(rondo_upload(s->exec, s->state, zeros, sizeof zeros));
  REQUIRE_OK(rondo_upload(s->exec, s->counter, zeros, 4));
}

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

Test(repeat, one_launch_gives_the_bits_of_replays_one_by_one_in_every_order) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  const struct expected expected = one_by_one();
  for (uint64_t seed = 0; seed < 60; seed++) {
    driver_setup();
    set_seed(seed);
    struct subject s = subject_open(RONDO_BACKEND_CUDA);
    set_mode(modes[seed % 3]);
    uint32_t count = (uint32_t)seed % STEPS + 1, done = 0;
    uint64_t launches = fake->calls("cuGraphLaunch");
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = count}));
    for (uint32_t i = 0; i < count; i++) {
      REQUIRE_OK(rondo_repeat_wait(s.slot, i + 1, RONDO_FOREVER, &done));
      cr_assert_geq(done, i + 1);
      require_step(&s, &expected, i);
    }
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    cr_assert_eq(fake->calls("cuGraphLaunch") - launches, 1);
    for (uint32_t i = count; i < STEPS; i++) { /* a replay goes on where the repeat ended */
      REQUIRE_OK(rondo_replay(s.slot));
      REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
      cr_assert(!memcmp(rondo_data(s.slot, s.y), expected.y[i], sizeof expected.y[i]));
    }
    subject_close(&s);
  }
}

Test(repeat, ends_at_a_value_of_an_output_or_a_state) {
  const struct expected expected = one_by_one();
  for (uint32_t end = 1; end <= STEPS; end++) {
    driver_setup();
    struct subject s = subject_open(RONDO_BACKEND_CUDA);
    const int32_t values[] = {-7, (int32_t)expected.counted[end - 1]};
    for (int i = 0; i < 2; i++) {
      uint32_t done = 0;
      zero_states(&s);
      rondo_repeat_options options = {
          .count = STEPS, .until = i ? s.counter : s.counted, .values = values, .value_count = 2};
      REQUIRE_OK(rondo_repeat(s.slot, &options));
      REQUIRE_OK(rondo_repeat_wait(s.slot, STEPS, RONDO_FOREVER, &done));
      cr_assert_eq(done, end);
      require_step(&s, &expected, end - 1);
    }
    uint32_t done = 0;
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS, .until = s.counter}));
    REQUIRE_OK(rondo_repeat_wait(s.slot, STEPS, RONDO_FOREVER, &done));
    cr_assert_eq(done, 1, "the counter is not 0 after the first replay");
    subject_close(&s);
  }
}

/* ---- While it runs ----------------------------------------------------------------------------------------------- */

static void *stop(void *slot) {
  uint32_t done;
  REQUIRE_OK(rondo_repeat_wait(*(rondo_slot *)slot, 2, RONDO_FOREVER, &done));
  REQUIRE_OK(rondo_repeat_stop(*(rondo_slot *)slot));
  return NULL;
}

Test(repeat, another_thread_stops_it) {
  struct subject s = subject_open(RONDO_BACKEND_CUDA);
  set_mode(FAKE_THREAD);
  for (int round = 0; round < 50; round++) {
    pthread_t thread;
    uint32_t done = 0;
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS}));
    cr_assert_eq(pthread_create(&thread, NULL, stop, &s.slot), 0);
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    pthread_join(thread, NULL);
    REQUIRE_OK(rondo_repeat_wait(s.slot, STEPS, 0, &done));
    cr_assert(done >= 2 && done <= STEPS);
  }
  subject_close(&s);
}

/* The fake runs a few nodes with each question, so the stop is between two of them. */
Test(repeat, a_stop_takes_effect_within_one_replay) {
  struct subject s = subject_open(RONDO_BACKEND_CUDA);
  set_mode(FAKE_DEFERRED);
  for (uint32_t at = 0; at < STEPS - 1; at++) {
    uint32_t before = 0, done = 0;
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS}));
    while (before < at) {
      REQUIRE_OK(rondo_runtime_health(s.runtime));
      REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &before));
    }
    cr_assert_eq(before, at);
    cr_assert_eq(rondo_poll(s.slot), RONDO_BUSY);
    REQUIRE_ERROR(rondo_release(s.slot), RONDO_BUSY, "in flight");
    REQUIRE_OK(rondo_repeat_stop(s.slot));
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
    cr_assert_eq(done, at + 1);
  }
  subject_close(&s);
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

Test(repeat, a_device_lost_in_the_middle_keeps_the_replays_that_are_done) {
  const struct expected expected = one_by_one();
  driver_setup();
  struct subject s = subject_open(RONDO_BACKEND_CUDA);
  set_mode(FAKE_DEFERRED);
  fake->lose_after_nodes(70, CU_ILLEGAL_ADDRESS);
  uint32_t done = 0;
  REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS}));
  REQUIRE_ERROR(rondo_repeat_wait(s.slot, STEPS, RONDO_FOREVER, &done), RONDO_DEVICE_LOST, "cuStreamQuery");
  REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
  cr_assert(done > 2 && done < STEPS, "%u", done);
  for (uint32_t i = 0; i < done; i++) require_step(&s, &expected, i);
  REQUIRE_ERROR(rondo_release(s.slot), RONDO_DEVICE_LOST, "cuStreamQuery");
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&s.runtime));
  require_no_violation("after close");
}

Test(repeat, a_launch_that_fails_changes_nothing) {
  const struct expected expected = one_by_one();
  driver_setup();
  struct subject s = subject_open(RONDO_BACKEND_CUDA);
  uint32_t done = 0;
  REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = 3}));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  fake->fail_call(2, UNKNOWN_ERROR);
  REQUIRE_ERROR(rondo_repeat(s.slot, &(rondo_repeat_options){.count = 5}), RONDO_DEVICE_ERROR, "cuGraphLaunch");
  REQUIRE_OK(rondo_poll(s.slot));
  REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
  cr_assert_eq(done, 3);
  for (uint32_t i = 0; i < 3; i++) require_step(&s, &expected, i);
  zero_states(&s);
  REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = 5}));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  for (uint32_t i = 0; i < 5; i++) require_step(&s, &expected, i);
  subject_close(&s);
}

/* A call that ends something fails in silence, as does a question, and with it the context in which it is asked. */
static bool may_be_silent(const char *name) {
  return strstr(name, "PushCurrent") || strstr(name, "Destroy") || strstr(name, "Unload") || strstr(name, "Query") ||
         strstr(name, "Pop") || strstr(name, "ExchangeStreamCaptureMode") || strstr(name, "MemGetInfo");
}

/* Instantiates while the n-th call fails, and again after an error that leaves the device usable. Returns the name of
 * the call that failed. */
static const char *instantiate_failing(struct subject *s, uint64_t n) {
  fake->fail_call(n, UNKNOWN_ERROR);
  const rondo_status status = rondo_instantiate(s->runtime, s->graph, &exec_options, &s->exec);
  const char *failed = fake->failed_call();
  fake->fail_call(0, 0);
  if (status == RONDO_OK) {
    cr_assert(!failed || may_be_silent(failed), "call %lu, %s, failed in silence", n, failed);
    return failed;
  }
  cr_assert(failed && strstr(rondo_error_text(), failed), "call %lu, %s: %s", n, failed, rondo_error_text());
  if (status != RONDO_DEVICE_LOST) REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, &exec_options, &s->exec));
  return failed;
}

Test(repeat, each_call_of_its_instantiation_may_fail_once) {
  struct subject s = {0};
  const struct expected expected = one_by_one();
  driver_setup();
  describe(&s);
  rondo_options options = repeat_options(s.graph, RONDO_BACKEND_CUDA);
  uint64_t n = 1;
  for (bool has_failed = true; has_failed; n++) {
    driver_setup();
    REQUIRE_OK(rondo_open(&options, &s.runtime));
    has_failed = instantiate_failing(&s, n) != NULL;
    if (s.exec) {
      REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
      fill(&s);
      REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = 4}));
      REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
      for (uint32_t i = 0; i < 4; i++) require_step(&s, &expected, i);
    }
    REQUIRE_OK(rondo_close_exec(&s.exec));
    REQUIRE_OK(rondo_close(&s.runtime));
    require_no_violation("after close");
  }
  cr_assert_gt(n, 100, "%lu calls", n);
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
}

/* An exec with repeats is refused, and one without them is not. */
static void require_refused(struct subject *s, const char *fragment) {
  rondo_options options = repeat_options(s->graph, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  REQUIRE_ERROR(rondo_instantiate(s->runtime, s->graph, &exec_options, &s->exec), RONDO_UNSUPPORTED, fragment);
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
  subject_close(s);
}

Test(repeat, a_driver_without_loops_refuses_an_exec_with_repeats_only) {
  struct subject s = {0};
  fake->hide("cuGraphConditionalHandleCreate", CU_SYMBOL_NOT_FOUND);
  describe(&s);
  require_refused(&s, "the driver has no cuGraphConditionalHandleCreate");
}

static int capture_nothing(void *user, void *stream, void *const *data) { return (void)user, (void)stream, !data; }

Test(repeat, captured_work_is_refused) {
  struct subject s = {0};
  describe(&s);
  rondo_capture_desc capture = {.name = "captured",
                                .arguments = &(rondo_argument){.tensor = s.state, .access = RONDO_READ_WRITE},
                                .argument_count = 1};
  REQUIRE_OK(rondo_add_capture(s.graph, &capture, capture_nothing));
  require_refused(&s, "task 'captured': captured work cannot repeat");
}
