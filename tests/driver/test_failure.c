/* test_failure.c - what Rondo does when the driver fails, at each single call and in the middle of a replay, on the
 * fake driver. Every failure has a status and a text, leaves nothing behind, and changes nothing that was there before.
 * A lost device stays lost, and the driver is not called any more. A device that hangs: test_hang.c. */
#include <stdio.h>
#include <string.h>

#include "driver_program.h"

TestSuite(failure, .init = driver_setup, .timeout = 300);

enum { REPLAYS = 4, UNKNOWN_ERROR = 999 };

/* ---- The whole program, with calls that may fail ------------------------------------------------------------------
 */

/* A call that fails changes nothing: it is made once more, and must then succeed, unless the device is lost. */
static bool attempt(struct program *program, rondo_status status, const char *call) {
  if (status == RONDO_OK || program->status != RONDO_OK) return status == RONDO_OK;
  program->status = status;
  program->call = call;
  snprintf(program->text, sizeof program->text, "%s", rondo_error_text());
  return false;
}
/* After a fatal error there is no sense in asking again. */
static bool is_final(const struct program *program) {
  return program->status == RONDO_DEVICE_LOST || strstr(program->text, "only a new process can use the device");
}
#define ATTEMPT(call)                                                                                                  \
  do {                                                                                                                 \
    if (!attempt(program, (call), #call) && (is_final(program) || !attempt(program, (call), #call))) return;           \
  } while (0)

static void run_replays(struct program *program) {
  uint32_t expected = 5; /* of state[i] */
  for (uint32_t replay = 0; replay < REPLAYS; replay++) {
    rondo_slot slot = program->slots[replay % SLOTS];
    uint32_t *x = rondo_data(slot, program->x);
    const uint32_t *y = rondo_data(slot, program->y);
    for (uint32_t i = 0; i < COUNT; i++) x[i] = replay;
    ATTEMPT(rondo_replay(slot));
    ATTEMPT(rondo_wait(slot, RONDO_FOREVER));
    expected = 31 * expected + 17 * (replay + 1000) + 1;
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(y[i], expected, "replay %u after '%s'", replay, program->text);
  }
  uint32_t state[COUNT];
  ATTEMPT(rondo_download(program->exec, program->state, state, sizeof state));
  for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(state[i], expected, "the state after '%s'", program->text);
}

static void run_program(struct program *program, const rondo_options *options) {
  ATTEMPT(rondo_open(options, &program->runtime));
  ATTEMPT(rondo_instantiate(program->runtime, program->graph, &(rondo_exec_options){.slots = SLOTS}, &program->exec));
  uint32_t state[COUNT];
  for (int i = 0; i < COUNT; i++) state[i] = 5;
  ATTEMPT(rondo_upload(program->exec, program->state, state, sizeof state));
  for (int s = 0; s < SLOTS; s++) ATTEMPT(rondo_acquire(program->exec, &program->slots[s]));
  run_replays(program);
}

/* The whole program, from open to close. */
static void run(struct program *program, rondo_graph *graph, const rondo_options *options) {
  rondo_tensor x = program->x, y = program->y, state = program->state;
  *program = (struct program){.graph = graph, .x = x, .y = y, .state = state};
  run_program(program, options);
  REQUIRE_OK(rondo_close_exec(&program->exec));
  REQUIRE_OK(rondo_close(&program->runtime));
}

/* ---- The n-th call fails ----------------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *names) {
  while (*names && strcmp(*names, name) != 0) names++;
  return *names != NULL;
}

/* Calls whose failure may pass in silence: they end something, or Rondo can do without. */
static const char *const silent[] = {"cuLibraryUnload",
                                     "cuMemFree",
                                     "cuMemFreeHost",
                                     "cuStreamDestroy",
                                     "cuEventDestroy",
                                     "cuGraphDestroy",
                                     "cuGraphExecDestroy",
                                     "cuCtxPopCurrent",
                                     "cuStreamSynchronize" /* in close */,
                                     "cuStreamQuery" /* in close: a wait gives the device up */,
                                     "cuMemGetInfo",
                                     "cuThreadExchangeStreamCaptureMode",
                                     "cuDevicePrimaryCtxRelease",
                                     "cuGetProcAddress_v2" /* of an optional function */,
                                     NULL};
static const char *const discovery[] = {"cuGetProcAddress_v2", "cuDriverGetVersion", "cuInit", NULL};

/* A device that cannot even be asked while somebody waits is given up, whatever the error. */
static bool is_of_a_wait(const char *text) { return !strncmp(text, "device health: ", 15); }

static bool is_in_open(const struct program *program) { return !strncmp(program->call, "rondo_open", 10); }

static rondo_status expected_status(const struct program *program, const char *function, int32_t result) {
  if (is_one_of(function, discovery))
    return result == CU_OUT_OF_MEMORY && !strcmp(function, "cuInit") ? RONDO_OUT_OF_MEMORY : RONDO_NO_DEVICE;
  if (result == CU_OUT_OF_MEMORY) return RONDO_OUT_OF_MEMORY;
  if (is_in_open(program)) return RONDO_NO_DEVICE;
  return result == CU_ILLEGAL_ADDRESS ? RONDO_DEVICE_LOST : RONDO_DEVICE_ERROR;
}

static bool tells_of(const char *text, const char *function) {
  if (strstr(text, function)) return true;
  return !strcmp(function, "cuMemAlloc") ? strstr(text, "device pool") != NULL : is_one_of(function, discovery);
}

/* A context that cannot be entered when something is closed keeps what is in it until it is released. */
static bool is_closing(const struct program *program, const char *function) {
  return !strcmp(function, "cuCtxPushCurrent") && program->status == RONDO_OK;
}

static void require_told(const struct program *program, uint64_t n, int32_t result) {
  const char *function = fake->failed_call();
  if (program->status == RONDO_OK) {
    /* A sticky error that a silent call saw first is told by the next one, or by none, at the end. */
    cr_assert(is_one_of(function, silent) || is_closing(program, function), "call %lu, %s: error %d passed in silence",
              n, function, result);
    return;
  }
  cr_assert_neq(program->text[0], '\0', "call %lu, %s: no text", n, function);
  if (result == CU_ILLEGAL_ADDRESS && is_one_of(function, silent) && !is_one_of(function, discovery)) {
    rondo_status expected = is_in_open(program) ? RONDO_NO_DEVICE : RONDO_DEVICE_LOST;
    cr_assert_eq(program->status, expected, "call %lu, %s: %s", n, function, program->text);
    return;
  }
  rondo_status expected = is_of_a_wait(program->text) ? RONDO_DEVICE_LOST : expected_status(program, function, result);
  cr_assert_eq(program->status, expected, "call %lu, %s: %s: %s: %s", n, function, program->call,
               rondo_status_name(program->status), program->text);
  cr_assert(tells_of(program->text, function), "call %lu, %s: '%s'", n, function, program->text);
}

static void fail_each_call(int32_t result) {
  struct program program = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
  program_describe(&program);
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
  options.wait_mode = RONDO_WAIT_SPIN; /* soonest asks the driver, which runs the work then */
  uint64_t n = 1;
  for (;; n++) {
    driver_setup();
    /* A replay takes several questions but not one a node: a wait lets up to a millisecond pass between two of them,
     * and this is a program for each call that there is. */
    struct fake_settings settings = fake->settings();
    settings.mode = FAKE_DEFERRED;
    settings.steps_per_query = 4;
    fake->configure(&settings);
    fake->fail_call(n, result);
    run(&program, program.graph, &options);
    const char *function = fake->failed_call();
    char when[128];
    snprintf(when, sizeof when, "call %lu, %s, failed with %d", (unsigned long)n, function ? function : "none", result);
    require_no_violation(when);
    cr_assert_eq(fake->context_depth(), 0, "%s", when);
    if (!function) break;
    require_told(&program, n, result);
    if (program.status == RONDO_DEVICE_LOST || result == CU_ILLEGAL_ADDRESS) continue; /* left behind on purpose */
    if (!is_closing(&program, function)) require_clean(when);
    run(&program, program.graph, &options); /* it opens again */
    cr_assert_eq(program.status, RONDO_OK, "%s, then again: %s", when, program.text);
  }
  cr_assert_eq(program.status, RONDO_OK);
  require_clean("without a failure");
  cr_assert_gt(n, 150, "the program makes only %lu calls", n);
  REQUIRE_OK(rondo_graph_destroy(&program.graph));
}

Test(failure, every_call_that_fails_is_told_and_leaves_nothing) { fail_each_call(UNKNOWN_ERROR); }
Test(failure, every_call_that_is_out_of_memory_is_told_and_leaves_nothing) { fail_each_call(CU_OUT_OF_MEMORY); }
Test(failure, every_call_that_loses_the_device_is_the_last) { fail_each_call(CU_ILLEGAL_ADDRESS); }

/* A driver without the functions that Rondo can do without. */
Test(failure, optional_functions_are_not_missed) {
  static const char *const optional[] = {"cuFuncLoad", "cuKernelGetParamInfo", "cuMemGetInfo"};
  struct program program = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
  program_describe(&program);
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
  for (int i = 0; i < 3; i++) {
    driver_setup();
    fake->hide(optional[i], CU_SYMBOL_NOT_FOUND);
    run(&program, program.graph, &options);
    cr_assert_eq(program.status, RONDO_OK, "%s: %s", optional[i], program.text);
    cr_assert_eq(fake->calls(optional[i]), 0);
    require_clean(optional[i]);
  }
  REQUIRE_OK(rondo_graph_destroy(&program.graph));
}

/* ---- The device is lost in a replay ------------------------------------------------------------------------------ */

/* After the first, every call tells of the first cause and asks the driver nothing. */
static void require_lost_for_good(struct program *program, const char *cause) {
  uint64_t calls = fake->calls(NULL);
  uint32_t data[COUNT] = {0};
  rondo_exec *another = NULL;
  REQUIRE_ERROR(rondo_wait(program->slots[0], RONDO_FOREVER), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_poll(program->slots[0]), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_release(program->slots[0]), RONDO_DEVICE_LOST, cause);
  for (int s = 0; s < SLOTS; s++) REQUIRE_ERROR(rondo_replay(program->slots[s]), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_acquire(program->exec, &(rondo_slot){0}), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_rebind(program->slots[0], program->state, NULL), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_instantiate(program->runtime, program->graph, NULL, &another), RONDO_DEVICE_LOST, cause);
  cr_assert_null(another);
  REQUIRE_ERROR(rondo_upload(program->exec, program->state, data, sizeof data), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_download(program->exec, program->state, data, sizeof data), RONDO_DEVICE_LOST, cause);
  cr_assert_eq(fake->calls(NULL), calls, "the driver was called after the device was lost");
  program_end(program);
  cr_assert_eq(fake->calls(NULL), calls, "close called the driver after the device was lost");
}

Test(failure, an_error_in_a_replay_ends_the_wait_and_stays) {
  enum { MODES = 2, MOST_NODES = 20 };
  static const enum fake_mode modes[MODES] = {FAKE_DEFERRED, FAKE_THREAD};
  for (int m = 0; m < MODES; m++) {
    bool completed = false;
    for (uint64_t n = 0; !completed && n < MOST_NODES; n++) {
      driver_setup();
      struct program program;
      program_begin(&program);
      set_mode(modes[m]);
      fake->lose_after_nodes(n, CU_ILLEGAL_ADDRESS);
      REQUIRE_OK(rondo_replay(program.slots[0]));
      rondo_status status = rondo_wait(program.slots[0], RONDO_FOREVER);
      uint32_t data[COUNT];
      if (status == RONDO_OK && rondo_download(program.exec, program.state, data, sizeof data) != RONDO_OK) {
        program_end(&program); /* lost in the last node, for which nobody waits */
        require_no_violation("after the device was lost");
      } else if (status == RONDO_OK) { /* the replay has no more than n nodes */
        completed = true;
        program_end(&program);
        require_clean("after close");
        cr_assert_gt(n, 5);
      } else {
        cr_assert_eq(status, RONDO_DEVICE_LOST);
        require_lost_for_good(&program, "CUDA_ERROR_ILLEGAL_ADDRESS");
        require_no_violation("after the device was lost");
        cr_assert_eq(fake->context_depth(), 0);
      }
    }
    cr_assert(completed);
  }
}

Test(failure, an_error_in_the_warm_replay_fails_instantiate) {
  for (uint64_t n = 0; n < 8; n++) {
    driver_setup();
    set_mode(FAKE_DEFERRED);
    struct program program = {0};
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
    program_describe(&program);
    rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
    REQUIRE_OK(rondo_open(&options, &program.runtime));
    fake->lose_after_nodes(n, CU_LAUNCH_FAILED);
    REQUIRE_ERROR(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec), RONDO_DEVICE_LOST,
                  "CUDA_ERROR_LAUNCH_FAILED");
    cr_assert_null(program.exec);
    cr_assert_eq(strstr(rondo_error_text(), "device health: "), rondo_error_text(), "'%s'", rondo_error_text());
    program_end(&program);
    require_no_violation("after close");
  }
}

/* Else closing would take apart what is still in flight. */
Test(failure, a_device_that_cannot_be_asked_is_given_up) {
  struct program program;
  program_begin(&program);
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(program.slots[0]));
  fake->fail_call(1, UNKNOWN_ERROR);
  REQUIRE_ERROR(rondo_wait(program.slots[0], RONDO_FOREVER), RONDO_DEVICE_LOST, "device health: cuCtxPushCurrent");
  require_lost_for_good(&program, "device health: cuCtxPushCurrent");
  require_no_violation("after close");
}

