/* test_host_lanes.c - lanes on the host backend: what each is granted, that they run side by side and wait for no
 * other work, and that the work of one lane runs in order. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "../../runtime/runtime.h"
#include "lone_task.h"

TestSuite(host_lanes, .timeout = 60); /* a lane that waits for another waits for ever */

static rondo_runtime *open_lanes(const rondo_lane *lanes, uint32_t count, uint32_t threads) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = threads,
                           .lanes = lanes,
                           .lane_count = count};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static const rondo_lane two[] = {{.name = "a"}, {.name = "b"}};

static void sleep_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

/* ---- What is granted --------------------------------------------------------------------------------------------- */

Test(host_lanes, are_granted_the_threads_they_ask_for_and_share_the_rest) {
  static const struct {
    uint32_t threads, lane_count;
    int32_t asked[RONDO_MAX_LANES], granted[RONDO_MAX_LANES];
  } cases[] = {
      {5, 0, {0}, {5}},
      {5, 1, {0}, {5}},
      {5, 1, {2}, {2}},
      {7, 3, {0, 2, 0}, {3, 2, 2}},
      {8, 2, {3, 5}, {3, 5}},
      {4, 3, {4, 0, 0}, {4, 1, 1}},
      {1, 3, {0, 0, 0}, {1, 1, 1}},
      {16, 2, {124, 8}, {15, 1}}, /* a GPU's multiprocessors */
      {12, 3, {96, 32, 0}, {9, 3, 1}},
      {2, 8, {INT32_MAX, INT32_MAX, 0, 0, 0, 0, 0, 1}, {1, 1, 1, 1, 1, 1, 1, 1}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    rondo_lane lanes[RONDO_MAX_LANES] = {0};
    for (int i = 0; i < RONDO_MAX_LANES; i++)
      lanes[i] = (rondo_lane){.multiprocessors = cases[c].asked[i], .priority = 3};
    rondo_runtime *runtime = open_lanes(lanes, cases[c].lane_count, cases[c].threads);
    rondo_info info;
    REQUIRE_OK(rondo_runtime_info(runtime, &info));
    cr_assert_eq(info.lane_count, cases[c].lane_count ? cases[c].lane_count : 1);
    int32_t all = 0;
    for (uint32_t i = 0; i < info.lane_count; i++) {
      rondo_lane_grant grant;
      REQUIRE_OK(rondo_lane_info(runtime, i, &grant));
      cr_assert_eq(grant.multiprocessors, cases[c].granted[i], "case %zu, lane %u: %d", c, i, grant.multiprocessors);
      cr_assert_eq(grant.priority, 0, "there are none");
      all += grant.multiprocessors;
    }
    cr_assert_eq(info.multiprocessors, all);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

/* ---- Side by side ------------------------------------------------------------------------------------------------ */

static atomic_bool gate_is_open, is_at_gate;

static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) sleep_us(100);
}

static void open_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&gate_is_open, true);
}

/* `blocked` is in flight in the runtime's lane 0 and not done before the gate opens. */
static void block_lane_0(struct lone_task *blocked) {
  atomic_store(&gate_is_open, false);
  atomic_store(&is_at_gate, false);
  REQUIRE_OK(rondo_replay(blocked->slot));
  while (!atomic_load(&is_at_gate)) sleep_us(100);
}

