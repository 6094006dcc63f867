/* test_keep_warm.c - keep_warm on the fake driver: it beats while nothing is replayed, stops with the last exec that
 * asked for it, and leaves nothing behind, whatever fails. */
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
