/* test_group.c - rondo_open_group: all ranks or none, states that the ranks lend each other, and replays of all ranks.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "../../runtime/clock.h"
#include "../../runtime/exec.h"
#include "../../runtime/fault.h"
#include "../support.h"
#include "ledger.h"
#include "lone_task.h"

enum { RANKS = 2 };

TestSuite(group, .timeout = 60);

static void options_of(rondo_backend backend, uint32_t ranks, rondo_options *options) {
  const int32_t devices = device_count(backend);
  for (uint32_t r = 0; r < ranks; r++)
    options[r] = (rondo_options){.backend = backend,
                                 .device = (int32_t)r % devices,
                                 .device_bytes = 1 << 20,
                                 .pinned_bytes = 1 << 18,
                                 .host_bytes = 1 << 20,
                                 .host_threads = 1};
}

static void open_ranks(rondo_backend backend, uint32_t ranks, rondo_runtime **runtimes) {
  rondo_options options[RONDO_MAX_RANKS];
  options_of(backend, ranks, options);
  REQUIRE_OK(rondo_open_group(options, ranks, runtimes));
}

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

static void opens_and_closes_in_any_order(rondo_backend backend) {
  static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    rondo_runtime *runtimes[3];
    open_ranks(backend, 3, runtimes);
    for (int j = 0; j < 3; j++) {
      rondo_info info;
      REQUIRE_OK(rondo_runtime_info(runtimes[orders[i][j]], &info));
      cr_assert_eq(info.backend, backend);
      REQUIRE_OK(rondo_close(&runtimes[orders[i][j]]));
    }
  }
}
BOTH_BACKENDS(group, opens_and_closes_in_any_order, opens_and_closes_in_any_order)

Test(group, the_number_of_ranks_and_their_options_are_checked) {
  rondo_options options[RONDO_MAX_RANKS + 1];
  rondo_runtime *runtimes[RONDO_MAX_RANKS + 1] = {NULL};
  options_of(RONDO_BACKEND_HOST, RONDO_MAX_RANKS + 1, options);
  REQUIRE_ERROR(rondo_open_group(options, 0, runtimes), RONDO_INVALID_ARGUMENT, "open: 0 ranks, expected 1 to 8");
  REQUIRE_ERROR(rondo_open_group(options, 9, runtimes), RONDO_INVALID_ARGUMENT, "open: 9 ranks, expected 1 to 8");
  REQUIRE_ERROR(rondo_open_group(NULL, 2, runtimes), RONDO_INVALID_ARGUMENT, "open: the options is NULL");
  REQUIRE_ERROR(rondo_open_group(options, 2, NULL), RONDO_INVALID_ARGUMENT, "the runtime's address is NULL");
  options[1].host_threads = 5000;
  options[1].device = 3;
  REQUIRE_ERROR(rondo_open_group(options, 2, runtimes), RONDO_INVALID_ARGUMENT,
                "open: rank 1 (device 3): 5000 host threads");
  options[1].host_threads = 1;
  options[1].backend = RONDO_BACKEND_AUTO;
  REQUIRE_ERROR(rondo_open_group(options, 2, runtimes), RONDO_INVALID_ARGUMENT,
                "open: rank 1 (device 3): backend 0, expected 1 as of rank 0");
  cr_assert_null(runtimes[0]);
  options[1].backend = RONDO_BACKEND_HOST;
  REQUIRE_OK(rondo_open_group(options, RONDO_MAX_RANKS, runtimes));
  for (int r = 0; r < RONDO_MAX_RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
}

/* Whatever fails: all that was taken is given back. */
Test(group, opens_all_ranks_or_none) {
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS] = {NULL};
  options_of(RONDO_BACKEND_HOST, RANKS, options);
  for (int r = 0; r < RANKS; r++) options[r].allocator = &ledger_allocator;
  bool opened = false;
  for (int n = 1; !opened; n++) {
    ledger.calls = 0;
    ledger.fail_at = n;
    rondo_status status = rondo_open_group(options, RANKS, runtimes);
    opened = status == RONDO_OK;
    if (!opened) require_error(status, RONDO_OUT_OF_MEMORY, "open: ", "rondo_open_group");
    if (!opened) cr_assert(!runtimes[0] && !runtimes[1]);
    cr_assert(opened ? n > 2 * 7 : n < 50);
    for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
    cr_assert_eq(ledger.live_count, 0, "allocation %d failing leaks", n);
  }
  ledger.fail_at = 0;
  for (thread_fail_at = 1; thread_fail_at <= RANKS; thread_fail_at++) {
    thread_calls = 0;
    REQUIRE_ERROR(rondo_open_group(options, RANKS, runtimes), RONDO_OUT_OF_MEMORY,
                  thread_fail_at == 1 ? "open: rank 0 (device 0): thread 1" : "open: rank 1 (device 0): thread 1");
    cr_assert_eq(ledger.live_count, 0, "thread %d failing leaks", thread_fail_at);
  }
  thread_fail_at = 0;
}

