/* threads.c - the thread rules of rondo.h under ThreadSanitizer: two threads on two execs of one runtime, one thread
 * that replays while another waits, two that upload, several wait modes and team sizes, close while in flight. It is a
 * program of its own because Criterion does not start under ThreadSanitizer. Runs on the host backend and, with
 * --cuda, on the CUDA backend or a stand-in for its driver. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "thread_team.h"
#include <rondo.h>

enum { COUNT = 4096, REPLAYS = 400 };

static rondo_backend backend = RONDO_BACKEND_HOST;

static void check(rondo_status status, const char *what) {
  if (status == RONDO_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, rondo_status_name(status), rondo_error_text());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* out := in, by way of two temporaries, so that the team has work to share. */
struct chain {
  rondo_graph *graph;
  rondo_tensor in, out;
};

static struct chain describe(void) {
  struct chain c = {0};
  int64_t shape[] = {64, COUNT / 64};
  rondo_tensor t[2];
  CHECK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &c.graph));
  CHECK(rondo_input(c.graph, "in", RONDO_I32, 2, shape, &c.in));
  CHECK(rondo_output(c.graph, "out", RONDO_I32, 2, shape, &c.out));
  for (int i = 0; i < 2; i++) CHECK(rondo_temporary(c.graph, NULL, RONDO_I32, 2, shape, &t[i]));
  CHECK(rondo_add_copy(c.graph, &(rondo_copy_desc){.src = c.in, .dst = t[0]}));
  CHECK(rondo_add_copy(c.graph, &(rondo_copy_desc){.src = t[0], .dst = t[1]}));
  CHECK(rondo_add_copy(c.graph, &(rondo_copy_desc){.src = t[1], .dst = c.out}));
  return c;
}

static rondo_runtime *open_with(uint64_t device_bytes, uint32_t threads, rondo_wait_mode mode, uint32_t lane_count) {
  static const rondo_lane lanes[RONDO_MAX_LANES];
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = backend,
                           .device_bytes = device_bytes,
                           .pinned_bytes = 1 << 22,
                           .host_threads = threads,
                           .wait_mode = mode,
                           .lanes = lanes,
                           .lane_count = lane_count};
  CHECK(rondo_open(&options, &runtime));
  return runtime;
}

static rondo_runtime *open_runtime(uint32_t threads, rondo_wait_mode mode, uint32_t lane_count) {
  return open_with(1 << 22, threads, mode, lane_count);
}

static void fill(int32_t *data, int32_t seed) {
  for (int32_t i = 0; i < COUNT; i++) data[i] = seed * 7919 + i;
}

static void expect(const int32_t *data, int32_t seed) {
  for (int32_t i = 0; i < COUNT; i++) {
    if (data[i] == seed * 7919 + i) continue;
    fprintf(stderr, "element %d is %d, expected %d\n", i, data[i], seed * 7919 + i);
    exit(1);
  }
}

struct user {
  rondo_runtime *runtime;
  uint32_t lane;
  int32_t seed;
};

static void *use_own_exec(void *argument) {
  struct user *user = argument;
  struct chain c = describe();
  rondo_exec *exec = NULL;
  CHECK(rondo_instantiate(user->runtime, c.graph, &(rondo_exec_options){.slots = 2, .lane = user->lane}, &exec));
  rondo_slot slots[2];
  for (int s = 0; s < 2; s++) CHECK(rondo_acquire(exec, &slots[s]));
  for (int32_t replay = 0; replay < REPLAYS; replay++) {
    rondo_slot slot = slots[replay % 2];
    CHECK(rondo_wait(slot, RONDO_FOREVER));
    if (replay >= 2) expect(rondo_data(slot, c.out), user->seed + replay - 2);
    fill(rondo_data(slot, c.in), user->seed + replay);
    CHECK(rondo_replay(slot));
  }
  CHECK(rondo_close_exec(&exec)); /* with two replays in flight */
  CHECK(rondo_graph_destroy(&c.graph));
  return NULL;
}

