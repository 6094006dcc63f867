/* together.c - threads with execs of their own at the same time: they borrow and give back, bind buffers, profile,
 * replay in another stream, and close as soon as a replay is done. Runs under ThreadSanitizer, as threads.c does, on
 * the host backend and, with --cuda, on the CUDA backend, where the fake driver runs work on a thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../driver/fake_driver.h"
#include "check.h"

enum { COUNT = 256, ROUNDS = 25, REPLAYS = 12, SHARED = 7, ALIGNMENT = 256 };
/* The last has one user: while an exec is profiled nothing else is replayed in its lane. */
enum { FIRST_LANE, SECOND_LANE, PROFILED_LANE, LANES };

static rondo_backend backend = RONDO_BACKEND_HOST;
static const int64_t shape[] = {COUNT};
static rondo_runtime *runtime;
static rondo_tensor constant; /* of the lender */

static void fill(int32_t *data, int32_t value) {
  for (int i = 0; i < COUNT; i++) data[i] = value;
}

/* out = in, and beside it an input that no task touches: its memory is the thread's own. */
struct subject {
  rondo_graph *graph;
  rondo_tensor in, out, spare;
  rondo_exec *exec;
  rondo_slot slot;
};

static struct subject subject_open(uint32_t lane, uint32_t slots) {
  struct subject s = {0};
  CHECK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8, .tasks = 4}, &s.graph));
  CHECK(rondo_input(s.graph, "in", RONDO_I32, 1, shape, &s.in));
  CHECK(rondo_input(s.graph, "spare", RONDO_I32, 1, shape, &s.spare));
  CHECK(rondo_output(s.graph, "out", RONDO_I32, 1, shape, &s.out));
  CHECK(rondo_add_copy(s.graph, &(rondo_copy_desc){.src = s.in, .dst = s.out}));
  CHECK(rondo_instantiate(runtime, s.graph, &(rondo_exec_options){.lane = lane, .slots = slots}, &s.exec));
  CHECK(rondo_acquire(s.exec, &s.slot));
  return s;
}

static void subject_close(struct subject *s) {
  CHECK(rondo_close_exec(&s->exec));
  CHECK(rondo_graph_destroy(&s->graph));
}

static void *borrow(void *unused) {
  (void)unused;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    rondo_graph *graph = NULL;
    rondo_exec *exec = NULL;
    rondo_tensor borrowed, out;
    rondo_slot slot;
    CHECK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8, .tasks = 4}, &graph));
    CHECK(rondo_borrow(graph, constant, &borrowed));
    CHECK(rondo_output(graph, "out", RONDO_I32, 1, shape, &out));
    CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = borrowed, .dst = out}));
    CHECK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = round % 2}, &exec));
    CHECK(rondo_acquire(exec, &slot));
    for (int replay = 0; replay < REPLAYS; replay++) {
      CHECK(rondo_replay(slot));
      CHECK(rondo_wait(slot, RONDO_FOREVER));
      require_all(rondo_data(slot, out), COUNT, SHARED, "what is borrowed");
    }
    CHECK(rondo_close_exec(&exec));
    CHECK(rondo_graph_destroy(&graph));
  }
  return NULL;
}

/* Now and then the slot is given back with the buffer still bound. */
static void *rebind(void *unused) {
  (void)unused;
  struct subject s = subject_open(FIRST_LANE, 1);
  for (int32_t round = 0; round < ROUNDS * REPLAYS; round++) {
    int32_t *own = rondo_data(s.slot, s.in), *bound = rondo_data(s.slot, s.spare);
    fill(own, round);
    fill(bound, -round);
    if (round % 3 == 1) CHECK(rondo_rebind(s.slot, s.in, bound));
    if (round % 3 == 2) CHECK(rondo_rebind(s.slot, s.in, NULL));
    CHECK(rondo_replay(s.slot));
    CHECK(rondo_wait(s.slot, RONDO_FOREVER));
    require_all(rondo_data(s.slot, s.out), COUNT, round % 3 == 1 ? -round : round, "what is bound");
    if (round % 6 != 1) continue;
    CHECK(rondo_release(s.slot));
    CHECK(rondo_acquire(s.exec, &s.slot));
  }
  subject_close(&s);
  return NULL;
}

