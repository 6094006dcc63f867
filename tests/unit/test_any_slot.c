/* test_any_slot.c - which slots are done, with whose request, and how many are free, without asking each. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../support.h"

TestSuite(any_slot, .timeout = 60);

enum { COUNT = 64, SLOTS = 4 };
static const int64_t shape[] = {COUNT};

struct subject {
  rondo_runtime *runtime;
  rondo_tensor in, out;
  rondo_exec *execs[2]; /* in two lanes */
};

static struct subject subject_open(rondo_backend backend) {
  struct subject s = {0};
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_I32, 1, shape, &s.in));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_I32, 1, shape, &s.out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = s.in, .dst = s.out}));
  rondo_options options = {.backend = backend,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = 2,
                           .lanes = (rondo_lane[]){{.name = "a"}, {.name = "b"}},
                           .lane_count = 2};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  for (uint32_t i = 0; i < 2; i++)
    REQUIRE_OK(rondo_instantiate(s.runtime, graph, &(rondo_exec_options){.slots = SLOTS, .lane = i}, &s.execs[i]));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return s;
}

static void subject_close(struct subject *s) {
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_close_exec(&s->execs[i]));
  REQUIRE_OK(rondo_close(&s->runtime));
}

static rondo_slot start(const struct subject *s, int exec, int32_t *request) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(s->execs[exec], &slot));
  cr_assert_null(slot.user);
  int32_t *in = rondo_data(slot, s->in);
  for (int i = 0; i < COUNT; i++) in[i] = *request + i;
  slot.user = request;
  REQUIRE_OK(rondo_replay(slot));
  return slot;
}

static void require_nothing_done(const struct subject *s) {
  rondo_slot slot;
  REQUIRE_ERROR(rondo_wait_any(s->execs, 2, 0, &slot), RONDO_TIMEOUT, "no further replay ended within");
}

static void require_counts(rondo_exec *exec, uint32_t free_count, uint32_t in_flight_count) {
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_exec_info(exec, &usage));
  cr_assert_eq(usage.free_slot_count, free_count);
  cr_assert_eq(usage.in_flight_slot_count, in_flight_count);
}

/* ---- Done -------------------------------------------------------------------------------------------------------- */

static void each_once(rondo_backend backend) {
  struct subject s = subject_open(backend);
  require_nothing_done(&s); /* the warm replays are not told of */
  for (int32_t round = 0; round < 50; round++) {
    int32_t requests[2 * SLOTS];
    bool told[2 * SLOTS] = {false};
    for (int i = 0; i < 2 * SLOTS; i++) requests[i] = 1000 * round + 10 * i;
    for (int i = 0; i < 2 * SLOTS; i++) start(&s, i % 2, &requests[i]);
    for (int i = 0; i < 2 * SLOTS; i++) {
      rondo_slot slot;
      REQUIRE_OK(rondo_wait_any(s.execs, 2, RONDO_FOREVER, &slot));
      REQUIRE_OK(rondo_poll(slot));
      int32_t *request = slot.user;
      const int32_t *out = rondo_data(slot, s.out);
      for (int k = 0; k < COUNT; k++) cr_assert_eq(out[k], *request + k);
      cr_assert_not(told[request - requests]);
      told[request - requests] = true;
      REQUIRE_OK(rondo_release(slot));
    }
    require_nothing_done(&s);
  }
  for (int i = 0; i < 2; i++) require_counts(s.execs[i], SLOTS, 0);
  subject_close(&s);
}

/* What the program has done without asking is not told of, in whatever order it did it. */
static void no_more_than_the_last(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int32_t request = 5, another = 6;
  rondo_slot slot = start(&s, 0, &request), got, next;
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_release(slot));
  require_nothing_done(&s); /* released */
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(s.execs[0], &next));
  require_nothing_done(&s); /* whoever holds it now has replayed nothing */
  slot = start(&s, 1, &request);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  slot.user = &another;
  REQUIRE_OK(rondo_replay(slot)); /* anew */
  REQUIRE_OK(rondo_wait_any(s.execs, 2, RONDO_FOREVER, &got));
  cr_assert_eq(got.user, &another);
  cr_assert_eq(got.index, slot.index);
  require_nothing_done(&s);
  rondo_task_profile tasks[1];
  rondo_profile_totals totals;
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_exec_info(s.execs[1], &usage));
  if (usage.node_count == 1) {
    REQUIRE_OK(rondo_profile(got, &(rondo_profile_options){.passes = 1, .copy_bytes = 4096}, tasks, 1, &totals));
    require_nothing_done(&s); /* replays of its own */
  }
  subject_close(&s);
}

