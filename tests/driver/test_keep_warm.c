/* test_keep_warm.c - keep_warm on the fake driver: it beats while nothing is replayed, stops with the last exec that
 * asked for it, and leaves nothing behind, whichever call fails. */
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

/* A kernel that hangs fills the device, and the beats after it the driver's queue: the thread does not come back. */
Test(keep_warm, an_exec_can_be_left_though_its_heart_is_stuck_in_the_driver) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &warm, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  struct fake_settings settings = fake->settings();
  settings.mode = FAKE_NEVER;
  settings.queue_length = 4;
  fake->configure(&settings);
  REQUIRE_OK(rondo_replay(slot));
  for (uint64_t before = 0; fake->calls("cuGraphLaunch") != before; sleep_ms(50)) before = fake->calls("cuGraphLaunch");
  REQUIRE_ERROR(rondo_close_exec_within(&exec, 1000000), RONDO_DEVICE_LOST, "slot 0 was not done");
  cr_assert_null(exec);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_no_violation("after close");
}

/* However long a kernel hangs: beats would wait after it without end, and fill the driver's queue. */
Test(keep_warm, few_beats_are_sent_after_those_that_do_not_end) {
  enum { BEATS_A_LOOK = 32, TWO_LOOKS = 2 * BEATS_A_LOOK };
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &warm, &exec));
  cr_assert(launches_rise(TWO_LOOKS), "they end, and go on");
  set_mode(FAKE_NEVER);
  uint64_t before = fake->calls("cuGraphLaunch");
  for (int i = 0; i < 100 && fake->calls("cuGraphLaunch") <= before + BEATS_A_LOOK + 1; i++) sleep_ms(10);
  cr_assert_leq(fake->calls("cuGraphLaunch"), before + BEATS_A_LOOK + 1);
  set_mode(FAKE_IMMEDIATE);
  cr_assert(launches_rise(TWO_LOOKS), "those before have ended");
  REQUIRE_OK(rondo_close_exec(&exec));
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

static struct {
  rondo_runtime *runtime;
  rondo_graph *warm_graph;
  atomic_bool is_replaying, may_end; /* the warm replay of the exec that is to be kept warm */
} asking;

static void slow_kernel(const struct fake_launch *launch) {
  (void)launch;
  atomic_store(&asking.is_replaying, true);
  while (!atomic_load(&asking.may_end)) sleep_ms(1);
}

static void *make_warm_exec(void *exec) {
  REQUIRE_OK(
      rondo_instantiate(asking.runtime, asking.warm_graph, &(rondo_exec_options){.keep_warm = 1, .lane = 1}, exec));
  return NULL;
}

/* The other thread goes on to start the heartbeat, whose graph is not built before this callback has ended. */
static int ask(void *user, void *stream, void *const *data) {
  (void)user;
  (void)stream;
  (void)data;
  rondo_info info;
  atomic_store(&asking.may_end, true);
  sleep_ms(200);
  REQUIRE_OK(rondo_runtime_info(asking.runtime, &info));
  return 0;
}

static rondo_graph *one_slow_task(void) {
  static const char image[] = "fake image: slow";
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  fake->register_kernel("slow", slow_kernel, 1, (const size_t[]){8});
  rondo_argument argument = {.tensor = add_vector(rondo_output, graph, "y", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.image = image,
                                                          .image_bytes = sizeof image,
                                                          .function = "slow",
                                                          .arguments = &argument,
                                                          .argument_count = 1}));
  return graph;
}

Test(keep_warm, a_callback_may_ask_the_runtime_while_another_exec_starts_to_be_kept_warm, .timeout = 20) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_argument argument = {.tensor = add_vector(rondo_output, graph, "y", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_capture(graph, &(rondo_capture_desc){.arguments = &argument, .argument_count = 1}, ask));
  asking.warm_graph = one_slow_task();
  const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                 .device_bytes = 1 << 20,
                                 .pinned_bytes = 1 << 20,
                                 .host_bytes = 4 << 20,
                                 .lanes = (const rondo_lane[]){{0}, {0}},
                                 .lane_count = 2};
  REQUIRE_OK(rondo_open(&options, &asking.runtime));
  rondo_exec *warm_exec = NULL, *exec = NULL;
  pthread_t warmer;
  cr_assert_eq(pthread_create(&warmer, NULL, make_warm_exec, &warm_exec), 0);
  while (!atomic_load(&asking.is_replaying)) sleep_ms(1);
  REQUIRE_OK(rondo_instantiate(asking.runtime, graph, NULL, &exec));
  cr_assert_eq(pthread_join(warmer, NULL), 0);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&warm_exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&asking.warm_graph));
  REQUIRE_OK(rondo_close(&asking.runtime));
  require_clean("after close");
}
