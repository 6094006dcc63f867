/* test_lend.c - an exec whose constants and states other execs borrow: who may open and close when, what is busy, what
 * a warm replay leaves alone, and which lanes may touch a state. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../../runtime/exec.h"
#include "../support.h"

TestSuite(lend, .timeout = 60);

enum { COUNT = 64 };
static const int64_t shape[] = {COUNT};

static rondo_runtime *open_runtime(uint32_t lane_count) {
  static const rondo_lane lanes[] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = 3,
                           .lanes = lanes,
                           .lane_count = lane_count};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

static void add_one(void *user, void *const *data) {
  (void)user;
  float *state = data[0];
  for (int i = 0; i < COUNT; i++) state[i] += 1;
}

static atomic_bool gate_is_open, is_at_gate;
static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}
static void wait_until_at_gate(void) {
  while (!atomic_load(&is_at_gate)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void add_task(rondo_graph *graph, rondo_tensor tensor, rondo_access access, rondo_host_function function) {
  rondo_argument argument = {.tensor = tensor, .access = access};
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = function, .arguments = &argument, .argument_count = 1}));
}

/* A graph with a constant and a state of its own, and one that borrows both; each has a task on the state, unless its
 * access is 0. */
struct couple {
  rondo_graph *lender, *borrower;
  rondo_tensor weights, cache, weights_borrowed, cache_borrowed;
};

static struct couple describe(uint32_t lender_access, uint32_t borrower_access, rondo_host_function function) {
  struct couple c = {0};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8, .tasks = 8}, &c.lender));
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8, .tasks = 8}, &c.borrower));
  REQUIRE_OK(rondo_constant(c.lender, "weights", RONDO_F32, 1, shape, &c.weights));
  REQUIRE_OK(rondo_state(c.lender, "cache", RONDO_F32, 1, shape, &c.cache));
  REQUIRE_OK(rondo_borrow(c.borrower, c.weights, &c.weights_borrowed));
  REQUIRE_OK(rondo_borrow(c.borrower, c.cache, &c.cache_borrowed));
  if (lender_access) add_task(c.lender, c.cache, (rondo_access)lender_access, no_work);
  if (borrower_access) add_task(c.borrower, c.cache_borrowed, (rondo_access)borrower_access, function);
  return c;
}

static void forget(struct couple *c) {
  REQUIRE_OK(rondo_graph_destroy(&c->lender));
  REQUIRE_OK(rondo_graph_destroy(&c->borrower));
}

static rondo_exec *open_exec(rondo_runtime *runtime, rondo_graph *graph) {
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  return exec;
}

static void replay_once(rondo_exec *exec) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_release(slot));
}

static void require_all(rondo_exec *owner, rondo_tensor state, float expected) {
  float got[COUNT];
  REQUIRE_OK(rondo_download(owner, state, got, sizeof got));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(got[i], expected, "%g, expected %g", (double)got[i], (double)expected);
}

static void set_all(rondo_exec *owner, rondo_tensor tensor, float value) {
  float data[COUNT];
  for (int i = 0; i < COUNT; i++) data[i] = value;
  REQUIRE_OK(rondo_upload(owner, tensor, data, sizeof data));
}

static rondo_info info_of(rondo_runtime *runtime) {
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  return info;
}

