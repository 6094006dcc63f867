/* test_exec.c - runtimes, execs and slots on the host: replays and states, handles that are stale or foreign, what is
 * still open at close, waits with a time limit, and threads. Nothing is left in a pool. Pools that are too small:
 * test_exec_pools.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../runtime/exec.h"
#include "../support.h"
#include "doubling.h"

Test(exec, replays_and_states_live_across_replays_and_slots) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  struct doubling d = doubling_describe(runtime);
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 3}, &exec));
  REQUIRE_OK(rondo_graph_destroy(&d.graph)); /* execs live on without their graph */
  rondo_slot slots[3];
  for (int s = 0; s < 3; s++) REQUIRE_OK(rondo_acquire(exec, &slots[s]));
  for (int replay = 0; replay < 300; replay++) {
    rondo_slot slot = slots[replay % 3];
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    if (replay >= 3) {
      const float *y = rondo_data(slot, d.y);
      for (int i = 0; i < COUNT; i++) cr_assert_eq(y[i], (float)(2 * (replay - 3 + i) + replay - 3));
    }
    float *x = rondo_data(slot, d.x);
    for (int i = 0; i < COUNT; i++) x[i] = (float)(replay + i);
    REQUIRE_OK(rondo_replay(slot));
  }
  for (int s = 0; s < 3; s++) {
    REQUIRE_OK(rondo_wait(slots[s], RONDO_FOREVER));
    REQUIRE_OK(rondo_release(slots[s]));
  }
  float count = 0;
  REQUIRE_OK(rondo_download(exec, d.state, &count, sizeof count));
  cr_assert_eq(count, 300, "the warm replay must leave no trace in a state");
  count = 5;
  REQUIRE_OK(rondo_upload(exec, d.state, &count, sizeof count));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(exec, a_thousand_instantiates_leave_the_pools_as_they_were) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  struct doubling d = doubling_describe(runtime);
  rondo_info before, now;
  REQUIRE_OK(rondo_runtime_info(runtime, &before));
  for (int i = 0; i < (int)rounds_here(1000); i++) {
    rondo_exec *exec = NULL;
    rondo_slot slot;
    REQUIRE_OK(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 1 + (uint32_t)i % 16}, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    ((float *)rondo_data(slot, d.x))[i % COUNT] = (float)i;
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(((const float *)rondo_data(slot, d.y))[i % COUNT], 2 * (float)i);
    REQUIRE_OK(rondo_release(slot));
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_runtime_info(runtime, &now));
    cr_assert_eq(now.device.used_bytes, before.device.used_bytes);
    cr_assert_eq(now.pinned.used_bytes, before.pinned.used_bytes);
    cr_assert_eq(now.host.used_bytes, i ? before.host.used_bytes : now.host.used_bytes);
    if (i == 0) before.host = now.host; /* the graph keeps its plan */
  }
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* Of one task, called so. */
static rondo_exec *open_called(rondo_runtime *runtime, const char *name) {
  rondo_graph *graph = NULL;
  rondo_tensor from, to;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "from", RONDO_F32, 1, (int64_t[]){1}, &from));
  REQUIRE_OK(rondo_state(graph, "to", RONDO_F32, 1, (int64_t[]){1}, &to));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = from, .dst = to}));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return exec;
}

Test(exec, what_is_still_open_is_named_by_its_first_task) {
  static const char *const names[] = {"first", "second", "third", "fourth"};
  static const char *const says[] = {
      "close: the runtime still has 1 exec, of task 'first' (rondo_close_exec)",
      "close: the runtime still has 2 execs, of tasks 'second', 'first' (rondo_close_exec)",
      "close: the runtime still has 3 execs, of tasks 'third', 'second', 'first' (rondo_close_exec)",
      "close: the runtime still has 4 execs, of tasks 'fourth', 'third', 'second' and others (rondo_close_exec)"};
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  rondo_graph *graph = NULL;
  rondo_exec *execs[4];
  for (int e = 0; e < 4; e++) {
    execs[e] = open_called(runtime, names[e]);
    REQUIRE_ERROR(rondo_close(&runtime), RONDO_INVALID_STATE, says[e]);
  }
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &graph));
  REQUIRE_ERROR(rondo_close(&runtime), RONDO_INVALID_STATE, "(rondo_close_exec) and 1 graph (rondo_graph_destroy)");
  for (int e = 0; e < 4; e++) REQUIRE_OK(rondo_close_exec(&execs[e]));
  REQUIRE_ERROR(rondo_close(&runtime), RONDO_INVALID_STATE, "the runtime still has 1 graph (rondo_graph_destroy)");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

