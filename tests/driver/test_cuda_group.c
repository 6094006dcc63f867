/* test_cuda_group.c - the ranks of rondo_open_group on the fake driver's GPUs: who reaches whose memory, what a failing
 * call leaves behind, states that ranks lend each other, and one rank that is lost. */
#include <string.h>

#include "../../runtime/cuda/driver.h"
#include "driver_support.h"

enum { RANKS = 3, PAIRS = 6, COUNT = 64, UNAVAILABLE = 46, UNKNOWN_ERROR = 999 };

static void set_devices(int32_t count) {
  struct fake_settings settings = fake->settings();
  settings.device_count = count;
  fake->configure(&settings);
}

static void set_refuses_peers(bool refuses_peers) {
  struct fake_settings settings = fake->settings();
  settings.refuses_peers = refuses_peers;
  fake->configure(&settings);
}

/* As many devices as ranks. */
static void group_setup(void) {
  driver_setup();
  set_devices(RANKS);
}

TestSuite(cuda_group, .init = group_setup, .timeout = 120);

static void options_of(rondo_backend backend, rondo_options options[RANKS]) {
  for (int32_t r = 0; r < RANKS; r++)
    options[r] = (rondo_options){.backend = backend,
                                 .device = r,
                                 .device_bytes = 1 << 18,
                                 .pinned_bytes = 1 << 17,
                                 .host_bytes = 1 << 20,
                                 .host_threads = 1};
}

/* With pools so large that uploads go through Rondo's staging, and return while they are in progress. */
static void open_ranks(rondo_runtime *runtimes[RANKS]) {
  rondo_options options[RANKS];
  options_of(RONDO_BACKEND_CUDA, options);
  for (int r = 0; r < RANKS; r++) options[r].device_bytes = 64 << 20;
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
}

static void close_ranks(rondo_runtime *runtimes[RANKS]) {
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
}

/* ---- Open -------------------------------------------------------------------------------------------------------- */

Test(cuda_group, each_rank_reaches_the_memory_of_every_other) {
  rondo_runtime *runtimes[RANKS];
  open_ranks(runtimes);
  cr_assert_eq(fake->calls("cuDeviceCanAccessPeer"), PAIRS);
  cr_assert_eq(fake->calls("cuCtxEnablePeerAccess"), PAIRS);
  close_ranks(runtimes);
  require_clean("after close");
}

Test(cuda_group, ranks_of_one_device_need_no_access) {
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS];
  options_of(RONDO_BACKEND_CUDA, options);
  for (int r = 0; r < RANKS; r++) options[r].device = 0;
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  cr_assert_eq(fake->calls("cuCtxEnablePeerAccess"), 0);
  close_ranks(runtimes);
  require_clean("after close");
}

Test(cuda_group, access_that_other_code_has_asked_for_is_as_good) {
  rondo_runtime *runtimes[RANKS], *again[RANKS];
  open_ranks(runtimes);
  open_ranks(again);
  close_ranks(runtimes);
  close_ranks(again);
  require_clean("after close");
}

Test(cuda_group, devices_that_do_not_reach_each_other_are_refused) {
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS] = {NULL};
  rondo_info info;
  set_refuses_peers(true);
  options_of(RONDO_BACKEND_CUDA, options);
  REQUIRE_ERROR(rondo_open_group(options, RANKS, runtimes), RONDO_NO_DEVICE,
                "open: rank 0 (device 0): it cannot reach the memory of device 1: no peer access");
  cr_assert_null(runtimes[0]);
  require_clean("after the refusal");
  options_of(RONDO_BACKEND_AUTO, options);
  REQUIRE_OK(rondo_open_group(options, RANKS, runtimes));
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_runtime_info(runtimes[r], &info));
    cr_assert_eq(info.backend, RONDO_BACKEND_HOST);
    cr_assert_str_eq(info.reason, "host: rank 0 (device 0): it cannot reach the memory of device 1: no peer access");
  }
  close_ranks(runtimes);
  require_clean("after close");
}

