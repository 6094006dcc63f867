/* closing.c - threads make, read and close execs that share constants and states, each at any time: what they get is
 * whole, or refused. Runs under ThreadSanitizer, as threads.c does, on the host backend and, with --cuda, on the CUDA
 * backend. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { COUNT = 1024, ROUNDS = 150, ROUNDS_MOST = 100 * ROUNDS };
/* What constants hold: those that are shared, and others that take the memory that was given back. */
enum { SHARED = 7, ALONE = 666 };

static rondo_backend backend = RONDO_BACKEND_HOST;
static const int64_t shape[] = {COUNT};

static rondo_runtime *runtime;
/* A lender of a constant and a state, one that reads the constant, one that writes the state, and one that shares
 * nothing. */
static rondo_graph *lender, *reader, *writer, *loner;
static rondo_tensor constant, state, lender_out, reader_out, own_constant, loner_out;

/* A lender is open, with its constant uploaded; and how many threads may be about to borrow from it. */
static atomic_bool is_lent, is_over;
static atomic_int borrowing;
static atomic_uint lent_count, refused_count, read_count;

static void set(rondo_exec *exec, rondo_tensor tensor, int32_t value) {
  int32_t data[COUNT];
  for (int i = 0; i < COUNT; i++) data[i] = value;
  CHECK(rondo_upload(exec, tensor, data, sizeof data));
}

static void require_result(rondo_exec *exec, rondo_tensor out, int32_t value, const char *what) {
  rondo_slot slot;
  CHECK(rondo_acquire(exec, &slot));
  CHECK(rondo_replay(slot));
  CHECK(rondo_wait(slot, RONDO_FOREVER));
  require_all(rondo_data(slot, out), COUNT, value, what);
  CHECK(rondo_release(slot));
}

static void add_copy(rondo_graph *graph, rondo_tensor from, rondo_tensor into) {
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = into}));
}

static void describe(void) {
  rondo_tensor borrowed, written;
  CHECK(rondo_graph_create(NULL, NULL, &lender));
  CHECK(rondo_constant(lender, "constant", RONDO_I32, 1, shape, &constant));
  CHECK(rondo_state(lender, "state", RONDO_I32, 1, shape, &state));
  CHECK(rondo_output(lender, "out", RONDO_I32, 1, shape, &lender_out));
  add_copy(lender, constant, lender_out);
  CHECK(rondo_graph_create(NULL, NULL, &reader));
  CHECK(rondo_borrow(reader, constant, &borrowed));
  CHECK(rondo_output(reader, "out", RONDO_I32, 1, shape, &reader_out));
  add_copy(reader, borrowed, reader_out);
  CHECK(rondo_graph_create(NULL, NULL, &writer));
  CHECK(rondo_borrow(writer, constant, &borrowed));
  CHECK(rondo_borrow(writer, state, &written));
  add_copy(writer, borrowed, written);
  CHECK(rondo_graph_create(NULL, NULL, &loner));
  CHECK(rondo_constant(loner, "constant", RONDO_I32, 1, shape, &own_constant));
  CHECK(rondo_output(loner, "out", RONDO_I32, 1, shape, &loner_out));
  add_copy(loner, own_constant, loner_out);
}

/* Nobody replays what writes the state, so that it is zero whenever it may be read. */
static void read_state(rondo_exec *exec) {
  int32_t data[COUNT];
  for (int i = 0; i < 20; i++) {
    rondo_status status = rondo_download(exec, state, data, sizeof data);
    check(status == RONDO_OK || status == RONDO_BUSY, "rondo_download");
    if (status != RONDO_OK) continue;
    require_all(data, COUNT, 0, "the state");
    atomic_fetch_add(&read_count, 1);
  }
}

/* Else the scheduler has let nothing come together that is tested here. */
static bool all_was_tried(void) {
  return atomic_load(&lent_count) && atomic_load(&refused_count) && atomic_load(&read_count);
}

