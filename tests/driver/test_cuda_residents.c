/* test_cuda_residents.c - resident execs on the fake driver: that come while others go, end, and have no tasks; and
 * devices that are lost meanwhile. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "../../runtime/cuda/cuda_device.h"
#include "../../runtime/exec.h"
#include "driver_support.h"

TestSuite(residents, .init = driver_setup, .timeout = 120);

static const rondo_exec_options resident = {.linger_ns = UINT64_C(1000000000000)}; /* for ever */

struct coming {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
};

static void prepare(struct coming *coming) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &coming->graph));
  add_copy(coming->graph, "copy", add_vector(rondo_input, coming->graph, "x", 64),
           add_vector(rondo_output, coming->graph, "y", 64));
  REQUIRE_OK(
      rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16},
                 &coming->runtime));
}

static void *come(void *argument) {
  struct coming *coming = argument;
  REQUIRE_OK(rondo_instantiate(coming->runtime, coming->graph, &resident, &coming->exec));
  return NULL;
}

/* Its graph is on the device after a replay, and no kernel finds room. */
static rondo_slot stay(struct coming *staying) {
  rondo_slot slot;
  prepare(staying);
  come(staying);
  REQUIRE_OK(rondo_acquire(staying->exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  set_mode(FAKE_NEVER);
  return slot;
}

/* The close waits for the end of the thread that beats, not for that of the exec that comes meanwhile. */
Test(residents, the_last_one_goes_while_another_comes) {
  struct coming coming = {0};
  prepare(&coming);
  for (int i = 0; i < 400; i++) {
    pthread_t thread;
    rondo_exec *last = NULL;
    REQUIRE_OK(rondo_instantiate(coming.runtime, coming.graph, &resident, &last));
    cr_assert_eq(pthread_create(&thread, NULL, come, &coming), 0);
    nanosleep(&(struct timespec){.tv_nsec = 1000L * i}, NULL);
    REQUIRE_OK(rondo_close_exec(&last));
    pthread_join(thread, NULL);
    REQUIRE_OK(rondo_close_exec(&coming.exec));
  }
  REQUIRE_OK(rondo_graph_destroy(&coming.graph));
  REQUIRE_OK(rondo_close(&coming.runtime));
  require_clean("after close");
}

static void *go(void *argument) {
  struct coming *going = argument;
  REQUIRE_OK(rondo_close_exec(&going->exec));
  return NULL;
}

/* Else another exec could get memory that the graph's last kernels still read. */
Test(residents, a_close_waits_until_the_graph_has_ended) {
  struct coming going = {0};
  pthread_t thread;
  stay(&going);
  const uint64_t destroyed = fake->calls("cuGraphExecDestroy");
  cr_assert_eq(pthread_create(&thread, NULL, go, &going), 0);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  cr_assert_eq(fake->calls("cuGraphExecDestroy"), destroyed);
  set_mode(FAKE_IMMEDIATE);
  pthread_join(thread, NULL);
  REQUIRE_OK(rondo_graph_destroy(&going.graph));
  REQUIRE_OK(rondo_close(&going.runtime));
  require_clean("after close");
}

Test(residents, a_graph_without_tasks_is_replayed_as_often_as_it_was_rung) {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16}, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &resident, &exec)); /* counts the warm replays */
  REQUIRE_OK(rondo_acquire(exec, &slot));
  for (int i = 0; i < 10; i++) {
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  }
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

enum { QUEUE = 2 };

struct stuck {
  rondo_slot slots[QUEUE + 1];
  rondo_exec *exec;
  rondo_status status;
};

static void *fill_queue(void *argument) {
  struct stuck *stuck = argument;
  for (int i = 0; i <= QUEUE; i++) stuck->status = rondo_replay(stuck->slots[i]);
  return NULL;
}

static void *close_exec(void *argument) {
  struct stuck *stuck = argument;
  stuck->status = rondo_close_exec(&stuck->exec);
  return NULL;
}

/* It is in the lane, and might have found the exec there. */
Test(residents, a_close_waits_for_a_thread_in_the_driver_until_the_device_is_lost) {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *other;
  struct stuck filling = {0}, closing = {0};
  pthread_t filler, closer;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  add_copy(graph, "copy", add_vector(rondo_input, graph, "x", 64), add_vector(rondo_output, graph, "y", 64));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16}, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &resident, &closing.exec));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = QUEUE + 1}, &other));
  for (int i = 0; i <= QUEUE; i++) REQUIRE_OK(rondo_acquire(other, &filling.slots[i]));
  struct fake_settings settings = fake->settings();
  settings.queue_length = QUEUE;
  settings.mode = FAKE_NEVER;
  fake->configure(&settings);
  const uint64_t launches = fake->calls("cuGraphLaunch");
  _Atomic uint32_t *inside = &other->slots.items[0].device_exec->lane->launching;
  cr_assert_eq(pthread_create(&filler, NULL, fill_queue, &filling), 0);
  while (fake->calls("cuGraphLaunch") < launches + QUEUE + 1) sched_yield();
  cr_assert_eq(atomic_load(inside), 1);
  cr_assert_eq(pthread_create(&closer, NULL, close_exec, &closing), 0);
  while (atomic_load(inside) == 1) sched_yield(); /* until the closer asks to be alone there */
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  cr_assert(closing.exec, "the close did not wait");
  fake->fail_call(1, CU_ILLEGAL_ADDRESS);
  REQUIRE_ERROR(rondo_runtime_health(runtime), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  pthread_join(closer, NULL);
  cr_assert(!closing.exec, "%d", (int)closing.status);
  settings.queue_length = 0;
  fake->configure(&settings);
  pthread_join(filler, NULL);
  REQUIRE_OK(rondo_close_exec(&other));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_no_violation("after close");
}

/* The graph has said that it gives up, and nothing more is heard of it. */
Test(residents, a_ring_waits_for_a_graph_that_leaves_until_the_device_is_lost) {
  struct coming last = {0};
  const rondo_slot slot = stay(&last);
  struct doorbell *bell = last.exec->slots.items[0].device_exec->bell;
  __atomic_store_n(&bell->leaving, doorbell_word(bell), __ATOMIC_SEQ_CST);
  fake->fail_call(1, CU_ILLEGAL_ADDRESS);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_ERROR(rondo_wait(slot, RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_OK(rondo_close_exec(&last.exec));
  REQUIRE_OK(rondo_graph_destroy(&last.graph));
  REQUIRE_OK(rondo_close(&last.runtime));
  require_no_violation("after close");
}