Test(cuda_group, a_rank_without_a_device_is_named) {
  rondo_options options[RANKS];
  rondo_runtime *runtimes[RANKS];
  options_of(RONDO_BACKEND_CUDA, options);
  set_devices(2);
  REQUIRE_ERROR(rondo_open_group(options, RANKS, runtimes), RONDO_NO_DEVICE,
                "open: rank 2 (device 2): device 2 does not exist: there are 2");
  require_clean("after the refusal");
  set_devices(RANKS);
  options[1].device_bytes = UINT64_C(1) << 40;
  REQUIRE_ERROR(rondo_open_group(options, RANKS, runtimes), RONDO_OUT_OF_MEMORY,
                "open: rank 1 (device 1): the device has no 1099511627776 bytes");
  require_clean("after the refusal");
}

/* Each call of the driver fails once. All ranks are then on the host, or it was a call that Rondo can do without. */
static void fail_each_call(int32_t result) {
  rondo_options options[RANKS];
  for (uint64_t n = 1;; n++) {
    rondo_runtime *runtimes[RANKS] = {NULL};
    rondo_info info[RANKS];
    group_setup();
    options_of(RONDO_BACKEND_AUTO, options);
    fake->fail_call(n, result);
    rondo_status status = rondo_open_group(options, RANKS, runtimes);
    const char *function = fake->failed_call();
    fake->fail_call(0, 0);
    if (result == CU_OUT_OF_MEMORY && status == RONDO_OUT_OF_MEMORY) {
      cr_assert(strstr(rondo_error_text(), "open: rank "), "%s: %s", function, rondo_error_text());
      cr_assert_null(runtimes[0]);
    } else {
      require_ok(status, function ? function : "no failure");
      for (int r = 0; r < RANKS; r++) {
        REQUIRE_OK(rondo_runtime_info(runtimes[r], &info[r]));
        cr_assert_eq(info[r].backend, info[0].backend, "%s", function);
        cr_assert_str_eq(info[r].reason, info[0].reason, "%s", function);
      }
      if (info[0].backend == RONDO_BACKEND_HOST)
        cr_assert(function && strstr(info[0].reason, "host: rank "), "%s: %s", function, info[0].reason);
      close_ranks(runtimes);
    }
    if (result != CU_ILLEGAL_ADDRESS) require_clean(function ? function : "no failure");
    if (!function) break;
  }
}
Test(cuda_group, a_call_that_fails_in_open_leads_all_ranks_to_the_host) { fail_each_call(UNAVAILABLE); }
Test(cuda_group, a_device_that_is_lost_in_open_leads_all_ranks_to_the_host) { fail_each_call(CU_ILLEGAL_ADDRESS); }
Test(cuda_group, a_device_without_memory_is_told_and_nothing_is_left) { fail_each_call(CU_OUT_OF_MEMORY); }

/* ---- States that ranks lend each other --------------------------------------------------------------------------- */

/* Rank r has a state of its own; each replay puts the input into the state of the next rank, and the last replay's
 * value of its own state into the output. The order of ranks is that of rondo_replay_all. */
struct ring {
  rondo_runtime *runtimes[RANKS];
  rondo_graph *lenders[RANKS], *graphs[RANKS];
  rondo_exec *lending[RANKS], *execs[RANKS];
  rondo_tensor states[RANKS], in[RANKS], out[RANKS];
  rondo_slot slots[RANKS];
};

