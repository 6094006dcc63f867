/* repeating.c - one thread starts repeats, a second reads each replay's output as soon as it is done, and a third stops
 * them. Runs under ThreadSanitizer, as threads.c does, on the host backend and, with --cuda, on the CUDA backend. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { REPEATS = 150, STEPS = 50, TURNS = 5, COUNT = 64, SLOTS = 2 };

static rondo_exec *exec;
static rondo_tensor turns, out;
static rondo_slot slots[SLOTS];
static atomic_int begun[SLOTS], ended[SLOTS]; /* repeats of each slot */

/* Row i of the state has the number i, and each replay gives out the next row. The lane runs one repeat at a time, so
 * the numbers follow each other. A waiting thread spins, so nothing but the count of replays tells it of one. */
static void *read_all(void *argument) {
  const int index = (int)((rondo_slot *)argument - slots);
  for (int repeat = 1; repeat <= REPEATS; repeat++) {
    while (atomic_load(&begun[index]) < repeat) sched_yield();
    int32_t before = 0;
    for (uint32_t step = 0, done = 0;; step++) {
      CHECK(rondo_repeat_wait(slots[index], step + 1, RONDO_FOREVER, &done));
      if (done == step) break;
      const int32_t *data = rondo_repeat_data(slots[index], out, step);
      check(data != NULL, "rondo_repeat_data");
      require_all(data, COUNT, data[0], "a replay's output");
      check(step == 0 || data[0] == (before + 1) % TURNS, "a replay that follows another");
      before = data[0];
    }
    CHECK(rondo_poll(slots[index]));
    atomic_fetch_add(&ended[index], 1);
  }
  return NULL;
}

static void *stop_some(void *unused) {
  (void)unused;
  for (; atomic_load(&ended[0]) < REPEATS; sched_yield())
    if (atomic_load(&begun[0]) % 3 == 0) CHECK(rondo_repeat_stop(slots[0]));
  return NULL;
}

/* By copies alone, which the fake driver has: the first row is the output, and becomes the last. */
static void describe(rondo_graph *graph) {
  rondo_tensor kept, first, last, others, kept_first, kept_others;
  const int64_t shape[] = {TURNS, COUNT}, row[] = {1, COUNT}, rest[] = {TURNS - 1, COUNT};
  const int64_t top[] = {0, 0}, second[] = {1, 0}, bottom[] = {TURNS - 1, 0};
  CHECK(rondo_state(graph, "turns", RONDO_I32, 2, shape, &turns));
  CHECK(rondo_temporary(graph, "kept", RONDO_I32, 2, shape, &kept));
  CHECK(rondo_output(graph, "out", RONDO_I32, 2, row, &out));
  CHECK(rondo_view(graph, turns, top, row, &first));
  CHECK(rondo_view(graph, turns, top, rest, &others));
  CHECK(rondo_view(graph, turns, bottom, row, &last));
  CHECK(rondo_view(graph, kept, top, row, &kept_first));
  CHECK(rondo_view(graph, kept, second, rest, &kept_others));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = first, .dst = out}));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = turns, .dst = kept}));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = kept_others, .dst = others}));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = kept_first, .dst = last}));
}

int main(int argc, char **argv) {
  rondo_backend backend = backend_of(argc, argv, "repeating");
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  pthread_t threads[SLOTS + 1];
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  describe(graph);
  CHECK(rondo_open(&(rondo_options){.backend = backend,
                                    .device_bytes = 1 << 20,
                                    .pinned_bytes = 1 << 20,
                                    .host_threads = 2,
                                    .wait_mode = RONDO_WAIT_SPIN},
                   &runtime));
  CHECK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = SLOTS, .repeat_steps = STEPS}, &exec));
  int32_t rows[TURNS][COUNT];
  for (int i = 0; i < TURNS * COUNT; i++) rows[i / COUNT][i % COUNT] = i / COUNT;
  CHECK(rondo_upload(exec, turns, rows, sizeof rows));
  for (int i = 0; i < SLOTS; i++) {
    CHECK(rondo_acquire(exec, &slots[i]));
    check(!pthread_create(&threads[i], NULL, read_all, &slots[i]), "pthread_create");
  }
  check(!pthread_create(&threads[SLOTS], NULL, stop_some, NULL), "pthread_create");
  for (int repeat = 0; repeat < REPEATS; repeat++)
    for (int i = 0; i < SLOTS; i++) {
      while (atomic_load(&ended[i]) < repeat) sched_yield();
      CHECK(rondo_repeat(slots[i], &(rondo_repeat_options){.count = STEPS}));
      atomic_fetch_add(&begun[i], 1);
    }
  for (int i = 0; i <= SLOTS; i++) pthread_join(threads[i], NULL);
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
  CHECK(rondo_close(&runtime));
  puts("one thread repeats, others read and stop: ok");
  return 0;
}