/* One file for the slots of both lanes, and then no question about any of them. */
static void one_file_for_all(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int file = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  int32_t requests[2 * SLOTS];
  int told = 0;
  for (int i = 0; i < 2 * SLOTS; i++) {
    rondo_slot slot;
    requests[i] = i;
    REQUIRE_OK(rondo_acquire(s.execs[i % 2], &slot));
    REQUIRE_OK(rondo_notify(slot, file));
    slot.user = &requests[i];
    REQUIRE_OK(rondo_replay(slot));
  }
  while (told < 2 * SLOTS) {
    struct pollfd wanted = {.fd = file, .events = POLLIN};
    uint64_t ended = 0;
    rondo_slot slot;
    cr_assert_eq(poll(&wanted, 1, 20000), 1);
    cr_assert_eq(read(file, &ended, sizeof ended), (ssize_t)sizeof ended);
    while (rondo_wait_any(s.execs, 2, 0, &slot) == RONDO_OK) told++;
  }
  cr_assert_eq(told, 2 * SLOTS);
  subject_close(&s);
  close(file);
}

BOTH_BACKENDS(any_slot, each_replay_is_told_once_with_its_pointer, each_once)
BOTH_BACKENDS(any_slot, what_was_released_or_replayed_anew_is_not_told, no_more_than_the_last)
BOTH_BACKENDS(any_slot, one_eventfd_wakes_for_the_slots_of_all_execs, one_file_for_all)

/* ---- Free, and in flight ----------------------------------------------------------------------------------------- */

static atomic_bool gate_is_open;
static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  while (!atomic_load(&gate_is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static rondo_status inside[3];
static void ask_inside(void *user, void *const *data) {
  (void)data;
  rondo_exec **exec = user;
  rondo_slot slot;
  if (!*exec) return; /* the warm replay */
  inside[0] = rondo_wait_any(exec, 1, 1, &slot);
  inside[1] = rondo_wait_any(exec, 1, 0, &slot);
  inside[2] = rondo_acquire_within(*exec, 1, &slot);
}

static rondo_exec *open_exec(rondo_runtime *runtime, rondo_host_function function, void *user) {
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_argument argument = {.access = RONDO_READ};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_I32, 1, shape, &argument.tensor));
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.host = function, .user = user, .arguments = &argument, .argument_count = 1}));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2}, &exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return exec;
}

static void *release_later(void *argument) {
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  REQUIRE_OK(rondo_release(*(rondo_slot *)argument));
  return NULL;
}

Test(any_slot, who_acquires_within_a_time_gets_what_another_thread_releases) {
  for (int mode = RONDO_WAIT_SPIN_YIELD; mode <= RONDO_WAIT_BLOCK; mode++) {
    rondo_runtime *runtime = NULL;
    rondo_slot slots[2], slot;
    pthread_t releaser;
    REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                           .device_bytes = 1 << 20,
                                           .pinned_bytes = 1 << 20,
                                           .host_threads = 1,
                                           .wait_mode = (rondo_wait_mode)mode},
                          &runtime));
    atomic_store(&gate_is_open, true);
    rondo_exec *exec = open_exec(runtime, wait_at_gate, NULL);
    require_counts(exec, 2, 0);
    for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_acquire_within(exec, 0, &slots[i]));
    REQUIRE_ERROR(rondo_acquire_within(exec, 0, &slot), RONDO_TIMEOUT,
                  "no slot became free within 0 ns: the exec has 2");
    REQUIRE_ERROR(rondo_acquire_within(exec, 1000000, &slot), RONDO_TIMEOUT,
                  "no slot became free within 1000000 ns: the exec has 2");
    cr_assert_eq(pthread_create(&releaser, NULL, release_later, &slots[1]), 0);
    REQUIRE_OK(rondo_acquire_within(exec, RONDO_FOREVER, &slot));
    pthread_join(releaser, NULL);
    cr_assert_eq(slot.index, slots[1].index);
    atomic_store(&gate_is_open, false);
    REQUIRE_OK(rondo_replay(slots[0]));
    require_counts(exec, 0, 1);
    REQUIRE_ERROR(rondo_wait_any(&exec, 1, 1000000, &slot), RONDO_TIMEOUT, "ended within 1000000 ns");
    atomic_store(&gate_is_open, true);
    REQUIRE_OK(rondo_wait_any(&exec, 1, RONDO_FOREVER, &slot));
    cr_assert_eq(slot.index, slots[0].index);
    require_counts(exec, 0, 0);
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_close(&runtime));
  }
}

