/* acquire.c - more threads than slots acquire, use and release slots, while threads that hold none look at them. Runs
 * under ThreadSanitizer, as threads.c does, on the host backend and, with --cuda, on the CUDA backend. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { THREADS = 5, SLOTS = 3, ROUNDS = 400, COUNT = 64, ALIGNMENT = 256 };

static rondo_backend backend = RONDO_BACKEND_HOST;

static rondo_exec *exec;
static rondo_tensor in, out;
static atomic_int holders[SLOTS];
static atomic_uint at_work;
static _Atomic uint32_t looked_at_index, looked_at_lease;

static rondo_slot acquire(void) {
  rondo_slot slot;
  rondo_status status;
  while ((status = rondo_acquire(exec, &slot)) == RONDO_BUSY) sched_yield();
  check(status == RONDO_OK, "rondo_acquire");
  check(atomic_fetch_add(&holders[slot.index], 1) == 0, "a slot has two holders");
  return slot;
}

static void release(rondo_slot slot) {
  atomic_fetch_sub(&holders[slot.index], 1);
  CHECK(rondo_release(slot));
  check(rondo_release(slot) == RONDO_INVALID_STATE, "a slot was released twice");
}

static void *use(void *argument) {
  int32_t seed = *(const int32_t *)argument;
  static _Alignas(ALIGNMENT) int32_t buffers[THREADS + 1][COUNT];
  bool may_bind = backend == RONDO_BACKEND_HOST; /* the buffer is no device memory */
  for (int32_t round = 0; round < ROUNDS; round++) {
    rondo_slot slot = acquire();
    atomic_store(&looked_at_index, slot.index);
    atomic_store(&looked_at_lease, slot.lease);
    bool bound = may_bind && round % 3 == 0;
    int32_t *from = rondo_data(slot, in), *into = rondo_data(slot, out);
    if (bound) from = buffers[seed];
    if (bound) CHECK(rondo_rebind(slot, in, from)); /* the next holder must not read this one's */
    for (int32_t i = 0; i < COUNT; i++) from[i] = seed * 1000003 + round * 1009 + i;
    CHECK(rondo_replay(slot));
    CHECK(rondo_wait(slot, RONDO_FOREVER));
    for (int32_t i = 0; i < COUNT; i++)
      check(into[i] == seed * 1000003 + round * 1009 + i, "another thread's values are in the slot");
    release(slot);
  }
  atomic_fetch_sub(&at_work, 1);
  return NULL;
}

/* Waits for a slot that others hold and release meanwhile. */
static void *look(void *argument) {
  uint64_t serial = *(const uint64_t *)argument;
  while (atomic_load(&at_work)) {
    rondo_slot slot = {
        .exec = exec, .index = atomic_load(&looked_at_index), .lease = atomic_load(&looked_at_lease), .serial = serial};
    rondo_status polled = rondo_poll(slot), waited = rondo_wait(slot, 1000);
    check(polled == RONDO_OK || polled == RONDO_BUSY || polled == RONDO_INVALID_STATE, "rondo_poll");
    check(waited == RONDO_OK || waited == RONDO_TIMEOUT || waited == RONDO_INVALID_STATE, "rondo_wait");
  }
  return NULL;
}

int main(int argc, char **argv) {
  backend = backend_of(argc, argv, "acquire");
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  const int64_t shape[] = {COUNT};
  CHECK(rondo_open(
      &(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 2},
      &runtime));
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  CHECK(rondo_input(graph, "in", RONDO_I32, 1, shape, &in));
  CHECK(rondo_output(graph, "out", RONDO_I32, 1, shape, &out));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
  CHECK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = SLOTS}, &exec));
  pthread_t ids[THREADS + 1];
  int32_t seeds[THREADS];
  rondo_slot first = acquire();
  release(first);
  atomic_store(&at_work, THREADS);
  for (int32_t i = 0; i < THREADS; i++) {
    seeds[i] = i + 1;
    check(!pthread_create(&ids[i], NULL, use, &seeds[i]), "pthread_create");
  }
  check(!pthread_create(&ids[THREADS], NULL, look, &first.serial), "pthread_create");
  for (int i = 0; i <= THREADS; i++) pthread_join(ids[i], NULL);
  CHECK(rondo_close_exec(&exec));
  CHECK(rondo_graph_destroy(&graph));
  CHECK(rondo_close(&runtime));
  puts("many threads take the slots of one exec: ok");
  return 0;
}