Test(group, ranks_share_the_cores_of_the_host) {
  enum { MANY = 4 };
  rondo_options options[MANY];
  rondo_runtime *runtimes[MANY], *alone;
  rondo_info info, whole;
  options_of(RONDO_BACKEND_HOST, MANY, options);
  for (int r = 0; r < MANY; r++) options[r].host_threads = 0;
  REQUIRE_OK(rondo_open(&options[0], &alone));
  REQUIRE_OK(rondo_runtime_info(alone, &whole));
  REQUIRE_OK(rondo_close(&alone));
  REQUIRE_OK(rondo_open_group(options, MANY, runtimes));
  for (int r = 0; r < MANY; r++) {
    REQUIRE_OK(rondo_runtime_info(runtimes[r], &info));
    cr_assert_eq(info.multiprocessors, whole.multiprocessors < MANY ? 1 : whole.multiprocessors / MANY);
    REQUIRE_OK(rondo_close(&runtimes[r]));
  }
}

/* ---- Borrowing --------------------------------------------------------------------------------------------------- */

static const int64_t one[] = {1};

/* A lender with a constant and a state, and a graph that borrows both: out = constant, and state = in. */
struct lending {
  rondo_graph *lender, *borrower;
  rondo_tensor constant, state, in, out;
};

static struct lending lending_describe(void) {
  struct lending l;
  rondo_tensor constant, state;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l.lender));
  REQUIRE_OK(rondo_constant(l.lender, "constant", RONDO_I32, 1, one, &l.constant));
  REQUIRE_OK(rondo_state(l.lender, "state", RONDO_I32, 1, one, &l.state));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l.borrower));
  REQUIRE_OK(rondo_borrow(l.borrower, l.constant, &constant));
  REQUIRE_OK(rondo_borrow(l.borrower, l.state, &state));
  REQUIRE_OK(rondo_input(l.borrower, "in", RONDO_I32, 1, one, &l.in));
  REQUIRE_OK(rondo_output(l.borrower, "out", RONDO_I32, 1, one, &l.out));
  REQUIRE_OK(rondo_add_copy(l.borrower, &(rondo_copy_desc){.name = "take", .src = constant, .dst = l.out}));
  REQUIRE_OK(rondo_add_copy(l.borrower, &(rondo_copy_desc){.name = "give", .src = l.in, .dst = state}));
  return l;
}

static void lending_end(struct lending *l) {
  REQUIRE_OK(rondo_graph_destroy(&l->lender));
  REQUIRE_OK(rondo_graph_destroy(&l->borrower));
}

static int32_t run(const struct lending *l, rondo_exec *exec, int32_t in) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  *(int32_t *)rondo_data(slot, l->in) = in;
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  int32_t out = *(const int32_t *)rondo_data(slot, l->out);
  REQUIRE_OK(rondo_release(slot));
  return out;
}

static int32_t state_of(const struct lending *l, rondo_exec *lender) {
  int32_t state;
  REQUIRE_OK(rondo_download(lender, l->state, &state, sizeof state));
  return state;
}