static atomic_bool gate_open;
static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  while (!atomic_load(&gate_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

Test(exec, a_busy_slot_is_refused_and_a_wait_times_out) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  rondo_graph *graph = NULL;
  rondo_tensor state, x;
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "s", RONDO_F32, 1, (int64_t[]){1}, &state));
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 1, (int64_t[]){1}, &x));
  rondo_argument arguments[] = {{.tensor = state, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "gate", .host = wait_at_gate, .arguments = arguments, .argument_count = 1}));
  atomic_store(&gate_open, true);
  rondo_exec *exec = NULL;
  rondo_slot slot, none;
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_ERROR(rondo_acquire(exec, &none), RONDO_BUSY,
                "1 slot of the exec is held: release one, or instantiate with more (16 at most)");
  REQUIRE_OK(rondo_poll(slot));
  atomic_store(&gate_open, false);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_replay(slot), RONDO_BUSY, "in flight");
  cr_assert_eq(rondo_poll(slot), RONDO_BUSY);
  REQUIRE_ERROR(rondo_release(slot), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_wait(slot, 0), RONDO_TIMEOUT, "still in flight");
  REQUIRE_ERROR(rondo_wait(slot, 2000000), RONDO_TIMEOUT, "still in flight");
  float value = 0;
  REQUIRE_ERROR(rondo_upload(exec, state, &value, sizeof value), RONDO_BUSY, "in flight");
  atomic_store(&gate_open, true);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_replay(slot)); /* closing while in flight waits */
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

static rondo_graph *gate_over(rondo_tensor *state, const rondo_tensor *lent) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(lent ? rondo_borrow(graph, *lent, state) : rondo_state(graph, "s", RONDO_F32, 1, (int64_t[]){1}, state));
  rondo_argument arguments[] = {{.tensor = *state, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "gate", .host = wait_at_gate, .arguments = arguments, .argument_count = 1}));
  return graph;
}

Test(exec, what_a_lost_exec_borrowed_from_can_be_closed, .timeout = 60) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  rondo_tensor state, borrowed;
  rondo_graph *lender = gate_over(&state, NULL), *borrower = gate_over(&borrowed, &state);
  rondo_exec *owner = NULL, *user = NULL;
  rondo_slot slot;
  atomic_store(&gate_open, true);
  REQUIRE_OK(rondo_instantiate(runtime, lender, NULL, &owner));
  REQUIRE_OK(rondo_instantiate(runtime, borrower, NULL, &user));
  REQUIRE_OK(rondo_acquire(user, &slot));
  atomic_store(&gate_open, false);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_close_exec(&owner), RONDO_INVALID_STATE, "1 open exec borrows");
  REQUIRE_ERROR(rondo_close_exec_within(&user, 1000000), RONDO_DEVICE_LOST, "slot 0 was not done");
  REQUIRE_OK(rondo_close_exec(&owner));
  REQUIRE_OK(rondo_graph_destroy(&borrower));
  REQUIRE_OK(rondo_graph_destroy(&lender));
  atomic_store(&gate_open, true); /* else the thread and what it may touch would be left behind */
  REQUIRE_OK(rondo_close(&runtime));
}