/* In one lane, or each in its own. */
static void two_threads_on_two_execs(uint32_t lane_count) {
  for (uint32_t threads = 1; threads <= 3; threads++) {
    rondo_runtime *runtime = open_runtime(threads * lane_count, (rondo_wait_mode)(threads - 1), lane_count);
    pthread_t ids[2];
    struct user users[2] = {{runtime, 0, 1}, {runtime, lane_count - 1, 100000}};
    for (int i = 0; i < 2; i++) pthread_create(&ids[i], NULL, use_own_exec, &users[i]);
    for (int i = 0; i < 2; i++) pthread_join(ids[i], NULL);
    CHECK(rondo_close(&runtime));
  }
  printf("two threads on two execs in %u lane%s: ok\n", lane_count, lane_count == 1 ? "" : "s");
}

struct handover {
  rondo_slot slot;
  rondo_tensor out;
  _Atomic int32_t replayed, seen;
};

static void *wait_for_replays(void *argument) {
  struct handover *handover = argument;
  for (int32_t replay = 1; replay <= REPLAYS; replay++) {
    while (atomic_load(&handover->replayed) < replay) {}
    while (rondo_poll(handover->slot) == RONDO_BUSY && replay % 2) {}
    CHECK(rondo_wait(handover->slot, RONDO_FOREVER));
    expect(rondo_data(handover->slot, handover->out), replay);
    atomic_store(&handover->seen, replay);
  }
  return NULL;
}

static void one_replays_another_waits(void) {
  rondo_runtime *runtime = open_runtime(2, RONDO_WAIT_SPIN_YIELD, 1);
  struct chain c = describe();
  rondo_exec *exec = NULL;
  CHECK(rondo_instantiate(runtime, c.graph, NULL, &exec));
  CHECK(rondo_graph_destroy(&c.graph));
  struct handover handover = {.out = c.out};
  CHECK(rondo_acquire(exec, &handover.slot));
  pthread_t id;
  pthread_create(&id, NULL, wait_for_replays, &handover);
  for (int32_t replay = 1; replay <= REPLAYS; replay++) {
    fill(rondo_data(handover.slot, c.in), replay);
    CHECK(rondo_replay(handover.slot));
    atomic_store(&handover.replayed, replay);
    while (atomic_load(&handover.seen) < replay) {}
  }
  pthread_join(id, NULL);
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_close(&runtime));
  puts("one thread replays, another waits: ok");
}

/* ---- Jobs that a team shares ------------------------------------------------------------------------------------- */

enum { BATCH = 64, ORDER = 32 };

static void add_to_all(void *user, void *const *data) {
  (void)user;
  float *values = data[0];
  for (int i = 0; i < BATCH * ORDER * ORDER; i++) values[i] += 1;
}

/* Between two operations of many chunks a task of the user's touches every byte on one thread; the caller fills and
 * reads on another. */
static void *share_work(void *argument) {
  const struct user *user = argument;
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_tensor in, out, t[2];
  int64_t shape[] = {BATCH, ORDER, ORDER};
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  CHECK(rondo_input(graph, "in", RONDO_F32, 3, shape, &in));
  CHECK(rondo_output(graph, "out", RONDO_F32, 3, shape, &out));
  for (int i = 0; i < 2; i++) CHECK(rondo_temporary(graph, NULL, RONDO_F32, 3, shape, &t[i]));
  rondo_argument added = {.tensor = t[0], .access = RONDO_READ_WRITE};
  rondo_kernel_desc add = {.host = add_to_all, .arguments = &added, .argument_count = 1};
  CHECK(rondo_add_triangular_inverse(graph, &(rondo_triangular_inverse_desc){.a = in, .out = t[0]}));
  CHECK(rondo_add_kernel(graph, &add));
  CHECK(rondo_add_triangular_inverse(graph, &(rondo_triangular_inverse_desc){.a = t[0], .out = t[1]}));
  CHECK(rondo_add_triangular_inverse(graph, &(rondo_triangular_inverse_desc){.a = t[1], .out = out}));
  CHECK(rondo_instantiate(user->runtime, graph, &(rondo_exec_options){.lane = user->lane}, &exec));
  CHECK(rondo_acquire(exec, &slot));
  for (int replay = 0; replay < 30; replay++) {
    float *a = rondo_data(slot, in);
    for (int i = 0; i < BATCH * ORDER * ORDER; i++) a[i] = 0;
    CHECK(rondo_replay(slot));
    CHECK(rondo_wait(slot, RONDO_FOREVER));
    const float *x = rondo_data(slot, out);
    for (int i = 0; i < BATCH * ORDER * ORDER; i++) {
      /* The inverse of the identity, plus 1 everywhere; inverted twice, below the diagonal it is 1 again. */
      int row = i / ORDER % ORDER, column = i % ORDER;
      float expected = row < column ? 0 : 1;
      if (x[i] == expected) continue;
      fprintf(stderr, "element %d is %g, expected %g\n", i, (double)x[i], (double)expected);
      exit(1);
    }
  }
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
  return NULL;
}

