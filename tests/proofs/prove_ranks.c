/* prove_ranks.c - replays of all ranks of a group allocate nothing, ask neither a pool nor the driver for anything but
 * their launches, and make no system call. */
#include "allocations.h"
#include "counted_ranks.h"
#include "forbidden.h"

enum { RANKS = 2, COUNT = 256, SEALED_REPLAYS = 1000 };

/* out = the constant of the other rank; sum = the sum of the ranks' in, which waits for the other. The fake driver has
 * no kernel for it. */
static struct rank {
  rondo_runtime *runtime;
  rondo_graph *lender, *graph;
  rondo_exec *lending, *exec;
  rondo_tensor constant, exchange, out, in, sum;
} ranks[RANKS];

static rondo_slot slots[RANKS];
static bool exchanges;

static void lend(const struct proof *proof, struct rank *rank) {
  float data[COUNT];
  for (int i = 0; i < COUNT; i++) data[i] = (float)(100 * (rank - ranks) + i);
  CHECK(rondo_graph_create(NULL, NULL, &rank->lender));
  CHECK(rondo_constant(rank->lender, "constant", RONDO_F32, 1, (int64_t[]){COUNT}, &rank->constant));
  CHECK(rondo_exchange_state(rank->lender, "exchange", RANKS, sizeof data, &rank->exchange));
  CHECK(rondo_instantiate(rank->runtime, rank->lender, NULL, &rank->lending));
  CHECK(rondo_upload(rank->lending, rank->constant, data, sizeof data));
}

static void describe(const struct proof *proof, uint32_t number) {
  struct rank *rank = &ranks[number];
  const rondo_tensor exchange[RANKS] = {ranks[0].exchange, ranks[1].exchange};
  const int64_t shape[] = {COUNT};
  rondo_tensor borrowed;
  CHECK(rondo_graph_create(NULL, NULL, &rank->graph));
  CHECK(rondo_borrow(rank->graph, ranks[1 - number].constant, &borrowed));
  CHECK(rondo_output(rank->graph, "out", RONDO_F32, 1, shape, &rank->out));
  CHECK(rondo_add_copy(rank->graph, &(rondo_copy_desc){.src = borrowed, .dst = rank->out}));
  if (!exchanges) return;
  CHECK(rondo_input(rank->graph, "in", RONDO_F32, 1, shape, &rank->in));
  CHECK(rondo_output(rank->graph, "sum", RONDO_F32, 1, shape, &rank->sum));
  CHECK(rondo_add_all_reduce(rank->graph, &(rondo_exchange_desc){.in = rank->in,
                                                                 .out = rank->sum,
                                                                 .exchange = exchange,
                                                                 .rank = number,
                                                                 .ranks = RANKS,
                                                                 .timeout_ns = UINT64_C(60) * 1000 * 1000 * 1000}));
}

/* On devices of their own, or if there are too few on one. */
static void open_group(const struct proof *proof, rondo_runtime *runtimes[RANKS]) {
  rondo_options options[RANKS];
  for (int r = 0; r < RANKS; r++)
    options[r] = (rondo_options){.backend = proof->backend,
                                 .device = proof->backend == RONDO_BACKEND_CUDA ? r : 0,
                                 .device_bytes = 2 << 20,
                                 .pinned_bytes = 1 << 20,
                                 .host_threads = 1,
                                 .wait_mode = RONDO_WAIT_SPIN};
  if (rondo_open_group(options, RANKS, runtimes) == RONDO_OK) return;
  for (int r = 0; r < RANKS; r++) options[r].device = 0;
  CHECK(rondo_open_group(options, RANKS, runtimes));
}

static void open_ranks(const struct proof *proof) {
  rondo_runtime *runtimes[RANKS];
  open_group(proof, runtimes);
  exchanges = !proof->verdict->is_fake;
  for (int r = 0; r < RANKS; r++) ranks[r].runtime = runtimes[r];
  for (int r = 0; r < RANKS; r++) lend(proof, &ranks[r]);
  for (uint32_t r = 0; r < RANKS; r++) {
    describe(proof, r);
    CHECK(rondo_instantiate(ranks[r].runtime, ranks[r].graph, NULL, &ranks[r].exec));
    CHECK(rondo_acquire(ranks[r].exec, &slots[r]));
  }
}

/* RONDO_INTERNAL if a result is wrong. */
static rondo_status replay(uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    for (int r = 0; exchanges && r < RANKS; r++) ((float *)rondo_data(slots[r], ranks[r].in))[i % COUNT] = (float)i;
    rondo_status status = rondo_replay_all(slots, RANKS);
    if (status == RONDO_OK) status = rondo_wait_all(slots, RANKS, RONDO_FOREVER);
    if (status != RONDO_OK) return status;
    for (int r = 0; r < RANKS; r++) {
      const float *out = rondo_data(slots[r], ranks[r].out);
      if (out[i % COUNT] != (float)(100 * (1 - r) + (int)(i % COUNT))) return RONDO_INTERNAL;
      if (exchanges && ((const float *)rondo_data(slots[r], ranks[r].sum))[i % COUNT] != 2 * (float)i)
        return RONDO_INTERNAL;
    }
  }
  return RONDO_OK;
}

/* That the seal can fail is shown by replay_makes_no_system_call. */
void ranks_ask_for_nothing(const struct proof *proof) {
  struct breach *breach = &proof->verdict->breach;
  open_subject(proof, 1, RONDO_WAIT_BLOCK); /* says whether there is such a backend, and which driver */
  close_subject(proof);
  open_ranks(proof);
  CHECK(replay(1));
  const struct counted_ranks counted = ranks_count(proof, replay, RANKS);
  if (!seal(breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
  const uint64_t sealed = ranks_replay_for(proof, replay, SEALED_REPLAYS, "replay under seccomp");
  conclude(proof, PROVEN, "%ju replays of %d ranks, 0 calls of %d kinds, 0 forbidden ones of %d; %ju under seccomp",
           counted.replays, RANKS, ALLOCATION_CALL_COUNT, forbidden_kinds(proof->backend == RONDO_BACKEND_CUDA),
           sealed);
}