/* A task that does not return, and somebody who must leave. */
Test(exec, closing_within_a_time_gives_up_what_hangs_and_ends, .timeout = 60) {
  enum { TIMEOUT_NS = 5 * 1000 * 1000 };
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  rondo_graph *graph = NULL, *of_runtime = NULL;
  rondo_tensor state;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "s", RONDO_F32, 1, (int64_t[]){1}, &state));
  rondo_argument arguments[] = {{.tensor = state, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "gate", .host = wait_at_gate, .arguments = arguments, .argument_count = 1}));
  atomic_store(&gate_open, true);
  rondo_exec *execs[3] = {NULL}, *another = NULL;
  rondo_slot slots[3], stale;
  for (int e = 0; e < 3; e++) {
    REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2}, &execs[e]));
    REQUIRE_OK(rondo_acquire(execs[e], &slots[e]));
  }
  REQUIRE_OK(rondo_acquire(execs[0], &stale));
  REQUIRE_OK(rondo_replay(slots[2]));
  REQUIRE_OK(rondo_close_exec_within(&execs[2], RONDO_FOREVER)); /* it does not hang yet */
  cr_assert_null(execs[2]);
  atomic_store(&gate_open, false);
  REQUIRE_OK(rondo_replay(stale));
  REQUIRE_OK(rondo_replay(slots[1]));
  REQUIRE_ERROR(rondo_close_exec_within(&execs[0], TIMEOUT_NS), RONDO_DEVICE_LOST,
                "slot 1 was not done after 5000000 ns");
  cr_assert_null(execs[0]);
  REQUIRE_ERROR(rondo_poll(stale), RONDO_INVALID_STATE, "exec is closed");
  REQUIRE_ERROR(rondo_wait(slots[1], RONDO_FOREVER), RONDO_DEVICE_LOST, "slot 1 was not done after 5000000 ns");
  REQUIRE_ERROR(rondo_replay(slots[1]), RONDO_DEVICE_LOST, "slot 1 was not done");
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, NULL, &another), RONDO_DEVICE_LOST, "slot 1 was not done");
  cr_assert_null(another);
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  uint64_t host_bytes = info.host.used_bytes;
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &of_runtime)); /* not where the thread still looks */
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_gt(host_bytes, 0);
  cr_assert_gt(info.host.used_bytes, host_bytes);
  REQUIRE_OK(rondo_graph_destroy(&of_runtime));
  REQUIRE_ERROR(rondo_close(&runtime), RONDO_INVALID_STATE, "1 exec, of task '");
  REQUIRE_OK(rondo_close_exec(&execs[1])); /* with a replay that is in flight for ever */
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.host.used_bytes, host_bytes, "of an exec in flight nothing is given back");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  atomic_store(&gate_open, true); /* else the thread and what it may touch would be left behind */
  REQUIRE_OK(rondo_close(&runtime));
}

