/* groups.c - a thread for each rank of a group: they borrow from each other, upload, replay and close at the same time,
 * on the host add up what each has, and each closes its rank when it is done. Runs under ThreadSanitizer, as threads.c
 * does, on the host backend and, with --cuda, on the CUDA backend, where the fake driver runs work on a thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../driver/fake_driver.h"
#include "check.h"

enum { RANKS = 3, COUNT = 64, GROUPS = 4, ROUNDS = 12, REPLAYS = 4, SUMS = 20 };

static rondo_backend backend;
static const int64_t shape[] = {COUNT};

static struct rank {
  rondo_runtime *runtime;
  rondo_graph *lender, *own; /* a constant for the other ranks, and one for nobody */
  rondo_exec *lending, *owner;
  rondo_tensor lent, kept, exchange;
} ranks[RANKS];
static pthread_barrier_t together; /* all lend now; none borrows any more */

static void fill(int32_t *data, int32_t value) {
  for (int i = 0; i < COUNT; i++) data[i] = value;
}

static void set(rondo_exec *exec, rondo_tensor tensor, int32_t value) {
  int32_t data[COUNT];
  fill(data, value);
  CHECK(rondo_upload(exec, tensor, data, sizeof data));
}

static void lend(struct rank *rank, int32_t value) {
  CHECK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &rank->own));
  CHECK(rondo_constant(rank->own, "kept", RONDO_I32, 1, shape, &rank->kept));
  CHECK(rondo_instantiate(rank->runtime, rank->lender, NULL, &rank->lending));
  CHECK(rondo_instantiate(rank->runtime, rank->own, NULL, &rank->owner));
  set(rank->lending, rank->lent, value);
}

/* out = the constant of another rank. */
static void borrow(struct rank *rank, const struct rank *other, int32_t value) {
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor borrowed, out;
  rondo_slot slots[2];
  CHECK(rondo_graph_create(rank->runtime, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &graph));
  CHECK(rondo_borrow(graph, other->lent, &borrowed));
  CHECK(rondo_output(graph, "out", RONDO_I32, 1, shape, &out));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = borrowed, .dst = out}));
  CHECK(rondo_instantiate(rank->runtime, graph, &(rondo_exec_options){.slots = 2}, &exec));
  for (int i = 0; i < 2; i++) CHECK(rondo_acquire(exec, &slots[i]));
  for (int32_t replay = 0; replay < REPLAYS; replay++) {
    set(rank->owner, rank->kept, replay);
    CHECK(rondo_replay_all(slots, 2));
    CHECK(rondo_wait_all(slots, 2, RONDO_FOREVER));
    for (int i = 0; i < 2; i++) require_all(rondo_data(slots[i], out), COUNT, value, "what another rank lends");
  }
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
}

/* Replay after replay the sum over all ranks, twice in a graph: the exchanges wait for the other ranks' threads. */
static void add_up(struct rank *rank) {
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_tensor in, sums[2], exchange[RANKS];
  for (int r = 0; r < RANKS; r++) exchange[r] = ranks[r].exchange;
  CHECK(rondo_graph_create(rank->runtime, &(rondo_graph_limits){.tensors = 8, .tasks = 4}, &graph));
  CHECK(rondo_input(graph, "in", RONDO_F32, 1, shape, &in));
  for (int i = 0; i < 2; i++) {
    CHECK(rondo_output(graph, i ? "again" : "sum", RONDO_F32, 1, shape, &sums[i]));
    CHECK(rondo_add_all_reduce(
        graph, &(rondo_exchange_desc){
                   .in = in, .out = sums[i], .exchange = exchange, .rank = (uint32_t)(rank - ranks), .ranks = RANKS}));
  }
  CHECK(rondo_instantiate(rank->runtime, graph, NULL, &exec));
  CHECK(rondo_acquire(exec, &slot));
  for (int replay = 0; replay < SUMS; replay++) {
    float *data = rondo_data(slot, in);
    for (int i = 0; i < COUNT; i++) data[i] = (float)(i + replay + (int)(rank - ranks));
    CHECK(rondo_replay(slot));
    CHECK(rondo_wait(slot, RONDO_FOREVER));
    for (int k = 0; k < 2 * COUNT; k++) {
      const float *sum = rondo_data(slot, sums[k / COUNT]);
      check(sum[k % COUNT] == (float)(RANKS * (k % COUNT + replay) + 0 + 1 + 2), "a sum of all ranks");
    }
  }
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
}

static void *run(void *argument) {
  struct rank *rank = argument;
  const int32_t number = (int32_t)(rank - ranks);
  lend(rank, 100 + number);
  pthread_barrier_wait(&together);
  if (backend == RONDO_BACKEND_HOST) add_up(rank);
  for (int32_t round = 0; round < ROUNDS; round++) {
    const int32_t other = (number + 1 + round % (RANKS - 1)) % RANKS;
    borrow(rank, &ranks[other], 100 + other);
  }
  pthread_barrier_wait(&together);
  CHECK(rondo_close_exec(&rank->owner));
  CHECK(rondo_close_exec(&rank->lending));
  CHECK(rondo_close(&rank->runtime));
  CHECK(rondo_graph_destroy(&rank->own));
  return NULL;
}

/* The fake driver, where it stands in for the real one, has a GPU for each rank and runs work on another thread. */
static void prepare_fake(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  fake_driver_function function = library ? (fake_driver_function)dlsym(library, "fake_driver") : NULL;
  if (!function) return;
  struct fake_settings settings = function()->settings();
  settings.device_count = RANKS;
  settings.mode = FAKE_THREAD;
  function()->configure(&settings);
}

int main(int argc, char **argv) {
  backend = backend_of(argc, argv, "groups");
  if (backend == RONDO_BACKEND_CUDA) prepare_fake();
  rondo_options options[RANKS];
  for (int r = 0; r < RANKS; r++)
    options[r] = (rondo_options){
        .backend = backend, .device = r, .device_bytes = 2 << 20, .pinned_bytes = 1 << 20, .host_threads = 1};
  check(!pthread_barrier_init(&together, NULL, RANKS), "pthread_barrier_init");
  for (int group = 0; group < GROUPS; group++) {
    rondo_runtime *runtimes[RANKS];
    pthread_t ids[RANKS];
    CHECK(rondo_open_group(options, RANKS, runtimes));
    for (int r = 0; r < RANKS; r++) {
      ranks[r] = (struct rank){.runtime = runtimes[r]};
      CHECK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &ranks[r].lender));
      CHECK(rondo_constant(ranks[r].lender, "lent", RONDO_I32, 1, shape, &ranks[r].lent));
      CHECK(rondo_exchange_state(ranks[r].lender, NULL, RANKS, COUNT * sizeof(float), &ranks[r].exchange));
    }
    for (int r = 0; r < RANKS; r++) check(!pthread_create(&ids[r], NULL, run, &ranks[r]), "pthread_create");
    for (int r = 0; r < RANKS; r++) pthread_join(ids[r], NULL);
    for (int r = 0; r < RANKS; r++) CHECK(rondo_graph_destroy(&ranks[r].lender));
  }
  pthread_barrier_destroy(&together);
  puts("ranks borrow from each other, add up, replay and close, all at once: ok");
  return 0;
}
