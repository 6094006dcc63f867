/* test_waiting.c - waits on the host backend leave their core to the team: the waiting thread sleeps and is woken
 * once, by the end of a replay, by a slot that is released, or by the loss of the device. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "lone_task.h"

TestSuite(waiting, .timeout = 30);

enum { LONG_MS = 100, SWITCHES_MOST = 60 };
static const rondo_wait_mode modes[] = {RONDO_WAIT_SPIN_YIELD, RONDO_WAIT_BLOCK};

static rondo_runtime *open_with(rondo_wait_mode mode) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .device_bytes = 1 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .host_threads = 1,
                                         .wait_mode = mode},
                        &runtime));
  return runtime;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static void take_long(void *user, void *const *data) {
  (void)user;
  (void)data;
  sleep_ms(LONG_MS);
}

static atomic_bool gate_is_open;
static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  while (!atomic_load(&gate_is_open)) sleep_ms(1);
}

/* How often this thread gave up its core: once or twice in a wait, and up to 25 times under valgrind on a busy machine.
 * Looks between sleeps of 1 ms would be a hundred, and between sleeps of 20 us thousands. */
static long switches(void) {
  struct rusage usage;
  cr_assert_eq(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

static void require_one_sleep(long before) {
  long count = switches() - before;
  cr_assert(count >= 1 && count <= SWITCHES_MOST, "%ld switches", count);
}

Test(waiting, a_replay_is_slept_for_once) {
  for (int m = 0; m < 2; m++) {
    rondo_runtime *runtime = open_with(modes[m]);
    struct lone_task task = lone_task(runtime, take_long, NULL, NULL);
    for (int i = 0; i < 4; i++) {
      uint64_t timeout_ns = i % 2 ? RONDO_FOREVER : UINT64_C(60000000000);
      long before = switches();
      rondo_slot slot;
      REQUIRE_OK(rondo_replay(task.slot));
      REQUIRE_OK(i / 2 ? rondo_wait_any(&task.exec, 1, timeout_ns, &slot) : rondo_wait(task.slot, timeout_ns));
      require_one_sleep(before);
    }
    lone_task_end(&task);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

static void *release_later(void *slot) {
  sleep_ms(LONG_MS);
  REQUIRE_OK(rondo_release(*(rondo_slot *)slot));
  return NULL;
}

Test(waiting, a_slot_is_slept_for_once) {
  for (int m = 0; m < 2; m++) {
    rondo_runtime *runtime = open_with(modes[m]);
    struct lone_task task = lone_task(runtime, nothing, NULL, NULL);
    pthread_t releaser;
    cr_assert_eq(pthread_create(&releaser, NULL, release_later, &task.slot), 0);
    long before = switches();
    rondo_slot slot;
    REQUIRE_OK(rondo_acquire_within(task.exec, RONDO_FOREVER, &slot));
    require_one_sleep(before);
    pthread_join(releaser, NULL);
    task.slot = slot;
    lone_task_end(&task);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

static void *acquire_later(void *argument) {
  rondo_exec *exec = argument;
  rondo_slot slot;
  sleep_ms(LONG_MS);
  REQUIRE_OK(rondo_acquire_within(exec, RONDO_FOREVER, &slot));
  REQUIRE_OK(rondo_release(slot));
  return NULL;
}

/* Which holds the other slots for as long as it takes: several times LONG_MS. */
Test(waiting, a_profile_wakes_whoever_sleeps_for_a_slot) {
  for (int m = 0; m < 2; m++) {
    rondo_runtime *runtime = open_with(modes[m]);
    struct lone_task task = lone_task(runtime, take_long, NULL, NULL);
    rondo_task_profile tasks[1];
    rondo_profile_totals totals;
    pthread_t acquirer;
    REQUIRE_OK(rondo_close_exec(&task.exec));
    REQUIRE_OK(rondo_instantiate(runtime, task.graph, &(rondo_exec_options){.slots = 2}, &task.exec));
    REQUIRE_OK(rondo_acquire(task.exec, &task.slot));
    cr_assert_eq(pthread_create(&acquirer, NULL, acquire_later, task.exec), 0);
    REQUIRE_OK(
        rondo_profile(task.slot, &(rondo_profile_options){.passes = 2, .copy_bytes = 1 << 20}, tasks, 1, &totals));
    pthread_join(acquirer, NULL);
    lone_task_end(&task);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

/* ---- A lost device wakes all who wait ---------------------------------------------------------------------------- */

struct waiter {
  struct lone_task *task;
  int how;
  rondo_status status;
};

static void *wait_for_ever(void *argument) {
  struct waiter *waiter = argument;
  rondo_slot slot;
  waiter->status = waiter->how == 0   ? rondo_wait(waiter->task->slot, RONDO_FOREVER)
                   : waiter->how == 1 ? rondo_wait_any(&waiter->task->exec, 1, RONDO_FOREVER, &slot)
                                      : rondo_acquire_within(waiter->task->exec, RONDO_FOREVER, &slot);
  return NULL;
}

Test(waiting, a_lost_device_wakes_whoever_sleeps) {
  enum { WAITERS = 3 };
  for (int m = 0; m < 2; m++) {
    rondo_runtime *runtime = open_with(modes[m]);
    atomic_store(&gate_is_open, true);
    struct lone_task stuck = lone_task(runtime, wait_at_gate, NULL, NULL);
    struct lone_task behind = lone_task(runtime, nothing, NULL, NULL);
    pthread_t threads[WAITERS];
    struct waiter waiters[WAITERS];
    atomic_store(&gate_is_open, false);
    REQUIRE_OK(rondo_replay(stuck.slot));
    REQUIRE_OK(rondo_replay(behind.slot));
    for (int w = 0; w < WAITERS; w++) {
      waiters[w] = (struct waiter){&stuck, w, RONDO_OK};
      cr_assert_eq(pthread_create(&threads[w], NULL, wait_for_ever, &waiters[w]), 0);
    }
    sleep_ms(LONG_MS);
    cr_assert_eq(rondo_close_exec_within(&behind.exec, 0), RONDO_DEVICE_LOST);
    for (int w = 0; w < WAITERS; w++) {
      pthread_join(threads[w], NULL);
      cr_assert_eq(waiters[w].status, RONDO_DEVICE_LOST, "way %d", w);
    }
    atomic_store(&gate_is_open, true);
    REQUIRE_OK(rondo_graph_destroy(&behind.graph));
    REQUIRE_OK(rondo_graph_destroy(&stuck.graph));
    rondo_close_exec(&stuck.exec);
    rondo_close(&runtime);
  }
}
