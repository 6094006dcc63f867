/* prove_nccl.c - what NCCL keeps of a replay's promises: ranks of one process, each with a GPU, exchange by
 * rondo_add_nccl. Their replays give the same bits on all ranks, allocate nothing, and ask neither a pool nor the
 * driver for anything but their launches. A launch may make a system call: it may wait for a lock that NCCL's threads
 * hold. */
#include <string.h>

#include "../../command/bench/nccl_ranks.h"
#include "allocations.h"
#include "counted_ranks.h"
#include "forbidden.h"

enum { RANKS = 2, COUNT = 4096, ALL = RANKS * COUNT };

/* sum = the sum of the ranks' in; all = the ranks' in; got = the other rank's in. */
static struct rank { rondo_tensor in, sum, all, got; } ranks[RANKS];

static rondo_runtime *runtimes[RANKS];
static rondo_graph *graphs[RANKS];
static rondo_exec *execs[RANKS];
static rondo_slot slots[RANKS];
static struct ncclComm *communicators[RANKS];
static float expected_sum[COUNT];

static void describe(const struct proof *proof, uint32_t number) {
  struct rank *rank = &ranks[number];
  const int64_t shape[] = {COUNT}, all[] = {ALL};
  CHECK(rondo_graph_create(NULL, NULL, &graphs[number]));
  rondo_graph *graph = graphs[number];
  CHECK(rondo_input(graph, "in", RONDO_F32, 1, shape, &rank->in));
  CHECK(rondo_output(graph, "sum", RONDO_F32, 1, shape, &rank->sum));
  CHECK(rondo_output(graph, "all", RONDO_F32, 1, all, &rank->all));
  CHECK(rondo_output(graph, "got", RONDO_F32, 1, shape, &rank->got));
  rondo_nccl_desc desc = {.communicator = communicators[number], .in = rank->in, .out = rank->sum};
  CHECK(rondo_add_nccl(graph, &desc));
  desc.call = RONDO_NCCL_ALL_GATHER, desc.out = rank->all;
  CHECK(rondo_add_nccl(graph, &desc));
  desc.call = RONDO_NCCL_SEND_RECEIVE, desc.out = rank->got, desc.to = desc.from = 1 - number;
  CHECK(rondo_add_nccl(graph, &desc));
}

static void open_ranks(const struct proof *proof) {
  char text[NCCL_TEXT_BYTES];
  for (uint32_t r = 0; r < RANKS; r++) {
    const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                   .device = (int32_t)r,
                                   .device_bytes = 1 << 20,
                                   .pinned_bytes = 1 << 20,
                                   .wait_mode = RONDO_WAIT_SPIN};
    CHECK(rondo_open(&options, &runtimes[r]));
    describe(proof, r);
  }
  if (nccl_ranks_instantiate(RANKS, runtimes, graphs, execs, text) != RONDO_OK)
    conclude(proof, FAILED, "instantiate: %s", text);
  for (int r = 0; r < RANKS; r++) {
    CHECK(rondo_acquire(execs[r], &slots[r]));
    float *in = rondo_data(slots[r], ranks[r].in);
    for (int i = 0; i < COUNT; i++) in[i] = 1.0f / (float)(1 + i + 3 * r);
  }
}

static bool has_bits(const void *a, const void *b) { return memcmp(a, b, COUNT * sizeof(float)) == 0; }

/* RONDO_INTERNAL if a result is wrong, by one bit too. */
static rondo_status replay(uint64_t count) {
  const float *in[RANKS] = {rondo_data(slots[0], ranks[0].in), rondo_data(slots[1], ranks[1].in)};
  for (uint64_t i = 0; i < count; i++) {
    rondo_status status = rondo_replay_all(slots, RANKS);
    if (status == RONDO_OK) status = rondo_wait_all(slots, RANKS, RONDO_FOREVER);
    if (status != RONDO_OK) return status;
    for (int r = 0; r < RANKS; r++) {
      const float *sum = rondo_data(slots[r], ranks[r].sum), *all = rondo_data(slots[r], ranks[r].all);
      const float *got = rondo_data(slots[r], ranks[r].got);
      if (!has_bits(sum, expected_sum) || !has_bits(all, in[0]) || !has_bits(all + COUNT, in[1]) ||
          !has_bits(got, in[1 - r]))
        return RONDO_INTERNAL;
    }
  }
  return RONDO_OK;
}

/* In fp32, in either order, two numbers have one sum. */
static void expect_sum(void) {
  const float *a = rondo_data(slots[0], ranks[0].in), *b = rondo_data(slots[1], ranks[1].in);
  for (int i = 0; i < COUNT; i++) expected_sum[i] = a[i] + b[i];
}

void nccl_ranks_ask_for_nothing(const struct proof *proof) {
  const char *why;
  if (proof->backend == RONDO_BACKEND_HOST) conclude(proof, SKIPPED, "NCCL needs GPUs");
  open_subject(proof, 1, RONDO_WAIT_BLOCK); /* says whether there is such a backend, and which driver */
  close_subject(proof);
  if (proof->verdict->is_fake) conclude(proof, SKIPPED, "the fake driver runs no kernels of NCCL");
  if (!nccl_ranks_open(RANKS, communicators, &why)) conclude(proof, SKIPPED, "%s", why);
  open_ranks(proof);
  expect_sum();
  CHECK(replay(1));
  const struct counted_ranks counted = ranks_count(proof, replay, RANKS);
  conclude(
      proof, PROVEN,
      "%ju replays of %d ranks, 0 calls of %d kinds, and %ju by threads of NCCL and the driver; 0 forbidden ones of %d",
      counted.replays, RANKS, ALLOCATION_CALL_COUNT, counted.foreign, forbidden_kinds(true));
}
