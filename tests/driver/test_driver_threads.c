/* test_driver_threads.c - the application's threads and the driver's: threads that the driver starts in our calls, and
 * the thread of keep_warm, take no signals of the application; a kernel's parameters do not depend on the caller's
 * floating-point state; a thread that cannot be started does no harm. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../../kernels/model/rope.h"
#include "../../runtime/cores.h"
#include "../../runtime/floats.h"
#include "../unit/ledger.h"
#include "driver_support.h"

TestSuite(driver_threads, .init = driver_setup, .timeout = 60);

enum { COUNT = 64 };

static rondo_graph *one_copy(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  add_copy(graph, "copy", add_vector(rondo_input, graph, "x", COUNT), add_vector(rondo_output, graph, "y", COUNT));
  return graph;
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static atomic_bool has_started, takes_signals;

/* As the driver's threads: with whatever is blocked where they are started. */
static void *look_at_signals(void *unused) {
  (void)unused;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  atomic_store(&takes_signals, !sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGUSR1));
  return NULL;
}

/* In the first call only: later ones are the replaying thread's. */
static void start_thread(void) {
  pthread_t thread;
  if (atomic_exchange(&has_started, true)) return;
  cr_assert_eq(pthread_create(&thread, NULL, look_at_signals, NULL), 0);
  cr_assert_eq(pthread_join(thread, NULL), 0);
}

static void replay_with_notice(rondo_exec *exec, int file) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_notify(slot, file));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_release(slot));
}

Test(driver_threads, a_thread_that_the_driver_starts_takes_no_signals) {
  static const char *const names[] = {"cuInit",
                                      "cuDevicePrimaryCtxRetain",
                                      "cuStreamCreateWithPriority",
                                      "cuLibraryLoadData",
                                      "cuMemAlloc",
                                      "cuMemHostAlloc",
                                      "cuGraphCreate",
                                      "cuGraphInstantiateWithParams",
                                      "cuEventCreate",
                                      "cuGraphLaunch",
                                      "cuLaunchHostFunc"};
  sigset_t before, after;
  int file = eventfd(0, 0);
  cr_assert_geq(file, 0);
  pthread_sigmask(SIG_BLOCK, NULL, &before);
  cr_assert(!sigismember(&before, SIGTERM) && !sigismember(&before, SIGUSR1));
  rondo_graph *graph = one_copy();
  for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
    const size_t n = i / 2;
    rondo_runtime *runtime = NULL;
    rondo_exec *exec = NULL;
    driver_setup();
    atomic_store(&has_started, false);
    fake->before_call(names[n], start_thread);
    rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
    REQUIRE_OK(rondo_open(&options, &runtime));
    REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.without_warm_up = i % 2}, &exec));
    replay_with_notice(exec, file);
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_close(&runtime));
    cr_assert(atomic_load(&has_started), "%s was not called", names[n]);
    cr_assert(!atomic_load(&takes_signals), "of %s", names[n]);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    cr_assert(!sigismember(&after, SIGTERM) && !sigismember(&after, SIGUSR1), "the caller's mask is as it was");
    require_clean("after close");
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
  close(file);
}

static pthread_t caller;

static void look_at_beats(void) {
  if (pthread_equal(pthread_self(), caller)) return;
  look_at_signals(NULL);
  atomic_store(&has_started, true);
}