Test(exec, stale_and_foreign_handles_are_refused) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  struct doubling d = doubling_describe(runtime), other = doubling_describe(NULL);
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 17}, &exec), RONDO_INVALID_ARGUMENT,
                "17 slots");
  REQUIRE_ERROR(rondo_instantiate(NULL, d.graph, NULL, &exec), RONDO_INVALID_ARGUMENT, "runtime is NULL");
  REQUIRE_ERROR(rondo_instantiate(runtime, NULL, NULL, &exec), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, NULL, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_OK(rondo_instantiate(runtime, d.graph, NULL, &exec));
  rondo_slot slot, stale;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  stale = slot;
  cr_assert_null(rondo_data(slot, d.state), "a state is no input or output");
  cr_assert_null(rondo_data(slot, other.x));
  cr_assert_not_null(rondo_data(slot, d.x));
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_ERROR(rondo_replay(stale), RONDO_INVALID_STATE, "was released");
  REQUIRE_ERROR(rondo_release(stale), RONDO_INVALID_STATE, "was released");
  cr_assert_null(rondo_data(stale, d.x));
  REQUIRE_ERROR(rondo_replay((rondo_slot){0}), RONDO_INVALID_ARGUMENT, "exec is NULL");
  REQUIRE_ERROR(rondo_replay((rondo_slot){.exec = exec, .index = 9, .lease = 1, .serial = slot.serial}),
                RONDO_INVALID_ARGUMENT, "slot 9 does not exist");
  float value = 0;
  REQUIRE_ERROR(rondo_upload(exec, d.x, &value, 4), RONDO_INVALID_ARGUMENT, "expected a constant or a state");
  REQUIRE_ERROR(rondo_upload(exec, other.state, &value, 4), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_ERROR(rondo_upload(exec, d.state, &value, 3), RONDO_INVALID_ARGUMENT, "has 4 bytes, not 3");
  REQUIRE_ERROR(rondo_upload(exec, d.state, NULL, 4), RONDO_INVALID_ARGUMENT, "data is NULL");
  REQUIRE_ERROR(rondo_close(&runtime), RONDO_INVALID_STATE, "the runtime still has 1 exec, of task '");
  rondo_exec *alias = exec;
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_ERROR(rondo_acquire(alias, &slot), RONDO_INVALID_STATE, "exec is closed");
  REQUIRE_ERROR(rondo_replay(stale), RONDO_INVALID_STATE, "exec is closed");
  REQUIRE_ERROR(rondo_close_exec(&alias), RONDO_INVALID_STATE, "exec is closed");
  rondo_graph *graph_alias = d.graph;
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
  REQUIRE_ERROR(rondo_plan_graph(graph_alias, &(rondo_plan){0}), RONDO_INVALID_STATE, "graph is destroyed");
  REQUIRE_OK(rondo_graph_destroy(&other.graph));
  REQUIRE_OK(rondo_close(&runtime));
  cr_assert_null(runtime);
  REQUIRE_ERROR(rondo_runtime_info(runtime, &(rondo_info){0}), RONDO_INVALID_ARGUMENT, "runtime is NULL");
}

Test(exec, open_refuses_what_it_does_not_know) {
  rondo_runtime *runtime = NULL;
  REQUIRE_ERROR(rondo_open(NULL, &runtime), RONDO_INVALID_ARGUMENT, "options is NULL");
  REQUIRE_ERROR(rondo_open(&(rondo_options){0}, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_ERROR(rondo_open_abi(99, &(rondo_options){0}, &runtime), RONDO_INVALID_ARGUMENT, "ABI 99");
  REQUIRE_ERROR(rondo_open(&(rondo_options){.backend = (rondo_backend)7}, &runtime), RONDO_INVALID_ARGUMENT,
                "backend is 7");
  REQUIRE_ERROR(rondo_open(&(rondo_options){.wait_mode = (rondo_wait_mode)7}, &runtime), RONDO_INVALID_ARGUMENT,
                "wait_mode is 7");
  REQUIRE_ERROR(rondo_open(&(rondo_options){.device = -1}, &runtime), RONDO_INVALID_ARGUMENT, "device is -1");
  rondo_options huge = {.backend = RONDO_BACKEND_HOST, .device_bytes = UINT64_MAX};
  REQUIRE_ERROR(rondo_open(&huge, &runtime), RONDO_OUT_OF_MEMORY, "device pool");
  huge = (rondo_options){.backend = RONDO_BACKEND_HOST, .host_bytes = UINT64_MAX - 4096};
  REQUIRE_ERROR(rondo_open(&huge, &runtime), RONDO_OUT_OF_MEMORY, "host pool");
  cr_assert_null(runtime);
}

Test(exec, a_kernel_with_no_host_function_is_refused_on_the_host) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &graph));
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = "only cuda", .image = "x", .image_bytes = 1, .function = "f"}));
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, NULL, &exec), RONDO_UNSUPPORTED,
                "task 'only cuda' has no host function");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(exec, a_runtime_holds_as_many_execs_as_its_pools_have_room_for) {
  enum { EXECS_MOST = 1000 };
  const int exec_count = (int)rounds_here(EXECS_MOST);
  struct doubling d = doubling_describe(NULL);
  static rondo_graph *graphs[EXECS_MOST];
  for (int e = 0; e < exec_count; e++) graphs[e] = d.graph;
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graphs(graphs, (uint32_t)exec_count, &plan));
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes,
                           .host_threads = 1};
  rondo_runtime *runtime = NULL;
  static rondo_exec *execs[EXECS_MOST];
  rondo_exec *another = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  for (int e = 0; e < exec_count; e++) REQUIRE_OK(rondo_instantiate(runtime, d.graph, NULL, &execs[e]));
  REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, NULL, &another), RONDO_OUT_OF_MEMORY, "device pool");
  for (int e = 0; e < exec_count; e += 37) {
    rondo_slot slot;
    REQUIRE_OK(rondo_acquire(execs[e], &slot));
    ((float *)rondo_data(slot, d.x))[7] = (float)e;
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(((float *)rondo_data(slot, d.y))[7], (float)(2 * e));
  }
  rondo_info info;
  for (int e = 0; e < exec_count; e++) REQUIRE_OK(rondo_close_exec(&execs[e * 7 % exec_count]));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0);
  cr_assert_eq(info.device.high_water_bytes, info.device.capacity_bytes);
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