static void ring_describe(struct ring *ring) {
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &ring->lenders[r]));
    ring->states[r] = add_vector(rondo_state, ring->lenders[r], "state", COUNT);
  }
  for (int r = 0; r < RANKS; r++) {
    rondo_tensor own, next;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &ring->graphs[r]));
    REQUIRE_OK(rondo_borrow(ring->graphs[r], ring->states[r], &own));
    REQUIRE_OK(rondo_borrow(ring->graphs[r], ring->states[(r + 1) % RANKS], &next));
    ring->in[r] = add_vector(rondo_input, ring->graphs[r], "in", COUNT);
    ring->out[r] = add_vector(rondo_output, ring->graphs[r], "out", COUNT);
    add_mix(ring->graphs[r], "take", own, own, ring->out[r], COUNT, 0);
    add_mix(ring->graphs[r], "give", ring->in[r], ring->in[r], next, COUNT, (uint32_t)r);
  }
}

static void ring_begin(struct ring *ring) {
  const rondo_exec_options options = {.states_are_ordered = 1};
  memset(ring, 0, sizeof *ring);
  ring_describe(ring);
  open_ranks(ring->runtimes);
  for (int r = 0; r < RANKS; r++)
    REQUIRE_OK(rondo_instantiate(ring->runtimes[r], ring->lenders[r], NULL, &ring->lending[r]));
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_instantiate(ring->runtimes[r], ring->graphs[r], &options, &ring->execs[r]));
    REQUIRE_OK(rondo_acquire(ring->execs[r], &ring->slots[r]));
  }
}

static void ring_close(struct ring *ring) {
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close_exec(&ring->execs[r]));
  for (int r = 0; r < RANKS; r++) REQUIRE_OK(rondo_close_exec(&ring->lending[r]));
  close_ranks(ring->runtimes);
  for (int r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_graph_destroy(&ring->graphs[r]));
    REQUIRE_OK(rondo_graph_destroy(&ring->lenders[r]));
  }
}

static void ring_fill(struct ring *ring, uint32_t round) {
  for (uint32_t r = 0; r < RANKS; r++) {
    uint32_t *in = rondo_data(ring->slots[r], ring->in[r]);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = 1000 * round + 100 * r + i;
  }
}

/* What rank r was given in the last round: by the rank before it. In this one, too, if that has replayed before it. */
static uint32_t given(uint32_t rank, uint32_t round, uint32_t i) {
  uint32_t giver = (rank + RANKS - 1) % RANKS;
  if (giver > rank && round == 0) return 0;
  return 48 * (1000 * (giver > rank ? round - 1 : round) + 100 * giver + i) + giver;
}

Test(cuda_group, a_rank_writes_states_of_another_in_the_order_of_replays) {
  struct ring ring;
  ring_begin(&ring);
  for (uint32_t round = 0; round < 4; round++) {
    ring_fill(&ring, round);
    REQUIRE_OK(rondo_replay_all(ring.slots, RANKS));
    REQUIRE_OK(rondo_wait_all(ring.slots, RANKS, RONDO_FOREVER));
    for (uint32_t r = 0; r < RANKS; r++) {
      const uint32_t *out = rondo_data(ring.slots[r], ring.out[r]);
      for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(out[i], 48 * given(r, round, i), "rank %u, round %u", r, round);
    }
  }
  ring_close(&ring);
  require_clean("after close");
}

/* The test above would pass without peer access too, if the fake did not look. */
Test(cuda_group, a_kernel_that_gets_memory_it_does_not_reach_is_a_violation) {
  struct driver driver;
  struct cu_context *contexts[2];
  struct cu_stream *stream;
  cu_address memory;
  char text[256];
  REQUIRE_OK(driver_load(&driver));
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(driver.cuDevicePrimaryCtxRetain(&contexts[i], i), CU_SUCCESS);
    cr_assert_eq(driver.cuCtxPushCurrent(contexts[i]), CU_SUCCESS);
  }
  cr_assert_eq(driver.cuMemAlloc(&memory, 64), CU_SUCCESS); /* of device 1 */
  cr_assert_eq(driver.cuCtxPopCurrent(&contexts[1]), CU_SUCCESS);
  cr_assert_eq(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuMemsetD8Async(memory, 0, 64, stream), CU_SUCCESS);
  cr_assert_eq(fake->violations(text, sizeof text), 1);
  cr_assert(strstr(text, "cuMemsetD8Async: the stream's device does not reach the memory"), "%s", text);
  cr_assert_eq(driver.cuCtxEnablePeerAccess(contexts[1], 0), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxEnablePeerAccess(contexts[1], 0), CU_PEER_ACCESS_ALREADY_ENABLED);
  cr_assert_eq(driver.cuMemsetD8Async(memory, 0, 64, stream), CU_SUCCESS);
  cr_assert_eq(fake->violations(text, sizeof text), 1);
}

