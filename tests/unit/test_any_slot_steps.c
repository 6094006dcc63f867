/* test_any_slot_steps.c - rondo_wait_any and the counts while another thread acts: the other thread's call is made
 * before each of their steps in turn, so that a rare moment is seen every time. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "../../runtime/any_slot.h"
#include "../../runtime/exec.h"

/* ---- The functions, with a step before each look and each exchange ---------------------------------------------- */

static void step(void);
static bool exchanged; /* since the look began */

static uint32_t load_32(const _Atomic uint32_t *from, memory_order order) {
  step();
  return atomic_load_explicit(from, order);
}
static uint64_t load_64(const _Atomic uint64_t *from, memory_order order) {
  step();
  return atomic_load_explicit(from, order);
}
static void *load_pointer(_Atomic(void *) *from, memory_order order) {
  step();
  return atomic_load_explicit(from, order);
}
static bool exchange(_Atomic uint64_t *in, uint64_t *expected, uint64_t wanted) {
  step();
  bool is_done = atomic_compare_exchange_strong(in, expected, wanted);
  exchanged = exchanged || is_done;
  return is_done;
}

/* A task, on a thread of the team's: none of its looks is a step. */
static atomic_bool gate_is_open;
static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  while (!atomic_load(&gate_is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Those of the library are called by the names that they have there. */
static rondo_status (*const library_wait_any)(rondo_exec *const *execs, uint32_t exec_count, uint64_t timeout_ns,
                                              rondo_slot *slot) = rondo_wait_any;

rondo_status stepped_wait_any(rondo_exec *const *execs, uint32_t exec_count, uint64_t timeout_ns, rondo_slot *slot);
rondo_status stepped_acquire_within(rondo_exec *exec, uint64_t timeout_ns, rondo_slot *slot);
void stepped_slots_count(const rondo_exec *exec, uint32_t *free_count, uint32_t *in_flight_count);

#define rondo_wait_any       stepped_wait_any
#define rondo_acquire_within stepped_acquire_within
#define slots_count          stepped_slots_count
#undef atomic_load_explicit
#undef atomic_compare_exchange_strong_explicit
#define atomic_load_explicit(from, order)                                                                              \
  _Generic((from),                                                                                                     \
      const _Atomic uint32_t *: load_32,                                                                               \
      _Atomic uint32_t *: load_32,                                                                                     \
      const _Atomic uint64_t *: load_64,                                                                               \
      _Atomic uint64_t *: load_64,                                                                                     \
      default: load_pointer)(from, order)
#define atomic_compare_exchange_strong_explicit(in, expected, wanted, good, bad) exchange(in, expected, wanted)
#include "../../runtime/any_slot.c" /* NOLINT(bugprone-suspicious-include): its own steps are what is tested */
#undef rondo_wait_any

#include "../support.h"

TestSuite(any_slot_steps, .timeout = 60);

/* ---- One exec of one slot ---------------------------------------------------------------------------------------- */

enum { COUNT = 64 };

static rondo_runtime *runtime;
static rondo_exec *exec;
static rondo_slot held;
static rondo_tensor input;
static int requests[3];

static void open_one(void) {
  rondo_graph *graph = NULL;
  atomic_store(&gate_is_open, true);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_I32, 1, (int64_t[]){COUNT}, &input));
  rondo_argument argument = {.tensor = input, .access = RONDO_READ};
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = wait_at_gate, .arguments = &argument, .argument_count = 1}));
  REQUIRE_OK(rondo_open(
      &(rondo_options){
          .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 1},
      &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

static void close_one(void) {
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
}

static void replay_done(int request) {
  held.user = &requests[request];
  REQUIRE_OK(rondo_replay(held));
  REQUIRE_OK(rondo_wait(held, RONDO_FOREVER));
}

/* ---- What is told ------------------------------------------------------------------------------------------------ */

static int steps_left;
static void (*other)(void);   /* what another thread does at that step */
static int told[3];           /* of each request */
static bool was_told_already; /* request 1, when the other thread came */

static void step(void) {
  if (steps_left < 0 || steps_left-- > 0) return;
  was_told_already = exchanged;
  other();
}

static bool count_told(rondo_status status, rondo_slot slot) {
  if (status != RONDO_OK) return false;
  told[(int *)slot.user - requests]++;
  return true;
}

static void collect_rest(void) {
  rondo_slot slot;
  while (count_told(library_wait_any(&exec, 1, 0, &slot), slot)) REQUIRE_OK(rondo_poll(slot));
}

/* Before each step of a look at a slot with request 1 in it, until the look has fewer steps. */
static void at_every_step(void (*what)(void), void (*examine)(void)) {
  bool came;
  int step_count = 0;
  other = what;
  do {
    rondo_slot slot;
    open_one();
    memset(told, 0, sizeof told);
    REQUIRE_OK(rondo_acquire(exec, &held));
    replay_done(1);
    exchanged = false;
    steps_left = step_count;
    rondo_status status = stepped_wait_any(&exec, 1, 0, &slot);
    came = steps_left < 0;
    steps_left = -1;
    count_told(status, slot);
    collect_rest();
    if (came) examine();
    close_one();
    step_count++;
  } while (came);
  cr_assert_gt(step_count, 6); /* the look has as many at least */
}

static void acquire_and_replay(void) {
  REQUIRE_OK(rondo_acquire(exec, &held));
  replay_done(2);
}

static void collected_by_another(void) {
  rondo_slot slot;
  if (!was_told_already) {
    cr_assert(count_told(library_wait_any(&exec, 1, 0, &slot), slot));
    REQUIRE_OK(rondo_release(slot));
    acquire_and_replay();
  }
}

static void require_both_once(void) {
  cr_assert_eq(told[1], 1);
  cr_assert_eq(told[2], was_told_already ? 0 : 1);
}

Test(any_slot_steps, a_replay_is_told_though_another_collector_was_faster_with_the_one_before) {
  at_every_step(collected_by_another, require_both_once);
}

static void replayed_anew(void) { replay_done(2); }

static void released_and_replayed(void) {
  REQUIRE_OK(rondo_release(held));
  acquire_and_replay();
}

static void require_last_once(void) {
  cr_assert_leq(told[1], was_told_already);
  cr_assert_eq(told[2], 1);
}

Test(any_slot_steps, a_replay_that_is_begun_anew_is_told_once_with_its_own_pointer) {
  at_every_step(replayed_anew, require_last_once);
}

Test(any_slot_steps, a_slot_that_is_released_untold_is_told_to_its_next_holder_alone) {
  at_every_step(released_and_replayed, require_last_once);
}

/* The handle is stale from the moment that the other thread is in the middle of the release; it takes nothing with it.
 */
static struct device_ops ops;
static rondo_status rebind_at_release(struct device_exec *device_exec, const struct device_program *program,
                                      uint32_t node) {
  rondo_status status = host_device_ops.exec_rebind(device_exec, program, node);
  runtime->ops = &host_device_ops;
  exec->slots.items[0].rebound[0] = NULL; /* the other thread, which holds the slot too, unbinds it and releases it */
  exec->slots.items[0].rebound_count = 0;
  REQUIRE_OK(rondo_release(held));
  acquire_and_replay();
  exec->slots.items[0].rebound_count = 1; /* as this thread has found it */
  return status;
}

Test(any_slot_steps, a_release_that_comes_too_late_leaves_the_next_holders_replay_to_be_told) {
  _Alignas(256) static int32_t buffer[COUNT];
  open_one();
  memset(told, 0, sizeof told);
  steps_left = -1;
  REQUIRE_OK(rondo_acquire(exec, &held));
  REQUIRE_OK(rondo_rebind(held, input, buffer));
  replay_done(1);
  ops = host_device_ops;
  ops.exec_rebind = rebind_at_release;
  runtime->ops = &ops;
  REQUIRE_ERROR(rondo_release(held), RONDO_INVALID_STATE, "slot 0 was released");
  collect_rest();
  cr_assert_eq(told[1], 0);
  cr_assert_eq(told[2], 1);
  close_one();
}

/* ---- What is counted --------------------------------------------------------------------------------------------- */

static void begin_replay(void) {
  REQUIRE_OK(rondo_acquire(exec, &held));
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(rondo_replay(held));
}

Test(any_slot_steps, a_slot_is_counted_as_free_or_in_flight_but_not_both) {
  open_one();
  for (int at = 0; at < 2; at++) {
    uint32_t free_count, in_flight_count;
    other = begin_replay;
    steps_left = at;
    stepped_slots_count(exec, &free_count, &in_flight_count);
    if (steps_left >= 0) begin_replay();
    cr_assert_leq(free_count + in_flight_count, 1);
    atomic_store(&gate_is_open, true);
    REQUIRE_OK(rondo_wait(held, RONDO_FOREVER));
    REQUIRE_OK(rondo_release(held));
    collect_rest();
  }
  close_one();
}
