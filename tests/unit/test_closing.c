/* test_closing.c - calls of another thread while an exec is closed, set, read or profiled: they are refused, or what
 * they get is whole. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "../../runtime/exec.h"
#include "../../runtime/runtime.h"
#include "../support.h"

TestSuite(closing, .timeout = 60);

enum { COUNT = 64 };
static const int64_t shape[] = {COUNT};

/* ---- A task that waits ------------------------------------------------------------------------------------------- */

static atomic_bool gate_is_open, is_at_gate;

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) rest();
}

static void close_gate(void) {
  atomic_store(&gate_is_open, false);
  atomic_store(&is_at_gate, false);
}

static void wait_until_at_gate(void) {
  while (!atomic_load(&is_at_gate)) rest();
}

/* ---- What is open ------------------------------------------------------------------------------------------------ */

/* In lane 0 an exec of a constant and a state, and one of its own memory; a graph that borrows from the former. A
 * replay of either stands at the gate. */
struct subject {
  rondo_runtime *runtime;
  rondo_graph *lender, *borrower, *neighbour;
  rondo_tensor weights, cache, out;
  rondo_exec *exec, *beside;
};

static void add_task(rondo_graph *graph, rondo_tensor tensor, rondo_access access, rondo_host_function function) {
  rondo_argument argument = {.tensor = tensor, .access = access};
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = function, .arguments = &argument, .argument_count = 1}));
}

static void add_one(void *user, void *const *data) {
  (void)user;
  float *state = data[0];
  for (int i = 0; i < COUNT; i++) state[i] += 1;
}

static void describe(struct subject *s) {
  rondo_tensor borrowed, written, own;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->lender));
  REQUIRE_OK(rondo_constant(s->lender, "weights", RONDO_F32, 1, shape, &s->weights));
  REQUIRE_OK(rondo_state(s->lender, "cache", RONDO_F32, 1, shape, &s->cache));
  add_task(s->lender, s->cache, RONDO_READ, wait_at_gate);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->borrower));
  REQUIRE_OK(rondo_borrow(s->borrower, s->weights, &borrowed));
  REQUIRE_OK(rondo_borrow(s->borrower, s->cache, &written));
  REQUIRE_OK(rondo_output(s->borrower, "out", RONDO_F32, 1, shape, &s->out));
  REQUIRE_OK(rondo_add_copy(s->borrower, &(rondo_copy_desc){.src = borrowed, .dst = s->out}));
  add_task(s->borrower, written, RONDO_READ_WRITE, add_one);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->neighbour));
  REQUIRE_OK(rondo_state(s->neighbour, "own", RONDO_F32, 1, shape, &own));
  add_task(s->neighbour, own, RONDO_READ, wait_at_gate);
}

static struct subject subject_open(void) {
  struct subject s = {0};
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = 2,
                           .lanes = (rondo_lane[]){{.name = "a"}, {.name = "b"}},
                           .lane_count = 2};
  atomic_store(&gate_is_open, true);
  describe(&s);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.lender, &(rondo_exec_options){.constants_begin_as_zeros = 1}, &s.exec));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.neighbour, NULL, &s.beside));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close_exec(&s->beside));
  REQUIRE_OK(rondo_close(&s->runtime));
  REQUIRE_OK(rondo_graph_destroy(&s->borrower));
  REQUIRE_OK(rondo_graph_destroy(&s->neighbour));
  REQUIRE_OK(rondo_graph_destroy(&s->lender));
}

static void set_all(rondo_exec *exec, rondo_tensor tensor, float value) {
  float data[COUNT];
  for (int i = 0; i < COUNT; i++) data[i] = value;
  REQUIRE_OK(rondo_upload(exec, tensor, data, sizeof data));
}

/* A replay that does not end before the gate is opened. */
static rondo_slot replay_up_to_gate(rondo_exec *exec) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  close_gate();
  REQUIRE_OK(rondo_replay(slot));
  wait_until_at_gate();
  return slot;
}