static void require_used(rondo_runtime *runtime, rondo_info before) {
  rondo_info now = info_of(runtime);
  cr_assert_eq(now.device.used_bytes, before.device.used_bytes);
  cr_assert_eq(now.pinned.used_bytes, before.pinned.used_bytes);
  cr_assert_eq(now.host.used_bytes, before.host.used_bytes);
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

Test(lend, a_borrower_wants_exactly_one_exec_of_the_lender_and_keeps_it_open) {
  rondo_runtime *runtime = open_runtime(1), *elsewhere = open_runtime(1);
  struct couple c = describe(0, RONDO_READ, no_work);
  rondo_exec *borrower = NULL, *foreign = open_exec(elsewhere, c.lender);
  rondo_info before = info_of(runtime);
  REQUIRE_ERROR(rondo_instantiate(runtime, c.borrower, NULL, &borrower), RONDO_INVALID_STATE,
                "constant 'weights' is borrowed from a graph of which no exec is open in this runtime: instantiate "
                "that graph first");
  require_used(runtime, before);
  rondo_exec *lender = open_exec(runtime, c.lender), *second = open_exec(runtime, c.lender);
  before = info_of(runtime);
  REQUIRE_ERROR(rondo_instantiate(runtime, c.borrower, NULL, &borrower), RONDO_INVALID_STATE,
                "instantiate: constant 'weights' is borrowed from a graph of which 2 execs are open in this runtime: "
                "close all except the lender");
  cr_assert_null(borrower);
  require_used(runtime, before);
  REQUIRE_OK(rondo_close_exec(&second));
  borrower = open_exec(runtime, c.borrower);
  rondo_exec *another = open_exec(runtime, c.borrower);
  REQUIRE_ERROR(rondo_close_exec(&lender), RONDO_INVALID_STATE,
                "2 open execs borrow its constants or states: first close those of tasks ");
  cr_assert_not_null(lender);
  REQUIRE_ERROR(rondo_close_exec_within(&lender, 0), RONDO_INVALID_STATE,
                "2 open execs borrow its constants or states: first close those of tasks ");
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_ERROR(rondo_close_exec(&lender), RONDO_INVALID_STATE,
                "1 open exec borrows its constants or states: first close that of task '");
  set_all(lender, c.cache, 3); /* a refused close leaves it as it was */
  require_all(lender, c.cache, 3);
  REQUIRE_OK(rondo_close_exec(&another));
  REQUIRE_OK(rondo_close_exec(&lender));
  REQUIRE_OK(rondo_close_exec(&foreign));
  cr_assert_eq(info_of(runtime).device.used_bytes + info_of(runtime).host.used_bytes, 0);
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_close(&elsewhere));
}

/* A graph may be changed after instantiate: its exec knows nothing of what came later. */
Test(lend, what_was_described_after_the_lenders_exec_was_made_is_not_there_to_borrow) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ, no_work);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrower = NULL;
  rondo_tensor late, borrowed;
  REQUIRE_OK(rondo_state(c.lender, "late", RONDO_F32, 1, shape, &late));
  REQUIRE_OK(rondo_borrow(c.borrower, late, &borrowed));
  add_task(c.borrower, borrowed, RONDO_WRITE, add_one);
  rondo_info before = info_of(runtime);
  REQUIRE_ERROR(rondo_instantiate(runtime, c.borrower, NULL, &borrower), RONDO_INVALID_STATE,
                "state 'late' was added to its graph after rondo_instantiate");
  require_used(runtime, before);
  REQUIRE_OK(rondo_close_exec(&lender));
  lender = open_exec(runtime, c.lender);
  borrower = open_exec(runtime, c.borrower);
  replay_once(borrower);
  require_all(lender, late, 1);
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