static void borrow_in_a_lane(rondo_backend backend, const rondo_lane *lane) {
  struct lending l = lending_describe();
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS];
  rondo_exec *lender = NULL, *borrower = NULL;
  options_of(backend, RANKS, options);
  options[1].lanes = lane;
  options[1].lane_count = lane != NULL;
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  REQUIRE_ERROR(rondo_instantiate(runtimes[1], l.borrower, NULL, &borrower), RONDO_INVALID_STATE,
                "no exec is open in this runtime or its group");
  REQUIRE_OK(rondo_instantiate(runtimes[0], l.lender, NULL, &lender));
  REQUIRE_OK(rondo_instantiate(runtimes[1], l.borrower, NULL, &borrower));
  REQUIRE_OK(rondo_upload(lender, l.constant, &(int32_t){42}, 4));
  cr_assert_eq(state_of(&l, lender), 0, "the warm-up is undone");
  for (int32_t i = 1; i < 5; i++) {
    cr_assert_eq(run(&l, borrower, i), 42);
    cr_assert_eq(state_of(&l, lender), i);
  }
  REQUIRE_ERROR(rondo_close_exec(&lender), RONDO_INVALID_STATE, "first close that of task 'take' of rank 1");
  REQUIRE_ERROR(rondo_close(&runtimes[0]), RONDO_INVALID_STATE, "close: the runtime still has 1 exec, of task ''");
  REQUIRE_OK(rondo_close_exec(&borrower));
  REQUIRE_OK(rondo_close(&runtimes[1]));
  REQUIRE_OK(rondo_close_exec(&lender));
  REQUIRE_OK(rondo_close(&runtimes[0]));
  lending_end(&l);
}

static void a_rank_borrows_from_another(rondo_backend backend) { borrow_in_a_lane(backend, NULL); }
BOTH_BACKENDS(group, a_rank_borrows_from_another, a_rank_borrows_from_another)

static void a_lane_with_multiprocessors_of_its_own_borrows_too(rondo_backend backend) {
  borrow_in_a_lane(backend, &(rondo_lane){.multiprocessors = 8});
}
BOTH_BACKENDS(group, a_lane_with_multiprocessors_of_its_own_borrows_too,
              a_lane_with_multiprocessors_of_its_own_borrows_too)

Test(group, an_exec_of_the_own_runtime_lends_rather_than_one_of_another) {
  struct lending l = lending_describe();
  rondo_runtime *runtimes[3];
  rondo_exec *lenders[3], *borrowers[3];
  open_ranks(RONDO_BACKEND_HOST, 3, runtimes);
  for (int r = 0; r < 3; r++) REQUIRE_OK(rondo_instantiate(runtimes[r], l.lender, NULL, &lenders[r]));
  for (int r = 0; r < 3; r++) {
    REQUIRE_OK(rondo_upload(lenders[r], l.constant, &(int32_t){100 + r}, 4));
    REQUIRE_OK(rondo_instantiate(runtimes[r], l.borrower, NULL, &borrowers[r]));
  }
  for (int r = 0; r < 3; r++) cr_assert_eq(run(&l, borrowers[r], 7 + r), 100 + r);
  for (int r = 0; r < 3; r++) cr_assert_eq(state_of(&l, lenders[r]), 7 + r);
  REQUIRE_OK(rondo_close_exec(&borrowers[2]));
  REQUIRE_OK(rondo_close_exec(&lenders[2]));
  REQUIRE_ERROR(rondo_instantiate(runtimes[2], l.borrower, NULL, &borrowers[2]), RONDO_INVALID_STATE,
                "2 execs are open in this runtime or its group");
  for (int r = 0; r < 2; r++) REQUIRE_OK(rondo_close_exec(&borrowers[r]));
  for (int r = 0; r < 2; r++) REQUIRE_OK(rondo_close_exec(&lenders[r]));
  for (int r = 0; r < 3; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
  lending_end(&l);
}

Test(group, runtimes_of_two_groups_lend_each_other_nothing) {
  struct lending l = lending_describe();
  rondo_runtime *runtimes[RANKS], *others[RANKS];
  rondo_exec *lender, *borrower;
  open_ranks(RONDO_BACKEND_HOST, RANKS, runtimes);
  open_ranks(RONDO_BACKEND_HOST, RANKS, others);
  REQUIRE_OK(rondo_instantiate(runtimes[0], l.lender, NULL, &lender));
  REQUIRE_ERROR(rondo_instantiate(others[0], l.borrower, NULL, &borrower), RONDO_INVALID_STATE, "no exec is open");
  REQUIRE_OK(rondo_close_exec(&lender));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&others[r]));
  lending_end(&l);
}