Test(any_slot, a_task_may_look_but_not_wait_for_its_own_runtime) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_exec *made = open_exec(s.runtime, ask_inside, &exec);
  exec = made;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  cr_assert_eq(inside[0], RONDO_INVALID_STATE);
  cr_assert_eq(inside[1], RONDO_TIMEOUT);
  cr_assert_eq(inside[2], RONDO_INVALID_STATE);
  REQUIRE_OK(rondo_close_exec(&exec));
  subject_close(&s);
}

Test(any_slot, a_lost_device_is_told_without_a_slot_after_what_was_done) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  rondo_slot done, hanging, slot;
  atomic_store(&gate_is_open, true);
  rondo_exec *exec = open_exec(s.runtime, wait_at_gate, NULL);
  REQUIRE_OK(rondo_runtime_health(s.runtime));
  int32_t request = 3;
  done = start(&s, 1, &request);
  REQUIRE_OK(rondo_wait(done, RONDO_FOREVER));
  REQUIRE_OK(rondo_acquire(exec, &hanging));
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(hanging));
  REQUIRE_ERROR(rondo_close_exec_within(&exec, 0), RONDO_DEVICE_LOST, "was not done after 0 ns");
  REQUIRE_ERROR(rondo_runtime_health(s.runtime), RONDO_DEVICE_LOST, "was not done after 0 ns");
  REQUIRE_OK(rondo_wait_any(s.execs, 2, RONDO_FOREVER, &slot));
  cr_assert_eq(slot.user, &request);
  REQUIRE_ERROR(rondo_wait_any(s.execs, 2, RONDO_FOREVER, &slot), RONDO_DEVICE_LOST, "was not done after 0 ns");
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire_within(s.execs[0], RONDO_FOREVER, &slot));
  REQUIRE_ERROR(rondo_acquire_within(s.execs[0], RONDO_FOREVER, &slot), RONDO_DEVICE_LOST, "was not done after 0 ns");
  atomic_store(&gate_is_open, true);
  subject_close(&s);
}

Test(any_slot, what_cannot_be_asked_is_refused) {
  struct subject s = subject_open(RONDO_BACKEND_HOST), other = subject_open(RONDO_BACKEND_HOST);
  rondo_slot slot;
  rondo_exec *mixed[] = {s.execs[0], other.execs[0]}, *none[] = {NULL};
  REQUIRE_ERROR(rondo_wait_any(NULL, 1, 0, &slot), RONDO_INVALID_ARGUMENT, "the execs are NULL, or their count is 0");
  REQUIRE_ERROR(rondo_wait_any(s.execs, 0, 0, &slot), RONDO_INVALID_ARGUMENT,
                "the execs are NULL, or their count is 0");
  REQUIRE_ERROR(rondo_wait_any(s.execs, 2, 0, NULL), RONDO_INVALID_ARGUMENT, "the slot's address is NULL");
  REQUIRE_ERROR(rondo_wait_any(none, 1, 0, &slot), RONDO_INVALID_ARGUMENT, "rondo_wait_any: the exec is NULL");
  REQUIRE_ERROR(rondo_wait_any(mixed, 2, 0, &slot), RONDO_INVALID_ARGUMENT,
                "exec 1 belongs to another runtime than exec 0");
  REQUIRE_ERROR(rondo_acquire_within(s.execs[0], 0, NULL), RONDO_INVALID_ARGUMENT, "the slot's address is NULL");
  REQUIRE_ERROR(rondo_acquire_within(NULL, 0, &slot), RONDO_INVALID_ARGUMENT, "the exec is NULL");
  REQUIRE_ERROR(rondo_runtime_health(NULL), RONDO_INVALID_ARGUMENT, "rondo_runtime_health: the runtime is NULL");
  subject_close(&s);
  subject_close(&other);
}
