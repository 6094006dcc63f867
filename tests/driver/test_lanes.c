/* test_lanes.c - lanes on the fake driver: what each is granted, that its work runs there and only there, in order, and
 * that a replay in a stream of the caller's keeps its place. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "../../runtime/cuda/driver.h"
#include "driver_support.h"

TestSuite(lanes, .init = driver_setup, .timeout = 120);

enum { COUNT = 32, MULTIPROCESSORS = 132 };

static const char where_image[] = "fake image: where";

static void where_kernel(const struct fake_launch *launch) {
  **(uint32_t **)launch->parameters[0] = (uint32_t)launch->multiprocessors;
}

/* result := the multiprocessors that the task may run on. */
static rondo_graph *where(rondo_tensor *result) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  *result = add_vector(rondo_output, graph, "result", 1);
  fake->register_kernel("where", where_kernel, 1, (const size_t[]){8});
  rondo_argument argument = {.tensor = *result, .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "where",
                                                          .image = where_image,
                                                          .image_bytes = sizeof where_image,
                                                          .function = "where",
                                                          .arguments = &argument,
                                                          .argument_count = 1}));
  return graph;
}

static const rondo_lane three[] = {
    {.name = "quick", .multiprocessors = 13, .priority = 2}, {.name = "bulk"}, {.name = "background", .priority = 99}};

static rondo_options with_lanes(const rondo_lane *lanes, uint32_t count) {
  return (rondo_options){.backend = RONDO_BACKEND_CUDA,
                         .device_bytes = 1 << 20,
                         .pinned_bytes = 1 << 20,
                         .host_bytes = 4 << 20,
                         .lanes = lanes,
                         .lane_count = count};
}

static rondo_runtime *opened(const rondo_lane *lanes, uint32_t count) {
  rondo_options options = with_lanes(lanes, count);
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static void closed(rondo_runtime *runtime) {
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

static void require_refused(const rondo_lane *lanes, uint32_t count, rondo_status expected, const char *fragment) {
  rondo_options options = with_lanes(lanes, count);
  rondo_runtime *runtime = NULL;
  REQUIRE_ERROR(rondo_open(&options, &runtime), expected, fragment);
  cr_assert_null(runtime);
  require_clean(fragment);
}

/* ---- What is granted --------------------------------------------------------------------------------------------- */

Test(lanes, tell_what_they_were_granted) {
  rondo_runtime *runtime = opened(three, 3);
  static const struct {
    const char *name;
    int32_t multiprocessors, priority;
  } expected[] = {{"quick", 16, 2}, {"bulk", 116, 0}, {"background", 116, 5}};
  rondo_lane_grant grant;
  rondo_info info;
  for (uint32_t i = 0; i < 3; i++) {
    REQUIRE_OK(rondo_lane_info(runtime, i, &grant));
    cr_assert_str_eq(grant.name, expected[i].name);
    cr_assert_eq(grant.multiprocessors, expected[i].multiprocessors, "lane %u: %d", i, grant.multiprocessors);
    cr_assert_eq(grant.priority, expected[i].priority, "lane %u: %d", i, grant.priority);
    cr_assert_not_null(grant.stream);
  }
  REQUIRE_ERROR(rondo_lane_info(runtime, 3, &grant), RONDO_INVALID_ARGUMENT,
                "lane 3 does not exist: the runtime has 3");
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.lane_count, 3);
  cr_assert_eq(info.multiprocessors, MULTIPROCESSORS, "of the whole GPU");
  closed(runtime);
}

Test(lanes, without_any_there_is_one_of_the_whole_device) {
  rondo_runtime *runtime = opened(NULL, 0);
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_lane_info(runtime, 0, &grant));
  cr_assert_str_eq(grant.name, "");
  cr_assert_eq(grant.multiprocessors, MULTIPROCESSORS);
  cr_assert_eq(grant.priority, 5);
  cr_assert_eq(fake->calls("cuGreenCtxCreate"), 0);
  closed(runtime);
}

Test(lanes, of_priorities_alone_split_nothing) {
  rondo_runtime *runtime = opened((const rondo_lane[]){{.priority = 1}, {0}}, 2);
  cr_assert_eq(fake->calls("cuGreenCtxCreate"), 0);
  cr_assert_eq(fake->calls("cuStreamCreateWithPriority"), 4);
  closed(runtime);
}

Test(lanes, may_have_all_that_can_be_split_off) {
  rondo_runtime *runtime = opened((const rondo_lane[]){{.multiprocessors = 56}, {.multiprocessors = 64}, {0}}, 3);
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_lane_info(runtime, 2, &grant));
  cr_assert_eq(grant.multiprocessors, 12, "what is in no group");
  closed(runtime);
}