Test(group, two_ranks_that_write_one_state_are_refused_unless_the_program_orders_them) {
  struct lending l = lending_describe();
  rondo_runtime *runtimes[RANKS];
  rondo_exec *lender, *borrowers[RANKS];
  open_ranks(RONDO_BACKEND_HOST, RANKS, runtimes);
  REQUIRE_OK(rondo_instantiate(runtimes[0], l.lender, NULL, &lender));
  REQUIRE_OK(rondo_instantiate(runtimes[0], l.borrower, NULL, &borrowers[0]));
  REQUIRE_ERROR(rondo_instantiate(runtimes[1], l.borrower, NULL, &borrowers[1]), RONDO_INVALID_STATE,
                "state 'state' is written in lane 0 of rank 1 and written in lane 0 of rank 0: lanes are not ordered");
  REQUIRE_OK(rondo_instantiate(runtimes[1], l.borrower, &(rondo_exec_options){.states_are_ordered = 1}, &borrowers[1]));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close_exec(&borrowers[r]));
  REQUIRE_OK(rondo_close_exec(&lender));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
  lending_end(&l);
}

static atomic_bool gate_is_open, is_at_gate, has_passed;

static void wait_at_gate(void) {
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) sched_yield();
}

static void pass_gate(void *user, void *const *data) {
  (void)user, (void)data;
  wait_at_gate();
}

/* Lane 0 of rank 0, in flight, is not lane 0 of rank 1. */
Test(group, lanes_of_two_ranks_have_arenas_and_profiles_of_their_own) {
  rondo_graph *graphs[RANKS];
  rondo_runtime *runtimes[RANKS];
  rondo_exec *execs[RANKS];
  rondo_slot slots[RANKS];
  rondo_lane_grant grant;
  rondo_task_profile tasks[2];
  rondo_profile_totals totals;
  open_ranks(RONDO_BACKEND_HOST, RANKS, runtimes);
  atomic_store(&gate_is_open, true);
  for (int r = 0; r < RANKS; r++) {
    rondo_tensor state;
    rondo_argument argument = {.access = RONDO_READ};
    rondo_kernel_desc last = {.host = r == 0 ? pass_gate : nothing, .arguments = &argument, .argument_count = 1};
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graphs[r]));
    REQUIRE_OK(rondo_state(graphs[r], "state", RONDO_I32, 1, (int64_t[]){1000}, &state));
    REQUIRE_OK(rondo_temporary(graphs[r], "temporary", RONDO_I32, 1, (int64_t[]){1000}, &argument.tensor));
    REQUIRE_OK(rondo_add_copy(graphs[r], &(rondo_copy_desc){.src = state, .dst = argument.tensor}));
    REQUIRE_OK(rondo_add_kernel(graphs[r], &last));
    REQUIRE_OK(rondo_instantiate(runtimes[r], graphs[r], NULL, &execs[r]));
    REQUIRE_OK(rondo_acquire(execs[r], &slots[r]));
  }
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(slots[0]));
  REQUIRE_OK(rondo_profile(slots[1], &(rondo_profile_options){.passes = 1, .copy_bytes = 4096}, tasks, 2, &totals));
  REQUIRE_ERROR(rondo_poll(slots[0]), RONDO_BUSY, "");
  atomic_store(&gate_is_open, true);
  REQUIRE_OK(rondo_wait_all(slots, RANKS, RONDO_FOREVER));
  REQUIRE_OK(rondo_close_exec(&execs[1]));
  REQUIRE_OK(rondo_lane_info(runtimes[1], 0, &grant));
  cr_assert_eq(grant.arena_bytes, 0);
  REQUIRE_OK(rondo_lane_info(runtimes[0], 0, &grant));
  cr_assert_gt(grant.arena_bytes, 0);
  REQUIRE_OK(rondo_close_exec(&execs[0]));
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_close(&runtimes[r]));
    REQUIRE_OK(rondo_graph_destroy(&graphs[r]));
  }
}

/* ---- Tasks that wait for each other ------------------------------------------------------------------------------ */

enum { ARRIVED, LEFT, WORDS };
enum { OWN, PEERS };
static uint64_t meeting_ns = UINT64_C(20) * 1000 * 1000 * 1000;

/* Counts up in the peer's state, and waits until the peer has counted up as often in the own one. */
static void meet(const struct op_call *call, int64_t first, int64_t last) {
  (void)first, (void)last;
  const uint32_t *peer = op_attributes(call->task);
  _Atomic uint32_t *own = call->data[OWN], *peers = call->data[PEERS];
  const uint64_t begin_ns = now_ns();
  const uint32_t meeting = ++own[LEFT];
  atomic_fetch_add_explicit(&peers[ARRIVED], 1, memory_order_release);
  while (atomic_load_explicit(&own[ARRIVED], memory_order_acquire) < meeting) {
    sched_yield();
    if (now_ns() - begin_ns < meeting_ns) continue;
    atomic_store(call->fault, fault_word(call->fault_number, *peer));
    return;
  }
}

