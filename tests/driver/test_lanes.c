/* test_lanes.c - lanes on the fake driver: what each is granted of the device, and that its work runs there and only
 * there. Faults that would show: a lane that gets another's multiprocessors, a grant that is kept when open fails, a
 * kernel that is chosen for the whole device. Replays in the caller's streams: test_caller_streams.c. */
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

static void require_refused(const rondo_lane *lanes, uint32_t count, rondo_status expected, const char *fragment) {
  rondo_options options = options_with_lanes(lanes, count);
  rondo_runtime *runtime = NULL;
  REQUIRE_ERROR(rondo_open(&options, &runtime), expected, fragment);
  cr_assert_null(runtime);
  require_clean(fragment);
}

/* ---- What is granted --------------------------------------------------------------------------------------------- */

Test(lanes, tell_what_they_were_granted) {
  rondo_runtime *runtime = open_lanes(three, 3);
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
  close_clean(runtime);
}

Test(lanes, without_any_there_is_one_of_the_whole_device) {
  rondo_runtime *runtime = open_lanes(NULL, 0);
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_lane_info(runtime, 0, &grant));
  cr_assert_str_eq(grant.name, "");
  cr_assert_eq(grant.multiprocessors, MULTIPROCESSORS);
  cr_assert_eq(grant.priority, 5);
  cr_assert_eq(fake->calls("cuGreenCtxCreate"), 0);
  close_clean(runtime);
}

Test(lanes, of_priorities_alone_split_nothing) {
  rondo_runtime *runtime = open_lanes((const rondo_lane[]){{.priority = 1}, {0}}, 2);
  cr_assert_eq(fake->calls("cuGreenCtxCreate"), 0);
  cr_assert_eq(fake->calls("cuStreamCreateWithPriority"), 4);
  close_clean(runtime);
}

Test(lanes, may_have_all_that_can_be_split_off) {
  rondo_runtime *runtime = open_lanes((const rondo_lane[]){{.multiprocessors = 56}, {.multiprocessors = 64}, {0}}, 3);
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_lane_info(runtime, 2, &grant));
  cr_assert_eq(grant.multiprocessors, 12, "what is in no group");
  close_clean(runtime);
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
  require_refused(many, RONDO_MAX_LANES + 1, RONDO_INVALID_ARGUMENT, "9 lanes, expected at most 8");
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
    close_clean(open_lanes((const rondo_lane[]){{.priority = 1}, {0}}, 2));
  }
}

Test(lanes, are_all_given_back_whichever_call_of_open_fails) {
  bool failed = true;
  uint64_t n = 1;
  for (; failed; n++) {
    driver_setup();
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_options options = options_with_lanes(three, 3);
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
  rondo_runtime *runtime = open_lanes(three, 3);
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
  close_clean(runtime);
}

Test(lanes, run_the_loops_of_repeats_on_their_own_multiprocessors) {
  enum { STEPS = 3 };
  static const uint32_t expected[] = {16, 116, 116};
  rondo_runtime *runtime = open_lanes(three, 3);
  rondo_tensor result;
  rondo_graph *graph = where(&result);
  for (uint32_t i = 0; i < 3; i++) {
    rondo_exec *exec = NULL;
    rondo_slot slot;
    rondo_lane_grant grant;
    REQUIRE_OK(rondo_lane_info(runtime, i, &grant));
    REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = i, .repeat_steps = STEPS}, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    const uint64_t before = fake->launches_into(grant.stream);
    REQUIRE_OK(rondo_repeat(slot, &(rondo_repeat_options){.count = STEPS}));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(fake->launches_into(grant.stream), before + 1, "lane %u", i);
    for (uint32_t step = 0; step < STEPS; step++)
      cr_assert_eq(*(const uint32_t *)rondo_repeat_data(slot, result, step), expected[i], "lane %u", i);
    REQUIRE_OK(rondo_close_exec(&exec));
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
  close_clean(runtime);
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
  close_clean(runtime);
  return blocks_most;
}

Test(lanes, have_kernels_chosen_for_their_multiprocessors) {
  cr_assert_eq(blocks_of_a_large_copy(0), 4 * 16);
  driver_setup();
  cr_assert_eq(blocks_of_a_large_copy(1), 4 * 116);
}

Test(lanes, the_host_has_no_streams) {
  rondo_options options = options_with_lanes(three, 3);
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