Test(lanes, that_ask_for_more_than_there_is_are_refused_with_the_numbers) {
  require_refused((const rondo_lane[]){{.multiprocessors = 100}, {.name = "b", .multiprocessors = 21}}, 2,
                  RONDO_INVALID_ARGUMENT,
                  "lane 1 'b' asks for 21 multiprocessors; of the device's 132, 120 can be split off, 8 at a time, and "
                  "16 of those are left");
  require_refused((const rondo_lane[]){{.multiprocessors = INT32_MAX}}, 1, RONDO_INVALID_ARGUMENT,
                  "120 of those are left");
}

Test(lanes, that_make_no_sense_are_refused) {
  rondo_lane many[RONDO_MAX_LANES + 1] = {0};
  require_refused(many, RONDO_MAX_LANES + 1, RONDO_INVALID_ARGUMENT, "9 lanes are too many: 8 at most");
  require_refused(NULL, 2, RONDO_INVALID_ARGUMENT, "the lanes are NULL, and their count is 2");
  require_refused((const rondo_lane[]){{.multiprocessors = -1}}, 1, RONDO_INVALID_ARGUMENT, "neither is negative");
  require_refused((const rondo_lane[]){{.priority = -1}}, 1, RONDO_INVALID_ARGUMENT, "neither is negative");
  require_refused((const rondo_lane[]){{.arena_bytes = 1 << 19}, {.name = "b", .arena_bytes = (1 << 19) + 1}}, 2,
                  RONDO_INVALID_ARGUMENT, "lane 1 'b' keeps 524289 bytes of a device pool of 1048576, of which 524288");
}

Test(lanes, need_a_driver_that_can_split_only_if_one_asks_for_multiprocessors) {
  static const char *const functions[] = {
      "cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc", "cuGreenCtxCreate",
      "cuGreenCtxDestroy",      "cuCtxFromGreenCtx",           "cuGreenCtxStreamCreate"};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    driver_setup();
    fake->hide(functions[i], CU_SYMBOL_NOT_FOUND);
    require_refused(three, 3, RONDO_UNSUPPORTED, "this driver has no green contexts");
    closed(opened((const rondo_lane[]){{.priority = 1}, {0}}, 2));
  }
}

Test(lanes, are_all_given_back_whichever_call_of_open_fails) {
  bool failed = true;
  uint64_t n = 1;
  for (; failed; n++) {
    driver_setup();
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_options options = with_lanes(three, 3);
    rondo_runtime *runtime = NULL;
    rondo_status status = rondo_open(&options, &runtime);
    const char *function = fake->failed_call();
    failed = function != NULL;
    if (status != RONDO_OK) cr_assert(!runtime && rondo_error_text()[0], "call %d, %s", (int)n, function);
    fake->fail_call(0, 0);
    REQUIRE_OK(rondo_close(&runtime));
    require_clean(failed ? function : "no failure");
  }
  cr_assert_gt(n, 90);
}

/* ---- Where work runs --------------------------------------------------------------------------------------------- */

Test(lanes, run_their_own_execs_on_their_own_multiprocessors) {
  static const uint32_t expected[] = {16, 116, 116};
  rondo_tensor result;
  rondo_graph *graph = where(&result);
  rondo_runtime *runtime = opened(three, 3);
  for (uint32_t i = 0; i < 3; i++) {
    rondo_exec *exec = NULL;
    rondo_slot slot;
    rondo_exec_usage usage;
    rondo_lane_grant grant;
    REQUIRE_OK(rondo_lane_info(runtime, i, &grant));
    REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = i}, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    uint64_t before = fake->launches_into(grant.stream);
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(fake->launches_into(grant.stream), before + 1, "lane %u", i);
    cr_assert_eq(*(uint32_t *)rondo_data(slot, result), expected[i], "lane %u", i);
    REQUIRE_OK(rondo_exec_info(exec, &usage));
    cr_assert_eq(usage.lane, i);
    REQUIRE_OK(rondo_release(slot));
    REQUIRE_OK(rondo_close_exec(&exec));
  }
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = 3}, &exec), RONDO_INVALID_ARGUMENT,
                "instantiate: lane 3 does not exist: the runtime has 3");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  closed(runtime);
}

static uint32_t blocks_most;
static void count_blocks(const struct fake_launch *launch) {
  if (launch->grid[0] > blocks_most) blocks_most = launch->grid[0];
}

