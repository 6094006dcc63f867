/* test_caller_streams.c - replays in a stream of the caller's (rondo_replay_on), on the fake driver: they keep their
 * place among the replays of the lane, whatever other threads do between their calls. Faults that would show: a replay
 * that overtakes another, a close or a download that does not wait for the stream, a failing call that changes the
 * order. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "../../runtime/cuda/driver.h"
#include "driver_support.h"

TestSuite(caller_streams, .init = driver_setup, .timeout = 120);

enum { COUNT = 32 };

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
  *o = (struct ordered){.runtime = open_lanes((const rondo_lane[]){{.multiprocessors = 8}, {0}}, 2)};
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
  close_clean(o->runtime);
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

Test(caller_streams, a_replay_keeps_its_place_among_the_lanes) { replays_take_turns(FAKE_DEFERRED); }
Test(caller_streams, a_replay_keeps_its_place_where_the_device_runs_by_itself) { replays_take_turns(FAKE_THREAD); }

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

Test(caller_streams, no_replay_of_another_thread_gets_between_the_calls_of_one_in_the_callers_stream) {
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

Test(caller_streams, closing_waits_for_what_all_of_them_hold) {
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

Test(caller_streams, a_replay_in_the_callers_stream_waits_for_launches_of_other_threads_in_the_lane) {
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
Test(caller_streams, a_replay_in_the_callers_stream_waits_for_those_before_it) {
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
Test(caller_streams, a_download_sees_a_replay_in_the_callers_stream) {
  struct ordered o;
  ordered_begin(&o);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay_on(o.slots[0], o.lanes[1].stream));
  REQUIRE_ERROR(rondo_replay_on(o.slots[0], o.lanes[1].stream), RONDO_BUSY, "rondo_replay_on: slot 0 is in flight");
  REQUIRE_OK(rondo_wait(o.slots[0], RONDO_FOREVER));
  cr_assert_eq(state_of(&o), after(0, 1));
  ordered_end(&o);
}

Test(caller_streams, a_failing_call_of_a_replay_in_the_callers_stream_is_told_and_changes_nothing_or_loses_the_device) {
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
      cr_assert_neq(strstr(rondo_error_text(), "after the launch"), NULL, "%s", rondo_error_text());
      REQUIRE_ERROR(rondo_replay(o.slots[1]), RONDO_DEVICE_LOST, "after the launch");
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
  REQUIRE_ERROR(rondo_replay_on(o->slots[0], stream), RONDO_INVALID_STATE, "the stream is being captured");
  return 0;
}

Test(caller_streams, a_stream_that_captures_is_no_place_for_a_replay) {
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