/* What the borrower reads of the weights. */
static void require_weights(const struct subject *s, uint32_t lane, float expected) {
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_instantiate(s->runtime, s->borrower, &(rondo_exec_options){.lane = lane}, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  const float *out = rondo_data(slot, s->out);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(out[i], expected, "%g, expected %g", (double)out[i], (double)expected);
  REQUIRE_OK(rondo_close_exec(&exec));
}

/* ---- While an exec is being closed ------------------------------------------------------------------------------- */

/* Until the closing thread waits for the replay. */
static void wait_until_closing(rondo_exec *exec) {
  for (bool is_closing = false; !is_closing; rest()) {
    pthread_mutex_lock(&exec->runtime->group->lock);
    is_closing = exec->lending.is_closing;
    pthread_mutex_unlock(&exec->runtime->group->lock);
  }
}

static void *close_exec(void *argument) {
  REQUIRE_OK(rondo_close_exec(argument));
  return NULL;
}

Test(closing, nobody_borrows_from_an_exec_that_another_thread_closes) {
  struct subject s = subject_open();
  rondo_exec *borrower = NULL;
  pthread_t closer;
  set_all(s.exec, s.weights, 7);
  require_weights(&s, 0, 7);
  replay_up_to_gate(s.exec);
  cr_assert_eq(pthread_create(&closer, NULL, close_exec, &s.exec), 0);
  wait_until_closing(s.exec);
  const rondo_exec_options beside = {.lane = 1, .states_are_ordered = true}; /* it does not wait for the gate */
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.borrower, &beside, &borrower), RONDO_INVALID_STATE,
                "instantiate: constant 'weights' is borrowed from a graph whose exec another thread closes");
  atomic_store(&gate_is_open, true);
  pthread_join(closer, NULL);
  cr_assert_null(s.exec);
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.borrower, NULL, &borrower), RONDO_INVALID_STATE, "no exec is open");
  REQUIRE_OK(rondo_instantiate(s.runtime, s.lender, NULL, &s.exec));
  set_all(s.exec, s.weights, 8);
  require_weights(&s, 0, 8);
  subject_close(&s);
}

/* Of two execs of the lender one may be on its way out. */
Test(closing, a_borrower_takes_the_exec_that_nobody_closes) {
  struct subject s = subject_open();
  rondo_exec *second = NULL;
  pthread_t closer;
  REQUIRE_OK(rondo_instantiate(s.runtime, s.lender, &(rondo_exec_options){.lane = 1}, &second));
  set_all(s.exec, s.weights, 666);
  set_all(second, s.weights, 7);
  replay_up_to_gate(s.exec);
  cr_assert_eq(pthread_create(&closer, NULL, close_exec, &s.exec), 0);
  wait_until_closing(s.exec);
  rondo_exec *borrower = NULL;
  REQUIRE_OK(rondo_instantiate(s.runtime, s.borrower, &(rondo_exec_options){.lane = 1}, &borrower));
  REQUIRE_ERROR(rondo_close_exec(&second), RONDO_INVALID_STATE, "1 open exec borrows");
  REQUIRE_OK(rondo_close_exec(&borrower));
  atomic_store(&gate_is_open, true);
  pthread_join(closer, NULL);
  require_weights(&s, 1, 7);
  REQUIRE_OK(rondo_close_exec(&second));
  subject_close(&s);
}

Test(closing, an_exec_that_another_thread_closes_is_neither_set_nor_read_nor_closed_again) {
  struct subject s = subject_open();
  rondo_exec *copy = s.exec;
  pthread_t closer;
  float data[COUNT] = {0};
  replay_up_to_gate(s.exec);
  cr_assert_eq(pthread_create(&closer, NULL, close_exec, &s.exec), 0);
  wait_until_closing(copy);
  REQUIRE_ERROR(rondo_upload(copy, s.weights, data, sizeof data), RONDO_INVALID_STATE,
                "another thread closes the exec");
  REQUIRE_ERROR(rondo_download(copy, s.cache, data, sizeof data), RONDO_INVALID_STATE,
                "another thread closes the exec");
  REQUIRE_ERROR(rondo_close_exec_within(&copy, 0), RONDO_INVALID_STATE,
                "rondo_close_exec_within: another thread closes the exec");
  REQUIRE_ERROR(rondo_close(&s.runtime), RONDO_INVALID_STATE, "the runtime still has 2 execs, of tasks");
  atomic_store(&gate_is_open, true);
  pthread_join(closer, NULL);
  subject_close(&s);
}

