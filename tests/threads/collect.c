/* collect.c - some threads acquire slots of execs in two lanes and replay, others are told which are done and release
 * them: each replay is seen once. Runs under ThreadSanitizer, as threads.c does, on the host backend and, with --cuda,
 * on the CUDA backend. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { EXECS = 2, SLOTS = 3, SENDERS = 3, COLLECTORS = 2, REQUESTS = 400, COUNT = 64 };

static rondo_backend backend = RONDO_BACKEND_HOST;

static rondo_exec *execs[EXECS];
static rondo_tensor in, out;

struct request {
  int32_t value;
  atomic_int told;
};
static struct request requests[SENDERS][REQUESTS];
static atomic_int answered;

static void *send(void *argument) {
  struct request *own = argument;
  for (int i = 0; i < REQUESTS; i++) {
    rondo_slot slot;
    rondo_status status;
    while ((status = rondo_acquire_within(execs[i % EXECS], 100000000, &slot)) == RONDO_TIMEOUT) {}
    check(status == RONDO_OK, "rondo_acquire_within");
    check(!slot.user, "a slot with another request's pointer");
    own[i].value = (int32_t)((own - requests[0]) + i) * 1009;
    int32_t *data = rondo_data(slot, in);
    for (int32_t k = 0; k < COUNT; k++) data[k] = own[i].value + k;
    slot.user = &own[i];
    CHECK(rondo_replay(slot)); /* from here on the slot is a collector's */
  }
  return NULL;
}

static void *collect(void *unused) {
  (void)unused;
  while (atomic_load(&answered) < SENDERS * REQUESTS) {
    rondo_slot slot;
    rondo_status status = rondo_wait_any(execs, EXECS, 1000000, &slot);
    if (status == RONDO_TIMEOUT) continue;
    check(status == RONDO_OK, "rondo_wait_any");
    CHECK(rondo_poll(slot));
    struct request *request = slot.user;
    const int32_t *data = rondo_data(slot, out);
    for (int32_t k = 0; k < COUNT; k++) check(data[k] == request->value + k, "another request's answer");
    check(atomic_fetch_add(&request->told, 1) == 0, "a replay was told twice");
    CHECK(rondo_release(slot));
    atomic_fetch_add(&answered, 1);
  }
  return NULL;
}

int main(int argc, char **argv) {
  backend = backend_of(argc, argv, "collect");
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_slot slot;
  const int64_t shape[] = {COUNT};
  pthread_t threads[SENDERS + COLLECTORS];
  CHECK(rondo_graph_create(NULL, NULL, &graph));
  CHECK(rondo_input(graph, "in", RONDO_I32, 1, shape, &in));
  CHECK(rondo_output(graph, "out", RONDO_I32, 1, shape, &out));
  CHECK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
  CHECK(rondo_open(&(rondo_options){.backend = backend,
                                    .device_bytes = 1 << 20,
                                    .pinned_bytes = 1 << 20,
                                    .host_threads = 2,
                                    .lanes = (rondo_lane[EXECS]){{.name = "a"}, {.name = "b"}},
                                    .lane_count = EXECS},
                   &runtime));
  for (uint32_t i = 0; i < EXECS; i++)
    CHECK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = SLOTS, .lane = i}, &execs[i]));
  for (int i = 0; i < SENDERS; i++) check(!pthread_create(&threads[i], NULL, send, requests[i]), "pthread_create");
  for (int i = 0; i < COLLECTORS; i++)
    check(!pthread_create(&threads[SENDERS + i], NULL, collect, NULL), "pthread_create");
  for (int i = 0; i < SENDERS + COLLECTORS; i++) pthread_join(threads[i], NULL);
  for (int s = 0; s < SENDERS; s++)
    for (int i = 0; i < REQUESTS; i++) check(atomic_load(&requests[s][i].told) == 1, "a replay was not told");
  check(rondo_wait_any(execs, EXECS, 0, &slot) == RONDO_TIMEOUT, "something is told twice");
  for (int i = 0; i < EXECS; i++) CHECK(rondo_close_exec(&execs[i]));
  CHECK(rondo_graph_destroy(&graph));
  CHECK(rondo_close(&runtime));
  puts("some threads send, others collect: ok");
  return 0;
}
