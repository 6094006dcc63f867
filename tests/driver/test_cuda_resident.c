/* test_cuda_resident.c - resident execs on the fake driver: a loop whose first kernel waits for the host. Its kernels
 * run in any order that their edges allow, beside all that takes the graph off the device, and with the driver's
 * failures. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "../../runtime/exec.h"
#include "driver_support.h"

TestSuite(resident, .init = driver_setup, .timeout = 120);

enum { COUNT = 64, STEPS = 14, UNKNOWN_ERROR = 999 };

/* Four kernels side by side, so that a node precedes them, and a state that each replay mixes. Another exec borrows the
 * state and shows it. */
struct subject {
  rondo_graph *graph, *other_graph;
  rondo_tensor x, state, y, shown;
  rondo_runtime *runtime;
  rondo_exec *exec, *other;
  rondo_slot slot, other_slot;
};

static void describe(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->x = add_vector(rondo_input, s->graph, "x", COUNT);
  s->state = add_vector(rondo_state, s->graph, "state", COUNT);
  s->y = add_vector(rondo_output, s->graph, "y", COUNT);
  add_mixed_state(s->graph, s->x, s->state, s->y, COUNT);
  rondo_tensor borrowed;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->other_graph));
  REQUIRE_OK(rondo_borrow(s->other_graph, s->state, &borrowed));
  s->shown = add_vector(rondo_output, s->other_graph, "shown", COUNT);
  add_copy(s->other_graph, "show", borrowed, s->shown);
}

static rondo_options options_of(const struct subject *s, rondo_backend backend) {
  rondo_options options = options_for(s->graph, backend, 2);
  options.device_bytes *= 2, options.pinned_bytes *= 2, options.host_bytes *= 2;
  return options;
}

static const rondo_exec_options resident = {.linger_ns = UINT64_C(1000000000000)}; /* for ever */

static struct subject subject_open(rondo_backend backend, const rondo_exec_options *exec_options) {
  struct subject s = {0};
  describe(&s);
  rondo_options options = options_of(&s, backend);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, exec_options, &s.exec));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.other_graph, NULL, &s.other));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  REQUIRE_OK(rondo_acquire(s.other, &s.other_slot));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->other));
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->other_graph));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  require_clean("after close");
}

static void fill(const struct subject *s, uint32_t step) {
  uint32_t *x = rondo_data(s->slot, s->x);
  for (uint32_t i = 0; i < COUNT; i++) x[i] = i * 77 + step;
}

/* What the host backend leaves in y after each replay. */
struct expected {
  uint32_t y[STEPS][COUNT];
};

static const struct expected *expected_values(void) {
  static struct expected expected;
  struct subject s = subject_open(RONDO_BACKEND_HOST, &resident);
  for (uint32_t i = 0; i < STEPS; i++) {
    fill(&s, i);
    REQUIRE_OK(rondo_replay(s.slot));
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    memcpy(expected.y[i], rondo_data(s.slot, s.y), sizeof expected.y[i]);
  }
  subject_close(&s);
  driver_setup();
  return &expected;
}

static void require_step(const struct subject *s, const struct expected *expected, uint32_t step) {
  REQUIRE_OK(rondo_wait(s->slot, RONDO_FOREVER));
  cr_assert(!memcmp(rondo_data(s->slot, s->y), expected->y[step], sizeof expected->y[step]), "replay %u", step);
}

static void replay(const struct subject *s, const struct expected *expected, uint32_t step) {
  fill(s, step);
  REQUIRE_OK(rondo_replay(s->slot));
  require_step(s, expected, step);
}

static void sleep_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- On the device ----------------------------------------------------------------------------------------------- */

