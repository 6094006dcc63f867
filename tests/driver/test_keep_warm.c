/* test_keep_warm.c - keep_warm on the fake driver: it beats while nothing is replayed, stops with the last exec that
 * asked for it, and leaves nothing behind, whatever fails. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "driver_support.h"

TestSuite(keep_warm, .init = driver_setup);

enum { COUNT = 64 };
static const rondo_exec_options warm = {.keep_warm = 1};

static rondo_tensor x, y;

static rondo_graph *one_copy(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  x = add_vector(rondo_input, graph, "x", COUNT), y = add_vector(rondo_output, graph, "y", COUNT);
  add_copy(graph, "copy", x, y);
  return graph;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* Until the device was asked to launch `more` times, or five seconds have passed. */
static bool launches_rise(uint64_t more) {
  uint64_t before = fake->calls("cuGraphLaunch");
  for (int i = 0; i < 500; i++, sleep_ms(10))
    if (fake->calls("cuGraphLaunch") >= before + more) return true;
  return false;
}

Test(keep_warm, beats_while_idle_and_stops_with_the_last_exec) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 2);
  rondo_runtime *runtime = NULL;
  rondo_exec *first = NULL, *second = NULL;
  options.host_bytes *= 2, options.device_bytes *= 2;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &warm, &first));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &warm, &second));
  cr_assert(launches_rise(20));
  REQUIRE_OK(rondo_close_exec(&first));
  cr_assert(launches_rise(20), "the second exec still wants it");
  REQUIRE_OK(rondo_close_exec(&second));
  uint64_t calls = fake->calls(NULL);
  sleep_ms(20);
  cr_assert_eq(fake->calls(NULL), calls, "nobody is left to keep warm for");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

Test(keep_warm, replays_beside_the_beats_keep_their_results) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  set_mode(FAKE_THREAD);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &warm, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  for (uint32_t replay = 0; replay < 200; replay++) {
    uint32_t *in = rondo_data(slot, x);
    const uint32_t *out = rondo_data(slot, y);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = replay * 1000 + i;
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(out[i], replay * 1000 + i);
    if (replay % 20 == 0) sleep_ms(2);
  }
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

Test(keep_warm, every_failing_call_is_a_clean_error) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    rondo_runtime *runtime = NULL;
    rondo_exec *exec = NULL;
    driver_setup();
    REQUIRE_OK(rondo_open(&options, &runtime));
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_status status = rondo_instantiate(runtime, graph, &warm, &exec);
    failed = fake->failed_call() != NULL;
    if (status != RONDO_OK) cr_assert(rondo_error_text()[0] && !exec, "call %d", (int)n);
    fake->fail_call(0, 0);
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_close(&runtime));
    /* A stream that cannot be asked is a lost device, whose handles are left alone. */
    if (status != RONDO_DEVICE_LOST) require_clean("after a failed call");
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Beside a callback that asks the runtime --------------------------------------------------------------------- */

struct asking {
  rondo_runtime *runtime;
  rondo_graph *warm_graph;
  pthread_t warmer;
  rondo_exec *warm_exec;
  atomic_bool started;
};

static void *warm_up(void *user) {
  struct asking *asking = user;
  atomic_store(&asking->started, true);
  REQUIRE_OK(rondo_instantiate(asking->runtime, asking->warm_graph, &warm, &asking->warm_exec));
  return NULL;
}

/* Instantiating elsewhere by now waits for this callback to end, with or without the runtime's lock. */
static int ask(void *user, void *stream, void *const *data) {
  (void)stream;
  (void)data;
  struct asking *asking = user;
  rondo_info info;
  if (!atomic_load(&asking->started)) {
    cr_assert_eq(pthread_create(&asking->warmer, NULL, warm_up, asking), 0);
    while (!atomic_load(&asking->started)) sleep_ms(1);
  }
  sleep_ms(100);
  REQUIRE_OK(rondo_runtime_info(asking->runtime, &info));
  return 0;
}

static rondo_graph *one_capture(struct asking *asking) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_argument argument = {.tensor = add_vector(rondo_output, graph, "y", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_capture(
      graph, &(rondo_capture_desc){.arguments = &argument, .argument_count = 1, .user = asking}, ask));
  return graph;
}

/* Of the exec that is to be kept warm only the heartbeat's own graph is left to instantiate when the callback of the
 * second slot runs: that is where keep_warm waits. */
Test(keep_warm, a_callback_may_ask_the_runtime_while_another_exec_starts_to_be_kept_warm, .timeout = 20) {
  struct asking asking = {.warm_graph = one_copy()};
  rondo_graph *graph = one_capture(&asking);
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 16);
  options.host_bytes += 4 << 20, options.device_bytes += 1 << 20, options.pinned_bytes += 1 << 20;
  REQUIRE_OK(rondo_open(&options, &asking.runtime));
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(asking.runtime, graph, &(rondo_exec_options){.slots = 8}, &exec));
  cr_assert_eq(pthread_join(asking.warmer, NULL), 0);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&asking.warm_exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&asking.warm_graph));
  REQUIRE_OK(rondo_close(&asking.runtime));
  require_clean("after close");
}