Test(driver_threads, the_thread_that_keeps_warm_takes_no_signals) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  caller = pthread_self();
  REQUIRE_OK(rondo_open(&options, &runtime));
  fake->before_call("cuGraphLaunch", look_at_beats);
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.keep_warm = 1}, &exec));
  while (!atomic_load(&has_started)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  cr_assert(!atomic_load(&takes_signals));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

static int look_from_callback(void *user, void *stream, void *const *data) {
  (void)user;
  (void)stream;
  (void)data;
  atomic_store(&has_started, true);
  look_at_signals(NULL);
  return 0;
}

Test(driver_threads, a_capture_callback_has_the_callers_signals) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_argument argument = {.tensor = add_vector(rondo_output, graph, "y", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(
      rondo_add_capture(graph, &(rondo_capture_desc){.arguments = &argument, .argument_count = 1}, look_from_callback));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  cr_assert(atomic_load(&has_started) && atomic_load(&takes_signals));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Floating-point state ---------------------------------------------------------------------------------------- */

static struct rope_parameters told;

static void note_parameters(const struct fake_launch *launch) {
  memcpy(&told, launch->parameters[0], sizeof told);
  told.x = told.out = NULL;
  told.positions = NULL;
  told.done = (struct completion){0};
}

/* The frequencies of a rotary embedding: each is a power. */
static struct rope_parameters parameters_in(struct floats floats) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor x, turned, y;
  const int64_t shape[] = {1, 2, 3, 64};
  fake->register_kernel("rondo_rope", note_parameters, 1, (const size_t[]){sizeof(struct rope_parameters)});
  memset(&told, 0, sizeof told);
  const struct floats before = floats_default();
  floats_set(floats);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 4, shape, &x));
  REQUIRE_OK(rondo_temporary(graph, "turned", RONDO_F32, 4, shape, &turned));
  REQUIRE_OK(rondo_output(graph, "y", RONDO_F32, 4, shape, &y));
  REQUIRE_OK(rondo_add_rope(
      graph, &(rondo_rope_desc){
                 .x = x, .out = turned, .position = add_vector(rondo_input, graph, "position", 1), .base = 12345.5f}));
  add_copy(graph, "copy", turned, y); /* which publishes */
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  const struct floats after = floats_default();
  floats_set(before);
  cr_assert(after.sse >> 6 == floats.sse >> 6 && after.x87 == floats.x87, "the caller's state is as it was");
  return told;
}

Test(driver_threads, kernels_are_told_the_same_whatever_the_callers_floating_point_state) {
  static const struct floats states[] = {
      {0x3f80, 0x077f}, {0x5f80, 0x0b7f}, {0x7f80, 0x0f7f}, {0x9fc0, 0x037f}, {0x0000, 0x0340}};
  const struct rope_parameters expected = parameters_in((struct floats){0x1f80, 0x037f});
  cr_assert_eq(expected.pairs, 32);
  cr_assert_eq(expected.base_frequencies[0], 1);
  cr_assert_float_eq(expected.base_frequencies[16], 1 / 111.11030, 1e-8);
  for (size_t s = 0; s < sizeof states / sizeof *states; s++) {
    const struct rope_parameters got = parameters_in(states[s]);
    cr_assert_arr_eq(got.base_frequencies, expected.base_frequencies, sizeof got.base_frequencies, "state %zu", s);
  }
}

/* ---- Threads that are not to be had ------------------------------------------------------------------------------ */

Test(driver_threads, without_a_thread_nothing_is_kept_warm_and_nothing_is_left_behind) {
  rondo_graph *graph = one_copy();
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  thread_calls = 0, thread_fail_at = 1;
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, &(rondo_exec_options){.keep_warm = 1}, &exec), RONDO_OUT_OF_MEMORY,
                "keep_warm: no thread could be started");
  cr_assert_eq(thread_calls, 1);
  cr_assert_null(exec);
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.keep_warm = 1}, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

/* Each upload asks again. */
Test(driver_threads, an_upload_whose_helpers_cannot_be_started_is_the_same) {
  enum { BYTES = 64 << 20 };
  struct cores cores;
  cores_find(&cores);
  if (cores_threads(&cores) < 2) cr_skip_test("one core: there are no helpers");
  unsigned char *data = malloc(BYTES), *back = calloc(1, BYTES);
  cr_assert(data && back);
  for (uint32_t i = 0; i < BYTES; i++) data[i] = (unsigned char)(i * 2654435761u >> 24);
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor state;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_U8, 1, (int64_t[]){BYTES}, &state));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  for (int upload = 0; upload < 3; upload++) {
    int calls = thread_calls;
    thread_fail_at = calls + 1;
    memset(back, 0, BYTES);
    REQUIRE_OK(rondo_upload(exec, state, data, BYTES));
    REQUIRE_OK(rondo_download(exec, state, back, BYTES));
    cr_assert_eq(memcmp(back, data, BYTES), 0);
    cr_assert_gt(thread_calls, calls, "no helper was asked for");
  }
  thread_fail_at = 0;
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
  free(data);
  free(back);
}
