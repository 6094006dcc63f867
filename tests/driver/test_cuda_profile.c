/* test_cuda_profile.c - rondo_profile on the fake driver: the exec is left as replays leave it, whichever call fails.
 */
#include <stdio.h>
#include <string.h>

#include "driver_support.h"

TestSuite(cuda_profile, .init = driver_setup, .timeout = 300);

enum { COUNT = 48, NODES_MOST = 16 };
static const rondo_profile_options quick = {.passes = 2, .copy_bytes = 1 << 12};

/* y = mix(state, library(x)), state := y. */
struct program {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor x, y, state;
};

static void add_thousand(void *const *arguments) {
  const uint32_t *in = arguments[0];
  uint32_t *out = arguments[1];
  for (int i = 0; i < COUNT; i++) out[i] = in[i] + 1000;
}

static int library_call(void *user, void *stream, void *const *data) {
  (void)user;
  const struct fake_work work = {CU_NODE_KERNEL, add_thousand, {data[0], data[1]}, NULL};
  return fake->enqueue(stream, &work, 1);
}

static void open_program(struct program *p) {
  *p = (struct program){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &p->graph));
  p->x = add_vector(rondo_input, p->graph, "x", COUNT), p->y = add_vector(rondo_output, p->graph, "y", COUNT);
  p->state = add_vector(rondo_state, p->graph, "state", COUNT);
  rondo_tensor a = add_vector(rondo_temporary, p->graph, "a", COUNT),
               b = add_vector(rondo_temporary, p->graph, "b", COUNT);
  rondo_argument arguments[] = {{.tensor = p->x, .access = RONDO_READ}, {.tensor = a, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(
      p->graph, &(rondo_capture_desc){.name = "library", .arguments = arguments, .argument_count = 2}, library_call));
  add_mix(p->graph, "mix", p->state, a, b, COUNT, 1);
  add_copy(p->graph, "keep", b, p->state);
  add_copy(p->graph, "show", b, p->y);
  rondo_options options = options_for(p->graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &p->runtime));
  REQUIRE_OK(rondo_instantiate(p->runtime, p->graph, NULL, &p->exec));
  REQUIRE_OK(rondo_acquire(p->exec, &p->slot));
  uint32_t *x = rondo_data(p->slot, p->x);
  for (uint32_t i = 0; i < COUNT; i++) x[i] = i;
}

static void close_program(struct program *p) {
  REQUIRE_OK(rondo_close_exec(&p->exec));
  REQUIRE_OK(rondo_graph_destroy(&p->graph));
  REQUIRE_OK(rondo_close(&p->runtime));
}

static uint32_t next(uint32_t state, uint32_t i) { return 31 * state + 17 * (i + 1000) + 1; }

static rondo_status profile(const struct program *p, rondo_task_profile *tasks, rondo_profile_totals *totals) {
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_exec_info(p->exec, &usage));
  cr_assert_leq(usage.node_count, NODES_MOST);
  return rondo_profile(p->slot, &quick, tasks, usage.node_count, totals);
}

static const rondo_task_profile *task_named(const rondo_task_profile *tasks, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++)
    if (!strcmp(tasks[i].name, name)) return &tasks[i];
  cr_assert_fail("no task '%s'", name);
  return NULL;
}