static const struct op meeting = {
    .name = "meeting", .waits_for_others = true, .check = accept_any_task, .host_items = one_item, .host_run = meet};

struct meeting {
  rondo_runtime *runtimes[RANKS];
  rondo_graph *lenders[RANKS], *graphs[RANKS];
  rondo_exec *lending[RANKS], *execs[RANKS];
  rondo_tensor states[RANKS];
  rondo_slot slots[RANKS];
};

static void meeting_describe(struct meeting *m) {
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &m->lenders[r]));
    REQUIRE_OK(rondo_state(m->lenders[r], "meetings", RONDO_I32, 1, (int64_t[]){WORDS}, &m->states[r]));
  }
  for (int r = 0; r < RANKS; r++) {
    struct op_argument arguments[] = {{.name = "own", .access = RONDO_READ_WRITE},
                                      {.name = "peers", .access = RONDO_WRITE}};
    const uint32_t peer = (uint32_t)(1 - r);
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &m->graphs[r]));
    REQUIRE_OK(rondo_borrow(m->graphs[r], m->states[r], &arguments[OWN].tensor));
    REQUIRE_OK(rondo_borrow(m->graphs[r], m->states[peer], &arguments[PEERS].tensor));
    REQUIRE_OK(graph_add(m->graphs[r], &meeting, "first", arguments, 2, &peer, sizeof peer));
    REQUIRE_OK(graph_add(m->graphs[r], &meeting, "second", arguments, 2, &peer, sizeof peer));
  }
}

static struct meeting meeting_begin(const rondo_allocator *allocator) {
  struct meeting m = {0};
  rondo_options options[RANKS];
  meeting_describe(&m);
  options_of(RONDO_BACKEND_HOST, RANKS, options);
  for (int r = 0; r < RANKS; r++) options[r].allocator = allocator;
  REQUIRE_OK(rondo_open_group(options, RANKS, m.runtimes));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_instantiate(m.runtimes[r], m.lenders[r], NULL, &m.lending[r]));
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_instantiate(m.runtimes[r], m.graphs[r], NULL, &m.execs[r]));
    REQUIRE_OK(rondo_acquire(m.execs[r], &m.slots[r]));
  }
  return m;
}

/* `last`: the rank whose execs and runtime are closed last. */
static void meeting_end(struct meeting *m, int last) {
  const int order[RANKS] = {1 - last, last};
  for (int i = 0; i < RANKS; i++) REQUIRE_OK(rondo_close_exec(&m->execs[order[i]]));
  for (int i = 0; i < RANKS; i++) REQUIRE_OK(rondo_close_exec(&m->lending[order[i]]));
  for (int i = 0; i < RANKS; i++) REQUIRE_OK(rondo_close(&m->runtimes[order[i]]));
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_graph_destroy(&m->graphs[r]));
    REQUIRE_OK(rondo_graph_destroy(&m->lenders[r]));
  }
}

Test(group, ranks_meet_in_each_replay) {
  enum { REPLAYS = 300 };
  struct meeting m = meeting_begin(NULL);
  for (int i = 0; i < REPLAYS; i++) {
    REQUIRE_OK(rondo_replay_all(m.slots, RANKS));
    REQUIRE_OK(rondo_wait_all(m.slots, RANKS, RONDO_FOREVER));
  }
  for (int r = 0; r < RANKS; r++) {
    uint32_t state[WORDS];
    REQUIRE_OK(rondo_download(m.lending[r], m.states[r], state, sizeof state));
    cr_assert_eq(state[ARRIVED], 2 * REPLAYS, "no warm-up counts");
    cr_assert_eq(state[LEFT], 2 * REPLAYS);
  }
  meeting_end(&m, 1);
}

/* In two lanes of one runtime the tasks have no order, though those of two ranks have. */
Test(group, two_lanes_of_a_rank_do_not_share_a_state_of_meetings) {
  static const rondo_lane lanes[2];
  rondo_options options[RANKS];
  rondo_exec *exec;
  struct meeting m = {0};
  meeting_describe(&m);
  options_of(RONDO_BACKEND_HOST, RANKS, options);
  options[0].lanes = lanes;
  options[0].lane_count = 2;
  REQUIRE_OK(rondo_open_group(options, RANKS, m.runtimes));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_instantiate(m.runtimes[r], m.lenders[r], NULL, &m.lending[r]));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_instantiate(m.runtimes[r], m.graphs[r], NULL, &m.execs[r]));
  REQUIRE_ERROR(rondo_instantiate(m.runtimes[0], m.graphs[0], &(rondo_exec_options){.lane = 1}, &exec),
                RONDO_INVALID_STATE, "state 'meetings' is written in lane 1 of rank 0 and written in lane 0 of rank 0");
  meeting_end(&m, 0);
}