/* A large copy takes four blocks for each multiprocessor that it may have. */
static uint32_t blocks_of_a_large_copy(uint32_t lane) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  enum { BYTES = 32 << 20 };
  rondo_tensor x = add_vector(rondo_state, graph, "x", BYTES / 4), y = add_vector(rondo_state, graph, "y", BYTES / 4);
  add_copy(graph, "copy", x, y);
  add_mix(graph, "mix", y, y, add_vector(rondo_output, graph, "z", 1), 1, 0); /* the copy below publishes nothing */
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  options.lanes = three, options.lane_count = 3;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  fake->register_kernel("rondo_copy", count_blocks, 1, (const size_t[]){104});
  blocks_most = 0;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = lane}, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  closed(runtime);
  return blocks_most;
}

Test(lanes, have_kernels_chosen_for_their_multiprocessors) {
  cr_assert_eq(blocks_of_a_large_copy(0), 4 * 16);
  driver_setup();
  cr_assert_eq(blocks_of_a_large_copy(1), 4 * 116);
}

/* ---- The caller's streams ---------------------------------------------------------------------------------------- */

/* y := mix of x and the state, and the state := y: the order of replays shows. */
struct ordered {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_tensor state;
  rondo_slot slots[2];
  rondo_lane_grant lanes[2];
};

static void ordered_begin(struct ordered *o) {
  *o = (struct ordered){.runtime = opened((const rondo_lane[]){{.multiprocessors = 8}, {0}}, 2)};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &o->graph));
  o->state = add_vector(rondo_state, o->graph, "state", COUNT);
  rondo_tensor next = add_vector(rondo_temporary, o->graph, "next", COUNT);
  add_mix(o->graph, "mix", o->state, o->state, next, COUNT, 1);
  add_copy(o->graph, "keep", next, o->state);
  REQUIRE_OK(rondo_instantiate(o->runtime, o->graph, &(rondo_exec_options){.slots = 2}, &o->exec));
  for (uint32_t i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_acquire(o->exec, &o->slots[i]));
    REQUIRE_OK(rondo_lane_info(o->runtime, i, &o->lanes[i]));
  }
}

static void ordered_end(struct ordered *o) {
  REQUIRE_OK(rondo_close_exec(&o->exec));
  REQUIRE_OK(rondo_graph_destroy(&o->graph));
  closed(o->runtime);
}

static uint32_t state_of(const struct ordered *o) {
  uint32_t state[COUNT];
  REQUIRE_OK(rondo_download(o->exec, o->state, state, sizeof state));
  return state[0];
}

static uint32_t after(uint32_t state, int replays) {
  while (replays-- > 0) state = 31 * state + 17 * state + 1;
  return state;
}

static void replays_take_turns(enum fake_mode mode) {
  struct ordered o;
  ordered_begin(&o);
  set_mode(mode);
  uint64_t before = fake->launches_into(o.lanes[1].stream);
  for (int round = 0; round < 20; round++) {
    REQUIRE_OK(rondo_replay(o.slots[0]));
    REQUIRE_OK(rondo_replay_on(o.slots[1], o.lanes[1].stream));
    REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
    REQUIRE_OK(rondo_replay(o.slots[0]));
    REQUIRE_OK(rondo_wait(o.slots[1], RONDO_FOREVER));
    REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
  }
  cr_assert_eq(fake->launches_into(o.lanes[1].stream), before + 20);
  cr_assert_eq(state_of(&o), after(0, 60));
  ordered_end(&o);
}

Test(lanes, a_replay_in_the_callers_stream_keeps_its_place_among_the_lanes) { replays_take_turns(FAKE_DEFERRED); }
Test(lanes, also_where_the_device_runs_by_itself) { replays_take_turns(FAKE_THREAD); }

/* Another thread's replay, begun between the calls that a replay in the caller's stream consists of. */
static struct {
  struct ordered ordered;
  pthread_t thread;
  uint32_t records; /* of events: the second follows the launch */
  uint64_t launches;
} meddler;

static void *replay_the_other_slot(void *unused) {
  (void)unused;
  REQUIRE_OK(rondo_replay(meddler.ordered.slots[1]));
  return NULL;
}

static void meddle(void) {
  if (++meddler.records != 2) return;
  meddler.launches = fake->launches_into(meddler.ordered.lanes[0].stream);
  cr_assert_eq(pthread_create(&meddler.thread, NULL, replay_the_other_slot, NULL), 0);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  cr_assert_eq(fake->launches_into(meddler.ordered.lanes[0].stream), meddler.launches, "it is in order with neither");
}