Test(resident, replays_make_no_call_of_the_driver_and_have_the_bits_of_the_host) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_THREAD};
  const struct expected *expected = expected_values();
  for (uint64_t seed = 0; seed < 40; seed++) {
    driver_setup();
    set_seed(seed);
    struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
    set_mode(modes[seed % 2]);
    replay(&s, expected, 0);
    uint64_t calls = fake->calls(NULL);
    for (uint32_t i = 1; i < STEPS; i++) {
      fill(&s, i);
      REQUIRE_OK(rondo_replay(s.slot));
      cr_assert_eq(fake->calls(NULL), calls, "replay %u", i);
      require_step(&s, expected, i);
      calls = fake->calls(NULL); /* a wait that takes long asks for the device's health */
    }
    set_mode(FAKE_IMMEDIATE);
    subject_close(&s);
  }
}

/* All that takes the exec off the device, after a number of replays that ends in any place of the loop's body. */
enum { ANOTHER_EXEC, DOWNLOAD, UPLOAD, INSTANTIATE, REBIND, INTERRUPTIONS };

static void bind_and_replay(const struct subject *s, const struct expected *expected, uint32_t step) {
  void *buffer = rondo_data(s->other_slot, s->shown); /* memory of the device that nothing uses now */
  fill(s, step);
  memcpy(buffer, rondo_data(s->slot, s->x), COUNT * sizeof(uint32_t));
  memset(rondo_data(s->slot, s->x), 0, COUNT * sizeof(uint32_t));
  REQUIRE_OK(rondo_rebind(s->slot, s->x, buffer));
  REQUIRE_OK(rondo_replay(s->slot));
  require_step(s, expected, step);
  REQUIRE_OK(rondo_rebind(s->slot, s->x, NULL));
}

/* `step` replays were done. Returns how many are done now. */
static uint32_t interrupt(const struct subject *s, const struct expected *expected, int what, uint32_t step) {
  uint32_t state[COUNT];
  rondo_exec *more = NULL;
  switch (what) {
  case ANOTHER_EXEC:
    REQUIRE_OK(rondo_replay(s->other_slot));
    REQUIRE_OK(rondo_wait(s->other_slot, RONDO_FOREVER));
    cr_assert(!memcmp(rondo_data(s->other_slot, s->shown), expected->y[step - 1], sizeof state));
    return step;
  case DOWNLOAD:
  case UPLOAD:
    REQUIRE_OK(rondo_download(s->exec, s->state, state, sizeof state));
    cr_assert(!memcmp(state, expected->y[step - 1], sizeof state));
    if (what == UPLOAD) REQUIRE_OK(rondo_upload(s->exec, s->state, state, sizeof state));
    return step;
  case INSTANTIATE:
    REQUIRE_OK(rondo_instantiate(s->runtime, s->other_graph, NULL, &more));
    REQUIRE_OK(rondo_close_exec(&more));
    return step;
  case REBIND:
    bind_and_replay(s, expected, step);
    return step + 1;
  default:
    return step;
  }
}

Test(resident, whatever_takes_it_off_sees_the_replays_before_and_none_after) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_THREAD};
  const struct expected *expected = expected_values();
  for (uint64_t seed = 0; seed < 8; seed++)
    for (int what = 0; what < INTERRUPTIONS; what++)
      for (uint32_t at = 1; at < 7; at++) {
        driver_setup();
        set_seed(seed);
        struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
        set_mode(modes[seed % 2]);
        uint32_t step = 0;
        while (step < at) replay(&s, expected, step++);
        step = interrupt(&s, expected, what, step);
        while (step < 2 * at) replay(&s, expected, step++);
        step = interrupt(&s, expected, (what + 1) % INTERRUPTIONS, step);
        if (step < STEPS) replay(&s, expected, step);
        set_mode(FAKE_IMMEDIATE);
        subject_close(&s);
      }
}