/* Closes the lender, with a replay in flight, as soon as nobody borrows from it. */
static void *lend(void *unused) {
  (void)unused;
  for (int round = 0; round < ROUNDS || (!all_was_tried() && round < ROUNDS_MOST); round++) {
    rondo_exec *exec = NULL;
    rondo_slot slot;
    rondo_status status;
    CHECK(rondo_instantiate(runtime, lender, &(rondo_exec_options){.slots = 2}, &exec));
    set(exec, constant, SHARED);
    atomic_store(&is_lent, true);
    read_state(exec);
    CHECK(rondo_acquire(exec, &slot));
    do {
      require_result(exec, lender_out, SHARED, "the lender");
      CHECK(rondo_replay(slot));
      status = rondo_close_exec(&exec);
      if (status != RONDO_OK) CHECK(rondo_wait(slot, RONDO_FOREVER));
    } while (status == RONDO_INVALID_STATE);
    check(status == RONDO_OK, "rondo_close_exec of the lender");
    atomic_store(&is_lent, false); /* the next one must not be borrowed from before it is set */
    while (atomic_load(&borrowing)) sched_yield();
  }
  atomic_store(&is_over, true);
  return NULL;
}

static void borrow_once(rondo_graph *graph, bool reads) {
  rondo_exec *exec = NULL;
  rondo_status status = rondo_instantiate(runtime, graph, NULL, &exec);
  check(status == RONDO_OK || status == RONDO_INVALID_STATE, "rondo_instantiate of a borrower");
  atomic_fetch_add(status == RONDO_OK ? &lent_count : &refused_count, 1);
  if (status != RONDO_OK) return;
  if (reads) require_result(exec, reader_out, SHARED, "what is borrowed");
  CHECK(rondo_close_exec(&exec));
}

static void *borrow(void *argument) {
  rondo_graph *graph = argument;
  while (!atomic_load(&is_over)) {
    atomic_fetch_add(&borrowing, 1);
    if (atomic_load(&is_lent)) borrow_once(graph, graph == reader);
    atomic_fetch_sub(&borrowing, 1);
    sched_yield();
  }
  return NULL;
}

static void *live_alone(void *unused) {
  (void)unused;
  while (!atomic_load(&is_over)) {
    rondo_exec *exec = NULL;
    CHECK(rondo_instantiate(runtime, loner, NULL, &exec));
    set(exec, own_constant, ALONE);
    require_result(exec, loner_out, ALONE, "an exec of its own memory");
    CHECK(rondo_close_exec(&exec));
  }
  return NULL;
}

/* Whoever finds the last exec closed closes the runtime. */
static void *close_runtime(void *unused) {
  (void)unused;
  rondo_status status;
  while (!atomic_load(&is_over)) sched_yield();
  while ((status = rondo_close(&runtime)) == RONDO_INVALID_STATE) {}
  check(status == RONDO_OK, "rondo_close");
  return NULL;
}

int main(int argc, char **argv) {
  backend = backend_of(argc, argv, "closing");
  rondo_exec *last = NULL;
  pthread_t threads[4], closer;
  describe();
  CHECK(rondo_open(
      &(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 2},
      &runtime));
  CHECK(rondo_instantiate(runtime, loner, NULL, &last));
  check(!pthread_create(&threads[0], NULL, lend, NULL), "pthread_create");
  check(!pthread_create(&threads[1], NULL, borrow, reader), "pthread_create");
  check(!pthread_create(&threads[2], NULL, borrow, writer), "pthread_create");
  check(!pthread_create(&threads[3], NULL, live_alone, NULL), "pthread_create");
  check(!pthread_create(&closer, NULL, close_runtime, NULL), "pthread_create");
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check(all_was_tried(), "nothing was borrowed, refused or read");
  CHECK(rondo_close_exec(&last)); /* while the other thread tries to close the runtime */
  pthread_join(closer, NULL);
  rondo_graph **graphs[] = {&loner, &writer, &reader, &lender};
  for (int i = 0; i < 4; i++) CHECK(rondo_graph_destroy(graphs[i]));
  printf("threads lend, borrow, read and close: ok, %u borrowed, %u refused, %u read\n", atomic_load(&lent_count),
         atomic_load(&refused_count), atomic_load(&read_count));
  return 0;
}