/* An upload to a lender of other ranks is done when the call returns, and one before that when they instantiate: no
 * event orders the lanes of other devices after it. */
Test(cuda_group, an_upload_is_over_before_another_rank_can_read_it) {
  struct ring ring;
  uint32_t state[COUNT];
  ring_begin(&ring);
  set_mode(FAKE_DEFERRED);
  for (uint32_t round = 0; round < 8; round++) {
    for (uint32_t i = 0; i < COUNT; i++) state[i] = 77 * round + i;
    for (int r = 0; r < RANKS; r++) {
      const uint64_t waits = fake->calls("cuStreamSynchronize");
      REQUIRE_OK(rondo_upload(ring.lending[r], ring.states[r], state, sizeof state));
      cr_assert_gt(fake->calls("cuStreamSynchronize"), waits);
      cr_assert_not_null(fake->find(state, sizeof state), "rank %d", r);
    }
  }
  ring_close(&ring);
  require_clean("after close");
}

/* Else an upload would wait for replays of its lane, which may wait for another rank. */
Test(cuda_group, an_upload_to_a_rank_that_lends_nothing_waits_for_nothing) {
  rondo_runtime *runtimes[RANKS];
  rondo_graph *lender, *graph;
  rondo_exec *lending, *exec;
  rondo_tensor borrowed;
  uint32_t data[COUNT];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &lender));
  rondo_tensor constant = add_vector(rondo_constant, lender, "constant", COUNT);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_borrow(graph, constant, &borrowed));
  add_copy(graph, "take", borrowed, add_vector(rondo_output, graph, "out", COUNT));
  open_ranks(runtimes);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_instantiate(runtimes[0], lender, NULL, &lending));
  const uint64_t waits = fake->calls("cuStreamSynchronize");
  for (uint32_t n = 0; n < 12; n++) { /* more than run by the way */
    for (uint32_t i = 0; i < COUNT; i++) data[i] = 1000000 * n + i;
    REQUIRE_OK(rondo_upload(lending, constant, data, sizeof data));
  }
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits);
  REQUIRE_OK(rondo_instantiate(runtimes[1], graph, &(rondo_exec_options){.without_warm_up = 1}, &exec));
  cr_assert_not_null(fake->find(data, sizeof data), "what is lent from now on is there");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&lending));
  close_ranks(runtimes);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&lender));
  require_clean("after close");
}