/* The replay is in flight while the other exec takes the graph off. */
Test(resident, a_replay_that_was_rung_is_done_before_the_work_that_takes_it_off) {
  const struct expected *expected = expected_values();
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  set_mode(FAKE_THREAD);
  for (uint32_t step = 0; step < STEPS; step++) {
    fill(&s, step);
    REQUIRE_OK(rondo_replay(s.slot));
    REQUIRE_OK(rondo_replay(s.other_slot));
    REQUIRE_OK(rondo_wait(s.other_slot, RONDO_FOREVER));
    cr_assert_eq(rondo_poll(s.slot), RONDO_OK, "the lane's order");
    cr_assert(!memcmp(rondo_data(s.other_slot, s.shown), expected->y[step], sizeof expected->y[step]));
    require_step(&s, expected, step);
  }
  set_mode(FAKE_IMMEDIATE);
  subject_close(&s);
}

/* ---- Off by itself ----------------------------------------------------------------------------------------------- */

Test(resident, it_leaves_the_device_after_linger_ns_and_comes_back) {
  const struct expected *expected = expected_values();
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &(rondo_exec_options){.linger_ns = 20000000});
  for (uint32_t step = 0; step < 4; step++) {
    uint64_t launches = fake->calls("cuGraphLaunch");
    replay(&s, expected, step);
    cr_assert_eq(fake->calls("cuGraphLaunch"), launches + 1);
    sleep_ms(200);
  }
  subject_close(&s);
}

/* The thread that beats is the only one that could take it off. */
Test(resident, closing_takes_off_what_would_linger_for_ever) {
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  fill(&s, 0);
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  subject_close(&s);
}

/* The beat comes each millisecond, so the graph has always given up, or does so while a replay is rung. The thread that
 * beats finds out. */
Test(resident, a_graph_that_misses_the_beat_ends_and_is_launched_again_for_the_replay_that_was_rung) {
  const struct expected *expected = expected_values();
  for (uint64_t patience_ns = 1; patience_ns < 2000000; patience_ns = patience_ns * 5 + 20000) {
    driver_setup();
    struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
    struct fake_settings settings = fake->settings();
    settings.patience_ns = patience_ns;
    fake->configure(&settings);
    for (uint32_t step = 0; step < STEPS; step++) {
      replay(&s, expected, step);
      if (step % 4 == 3) step = interrupt(&s, expected, ANOTHER_EXEC, step + 1) - 1;
      nanosleep(&(struct timespec){.tv_nsec = 300000L * (step % 5)}, NULL);
    }
    settings.patience_ns = 0;
    fake->configure(&settings);
    subject_close(&s);
  }
}

/* No replay is rung for a graph that has given up, whether the thread that beats knows it or not: else that thread
 * would launch the replay after the work that follows it. */
Test(resident, a_replay_after_a_missed_beat_is_done_before_the_work_that_follows) {
  const struct expected *expected = expected_values();
  for (uint64_t seed = 0; seed < 20; seed++) {
    driver_setup();
    struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
    const struct doorbell *bell = s.exec->slots.items[0].bell;
    struct fake_settings settings = fake->settings();
    settings.patience_ns = 1;
    fake->configure(&settings);
    for (uint32_t step = 0; step < STEPS; step++) {
      const uint64_t left = doorbell_left(bell);
      fill(&s, step);
      REQUIRE_OK(rondo_replay(s.slot));
      REQUIRE_OK(rondo_replay(s.other_slot));
      REQUIRE_OK(rondo_wait(s.other_slot, RONDO_FOREVER));
      cr_assert(!memcmp(rondo_data(s.other_slot, s.shown), expected->y[step], sizeof expected->y[step]));
      require_step(&s, expected, step);
      while (doorbell_left(bell) == left) sched_yield();
      replay(&s, expected, ++step);
      while (doorbell_is_on(doorbell_word(bell)) && doorbell_left(bell) < doorbell_word(bell)) sched_yield();
    }
    settings.patience_ns = 0;
    fake->configure(&settings);
    subject_close(&s);
  }
}