Test(failure, an_error_shows_in_poll_too) {
  struct program program;
  program_begin(&program);
  set_mode(FAKE_DEFERRED);
  fake->lose_after_nodes(3, CU_ILLEGAL_ADDRESS);
  REQUIRE_OK(rondo_replay(program.slots[0]));
  rondo_status status = RONDO_BUSY;
  for (int i = 0; i < 100 && status == RONDO_BUSY; i++) status = rondo_poll(program.slots[0]);
  cr_assert_eq(status, RONDO_DEVICE_LOST);
  require_lost_for_good(&program, "CUDA_ERROR_ILLEGAL_ADDRESS");
  require_no_violation("after close");
}

/* The slot whose replay was done before keeps its result. */
Test(failure, what_was_done_before_the_loss_stays_readable) {
  struct program program;
  program_begin(&program);
  REQUIRE_OK(rondo_replay(program.slots[0]));
  REQUIRE_OK(rondo_wait(program.slots[0], RONDO_FOREVER));
  const uint32_t *y = rondo_data(program.slots[0], program.y);
  uint32_t before = y[0];
  fake->lose_after_nodes(2, CU_ILLEGAL_ADDRESS);
  REQUIRE_OK(rondo_replay(program.slots[1])); /* the device is lost after the call */
  REQUIRE_ERROR(rondo_wait(program.slots[1], RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_OK(rondo_wait(program.slots[0], RONDO_FOREVER));
  cr_assert_eq(y[0], before);
  program_end(&program);
  require_no_violation("after close");
}

/* Another library in the process captures, as PyTorch does, while Rondo is waited for. */
Test(failure, captures_of_others_and_rondo_do_not_break_each_other) {
  struct program program;
  uint32_t state[COUNT] = {0};
  struct fake_settings settings = fake->settings();
  settings.captured_elsewhere = true;
  fake->configure(&settings);
  program_begin(&program);
  for (int mode = FAKE_DEFERRED; mode <= FAKE_THREAD; mode++) {
    set_mode((enum fake_mode)mode);
    for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_replay(program.slots[s]));
    for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_wait(program.slots[s], RONDO_FOREVER));
    REQUIRE_OK(rondo_upload(program.exec, program.state, state, sizeof state));
    REQUIRE_OK(rondo_download(program.exec, program.state, state, sizeof state));
  }
  REQUIRE_OK(rondo_close_exec(&program.exec));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
  program_end(&program);
  require_clean("after close");
}