static void *profile(void *unused) {
  (void)unused;
  struct subject s = subject_open(PROFILED_LANE, 1);
  rondo_exec_usage usage;
  CHECK(rondo_exec_info(s.exec, &usage));
  rondo_task_profile *tasks = calloc(usage.node_count, sizeof *tasks);
  check(tasks != NULL, "calloc");
  for (int32_t round = 0; round < ROUNDS / 5; round++) {
    rondo_profile_totals totals;
    fill(rondo_data(s.slot, s.in), round);
    CHECK(rondo_profile(s.slot, &(rondo_profile_options){.passes = 3, .copy_bytes = 4096}, tasks, usage.node_count,
                        &totals));
    require_all(rondo_data(s.slot, s.out), COUNT, round, "what was profiled");
  }
  free(tasks);
  subject_close(&s);
  return NULL;
}

/* In turns with replays in the lane itself; of each the next thing is that it is waited for, in either order. */
static void *replay_elsewhere(void *unused) {
  (void)unused;
  struct subject s = subject_open(SECOND_LANE, 2);
  rondo_lane_grant elsewhere;
  rondo_slot slots[2] = {s.slot};
  CHECK(rondo_acquire(s.exec, &slots[1]));
  CHECK(rondo_lane_info(runtime, PROFILED_LANE, &elsewhere));
  for (int32_t round = 0; round < ROUNDS * REPLAYS; round++) {
    for (int i = 0; i < 2; i++) fill(rondo_data(slots[i], s.in), round + i);
    bool has_streams = backend == RONDO_BACKEND_CUDA;
    CHECK(rondo_replay(slots[0]));
    CHECK(has_streams ? rondo_replay_on(slots[1], elsewhere.stream) : rondo_replay(slots[1]));
    for (int i = 0; i < 2; i++) {
      int which = (i + round) % 2;
      CHECK(rondo_wait(slots[which], RONDO_FOREVER));
      require_all(rondo_data(slots[which], s.out), COUNT, round + which, "a replay elsewhere");
    }
  }
  subject_close(&s);
  return NULL;
}

/* Closed at once: the file may be still to be written. */
static void *notify(void *unused) {
  (void)unused;
  int file = eventfd(0, EFD_NONBLOCK);
  check(file >= 0, "eventfd");
  for (int32_t round = 0; round < ROUNDS; round++) {
    struct subject s = subject_open(round % 2 ? FIRST_LANE : SECOND_LANE, 1);
    CHECK(rondo_notify(s.slot, file));
    for (int32_t replay = 0; replay < REPLAYS; replay++) {
      fill(rondo_data(s.slot, s.in), round + replay);
      CHECK(rondo_replay(s.slot));
      while (rondo_poll(s.slot) == RONDO_BUSY) sched_yield();
      require_all(rondo_data(s.slot, s.out), COUNT, round + replay, "what somebody is told of");
    }
    subject_close(&s);
    uint64_t count = 0;
    check(read(file, &count, sizeof count) == sizeof count && count == REPLAYS, "a notice is missing");
  }
  close(file);
  return NULL;
}

/* The fake driver, where it stands in for the real one, runs what is on a stream on another thread. */
static void let_a_thread_run(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  fake_driver_function function = library ? (fake_driver_function)dlsym(library, "fake_driver") : NULL;
  if (!function) return;
  struct fake_settings settings = function()->settings();
  settings.mode = FAKE_THREAD;
  function()->configure(&settings);
}

int main(int argc, char **argv) {
  backend = backend_of(argc, argv, "together");
  static const rondo_lane lanes[LANES];
  static void *(*const uses[])(void *) = {borrow, borrow, rebind, rebind, profile, replay_elsewhere, notify, notify};
  enum { USES = sizeof uses / sizeof *uses };
  CHECK(rondo_open(&(rondo_options){.backend = backend,
                                    .device_bytes = 1 << 22,
                                    .pinned_bytes = 1 << 22,
                                    .host_threads = LANES,
                                    .lanes = lanes,
                                    .lane_count = LANES},
                   &runtime));
  let_a_thread_run();
  rondo_graph *graph = NULL;
  rondo_exec *lender = NULL;
  int32_t data[COUNT];
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  CHECK(rondo_constant(graph, "constant", RONDO_I32, 1, shape, &constant));
  CHECK(rondo_instantiate(runtime, graph, NULL, &lender));
  fill(data, SHARED);
  CHECK(rondo_upload(lender, constant, data, sizeof data));
  pthread_t ids[USES];
  for (int i = 0; i < USES; i++) check(!pthread_create(&ids[i], NULL, uses[i], NULL), "pthread_create");
  for (int i = 0; i < USES; i++) pthread_join(ids[i], NULL);
  CHECK(rondo_close_exec(&lender));
  CHECK(rondo_graph_destroy(&graph));
  CHECK(rondo_close(&runtime));
  puts("threads borrow, bind, profile, replay elsewhere and are told, all at once: ok");
  return 0;
}