static void leaves_what_replays_leave(enum fake_mode mode) {
  struct program p;
  rondo_task_profile tasks[NODES_MOST];
  rondo_profile_totals totals;
  uint32_t state[COUNT];
  set_mode(mode);
  open_program(&p);
  REQUIRE_OK(profile(&p, tasks, &totals));
  REQUIRE_OK(rondo_download(p.exec, p.state, state, sizeof state));
  const uint32_t *y = rondo_data(p.slot, p.y);
  for (uint32_t i = 0; i < COUNT; i++) {
    uint32_t expected = 0;
    for (uint32_t replay = 0; replay < totals.replay_count; replay++) expected = next(expected, i);
    cr_assert(state[i] == expected && y[i] == expected, "%u: %u %u, expected %u", i, state[i], y[i], expected);
  }
  const rondo_task_profile *library = task_named(tasks, totals.task_count, "library"),
                           *mix = task_named(tasks, totals.task_count, "mix"),
                           *show = task_named(tasks, totals.task_count, "show");
  cr_assert_str_eq(library->operation, "capture");
  cr_assert_str_eq(mix->operation, "kernel");
  cr_assert_eq(mix->bytes, UINT64_C(12) * COUNT, "its two numbers are no bytes of the device's");
  cr_assert(show->bytes == UINT64_C(4) * COUNT && show->bus_bytes == UINT64_C(4) * COUNT,
            "y is written where it is pinned");
  cr_assert_eq(totals.copy_bytes, quick.copy_bytes); /* how long so small a copy takes is chance */
  close_program(&p);
  require_clean("after close");
}

Test(cuda_profile, leaves_what_replays_leave) { leaves_what_replays_leave(FAKE_IMMEDIATE); }
Test(cuda_profile, leaves_what_replays_leave_on_a_device_that_takes_its_time) {
  leaves_what_replays_leave(FAKE_THREAD);
}

/* A failure is an error, or the large copy left out; the exec replays as before. */
Test(cuda_profile, every_failing_call_is_a_clean_error) {
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    struct program p;
    rondo_task_profile tasks[NODES_MOST];
    rondo_profile_totals totals = {0};
    driver_setup();
    open_program(&p);
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_status status = profile(&p, tasks, &totals);
    failed = fake->failed_call() != NULL;
    if (status != RONDO_OK) cr_assert(strstr(rondo_error_text(), "rondo_profile: "), "%s", rondo_error_text());
    bool is_kept = failed && !strcmp(fake->failed_call(), "cuCtxPushCurrent");
    fake->fail_call(0, 0);
    if (status != RONDO_DEVICE_LOST) {
      uint32_t before[COUNT];
      REQUIRE_OK(rondo_download(p.exec, p.state, before, sizeof before));
      REQUIRE_OK(rondo_replay(p.slot));
      REQUIRE_OK(rondo_wait(p.slot, RONDO_FOREVER));
      const uint32_t *y = rondo_data(p.slot, p.y);
      for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(y[i], next(before[i], i), "after call %d", (int)n);
    }
    /* A context that cannot be entered when something ends keeps it. */
    close_program(&p);
    if (status == RONDO_DEVICE_LOST || is_kept)
      require_no_violation("after a failed call");
    else
      require_clean("after a failed call");
  }
}

Test(cuda_profile, a_device_that_is_lost_at_any_call_is_told_of_and_left_alone) {
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    struct program p;
    rondo_task_profile tasks[NODES_MOST];
    rondo_profile_totals totals;
    driver_setup();
    open_program(&p);
    fake->fail_call(n, CU_ILLEGAL_ADDRESS);
    rondo_status status = profile(&p, tasks, &totals);
    failed = fake->failed_call() != NULL;
    if (failed && status != RONDO_OK) require_error(status, RONDO_DEVICE_LOST, "rondo_profile: ", "rondo_profile");
    close_program(&p);
    require_no_violation("after close");
  }
}

Test(cuda_profile, without_memory_for_the_large_copy_all_else_is_measured) {
  struct program p;
  rondo_task_profile tasks[NODES_MOST];
  rondo_profile_totals totals;
  rondo_exec_usage usage;
  struct fake_settings settings = fake->settings();
  settings.device_bytes = 64 << 20;
  fake->configure(&settings);
  open_program(&p);
  REQUIRE_OK(rondo_exec_info(p.exec, &usage));
  REQUIRE_OK(rondo_profile(p.slot, NULL, tasks, usage.node_count, &totals));
  cr_assert(totals.bytes_per_second == 0 && totals.copy_bytes == 0);
  close_program(&p);
  require_clean("after close");
}