/* The lender may be set while a borrower goes: not before its replay is done, and then it holds what was set. */
Test(closing, a_lender_is_busy_until_the_borrower_that_another_thread_closes_is_done) {
  struct subject s = subject_open();
  rondo_exec *borrower = NULL, *watched;
  rondo_tensor borrowed;
  pthread_t closer;
  float data[COUNT] = {0};
  REQUIRE_OK(rondo_borrow(s.neighbour, s.weights, &borrowed));
  add_task(s.neighbour, borrowed, RONDO_READ, wait_at_gate);
  REQUIRE_OK(rondo_instantiate(s.runtime, s.neighbour, &(rondo_exec_options){.lane = 1}, &borrower));
  watched = borrower;
  replay_up_to_gate(borrower);
  cr_assert_eq(pthread_create(&closer, NULL, close_exec, &borrower), 0);
  wait_until_closing(watched);
  REQUIRE_ERROR(rondo_upload(s.exec, s.weights, data, sizeof data), RONDO_BUSY, "in flight");
  atomic_store(&gate_is_open, true);
  pthread_join(closer, NULL);
  set_all(s.exec, s.weights, 3);
  require_weights(&s, 0, 3);
  subject_close(&s);
}

/* ---- While an exec is being read --------------------------------------------------------------------------------- */

struct reading {
  struct subject *subject;
  float data[COUNT];
  pthread_t thread;
};

static void *read_cache(void *argument) {
  struct reading *reading = argument;
  REQUIRE_OK(rondo_download(reading->subject->exec, reading->subject->cache, reading->data, sizeof reading->data));
  return NULL;
}

/* Up to where it waits for what its lane holds: a replay of another exec's, at the gate. */
static void read_up_to_gate(struct reading *reading, struct subject *s) {
  *reading = (struct reading){.subject = s};
  cr_assert_eq(pthread_create(&reading->thread, NULL, read_cache, reading), 0);
  for (uint32_t count = 0; !count; rest()) {
    pthread_mutex_lock(&s->runtime->group->lock);
    count = s->exec->lending.transfer_count;
    pthread_mutex_unlock(&s->runtime->group->lock);
  }
}

Test(closing, an_exec_is_not_closed_while_another_thread_reads_it) {
  struct subject s = subject_open();
  struct reading reading;
  set_all(s.exec, s.cache, 5);
  replay_up_to_gate(s.beside);
  read_up_to_gate(&reading, &s);
  REQUIRE_ERROR(rondo_close_exec(&s.exec), RONDO_INVALID_STATE,
                "another thread uploads to the exec or downloads from it");
  atomic_store(&gate_is_open, true);
  pthread_join(reading.thread, NULL);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(reading.data[i], 5);
  set_all(s.exec, s.weights, 7); /* a refused close leaves it as it was */
  require_weights(&s, 0, 7);
  subject_close(&s);
}

static void *instantiate_borrower(void *argument) {
  struct subject *s = argument;
  rondo_exec *exec = NULL;
  REQUIRE_OK(
      rondo_instantiate(s->runtime, s->borrower, &(rondo_exec_options){.lane = 1, .states_are_ordered = true}, &exec));
  return exec;
}