/* Messages show the names. */
Test(exec, a_node_that_moves_tensors_is_named_after_them) {
  static const struct {
    const char *inputs[3];
    const char *name;
  } cases[] = {
      {{"a"}, "copy in a"},
      {{"a", "second", "c"}, "copy in a, second, c"},
      {{"twenty-seven letters or so,", "and nearly as many again"},
       "copy in twenty-seven letters or so,, and nearly as many again"},
      {{"twenty-seven letters or so,", "twenty-seven more of them,,", "x"},
       "copy in twenty-seven letters or so,, twenty-seven more of th..."},
  };
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    rondo_graph *graph = NULL;
    rondo_exec *exec = NULL;
    rondo_argument arguments[3] = {0};
    uint32_t count = 0;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    for (; count < 3 && cases[c].inputs[count]; count++) {
      arguments[count].access = RONDO_READ;
      REQUIRE_OK(rondo_input(graph, cases[c].inputs[count], RONDO_F32, 1, (int64_t[]){4}, &arguments[count].tensor));
    }
    REQUIRE_OK(rondo_add_kernel(
        graph, &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = count}));
    REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
    cr_assert_eq(exec->program.node_count, 2);
    cr_assert_str_eq(exec->program.tasks[0].name, cases[c].name);
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
  REQUIRE_OK(rondo_close(&runtime));
}

/* An allocator that counts, and fails at the n-th call. */
static int live, calls, fail_at;
static void *counting_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (++calls == fail_at) return NULL;
  live++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void counting_release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  live--;
  free(memory);
}

Test(exec, every_failing_allocation_at_open_is_a_clean_error) {
  rondo_allocator allocator = {.allocate = counting_allocate, .release = counting_release};
  rondo_options options = {
      .backend = RONDO_BACKEND_HOST, .device_bytes = 4096, .pinned_bytes = 4096, .allocator = &allocator};
  bool opened = false;
  for (fail_at = 1; !opened; fail_at++) {
    cr_assert_lt(fail_at, 50);
    rondo_runtime *runtime = NULL;
    calls = 0;
    rondo_status status = rondo_open(&options, &runtime);
    opened = status == RONDO_OK;
    if (!opened) require_error(status, RONDO_OUT_OF_MEMORY, "open", "rondo_open");
    REQUIRE_OK(rondo_close(&runtime));
    cr_assert_eq(live, 0, "allocation %d failing leaks", fail_at);
  }
  cr_assert_gt(fail_at, 4);
}

struct replayer {
  rondo_runtime *runtime;
  int offset;
};

static void *replay_many(void *argument) {
  struct replayer *replayer = argument;
  struct doubling d = doubling_describe(NULL);
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(replayer->runtime, d.graph, NULL, &exec));
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  for (int replay = 0; replay < 500; replay++) {
    float *x = rondo_data(slot, d.x);
    for (int i = 0; i < COUNT; i++) x[i] = (float)(replayer->offset + i);
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    const float *y = rondo_data(slot, d.y);
    for (int i = 0; i < COUNT; i++) cr_assert_eq(y[i], (float)(2 * (replayer->offset + i) + replay));
  }
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
  return NULL;
}

Test(exec, two_threads_may_use_two_execs_of_one_runtime) {
  rondo_runtime *runtime = open_host_pools(1 << 20, 1 << 20);
  pthread_t threads[2];
  struct replayer replayers[2] = {{runtime, 0}, {runtime, 1000}};
  for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, replay_many, &replayers[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  REQUIRE_OK(rondo_close(&runtime));
}