/* It fails after it has found its lender: a task without a host function. */
Test(lend, a_borrower_that_cannot_be_made_leaves_the_lender_as_it_was) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(RONDO_READ, RONDO_READ_WRITE, add_one);
  rondo_tensor large;
  REQUIRE_OK(rondo_temporary(c.borrower, "large", RONDO_F32, 1, (int64_t[]){10000}, &large));
  add_task(c.borrower, large, RONDO_WRITE, no_work);
  REQUIRE_OK(rondo_add_kernel(
      c.borrower, &(rondo_kernel_desc){.name = "only cuda", .image = "x", .image_bytes = 1, .function = "f"}));
  rondo_tensor small; /* so that the lane has an arena, which the borrower would make larger */
  REQUIRE_OK(rondo_temporary(c.lender, "small", RONDO_F32, 1, shape, &small));
  add_task(c.lender, small, RONDO_WRITE, no_work);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrower = NULL;
  set_all(lender, c.cache, 7);
  rondo_info before = info_of(runtime);
  for (int i = 0; i < 3; i++)
    REQUIRE_ERROR(rondo_instantiate(runtime, c.borrower, NULL, &borrower), RONDO_UNSUPPORTED, "'only cuda'");
  require_used(runtime, before);
  require_all(lender, c.cache, 7);
  replay_once(lender);
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(lend, what_is_borrowed_is_set_and_read_through_its_owner_alone) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ, no_work);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrower = open_exec(runtime, c.borrower);
  float data[COUNT] = {0};
  REQUIRE_ERROR(rondo_upload(borrower, c.weights_borrowed, data, sizeof data), RONDO_INVALID_ARGUMENT, "is borrowed");
  REQUIRE_ERROR(rondo_upload(borrower, c.cache_borrowed, data, sizeof data), RONDO_INVALID_ARGUMENT, "is borrowed");
  REQUIRE_ERROR(rondo_download(borrower, c.cache_borrowed, data, sizeof data), RONDO_INVALID_ARGUMENT, "is borrowed");
  REQUIRE_ERROR(rondo_upload(borrower, c.cache, data, sizeof data), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_ERROR(rondo_upload(lender, c.cache_borrowed, data, sizeof data), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(lend, an_upload_is_busy_while_a_borrower_is_in_flight) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(RONDO_READ, RONDO_READ_WRITE, wait_at_gate);
  struct couple apart = describe(0, RONDO_READ, no_work);
  atomic_store(&gate_is_open, true);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrower = open_exec(runtime, c.borrower);
  rondo_exec *other_lender = open_exec(runtime, apart.lender), *other_borrower = open_exec(runtime, apart.borrower);
  rondo_slot slot;
  float data[COUNT] = {0};
  REQUIRE_OK(rondo_acquire(borrower, &slot));
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_upload(lender, c.weights, data, sizeof data), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_upload(lender, c.cache, data, sizeof data), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_download(lender, c.cache, data, sizeof data), RONDO_BUSY, "in flight");
  atomic_store(&gate_is_open, true);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  set_all(lender, c.cache, 1);
  set_all(other_lender, apart.weights, 1);
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_OK(rondo_close_exec(&lender));
  REQUIRE_OK(rondo_close_exec(&other_borrower));
  REQUIRE_OK(rondo_close_exec(&other_lender));
  forget(&c);
  forget(&apart);
  REQUIRE_OK(rondo_close(&runtime));
}

/* An instantiate of another thread's, held in its warm replay. */
struct instantiation {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  pthread_t thread;
};

static void *instantiate(void *argument) {
  struct instantiation *i = argument;
  i->exec = open_exec(i->runtime, i->graph);
  return NULL;
}

static void instantiate_up_to_gate(struct instantiation *i) {
  atomic_store(&gate_is_open, false);
  atomic_store(&is_at_gate, false);
  cr_assert_eq(pthread_create(&i->thread, NULL, instantiate, i), 0);
  wait_until_at_gate();
}

static void finish(struct instantiation *i) {
  atomic_store(&gate_is_open, true);
  pthread_join(i->thread, NULL);
  cr_assert_not_null(i->exec);
}

Test(lend, an_upload_is_busy_while_a_borrower_is_being_made) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ_WRITE, wait_at_gate);
  rondo_exec *lender = open_exec(runtime, c.lender);
  struct instantiation making = {.runtime = runtime, .graph = c.borrower};
  float data[COUNT] = {0};
  instantiate_up_to_gate(&making);
  /* Seen by no wait for the lane: the call returns while the gate is closed. */
  REQUIRE_ERROR(rondo_upload(lender, c.cache, data, sizeof data), RONDO_BUSY, "is being instantiated");
  finish(&making);
  set_all(lender, c.cache, 2);
  require_all(lender, c.cache, 2);
  REQUIRE_OK(rondo_close_exec(&making.exec));
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