Test(resident, a_replay_in_flight_is_not_rung_again) {
  const struct expected *expected = expected_values();
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  replay(&s, expected, 0);
  set_mode(FAKE_NEVER);
  fill(&s, 1);
  REQUIRE_OK(rondo_replay(s.slot));
  for (int i = 0; i < 3; i++) REQUIRE_ERROR(rondo_replay(s.slot), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_release(s.slot), RONDO_BUSY, "in flight");
  set_mode(FAKE_IMMEDIATE);
  require_step(&s, expected, 1);
  for (uint32_t step = 2; step < STEPS; step++) replay(&s, expected, step);
  subject_close(&s);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void *show_often(void *argument) {
  const struct subject *s = argument;
  for (int i = 0; i < 300; i++) {
    REQUIRE_OK(rondo_replay(s->other_slot));
    REQUIRE_OK(rondo_wait(s->other_slot, RONDO_FOREVER));
  }
  return NULL;
}

Test(resident, two_threads_share_the_lane) {
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  pthread_t thread;
  set_mode(FAKE_THREAD);
  cr_assert_eq(pthread_create(&thread, NULL, show_often, &s), 0);
  for (uint32_t i = 0; i < 600; i++) {
    fill(&s, i);
    REQUIRE_OK(rondo_replay(s.slot));
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  }
  pthread_join(thread, NULL);
  set_mode(FAKE_IMMEDIATE);
  subject_close(&s);
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

Test(resident, a_launch_that_fails_changes_nothing) {
  const struct expected *expected = expected_values();
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  replay(&s, expected, 0);
  REQUIRE_OK(rondo_replay(s.other_slot));
  REQUIRE_OK(rondo_wait(s.other_slot, RONDO_FOREVER));
  fill(&s, 1);
  fake->fail_call(2, UNKNOWN_ERROR);
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_DEVICE_ERROR, "cuGraphLaunch");
  REQUIRE_OK(rondo_poll(s.slot));
  for (uint32_t i = 1; i < STEPS; i++) replay(&s, expected, i);
  subject_close(&s);
}

/* A call that ends something fails in silence, as does a question, and with it the context in which it is asked. */
static bool may_be_silent(const char *name) {
  return strstr(name, "PushCurrent") || strstr(name, "Destroy") || strstr(name, "Unload") || strstr(name, "Query") ||
         strstr(name, "Pop") || strstr(name, "ExchangeStreamCaptureMode") || strstr(name, "MemGetInfo");
}

Test(resident, every_failing_call_of_instantiate_is_a_clean_error) {
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    struct subject s = {0};
    driver_setup();
    describe(&s);
    rondo_options options = options_of(&s, RONDO_BACKEND_CUDA);
    REQUIRE_OK(rondo_open(&options, &s.runtime));
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_status status = rondo_instantiate(s.runtime, s.graph, &resident, &s.exec);
    failed = fake->failed_call() != NULL;
    if (status == RONDO_OK) cr_assert(!failed || may_be_silent(fake->failed_call()), "%s", fake->failed_call());
    if (status != RONDO_OK) cr_assert(rondo_error_text()[0] && !s.exec, "call %d", (int)n);
    fake->fail_call(0, 0);
    REQUIRE_OK(rondo_close_exec(&s.exec));
    REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
    REQUIRE_OK(rondo_graph_destroy(&s.graph));
    REQUIRE_OK(rondo_close(&s.runtime));
    if (status != RONDO_DEVICE_LOST) require_clean("after a failed call");
  }
}

/* What a program does, and once more what failed. Returns whether all went well, or the device is lost. */
static rondo_status try_all(struct subject *s, const struct expected *expected, bool *failed) {
  uint32_t state[COUNT];
  for (uint32_t step = 0; step < 6; step++) {
    fill(s, step);
    for (int what = 0; what < 3; what++) {
      rondo_status status = RONDO_OK;
      for (int attempt = 0; attempt < 2; attempt++) {
        status = what == 0   ? rondo_replay(s->slot)
                 : what == 1 ? rondo_replay(s->other_slot)
                             : rondo_download(s->exec, s->state, state, sizeof state);
        if (status == RONDO_DEVICE_LOST) return status;
        *failed = *failed || status != RONDO_OK;
        if (status == RONDO_OK && what == 0) status = rondo_wait(s->slot, RONDO_FOREVER);
        if (status == RONDO_OK && what == 1) status = rondo_wait(s->other_slot, RONDO_FOREVER);
        if (status == RONDO_DEVICE_LOST) return status;
        if (status == RONDO_OK) break;
      }
      REQUIRE_OK(status);
    }
    cr_assert(!memcmp(rondo_data(s->slot, s->y), expected->y[step], sizeof expected->y[step]), "replay %u", step);
    cr_assert(!memcmp(rondo_data(s->other_slot, s->shown), expected->y[step], sizeof expected->y[step]));
    cr_assert(!memcmp(state, expected->y[step], sizeof expected->y[step]));
  }
  return RONDO_OK;
}

