/* test_cuda_waiting.c - tasks that wait for other ranks, on the fake driver's GPUs: the first cause of a loss, and when
 * their successors may start. */
#include <string.h>

#include "../../kernels/common/launch.h"
#include "../../runtime/completion.h"
#include "../../runtime/fault.h"
#include "../../runtime/kernels.h"
#include "driver_support.h"

enum { RANKS = 3, COUNT = 64 };

/* As many devices as ranks. */
static void waiting_setup(void) {
  driver_setup();
  struct fake_settings settings = fake->settings();
  settings.device_count = RANKS;
  fake->configure(&settings);
}

TestSuite(cuda_waiting, .init = waiting_setup, .timeout = 120);

static void options_of(rondo_options options[RANKS]) {
  for (int32_t r = 0; r < RANKS; r++)
    options[r] = (rondo_options){.backend = RONDO_BACKEND_CUDA,
                                 .device = r,
                                 .device_bytes = 1 << 18,
                                 .pinned_bytes = 1 << 17,
                                 .host_bytes = 1 << 20};
}

static void close_ranks(rondo_runtime *runtimes[RANKS]) {
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
}

struct waiting_parameters {
  uint64_t *fault;
  uint64_t fault_number;
  struct completion done;
};

static const struct op_kernel waiting_kernel =
    KERNEL_ENTRY(EVERY_CHIP, waiting_parameters, mapped_copy, 32, "of a test");

static bool lets_successors_start; /* of the call that was selected last */

static rondo_status waiting_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  lets_successors_start = call->lets_successors_start;
  struct waiting_parameters parameters = {.fault = (uint64_t *)(void *)call->fault, .fault_number = call->fault_number};
  launch_add(launches, &waiting_kernel, 1, 32, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}

static const struct op waiting = {
    .name = "waiting", .waits_for_others = true, .check = accept_any_task, .select = waiting_select};

static uint32_t runs;

/* Rank 2 does not come: the word, and then the trap, before the next node. */
static void waiting_run(const struct fake_launch *launch) {
  struct waiting_parameters p;
  memcpy(&p, launch->parameters[0], sizeof p);
  runs++;
  __atomic_store_n(p.fault, fault_word(p.fault_number, 2), __ATOMIC_RELEASE);
  fake->lose_after_nodes(0, CU_LAUNCH_FAILED);
}

Test(cuda_waiting, the_first_cause_names_the_task_and_the_rank_that_did_not_come) {
  static const char cause[] = "replay: task 'sum': rank 2 did not come in time: ";
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS];
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  fake->register_kernel("mapped_copy", waiting_run, 1, (const size_t[]){sizeof(struct waiting_parameters)});
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor state = add_vector(rondo_state, graph, "state", COUNT);
  const struct op_argument argument = {.name = "state", .tensor = state, .access = RONDO_READ_WRITE};
  REQUIRE_OK(graph_add(graph, &waiting, "sum", &argument, 1, NULL, 0));
  add_copy(graph, "copy", state, add_vector(rondo_output, graph, "out", COUNT));
  options_of(options);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  REQUIRE_OK(rondo_instantiate(runtimes[0], graph, NULL, &exec));
  cr_assert_eq(runs, 0, "no warm-up");
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_wait(slot, RONDO_FOREVER), RONDO_DEVICE_LOST, cause);
  cr_assert(strstr(rondo_error_text(), "CUDA_ERROR_LAUNCH_FAILED"), "%s", rondo_error_text());
  REQUIRE_ERROR(rondo_runtime_health(runtimes[0]), RONDO_DEVICE_LOST, cause);
  REQUIRE_OK(rondo_runtime_health(runtimes[1]));
  cr_assert_eq(runs, 1);
  REQUIRE_OK(rondo_close_exec(&exec));
  close_ranks(runtimes);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_no_violation("after close");
}

/* Two tasks that wait, of one state or each of its own. */
static rondo_graph *waiting_twice(uint32_t state_count) {
  rondo_graph *graph;
  rondo_tensor states[2];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (uint32_t i = 0; i < state_count; i++) states[i] = add_vector(rondo_state, graph, i ? "other" : "state", COUNT);
  for (uint32_t i = 0; i < 2; i++) {
    const struct op_argument argument = {
        .name = "state", .tensor = states[i % state_count], .access = RONDO_READ_WRITE};
    REQUIRE_OK(graph_add(graph, &waiting, i ? "second" : "first", &argument, 1, NULL, 0));
  }
  return graph;
}

static void require_start(rondo_runtime *runtime, uint32_t state_count, bool expected) {
  rondo_graph *graph = waiting_twice(state_count);
  rondo_exec *exec;
  lets_successors_start = !expected;
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  cr_assert_eq(lets_successors_start, expected);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(cuda_waiting, successors_start_before_a_wait_ends_if_no_rank_needs_their_room) {
  static const rondo_lane lanes[2];
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS], *others[RANKS];
  fake->register_kernel("mapped_copy", waiting_run, 1, (const size_t[]){sizeof(struct waiting_parameters)});
  options_of(options);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  require_start(runtimes[1], 1, true);
  require_start(runtimes[1], 2, false); /* tasks without an order may wait for each other's room */
  REQUIRE_OK(rondo_open_group(options, RANKS, others));
  require_start(others[1], 1, false); /* another group has the devices */
  require_start(runtimes[1], 1, true);
  close_ranks(runtimes);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  require_start(runtimes[1], 1, false); /* the other one still has them */
  close_ranks(others);
  close_ranks(runtimes);
  options[2].lanes = lanes, options[2].lane_count = 2;
  REQUIRE_OK(rondo_open_group(options, RANKS, others));
  require_start(others[1], 1, false);
  options_of(options);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  require_start(runtimes[1], 1, false); /* a group with lanes has them too */
  close_ranks(others);
  close_ranks(runtimes);
  options[2] = options[0]; /* two ranks on one device */
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  require_start(runtimes[1], 1, false);
  close_ranks(runtimes);
  options_of(options);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes)); /* the devices have been given back */
  require_start(runtimes[1], 1, true);
  close_ranks(runtimes);
  require_clean("after close");
}