/* Whatever comes first, what was set stays: a warm replay is done before, or not at all. */
Test(lend, an_upload_that_meets_an_instantiation_is_busy_or_stays) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ_WRITE, add_one);
  atomic_store(&gate_is_open, true);
  const int rounds = (int)rounds_here(300);
  for (int round = 0; round < rounds; round++) {
    rondo_exec *lender = open_exec(runtime, c.lender);
    struct instantiation making = {.runtime = runtime, .graph = c.borrower};
    float data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = 6;
    cr_assert_eq(pthread_create(&making.thread, NULL, instantiate, &making), 0);
    for (int spins = 0; spins < 6000 / rounds * round; spins++) atomic_load(&gate_is_open);
    rondo_status status;
    while ((status = rondo_upload(lender, c.cache, data, sizeof data)) == RONDO_BUSY)
      ;
    require_ok(status, "rondo_upload");
    finish(&making);
    require_all(lender, c.cache, 6);
    REQUIRE_OK(rondo_close_exec(&making.exec));
    REQUIRE_OK(rondo_close_exec(&lender));
  }
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(lend, nobody_borrows_from_an_exec_that_is_still_being_made) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ, no_work);
  rondo_exec *borrower = NULL;
  add_task(c.lender, c.cache, RONDO_WRITE, wait_at_gate);
  struct instantiation making = {.runtime = runtime, .graph = c.lender};
  instantiate_up_to_gate(&making);
  REQUIRE_ERROR(rondo_instantiate(runtime, c.borrower, NULL, &borrower), RONDO_INVALID_STATE, "no exec is open");
  finish(&making);
  borrower = open_exec(runtime, c.borrower);
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_OK(rondo_close_exec(&making.exec));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(lend, a_borrower_that_hangs_and_is_given_up_leaves_its_lender_closable) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(0, RONDO_READ_WRITE, wait_at_gate);
  atomic_store(&gate_is_open, true);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrower = open_exec(runtime, c.borrower);
  rondo_exec *second = open_exec(runtime, c.borrower);
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(borrower, &slot));
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_close_exec_within(&borrower, 5000000), RONDO_DEVICE_LOST, "was not done");
  cr_assert_null(borrower);
  REQUIRE_ERROR(rondo_close_exec(&lender), RONDO_INVALID_STATE,
                "1 open exec borrows its constants or states: first close that of task '");
  REQUIRE_OK(rondo_close_exec(&second));
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  atomic_store(&gate_is_open, true); /* else the thread and what it may touch would be left behind */
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Warm replays ------------------------------------------------------------------------------------------------ */

Test(lend, warm_replays_leave_a_fresh_state_zero_whoever_writes_it) {
  rondo_runtime *runtime = open_runtime(1);
  struct couple c = describe(RONDO_READ, RONDO_READ_WRITE, add_one);
  rondo_exec *lender = open_exec(runtime, c.lender), *borrowers[3];
  for (int i = 0; i < 3; i++) {
    REQUIRE_OK(rondo_instantiate(runtime, c.borrower, &(rondo_exec_options){.slots = 1 + (uint32_t)i}, &borrowers[i]));
    cr_assert_eq(borrowers[i]->warm_replays, 1);
    require_all(lender, c.cache, 0);
  }
  replay_once(borrowers[1]);
  require_all(lender, c.cache, 1);
  for (int i = 0; i < 3; i++) REQUIRE_OK(rondo_close_exec(&borrowers[i]));
  require_all(lender, c.cache, 1);
  REQUIRE_OK(rondo_close_exec(&lender));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}

enum use { UPLOADED, LENDER_REPLAYED, BORROWER_REPLAYED, BORROWER_REPLAYED_AND_CLOSED, CONSTANT_UPLOADED, USES };