static void tasks_read_what_a_team_wrote(uint32_t lane_count) {
  rondo_runtime *runtime = open_runtime(3 * lane_count, RONDO_WAIT_SPIN_YIELD, lane_count);
  pthread_t ids[RONDO_MAX_LANES];
  struct user users[RONDO_MAX_LANES];
  for (uint32_t i = 0; i < lane_count; i++) {
    users[i] = (struct user){.runtime = runtime, .lane = i};
    pthread_create(&ids[i], NULL, share_work, &users[i]);
  }
  for (uint32_t i = 0; i < lane_count; i++) pthread_join(ids[i], NULL);
  CHECK(rondo_close(&runtime));
  printf("tasks read what a team wrote in %u lane%s: ok\n", lane_count, lane_count == 1 ? "" : "s");
}

/* ---- Uploads ----------------------------------------------------------------------------------------------------- */

enum { WEIGHTS = 3 << 20, UPLOADS = 60 };

/* From a byte to all of them, with pauses in which whoever helped goes home. */
static void *upload_own_weights(void *argument) {
  struct user *user = argument;
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor weights, part;
  unsigned char *data = malloc(WEIGHTS), *back = malloc(WEIGHTS);
  if (!data || !back) exit(1);
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  CHECK(rondo_constant(graph, "weights", RONDO_U8, 1, (int64_t[]){WEIGHTS}, &weights));
  CHECK(rondo_view(graph, weights, (int64_t[]){0}, (int64_t[]){WEIGHTS / 7}, &part));
  CHECK(rondo_instantiate(user->runtime, graph, &(rondo_exec_options){.lane = user->lane}, &exec));
  for (int i = 0; i < UPLOADS; i++) {
    bool is_part = i % 3 != 0;
    uint64_t bytes = is_part ? WEIGHTS / 7 : WEIGHTS;
    memset(data, i + user->seed, bytes);
    const rondo_content contents[] = {{part, data, WEIGHTS / 7}, {weights, data, WEIGHTS}};
    CHECK(rondo_upload_all(exec, contents, is_part ? 1 : 2));
    memset(data, 0, bytes); /* the caller's again */
    if (i % 8 == 7) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    if (i % 5 != 4) continue;
    CHECK(rondo_download(exec, weights, back, WEIGHTS));
    if (back[0] == (unsigned char)(i + user->seed) && !memcmp(back, back + 1, bytes - 1)) continue;
    fprintf(stderr, "upload %d of %d bytes mixed something up\n", i, (int)bytes);
    exit(1);
  }
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
  free(data);
  free(back);
  return NULL;
}

static void two_threads_upload(uint32_t lane_count) {
  rondo_runtime *runtime = open_with(64 << 20, 2, RONDO_WAIT_SPIN_YIELD, lane_count);
  struct user users[2];
  pthread_t threads[2];
  for (uint32_t i = 0; i < 2; i++) {
    users[i] = (struct user){runtime, i % lane_count, (int32_t)i * 100};
    if (pthread_create(&threads[i], NULL, upload_own_weights, &users[i])) exit(1);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK(rondo_close(&runtime));
  printf("two threads upload in %u lane%s: ok\n", lane_count, lane_count == 1 ? "" : "s");
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--cuda"))
    backend = RONDO_BACKEND_CUDA;
  else if (argc > 1)
    return fprintf(stderr, "usage: threads [--cuda]\n"), 2;
  two_threads_on_two_execs(1);
  two_threads_on_two_execs(2);
  one_replays_another_waits();
  two_threads_upload(1);
  two_threads_upload(2);
  if (backend == RONDO_BACKEND_HOST) {
    tasks_read_what_a_team_wrote(1);
    tasks_read_what_a_team_wrote(2);
    chunks_see_what_came_before_and_are_seen_behind();
    cells_are_used_again();
  }
  return 0;
}