Test(host_lanes, run_side_by_side) {
  for (int mode = 0; mode < 2; mode++) { /* as many threads as lanes, and more */
    rondo_runtime *runtime = open_lanes(two, 2, mode ? 5 : 1);
    atomic_store(&gate_is_open, true);
    struct lone_task blocked = lone_task_in(runtime, 0, wait_at_gate, NULL, NULL);
    struct lone_task opener = lone_task_in(runtime, 1, open_gate, NULL, NULL);
    for (int replay = 0; replay < 10; replay++) {
      block_lane_0(&blocked);
      REQUIRE_OK(rondo_replay(opener.slot));
      REQUIRE_OK(rondo_wait(blocked.slot, RONDO_FOREVER));
      REQUIRE_OK(rondo_wait(opener.slot, RONDO_FOREVER));
    }
    lone_task_end(&blocked);
    lone_task_end(&opener);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

Test(host_lanes, are_made_uploaded_to_and_closed_while_another_is_busy) {
  rondo_runtime *runtime = open_lanes(two, 2, 2);
  atomic_store(&gate_is_open, true);
  struct lone_task blocked = lone_task_in(runtime, 0, wait_at_gate, NULL, NULL);
  block_lane_0(&blocked);
  struct lone_task other = lone_task_in(runtime, 1, nothing, NULL, NULL);
  float value = 7, read = 0;
  REQUIRE_OK(rondo_upload(other.exec, other.state, &value, sizeof value));
  REQUIRE_OK(rondo_replay(other.slot));
  REQUIRE_OK(rondo_wait(other.slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_download(other.exec, other.state, &read, sizeof read));
  cr_assert_eq(read, 7);
  lone_task_end(&other);
  cr_assert_eq(rondo_poll(blocked.slot), RONDO_BUSY);
  atomic_store(&gate_is_open, true);
  lone_task_end(&blocked);
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- In order ---------------------------------------------------------------------------------------------------- */

enum { LANES = 2, EXECS = 3, ROUNDS = 200 };

/* Of one lane. Plain but for `inside`: that a lane's tasks follow each other is what orders them. */
struct diary {
  atomic_int inside;
  int count;
  int entries[EXECS * ROUNDS];
};

struct writer {
  struct diary *diary;
  int number;
};

static void write_diary(void *user, void *const *data) {
  (void)data;
  const struct writer *writer = user;
  struct diary *diary = writer->diary;
  cr_assert_eq(atomic_fetch_add(&diary->inside, 1), 0, "two execs of a lane run at once");
  if (diary->count % 16 == 0) sleep_us(50);
  if (diary->count < EXECS * ROUNDS) diary->entries[diary->count++] = writer->number;
  atomic_fetch_sub(&diary->inside, 1);
}

Test(host_lanes, keep_their_execs_in_the_order_of_the_replays) {
  static struct diary diaries[LANES];
  static struct writer writers[LANES][EXECS];
  struct lone_task tasks[LANES][EXECS];
  rondo_runtime *runtime = open_lanes(two, LANES, 4);
  for (uint32_t lane = 0; lane < LANES; lane++)
    for (int e = 0; e < EXECS; e++) {
      writers[lane][e] = (struct writer){&diaries[lane], e};
      tasks[lane][e] = lone_task_in(runtime, lane, write_diary, NULL, &writers[lane][e]);
    }
  for (int lane = 0; lane < LANES; lane++) diaries[lane].count = 0; /* of the warm replays */
  for (int round = 0; round < ROUNDS; round++)
    for (int e = 0; e < EXECS; e++)
      for (int lane = 0; lane < LANES; lane++) {
        REQUIRE_OK(rondo_wait(tasks[lane][e].slot, RONDO_FOREVER)); /* the others of the lane are still in flight */
        REQUIRE_OK(rondo_replay(tasks[lane][e].slot));
      }
  for (int lane = 0; lane < LANES; lane++) {
    for (int e = 0; e < EXECS; e++) lone_task_end(&tasks[lane][e]);
    cr_assert_eq(diaries[lane].count, EXECS * ROUNDS);
    for (int i = 0; i < EXECS * ROUNDS; i++)
      cr_assert_eq(diaries[lane].entries[i], i % EXECS, "entry %d of lane %d", i, lane);
  }
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

static atomic_bool has_returned;

/* Returns some time after the device is lost. */
static void outlive_the_device(void *user, void *const *data) {
  (void)data;
  rondo_runtime *const *runtime = user;
  if (!*runtime) return;
  atomic_store(&is_at_gate, true);
  while ((*runtime)->ops->health((*runtime)->device) == RONDO_OK) sleep_us(100);
  sleep_us(5000);
  atomic_store(&has_returned, true);
}

Test(host_lanes, are_left_by_their_team_before_an_exec_of_a_lost_device_is_closed) {
  rondo_runtime *runtime = open_lanes(two, 2, 2), *running = NULL;
  atomic_store(&gate_is_open, true);
  struct lone_task stuck = lone_task_in(runtime, 0, wait_at_gate, NULL, NULL);
  struct lone_task beside = lone_task_in(runtime, 1, outlive_the_device, NULL, &running);
  running = runtime;
  block_lane_0(&stuck);
  atomic_store(&is_at_gate, false);
  REQUIRE_OK(rondo_replay(beside.slot));
  while (!atomic_load(&is_at_gate)) sleep_us(100);
  cr_assert_eq(runtime->ops->lose(runtime->device, "the test: lane 0 is stuck"), RONDO_DEVICE_LOST);
  lone_task_end(&beside);
  cr_assert(atomic_load(&has_returned), "the exec's memory was given back under the task's feet");
  atomic_store(&gate_is_open, true);
  lone_task_end(&stuck);
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- What a task may call ---------------------------------------------------------------------------------------- */

struct inside {
  atomic_bool is_armed;
  struct lone_task beside;
};

static void call_the_other_lane(void *user, void *const *data) {
  (void)data;
  struct inside *inside = user;
  if (!atomic_load(&inside->is_armed)) return;
  struct lone_task *beside = &inside->beside;
  float value = 0;
  static const char refusal[] = "called from a task of this runtime";
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(beside->slot));
  REQUIRE_ERROR(rondo_wait(beside->slot, RONDO_FOREVER), RONDO_INVALID_STATE, refusal);
  REQUIRE_ERROR(rondo_upload(beside->exec, beside->state, &value, sizeof value), RONDO_INVALID_STATE, refusal);
  REQUIRE_ERROR(rondo_close_exec(&beside->exec), RONDO_INVALID_STATE, refusal);
  atomic_store(&gate_is_open, true);
  while (rondo_poll(beside->slot) == RONDO_BUSY) sleep_us(100); /* to look on is allowed, and it does not wait for us */
  atomic_store(&inside->is_armed, false);
}

Test(host_lanes, a_task_that_would_wait_for_another_lane_is_refused) {
  static struct inside inside;
  for (uint32_t lane = 0; lane < 2; lane++) { /* from the first lane and from the last */
    rondo_runtime *runtime = open_lanes(two, 2, 2);
    atomic_store(&gate_is_open, true);
    struct lone_task self = lone_task_in(runtime, lane, call_the_other_lane, NULL, &inside);
    inside.beside = lone_task_in(runtime, 1 - lane, wait_at_gate, NULL, NULL);
    atomic_store(&inside.is_armed, true);
    REQUIRE_OK(rondo_replay(self.slot));
    REQUIRE_OK(rondo_wait(self.slot, RONDO_FOREVER));
    cr_assert(!atomic_load(&inside.is_armed), "the task did not come to its end");
    lone_task_end(&self);
    lone_task_end(&inside.beside);
    REQUIRE_OK(rondo_close(&runtime));
  }
}