Test(lend, a_state_that_may_hold_something_is_not_touched_by_a_later_warm_replay) {
  for (int run = 0; run < 2 * USES; run++) {
    int use = run % USES;
    rondo_exec_options options = {.without_warm_up = run / USES}; /* then every replay is one that counts */
    rondo_runtime *runtime = open_runtime(1);
    struct couple c = describe(RONDO_READ, RONDO_READ_WRITE, add_one);
    add_task(c.lender, c.cache, RONDO_READ_WRITE, add_one);
    rondo_exec *lender = NULL, *first = NULL;
    REQUIRE_OK(rondo_instantiate(runtime, c.lender, &options, &lender));
    REQUIRE_OK(rondo_instantiate(runtime, c.borrower, &options, &first));
    float expected = use == CONSTANT_UPLOADED ? 0 : 1;
    if (use == UPLOADED) set_all(lender, c.cache, 1);
    if (use == CONSTANT_UPLOADED) set_all(lender, c.weights, 1);
    if (use == LENDER_REPLAYED) replay_once(lender);
    if (use == BORROWER_REPLAYED || use == BORROWER_REPLAYED_AND_CLOSED) replay_once(first);
    if (use == BORROWER_REPLAYED_AND_CLOSED) REQUIRE_OK(rondo_close_exec(&first));
    rondo_exec *late = NULL;
    REQUIRE_OK(rondo_instantiate(runtime, c.borrower, &(rondo_exec_options){.slots = 2}, &late));
    cr_assert_eq(late->warm_replays, use == CONSTANT_UPLOADED, "run %d", run);
    require_all(lender, c.cache, expected);
    replay_once(late); /* cold, but right */
    replay_once(late);
    require_all(lender, c.cache, expected + 2);
    REQUIRE_OK(rondo_close_exec(&late));
    require_all(lender, c.cache, expected + 2);
    REQUIRE_OK(rondo_close_exec(&first));
    REQUIRE_OK(rondo_close_exec(&lender));
    forget(&c);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

/* Two execs that touch a state in these ways: of the owner and a borrower, or of two borrowers. */
static void try_lanes(uint32_t first_access, uint32_t second_access, uint32_t second_lane, bool is_ordered,
                      bool owner_is_first) {
  static const char *const words[] = {"", "read", "written", "written"};
  rondo_runtime *runtime = open_runtime(3);
  struct couple a = describe(owner_is_first ? first_access : 0, second_access, no_work);
  rondo_graph *third = NULL;
  rondo_tensor cache;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &third));
  REQUIRE_OK(rondo_borrow(third, a.cache, &cache));
  add_task(third, cache, (rondo_access)first_access, no_work);
  rondo_exec *owner = NULL, *first = NULL, *second = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, a.lender, &(rondo_exec_options){.lane = owner_is_first ? 1 : 2}, &owner));
  if (!owner_is_first) REQUIRE_OK(rondo_instantiate(runtime, third, &(rondo_exec_options){.lane = 1}, &first));
  rondo_info before = info_of(runtime);
  bool fits = second_lane == 1 || is_ordered || !((first_access | second_access) & RONDO_WRITE);
  rondo_exec_options options = {.lane = second_lane, .states_are_ordered = is_ordered};
  rondo_status status = rondo_instantiate(runtime, a.borrower, &options, &second);
  if (fits) {
    require_ok(status, "rondo_instantiate");
  } else {
    char text[128];
    snprintf(text, sizeof text, "state 'cache' is %s in lane %u and %s in lane 1", words[second_access], second_lane,
             words[first_access]);
    require_error(status, RONDO_INVALID_STATE, text, "rondo_instantiate");
    require_used(runtime, before);
  }
  REQUIRE_OK(rondo_close_exec(&second));
  REQUIRE_OK(rondo_close_exec(&first));
  REQUIRE_OK(rondo_close_exec(&owner));
  forget(&a);
  REQUIRE_OK(rondo_graph_destroy(&third));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(lend, a_state_is_written_in_one_lane_or_the_program_orders_lanes) {
  for (uint32_t first = 1; first <= 3; first++)
    for (uint32_t second = 1; second <= 3; second++)
      for (uint32_t lane = 0; lane < 3; lane++)
        for (int choice = 0; choice < 4; choice++) try_lanes(first, second, lane, choice & 1, choice & 2);
}

/* What nobody's task touches may be borrowed anywhere, and a constant read anywhere. */
Test(lend, only_what_tasks_do_counts_between_lanes) {
  rondo_runtime *runtime = open_runtime(3);
  struct couple c = describe(RONDO_WRITE, 0, NULL);
  add_task(c.lender, c.weights, RONDO_READ, no_work);
  add_task(c.borrower, c.weights_borrowed, RONDO_READ, no_work);
  rondo_exec *execs[3] = {NULL};
  REQUIRE_OK(rondo_instantiate(runtime, c.lender, NULL, &execs[0]));
  for (uint32_t lane = 1; lane < 3; lane++)
    REQUIRE_OK(rondo_instantiate(runtime, c.borrower, &(rondo_exec_options){.lane = lane}, &execs[lane]));
  for (int i = 3; i-- > 0;) REQUIRE_OK(rondo_close_exec(&execs[i]));
  forget(&c);
  REQUIRE_OK(rondo_close(&runtime));
}