Test(cuda_group, one_list_of_slots_is_checked_before_any_starts) {
  struct ring ring;
  rondo_slot slots[RANKS];
  ring_begin(&ring);
  ring_fill(&ring, 0);
  memcpy(slots, ring.slots, sizeof slots);
  slots[2] = slots[0];
  REQUIRE_ERROR(rondo_replay_all(slots, RANKS), RONDO_INVALID_ARGUMENT,
                "rondo_replay_all: the slot is slots[0] too (slots[2])");
  slots[2].lease--;
  REQUIRE_ERROR(rondo_replay_all(slots, RANKS), RONDO_INVALID_STATE, "(slots[2])");
  REQUIRE_ERROR(rondo_wait_all(slots, RANKS, 0), RONDO_INVALID_STATE, "rondo_wait: slot 0 was released");
  REQUIRE_ERROR(rondo_replay_all(NULL, RANKS), RONDO_INVALID_ARGUMENT, "the slots are NULL, and their count is 3");
  REQUIRE_ERROR(rondo_wait_all(NULL, 1, 0), RONDO_INVALID_ARGUMENT, "the slots are NULL, and their count is 1");
  REQUIRE_OK(rondo_replay_all(NULL, 0));
  REQUIRE_OK(rondo_wait_all(NULL, 0, 0));
  for (int r = 0; r < RANKS; r++) {
    rondo_exec_usage usage;
    REQUIRE_OK(rondo_exec_info(ring.execs[r], &usage));
    cr_assert_eq(usage.in_flight_slot_count, 0);
  }
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay_all(ring.slots, RANKS));
  REQUIRE_ERROR(rondo_replay_all(ring.slots, RANKS), RONDO_BUSY, "slot 0 is in flight");
  REQUIRE_ERROR(rondo_wait_all(ring.slots, RANKS, 1000), RONDO_TIMEOUT, "still in flight after 1000 ns");
  set_mode(FAKE_IMMEDIATE);
  REQUIRE_OK(rondo_wait_all(ring.slots, RANKS, RONDO_FOREVER));
  ring_close(&ring);
  require_clean("after close");
}

/* ---- A rank that is lost ----------------------------------------------------------------------------------------- */

Test(cuda_group, the_other_ranks_live_on_when_one_is_lost) {
  struct ring ring;
  ring_begin(&ring);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay(ring.slots[1]));
  fake->lose_after_nodes(0, CU_ILLEGAL_ADDRESS);
  REQUIRE_ERROR(rondo_wait(ring.slots[1], RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  for (uint32_t r = 0; r < RANKS; r += 2) {
    REQUIRE_OK(rondo_runtime_health(ring.runtimes[r]));
    REQUIRE_OK(rondo_replay(ring.slots[r]));
    REQUIRE_OK(rondo_wait(ring.slots[r], RONDO_FOREVER));
  }
  REQUIRE_ERROR(rondo_replay_all(ring.slots, RANKS), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_OK(rondo_poll(ring.slots[0]));
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(ring.runtimes[0], ring.graphs[1], NULL, &exec), RONDO_DEVICE_LOST,
                "instantiate: state 'state' is borrowed from rank 1: ");
  require_no_violation("while rank 1 is lost");
  ring_close(&ring);
  require_no_violation("after close");
}

/* Rank 0 would wait for it in vain. */
Test(cuda_group, no_rank_starts_when_one_is_known_to_be_lost) {
  struct ring ring;
  rondo_exec_usage usage;
  ring_begin(&ring);
  fake->fail_call(1, UNKNOWN_ERROR);
  REQUIRE_ERROR(rondo_runtime_health(ring.runtimes[1]), RONDO_DEVICE_LOST, "device health: cuCtxPushCurrent");
  set_mode(FAKE_NEVER);
  REQUIRE_ERROR(rondo_replay_all(ring.slots, RANKS), RONDO_DEVICE_LOST, "(slots[1])");
  REQUIRE_OK(rondo_exec_info(ring.execs[0], &usage));
  cr_assert_eq(usage.in_flight_slot_count, 0);
  set_mode(FAKE_IMMEDIATE);
  ring_close(&ring);
  require_no_violation("after close");
}

/* What the lost device of rank 1 may still write is never given back: it borrows from ranks 1 and 2. */
Test(cuda_group, memory_that_a_lost_rank_borrowed_is_leaked) {
  struct ring ring;
  char text[1024];
  ring_begin(&ring);
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(ring.slots[1]));
  REQUIRE_ERROR(rondo_close_exec_within(&ring.execs[1], 1000000), RONDO_DEVICE_LOST, "slot 0 was not done");
  set_mode(FAKE_IMMEDIATE);
  cr_assert_null(ring.execs[1]);
  ring_close(&ring);
  cr_assert_gt(fake->live(text, sizeof text), 0);
  cr_assert(strstr(text, "2 context"), "%s", text);
  require_no_violation("after close");
}