/* It would add one to a state that is still read as zeros. */
Test(closing, no_warm_replay_writes_a_state_that_another_thread_reads) {
  struct subject s = subject_open();
  struct reading reading;
  pthread_t maker;
  void *made = NULL;
  replay_up_to_gate(s.beside);
  read_up_to_gate(&reading, &s);
  cr_assert_eq(pthread_create(&maker, NULL, instantiate_borrower, &s), 0);
  pthread_join(maker, &made); /* in a lane of its own: it does not wait for the gate */
  rondo_exec *borrower = made;
  cr_assert_eq(borrower->warm_replays, 0);
  atomic_store(&gate_is_open, true);
  pthread_join(reading.thread, NULL);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(reading.data[i], 0);
  REQUIRE_OK(rondo_close_exec(&borrower));
  subject_close(&s);
}

/* ---- While a lane is being profiled ------------------------------------------------------------------------------ */

static void stop_at_gate(void *user, uint32_t done, uint32_t passes) {
  (void)passes;
  if (done == 1) wait_at_gate(user, NULL);
}

static void *profile(void *argument) {
  rondo_exec *exec = argument;
  rondo_slot slot;
  rondo_task_profile task;
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_profile(slot, &(rondo_profile_options){.passes = 2, .copy_bytes = 4096, .progress = stop_at_gate},
                           &task, 1, &totals));
  REQUIRE_OK(rondo_release(slot));
  return NULL;
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

Test(closing, nothing_is_instantiated_or_profiled_in_a_lane_that_another_thread_profiles) {
  struct subject s = subject_open();
  rondo_graph *graph = NULL;
  rondo_tensor state;
  rondo_exec *exec = NULL, *profiled = NULL, *other = NULL;
  rondo_slot slot;
  rondo_task_profile task;
  rondo_profile_totals totals;
  pthread_t profiler;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_F32, 1, shape, &state));
  add_task(graph, state, RONDO_READ, no_work);
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, NULL, &profiled));
  close_gate();
  cr_assert_eq(pthread_create(&profiler, NULL, profile, profiled), 0);
  wait_until_at_gate();
  REQUIRE_ERROR(rondo_instantiate(s.runtime, graph, NULL, &other), RONDO_BUSY,
                "instantiate: another thread profiles in lane 0");
  REQUIRE_ERROR(rondo_profile(slot, NULL, &task, 1, &totals), RONDO_BUSY, "another thread profiles in lane 0");
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, &(rondo_exec_options){.lane = 1}, &other));
  REQUIRE_OK(rondo_close_exec(&other));
  atomic_store(&gate_is_open, true);
  pthread_join(profiler, NULL);
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, NULL, &other));
  REQUIRE_OK(rondo_profile(slot, &(rondo_profile_options){.passes = 1, .copy_bytes = 4096}, &task, 1, &totals));
  REQUIRE_OK(rondo_close_exec(&other));
  REQUIRE_OK(rondo_close_exec(&profiled));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  subject_close(&s);
}

static void *instantiate_neighbour(void *argument) {
  struct subject *s = argument;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(s->runtime, s->neighbour, NULL, &exec));
  return exec;
}

Test(closing, nothing_is_profiled_in_a_lane_in_which_another_thread_instantiates) {
  struct subject s = subject_open();
  rondo_slot slot;
  rondo_task_profile task;
  rondo_profile_totals totals;
  pthread_t maker;
  void *made = NULL;
  REQUIRE_OK(rondo_acquire(s.exec, &slot));
  close_gate();
  cr_assert_eq(pthread_create(&maker, NULL, instantiate_neighbour, &s), 0);
  wait_until_at_gate();
  REQUIRE_ERROR(rondo_profile(slot, NULL, &task, 1, &totals), RONDO_BUSY,
                "another exec of lane 0 is being instantiated");
  atomic_store(&gate_is_open, true);
  pthread_join(maker, &made);
  REQUIRE_OK(rondo_profile(slot, &(rondo_profile_options){.passes = 1, .copy_bytes = 4096}, &task, 1, &totals));
  rondo_exec *exec = made;
  REQUIRE_OK(rondo_close_exec(&exec));
  subject_close(&s);
}