static void a_rank_that_is_never_replayed_is_named(int last) {
  static const char cause[] = "replay: task 'first': rank 1 did not come in time";
  ledger.calls = ledger.fail_at = 0;
  struct meeting m = meeting_begin(&ledger_allocator);
  meeting_ns = 1000000;
  REQUIRE_OK(rondo_replay(m.slots[0]));
  REQUIRE_ERROR(rondo_wait_all(m.slots, RANKS, RONDO_FOREVER), RONDO_DEVICE_LOST, cause);
  cr_assert(strstr(rondo_error_text(), "(slots[0])"), "%s", rondo_error_text());
  REQUIRE_ERROR(rondo_runtime_health(m.runtimes[0]), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_replay_all(m.slots, RANKS), RONDO_DEVICE_LOST, cause);
  REQUIRE_OK(rondo_runtime_health(m.runtimes[1]));
  /* Rank 1 finds its first meeting attended, and waits for the second in vain. */
  REQUIRE_OK(rondo_replay(m.slots[1]));
  REQUIRE_ERROR(rondo_wait(m.slots[1], RONDO_FOREVER), RONDO_DEVICE_LOST,
                "replay: task 'second': rank 0 did not come in time");
  meeting_end(&m, last);
  cr_assert_eq(ledger.live_count, 0, "its threads have ended");
}
Test(group, a_rank_that_is_never_replayed_is_named_and_closed_first, OWN_PROCESS) {
  a_rank_that_is_never_replayed_is_named(0);
}
Test(group, a_rank_that_is_never_replayed_is_named_and_closed_last, OWN_PROCESS) {
  a_rank_that_is_never_replayed_is_named(1);
}

/* ---- A rank whose task never returns ----------------------------------------------------------------------------- */

/* It holds another rank's state. */
static void write_behind_gate(void *user, void *const *data) {
  (void)user;
  wait_at_gate();
  *(int32_t *)data[0] = 1;
  atomic_store(&has_passed, true);
}

Test(group, a_state_that_a_stuck_rank_may_still_write_is_never_given_back, OWN_PROCESS) {
  rondo_graph *lender_graph, *graph;
  rondo_runtime *runtimes[RANKS];
  rondo_exec *lender, *exec;
  rondo_slot slot;
  rondo_argument argument = {.access = RONDO_WRITE};
  rondo_tensor state;
  skip_under_valgrind("what is leaked on purpose counts");
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &lender_graph));
  REQUIRE_OK(rondo_state(lender_graph, "state", RONDO_I32, 1, one, &state));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_borrow(graph, state, &argument.tensor));
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.host = write_behind_gate, .arguments = &argument, .argument_count = 1}));
  open_ranks(RONDO_BACKEND_HOST, RANKS, runtimes);
  REQUIRE_OK(rondo_instantiate(runtimes[0], lender_graph, NULL, &lender));
  REQUIRE_OK(rondo_instantiate(runtimes[1], graph, &(rondo_exec_options){.without_warm_up = 1}, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  while (!atomic_load(&is_at_gate)) sched_yield();
  REQUIRE_ERROR(rondo_close_exec_within(&exec, 1000000), RONDO_DEVICE_LOST, "slot 0 was not done");
  REQUIRE_OK(rondo_runtime_health(runtimes[0]));
  /* Its part of the pool is taken for good, and then the pool. */
  rondo_info before, after;
  REQUIRE_OK(rondo_runtime_info(runtimes[0], &before));
  REQUIRE_OK(rondo_close_exec(&lender));
  REQUIRE_OK(rondo_runtime_info(runtimes[0], &after));
  cr_assert_eq(after.device.used_bytes, before.device.used_bytes);
  REQUIRE_OK(rondo_close(&runtimes[0]));
  REQUIRE_OK(rondo_close(&runtimes[1]));
  atomic_store(&gate_is_open, true);
  while (!atomic_load(&has_passed)) sched_yield();
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&lender_graph));
}