Test(resident, every_failing_call_between_replays_is_a_clean_error_and_can_be_repeated) {
  const struct expected *expected = expected_values();
  bool has_met = true;
  for (uint64_t n = 1; has_met; n++) {
    driver_setup();
    struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
    bool failed = false;
    fake->fail_call(n, UNKNOWN_ERROR);
    rondo_status status = try_all(&s, expected, &failed);
    has_met = fake->failed_call() != NULL;
    if (has_met && !failed && status == RONDO_OK)
      cr_assert(may_be_silent(fake->failed_call()), "%s", fake->failed_call());
    fake->fail_call(0, 0);
    if (status == RONDO_OK) {
      subject_close(&s);
      continue;
    }
    REQUIRE_OK(rondo_close_exec(&s.other));
    REQUIRE_OK(rondo_close_exec(&s.exec));
    REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
    REQUIRE_OK(rondo_graph_destroy(&s.graph));
    REQUIRE_OK(rondo_close(&s.runtime));
    require_no_violation("after close");
  }
}

Test(resident, a_device_lost_behind_the_bell_is_told_to_who_waits) {
  const struct expected *expected = expected_values();
  struct subject s = subject_open(RONDO_BACKEND_CUDA, &resident);
  replay(&s, expected, 0);
  fake->lose_after_nodes(3, CU_ILLEGAL_ADDRESS);
  fill(&s, 1);
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_ERROR(rondo_wait(s.slot, RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_ERROR(rondo_replay(s.other_slot), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_OK(rondo_close_exec(&s.other));
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&s.runtime));
  require_no_violation("after close");
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

static int capture_nothing(void *user, void *stream, void *const *data) {
  (void)user, (void)stream, (void)data;
  return 0;
}

Test(resident, several_slots_captured_work_and_old_drivers_are_refused) {
  struct subject s = {0};
  describe(&s);
  rondo_options options = options_of(&s, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &(rondo_exec_options){.slots = 2, .linger_ns = 1}, &s.exec),
                RONDO_INVALID_ARGUMENT, "2 slots, expected one of a resident exec");
  rondo_argument argument = {.tensor = add_vector(rondo_output, s.graph, "z", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_capture(
      s.graph, &(rondo_capture_desc){.name = "library", .arguments = &argument, .argument_count = 1}, capture_nothing));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &resident, &s.exec), RONDO_UNSUPPORTED,
                "task 'library': captured work cannot be resident");
  REQUIRE_OK(rondo_close(&s.runtime));
  fake->hide("cuGraphConditionalHandleCreate", 1);
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
  describe(&s);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &resident, &s.exec), RONDO_UNSUPPORTED,
                "linger_ns: the driver has no cuGraphConditionalHandleCreate");
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
  REQUIRE_OK(rondo_close(&s.runtime));
  require_clean("after close");
}

Test(resident, kernels_in_clusters_are_refused) {
  struct subject s = {0};
  struct fake_settings settings = fake->settings();
  settings.cluster_width = 8;
  fake->configure(&settings);
  describe(&s);
  rondo_options options = options_of(&s, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &resident, &s.exec), RONDO_UNSUPPORTED,
                "task 'a': its kernel runs in clusters of 8 blocks, and a resident exec has none");
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
  REQUIRE_OK(rondo_close(&s.runtime));
  require_clean("after close");
}