Test(lanes, no_replay_of_another_thread_gets_between_the_calls_of_one_in_the_callers_stream) {
  struct ordered *o = &meddler.ordered;
  ordered_begin(o);
  set_mode(FAKE_DEFERRED);
  fake->before_call("cuEventRecord", meddle);
  REQUIRE_OK(rondo_replay_on(o->slots[0], o->lanes[1].stream));
  cr_assert_eq(pthread_join(meddler.thread, NULL), 0);
  for (uint32_t i = 0; i < 2; i++) REQUIRE_OK(rondo_wait(o->slots[i], RONDO_FOREVER));
  cr_assert_eq(fake->launches_into(o->lanes[0].stream), meddler.launches + 1);
  cr_assert_eq(state_of(o), after(0, 2));
  ordered_end(o);
}

/* What a program has put into the lanes' streams itself, too. */
static atomic_int ended_count;

static void end_one(void *unused) {
  (void)unused;
  atomic_fetch_add(&ended_count, 1);
}

Test(lanes, closing_waits_for_what_all_of_them_hold) {
  enum { LANES = 3 };
  static const rondo_lane lanes[LANES];
  rondo_runtime *runtime = NULL;
  struct driver driver;
  struct cu_context *context = NULL;
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA,
                                         .device_bytes = 1 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .lanes = lanes,
                                         .lane_count = LANES},
                        &runtime));
  REQUIRE_OK(driver_load(&driver));
  cr_assert_eq(driver.cuDevicePrimaryCtxRetain(&context, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxPushCurrent(context), CU_SUCCESS);
  set_mode(FAKE_DEFERRED);
  for (uint32_t i = 0; i < LANES; i++) {
    rondo_lane_grant grant;
    REQUIRE_OK(rondo_lane_info(runtime, i, &grant));
    cr_assert_eq(driver.cuLaunchHostFunc(grant.stream, end_one, NULL), CU_SUCCESS);
  }
  cr_assert_eq(atomic_load(&ended_count), 0);
  REQUIRE_OK(rondo_close(&runtime));
  cr_assert_eq(atomic_load(&ended_count), LANES);
  cr_assert_eq(driver.cuCtxPopCurrent(&context), CU_SUCCESS);
  cr_assert_eq(driver.cuDevicePrimaryCtxRelease(0), CU_SUCCESS);
  require_clean("after close");
}

/* The other way round: the other thread's launch in the lane is not over yet. */
static atomic_bool is_inside, may_leave;

