/* prove_resident.c - a replay of a resident exec whose graph is on the device is a store: no call of the driver, no
 * allocation and no system call. That the counters and the seal can fail is shown by replay_allocates_nothing and
 * replay_makes_no_system_call. */
#include <string.h>

#include "allocations.h"
#include "forbidden.h"
#include "proof.h"

enum { BYTES = 64, FAKE_REPLAYS = 10000 };

struct resident {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor in, out;
};

static rondo_status open_resident(struct resident *r, rondo_runtime *runtime) {
  const int64_t shape[] = {BYTES};
  rondo_status status = rondo_graph_create(NULL, NULL, &r->graph);
  if (status == RONDO_OK) status = rondo_input(r->graph, "in", RONDO_U8, 1, shape, &r->in);
  if (status == RONDO_OK) status = rondo_output(r->graph, "out", RONDO_U8, 1, shape, &r->out);
  if (status == RONDO_OK) status = rondo_add_copy(r->graph, &(rondo_copy_desc){.src = r->in, .dst = r->out});
  const rondo_exec_options options = {.linger_ns = UINT64_C(1000000000000)};
  if (status == RONDO_OK) status = rondo_instantiate(runtime, r->graph, &options, &r->exec);
  return status == RONDO_OK ? rondo_acquire(r->exec, &r->slot) : status;
}

static rondo_status close_resident(struct resident *r) {
  rondo_status status = rondo_close_exec(&r->exec);
  return status == RONDO_OK ? rondo_graph_destroy(&r->graph) : status;
}

static bool is_right;

static rondo_status replay(const struct resident *r, uint64_t count) {
  rondo_status status = RONDO_OK;
  unsigned char *in = rondo_data(r->slot, r->in);
  const unsigned char *out = rondo_data(r->slot, r->out);
  is_right = true;
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) {
    memset(in, (int)(i % 251), BYTES);
    status = rondo_replay(r->slot);
    if (status == RONDO_OK) status = rondo_wait(r->slot, RONDO_FOREVER);
    is_right = is_right && !memcmp(in, out, BYTES);
  }
  return status;
}

void resident_replay_is_a_store(const struct proof *proof) {
  struct resident resident;
  open_subject(proof, 1, RONDO_WAIT_SPIN);
  CHECK(open_resident(&resident, subject.runtime));
  CHECK(replay(&resident, 1)); /* puts it on the device */
  const bool is_gpu = proof->backend == RONDO_BACKEND_CUDA && !proof->verdict->is_fake;
  const uint64_t replays = is_gpu || proof->replays < FAKE_REPLAYS ? proof->replays : FAKE_REPLAYS;
  const double begin = now_s();
  forbidden_count();
  allocations_count();
  rondo_status status = replay(&resident, replays);
  const struct allocations calls = allocations_stop();
  const uint64_t forbidden = forbidden_stop(), launches = forbidden_launches();
  const double us = (now_s() - begin) * 1e6 / (double)replays;
  check(proof, status, "replay");
  if (!is_right) conclude(proof, FAILED, "an output was not its input");
  if (calls.ours || forbidden || (proof->backend == RONDO_BACKEND_CUDA && launches))
    conclude(proof, FAILED, "%ju allocations, %ju forbidden calls and %ju launches in %ju replays", calls.ours,
             forbidden, launches, replays);
  if (is_gpu) { /* the fake's threads share a lock */
    if (!seal(&proof->verdict->breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
    check(proof, replay(&resident, replays), "replay");
    conclude(proof, PROVEN, "%ju replays without a call of the driver, and as many under seccomp; %.1f us each",
             replays, us);
  }
  CHECK(close_resident(&resident));
  close_subject(proof);
  conclude(proof, PROVEN, "%ju replays; %.1f us each", replays, us);
}