static void stay_inside(void) {
  if (atomic_exchange(&is_inside, true)) return; /* the launch in the caller's stream */
  while (!atomic_load(&may_leave)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *replay_in_the_callers_stream(void *unused) {
  (void)unused;
  REQUIRE_OK(rondo_replay_on(meddler.ordered.slots[0], meddler.ordered.lanes[1].stream));
  return NULL;
}

Test(lanes, a_replay_in_the_callers_stream_waits_for_launches_of_other_threads_in_the_lane) {
  struct ordered *o = &meddler.ordered;
  pthread_t inside, outside;
  ordered_begin(o);
  set_mode(FAKE_DEFERRED);
  fake->before_call("cuGraphLaunch", stay_inside);
  cr_assert_eq(pthread_create(&inside, NULL, replay_the_other_slot, NULL), 0);
  while (!atomic_load(&is_inside)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  uint64_t records = fake->calls("cuEventRecord"), asked = fake->calls("cuStreamGetCaptureInfo");
  cr_assert_eq(pthread_create(&outside, NULL, replay_in_the_callers_stream, NULL), 0);
  while (fake->calls("cuStreamGetCaptureInfo") == asked) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  cr_assert_eq(fake->calls("cuEventRecord"), records, "it would not be behind the launch that is not over");
  atomic_store(&may_leave, true);
  cr_assert_eq(pthread_join(inside, NULL), 0);
  cr_assert_eq(pthread_join(outside, NULL), 0);
  for (uint32_t i = 0; i < 2; i++) REQUIRE_OK(rondo_wait(o->slots[i], RONDO_FOREVER));
  cr_assert_eq(state_of(o), after(0, 2));
  ordered_end(o);
}

/* The download waits for the second lane's stream alone, whose replay waits for the one before it in the first lane. */
Test(lanes, a_replay_in_the_callers_stream_waits_for_those_before_it) {
  struct ordered o;
  rondo_graph *graph = NULL;
  rondo_exec *other = NULL;
  uint32_t x[COUNT];
  ordered_begin(&o);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor from = add_vector(rondo_state, graph, "from", COUNT), to = add_vector(rondo_state, graph, "to", COUNT);
  add_copy(graph, "copy", from, to);
  REQUIRE_OK(rondo_instantiate(o.runtime, graph, &(rondo_exec_options){.lane = 1}, &other));
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay(o.slots[0]));
  REQUIRE_OK(rondo_replay_on(o.slots[1], o.lanes[1].stream));
  REQUIRE_OK(rondo_download(other, to, x, sizeof x));
  REQUIRE_OK(rondo_poll(o.slots[1]));
  REQUIRE_OK(rondo_poll(o.slots[0]));
  cr_assert_eq(state_of(&o), after(0, 2));
  REQUIRE_OK(rondo_close_exec(&other));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  ordered_end(&o);
}

/* Nothing of the second replay may run before the first, and the download must see both. */
Test(lanes, a_download_sees_a_replay_in_the_callers_stream) {
  struct ordered o;
  ordered_begin(&o);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay_on(o.slots[0], o.lanes[1].stream));
  REQUIRE_ERROR(rondo_replay_on(o.slots[0], o.lanes[1].stream), RONDO_BUSY, "rondo_replay_on: slot 0 is in flight");
  REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
  cr_assert_eq(state_of(&o), after(0, 1));
  ordered_end(&o);
}

Test(lanes, a_failing_call_of_a_replay_in_the_callers_stream_is_told_and_changes_nothing_or_loses_the_device) {
  bool failed = true;
  uint32_t lost = 0, refused = 0;
  for (uint64_t n = 1; failed; n++) {
    struct ordered o;
    driver_setup();
    ordered_begin(&o);
    fake->fail_call(n, 999);
    rondo_status status = rondo_replay_on(o.slots[0], o.lanes[1].stream);
    const char *function = fake->failed_call();
    failed = function != NULL;
    fake->fail_call(0, 0);
    if (status == RONDO_DEVICE_LOST) {
      cr_assert_neq(strstr(rondo_error_text(), "launched"), NULL, "%s", rondo_error_text());
      REQUIRE_ERROR(rondo_replay(o.slots[1]), RONDO_DEVICE_LOST, "launched");
      REQUIRE_OK(rondo_close_exec(&o.exec));
      REQUIRE_OK(rondo_graph_destroy(&o.graph));
      REQUIRE_OK(rondo_close(&o.runtime));
      require_no_violation(function);
      lost++;
      continue;
    }
    cr_assert(status == RONDO_OK ? !failed || !strcmp(function, "cuCtxPopCurrent") : status == RONDO_DEVICE_ERROR,
              "%s: %s", function, rondo_status_name(status));
    refused += status != RONDO_OK;
    int replays = status == RONDO_OK;
    REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
    REQUIRE_OK(rondo_replay(o.slots[0]));
    REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
    cr_assert_eq(state_of(&o), after(0, replays + 1), "%s", function);
    ordered_end(&o);
  }
  cr_assert_eq(refused, 5, "%u", refused);
  cr_assert_eq(lost, 2, "%u", lost);
}

static int replay_in_capture(void *user, void *stream, void *const *data) {
  (void)data;
  struct ordered *o = user;
  REQUIRE_ERROR(rondo_replay_on(o->slots[0], stream), RONDO_INVALID_STATE, "the stream captures");
  return 0;
}

Test(lanes, a_stream_that_captures_is_no_place_for_a_replay) {
  struct ordered o;
  ordered_begin(&o);
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_argument argument = {.tensor = add_vector(rondo_output, graph, "y", COUNT), .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_capture(graph, &(rondo_capture_desc){.arguments = &argument, .argument_count = 1, .user = &o},
                               replay_in_capture));
  REQUIRE_OK(rondo_instantiate(o.runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  ordered_end(&o);
}

Test(lanes, the_host_has_no_streams) {
  rondo_options options = with_lanes(three, 3);
  options.backend = RONDO_BACKEND_HOST;
  rondo_runtime *runtime = NULL;
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_lane_info(runtime, 0, &grant));
  cr_assert_null(grant.stream);
  cr_assert_str_eq(grant.name, "quick");
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  add_copy(graph, "copy", add_vector(rondo_input, graph, "x", COUNT), add_vector(rondo_output, graph, "y", COUNT));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = 2}, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_ERROR(rondo_replay_on(slot, NULL), RONDO_UNSUPPORTED, "the host backend has no streams");
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}
