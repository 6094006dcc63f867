/* test_host.c - what a host function and a program around the host backend may rely on: alignment, signals, cores, the
 * allocator's contract, the calls that a task may make, and what is left of a lost device. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../runtime/exec.h"
#include "../../runtime/host/team.h"
#include "ledger.h"
#include "lone_task.h"

TestSuite(host, .timeout = 60);

static rondo_runtime *open_team(uint32_t threads, rondo_wait_mode wait_mode) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = threads,
                           .wait_mode = wait_mode};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

struct line {
  _Alignas(64) float values[16];
};

typedef float vector __attribute__((vector_size(16)));

/* y := the sum of a vector, a cache line and a vector. The compiler loads each with instructions that fault on an
 * address of less alignment than the type's. */
static void add_values(void *user, void *const *data) {
  (void)user;
  const vector *first = data[1], *last = data[3];
  const struct line *line = data[2];
  cr_assert_eq((uintptr_t)first % 64, 0);
  cr_assert_eq((uintptr_t)line % 64, 0);
  cr_assert_eq((uintptr_t)last % 64, 0);
  vector sum = *first + *last;
  for (int i = 0; i < 4; i++) sum += ((const vector *)line->values)[i];
  memcpy(data[0], &sum, sizeof sum);
}

Test(host, values_are_aligned_to_64_bytes_in_every_task) {
  enum { TASKS = 5 };
  rondo_runtime *runtime = open_team(1, RONDO_WAIT_SPIN_YIELD);
  rondo_runtime *owners[] = {NULL, runtime}; /* of the graph's memory */
  for (int owner = 0; owner < 2; owner++) {
    rondo_graph *graph = NULL;
    rondo_exec *exec = NULL;
    rondo_slot slot;
    rondo_tensor y[TASKS];
    REQUIRE_OK(rondo_graph_create(owners[owner], &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &graph));
    for (int t = 0; t < TASKS; t++) {
      vector first = {(float)t, 1, 2, 3}, last = {10, 20, 30, 40};
      struct line line;
      for (int i = 0; i < 16; i++) line.values[i] = (float)(100 * i);
      REQUIRE_OK(rondo_output(graph, "y", RONDO_F32, 1, (int64_t[]){4}, &y[t]));
      rondo_argument arguments[] = {{.tensor = y[t], .access = RONDO_WRITE},
                                    {.value = &first, .bytes = sizeof first},
                                    {.value = &line, .bytes = sizeof line},
                                    {.value = &last, .bytes = sizeof last}};
      REQUIRE_OK(rondo_add_kernel(
          graph, &(rondo_kernel_desc){.host = add_values, .arguments = arguments, .argument_count = 4}));
    }
    REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    for (int t = 0; t < TASKS; t++) {
      const float *sum = rondo_data(slot, y[t]);
      cr_assert_eq(sum[0], (float)(2400 + t + 10));
      cr_assert_eq(sum[3], (float)(3600 + 3 + 40));
    }
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
  REQUIRE_OK(rondo_close(&runtime));
}

static void sleep_us(long us) {
  nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---- The allocator's contract ------------------------------------------------------------------------------------ */

static void require_all_given_back(const rondo_lane *lanes, uint32_t lane_count, uint64_t pool_bytes) {
  enum { THREADS = 4 };
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = pool_bytes,
                           .pinned_bytes = pool_bytes,
                           .host_bytes = 4096,
                           .host_threads = THREADS,
                           .lanes = lanes,
                           .lane_count = lane_count,
                           .allocator = &ledger_allocator};
  int teams = lane_count ? (int)lane_count : 1;
  bool opened = false;
  for (int n = 1; !opened; n++) {
    rondo_runtime *runtime = NULL;
    ledger.calls = 0;
    ledger.fail_at = n;
    rondo_status status = rondo_open(&options, &runtime);
    opened = status == RONDO_OK;
    if (!opened) require_error(status, RONDO_OUT_OF_MEMORY, "open: the allocator has no", "rondo_open");
    cr_assert(opened ? n > 2 + 2 * teams : n < 50);
    REQUIRE_OK(rondo_close(&runtime));
    cr_assert_eq(ledger.live_count, 0, "allocation %d failing leaks", n);
  }
  ledger.fail_at = 0;
  for (thread_fail_at = 1; thread_fail_at <= THREADS; thread_fail_at++) {
    rondo_runtime *runtime = NULL;
    thread_calls = 0;
    REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, "could not be started");
    cr_assert_eq(ledger.live_count, 0, "thread %d failing leaks", thread_fail_at);
  }
  thread_fail_at = 0;
}

Test(host, every_byte_is_given_back_as_it_was_taken_whatever_fails_at_open) {
  static const rondo_lane lanes[] = {{.multiprocessors = 2}, {0}, {0}};
  static const uint64_t pool_bytes[] = {0, 1, 5000};
  for (size_t p = 0; p < sizeof pool_bytes / sizeof *pool_bytes; p++) {
    require_all_given_back(NULL, 0, pool_bytes[p]);
    require_all_given_back(lanes, 3, pool_bytes[p]);
  }
}

/* ---- The team's threads ------------------------------------------------------------------------------------------ */

/* The thread ids of this process. */
static int threads_now(pid_t *ids, int most) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  if (!folder) cr_skip_test("no /proc");
  for (struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.' && count < most) ids[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
  closedir(folder);
  return count;
}

enum { TEAM = 3, MOST_THREADS = 16 };

/* Opens a team of TEAM threads and says which these are. */
static rondo_runtime *open_known_team(rondo_wait_mode wait_mode, pid_t team[TEAM]) {
  pid_t before[MOST_THREADS], after[MOST_THREADS];
  int before_count = threads_now(before, MOST_THREADS), found = 0;
  rondo_runtime *runtime = open_team(TEAM, wait_mode);
  int after_count = threads_now(after, MOST_THREADS);
  for (int i = 0; i < after_count; i++) {
    bool is_new = true;
    for (int j = 0; j < before_count; j++) is_new &= after[i] != before[j];
    if (is_new && found < TEAM) team[found++] = after[i];
  }
  cr_assert_eq(found, TEAM);
  return runtime;
}

/* What stands after "KEY:" in a thread's status. */
static void thread_status(pid_t thread, const char *key, char *value, size_t bytes) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  value[0] = '\0';
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
      snprintf(value, bytes, "%s", line + strlen(key) + 1 + strspn(line + strlen(key) + 1, " \t"));
  fclose(file);
  cr_assert(value[0] != '\0', "no %s in %s", key, path);
}

Test(host, signal_handlers_of_the_application_never_run_in_the_team) {
  pid_t team[TEAM];
  sigset_t mine;
  sigemptyset(&mine);
  cr_assert_eq(pthread_sigmask(SIG_SETMASK, &mine, NULL), 0);
  rondo_runtime *runtime = open_known_team(RONDO_WAIT_SPIN_YIELD, team);
  for (int t = 0; t < TEAM; t++) {
    static const int of_others[] = {SIGUSR1, SIGTERM, SIGINT, SIGCHLD, SIGPROF, SIGALRM, SIGHUP};
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    uint64_t blocked;
    do { /* a thread begins with all signals blocked */
      char text[64];
      thread_status(team[t], "SigBlk", text, sizeof text);
      blocked = strtoull(text, NULL, 16);
    } while (blocked >> (SIGSEGV - 1) & 1);
    for (size_t i = 0; i < sizeof of_others / sizeof *of_others; i++)
      cr_assert(blocked >> (of_others[i] - 1) & 1, "signal %d", of_others[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
      cr_assert(!(blocked >> (own[i] - 1) & 1), "signal %d of a thread's own instructions", own[i]);
  }
  pthread_sigmask(SIG_BLOCK, NULL, &mine);
  cr_assert(!sigismember(&mine, SIGUSR1), "the caller's own mask is as it was");
  REQUIRE_OK(rondo_close(&runtime));
}

static void report_cores(void *user, void *const *data) {
  (void)data;
  cr_assert_eq(sched_getaffinity(0, sizeof(cpu_set_t), user), 0);
}

Test(host, a_pinned_caller_does_not_pin_the_team, OWN_PROCESS) {
  cpu_set_t before, one, seen;
  cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) cr_skip_test("one core");
  size_t core = 0;
  while (!CPU_ISSET(core, &before)) core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
  pid_t team[TEAM];
  rondo_runtime *runtime = open_known_team(RONDO_WAIT_SPIN_YIELD, team);
  struct lone_task task = lone_task(runtime, report_cores, NULL, &seen);
  cr_assert(CPU_EQUAL(&seen, &before), "a task sees %d cores of %d", CPU_COUNT(&seen), CPU_COUNT(&before));
  for (int t = 0; t < TEAM; t++) /* a worker may still be about to start */
    do {
      cr_assert_eq(sched_getaffinity(team[t], sizeof seen, &seen), 0);
    } while (!CPU_EQUAL(&seen, &before));
  cr_assert_eq(sched_getaffinity(0, sizeof seen, &seen), 0);
  cr_assert(CPU_EQUAL(&seen, &one), "the caller stays where it was");
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

/* Times at which the team's threads but the first `awake`, the leader before all, gave up their core. */
static long switches(const pid_t team[TEAM], int awake) {
  long sum = 0;
  for (int t = awake; t < TEAM; t++) {
    char count[64];
    thread_status(team[t], "voluntary_ctxt_switches", count, sizeof count);
    sum += strtol(count, NULL, 10);
  }
  return sum;
}

/* Waits until they have gone to sleep; after five seconds they never will, and are measured as they are. */
static void wait_for_sleep(const pid_t team[TEAM], int awake) {
  for (int look = 0; look < 100; look++) {
    long before = switches(team, awake);
    sleep_us(50000);
    if (switches(team, awake) == before) return;
  }
}

static void require_idle_sleep(rondo_wait_mode wait_mode, int awake) {
  pid_t team[TEAM];
  rondo_runtime *runtime = open_known_team(wait_mode, team);
  struct lone_task task = lone_task(runtime, nothing, NULL, NULL);
  for (int round = 0; round < 2; round++) {
    REQUIRE_OK(rondo_replay(task.slot));
    REQUIRE_OK(rondo_wait(task.slot, RONDO_FOREVER));
    wait_for_sleep(team, awake);
    long begin = switches(team, awake);
    sleep_us(500000);
    long count = switches(team, awake) - begin;
    cr_assert_lt(count, 20, "%ld switches", count);
  }
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(host, an_idle_team_sleeps_without_waking, OWN_PROCESS) { require_idle_sleep(RONDO_WAIT_SPIN_YIELD, 0); }
Test(host, an_idle_team_that_blocks_sleeps_without_waking, OWN_PROCESS) { require_idle_sleep(RONDO_WAIT_BLOCK, 0); }
Test(host, an_idle_team_that_spins_keeps_one_core_busy, OWN_PROCESS) {
  skip_under_valgrind("a thread that spins takes turns with those that sleep");
  require_idle_sleep(RONDO_WAIT_SPIN, 1);
}

/* Pauses of all lengths around the moment at which the leader falls asleep: a lost wake-up is a replay never done. */
Test(host, no_replay_is_slept_through) {
  static const rondo_wait_mode modes[] = {RONDO_WAIT_SPIN_YIELD, RONDO_WAIT_BLOCK};
  struct random random = {1};
  for (int m = 0; m < 2; m++) {
    rondo_runtime *runtime = open_team(2, modes[m]);
    struct lone_task task = lone_task(runtime, nothing, NULL, NULL);
    for (int replay = 0; replay < 3000; replay++) {
      for (int64_t spins = random_between(&random, 0, replay % 2 ? 20000 : 200); spins > 0; spins--)
        __asm__ volatile("" ::: "memory");
      if (replay % 16 == 0) sleep_us(random_between(&random, 0, 2000));
      REQUIRE_OK(rondo_replay(task.slot));
      REQUIRE_OK(rondo_wait(task.slot, RONDO_FOREVER));
    }
    lone_task_end(&task);
    REQUIRE_OK(rondo_close(&runtime));
  }
}

/* ---- What a task may call ---------------------------------------------------------------------------------------- */

struct inside {
  atomic_bool is_armed;
  rondo_runtime *runtime;
  struct lone_task self, other, foreign; /* foreign: of another runtime */
};

static void expect_refusal(rondo_status status, const char *function) {
  char text[128];
  snprintf(text, sizeof text, "%s: called from a task of this runtime", function);
  require_error(status, RONDO_INVALID_STATE, text, function);
}

static void call_from_inside(void *user, void *const *data) {
  (void)data;
  struct inside *inside = user;
  if (!atomic_load(&inside->is_armed)) return;
  struct lone_task *self = &inside->self, *other = &inside->other;
  float value = 0;
  expect_refusal(rondo_wait(self->slot, RONDO_FOREVER), "rondo_wait");
  expect_refusal(rondo_wait(self->slot, 0), "rondo_wait");
  expect_refusal(rondo_close_exec(&self->exec), "rondo_close_exec");
  cr_assert_not_null(self->exec);
  expect_refusal(rondo_upload(self->exec, self->state, &value, sizeof value), "rondo_upload");
  expect_refusal(rondo_download(self->exec, self->state, &value, sizeof value), "rondo_download");
  rondo_exec *exec = NULL;
  expect_refusal(rondo_instantiate(inside->runtime, self->graph, NULL, &exec), "rondo_instantiate");
  expect_refusal(rondo_close(&inside->runtime), "rondo_close");
  REQUIRE_ERROR(rondo_replay(self->slot), RONDO_BUSY, "in flight");

  REQUIRE_OK(rondo_wait(other->slot, RONDO_FOREVER)); /* there is nothing to wait for */
  REQUIRE_OK(rondo_replay(other->slot));              /* which runs after this task */
  cr_assert_eq(rondo_poll(other->slot), RONDO_BUSY);
  expect_refusal(rondo_wait(other->slot, RONDO_FOREVER), "rondo_wait");
  expect_refusal(rondo_close_exec(&other->exec), "rondo_close_exec");
  expect_refusal(rondo_upload(other->exec, other->state, &value, sizeof value), "rondo_upload");
  expect_refusal(rondo_download(other->exec, other->state, &value, sizeof value), "rondo_download");

  struct lone_task *foreign = &inside->foreign;
  REQUIRE_OK(rondo_replay(foreign->slot));
  REQUIRE_OK(rondo_wait(foreign->slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_upload(foreign->exec, foreign->state, &value, sizeof value));
  atomic_store(&inside->is_armed, false);
}

Test(host, a_task_that_would_wait_for_itself_is_refused) {
  static struct inside inside;
  inside.runtime = open_team(2, RONDO_WAIT_SPIN_YIELD);
  rondo_runtime *runtime = inside.runtime, *elsewhere = open_team(1, RONDO_WAIT_SPIN_YIELD);
  inside.self = lone_task(runtime, call_from_inside, NULL, &inside);
  inside.other = lone_task(runtime, nothing, NULL, NULL);
  inside.foreign = lone_task(elsewhere, nothing, NULL, NULL);
  atomic_store(&inside.is_armed, true);
  REQUIRE_OK(rondo_replay(inside.self.slot));
  REQUIRE_OK(rondo_wait(inside.self.slot, RONDO_FOREVER));
  cr_assert(!atomic_load(&inside.is_armed), "the task did not come to its end");
  REQUIRE_OK(rondo_wait(inside.other.slot, RONDO_FOREVER));
  lone_task_end(&inside.self);
  lone_task_end(&inside.other);
  lone_task_end(&inside.foreign);
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_close(&elsewhere));
}

/* ---- A device that was lost -------------------------------------------------------------------------------------- */

static atomic_bool gate_is_open, is_at_gate, passed_gate, ran_next;

static void wait_at_gate(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) sleep_us(100);
  atomic_store(&passed_gate, true);
}

static void note_next(void *user, void *const *data) {
  (void)user;
  (void)data;
  atomic_store(&ran_next, true);
}

struct hang {
  rondo_runtime *runtime;
  struct lone_task stuck, queued, beside; /* beside: in another lane, if there is one */
};

/* A runtime that is lost while a task of one lane does not return. */
static struct hang lose_a_device(uint32_t lane_count) {
  static const rondo_lane lanes[RONDO_MAX_LANES];
  static const char cause[] = "the test: a task does not return";
  struct hang hang = {0};
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 16,
                           .pinned_bytes = 1 << 16,
                           .host_threads = 2,
                           .lanes = lanes,
                           .lane_count = lane_count,
                           .allocator = &ledger_allocator};
  REQUIRE_OK(rondo_open(&options, &hang.runtime));
  atomic_store(&gate_is_open, true);
  hang.stuck = lone_task_in(hang.runtime, lane_count / 2, wait_at_gate, note_next, NULL);
  hang.queued = lone_task_in(hang.runtime, lane_count / 2, note_next, NULL, NULL);
  hang.beside = lone_task_in(hang.runtime, lane_count - 1, note_next, NULL, NULL);
  atomic_store(&gate_is_open, false);
  atomic_store(&is_at_gate, false);
  atomic_store(&passed_gate, false);
  atomic_store(&ran_next, false);
  REQUIRE_OK(rondo_replay(hang.stuck.slot));
  REQUIRE_OK(rondo_replay(hang.queued.slot));
  while (!atomic_load(&is_at_gate)) sleep_us(100); /* what has not begun would not be stuck */
  REQUIRE_ERROR(rondo_wait(hang.stuck.slot, 1000000), RONDO_TIMEOUT, "still in flight");
  const struct device_ops *ops = hang.runtime->ops;
  cr_assert_eq(ops->lose(hang.runtime->device, cause), RONDO_DEVICE_LOST);
  cr_assert_eq(ops->lose(hang.runtime->device, "a later cause"), RONDO_DEVICE_LOST);
  REQUIRE_ERROR(ops->health(hang.runtime->device), RONDO_DEVICE_LOST, cause);
  for (uint32_t lane = 0; lane < lane_count; lane++) {
    REQUIRE_ERROR(ops->drain(hang.runtime->device, lane), RONDO_DEVICE_LOST, cause);
    REQUIRE_ERROR(ops->memory.zero(hang.runtime->device, lane, NULL, 0), RONDO_DEVICE_LOST, cause);
    REQUIRE_ERROR(ops->memory.upload(hang.runtime->device, lane, &(struct device_uploads){0}), RONDO_DEVICE_LOST,
                  cause);
    REQUIRE_ERROR(ops->memory.download(hang.runtime->device, lane, NULL, NULL, (struct device_rows){0}),
                  RONDO_DEVICE_LOST, cause);
  }
  REQUIRE_ERROR(ops->exec_launch(hang.queued.exec->slots.items[0].device_exec, NULL), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_wait(hang.stuck.slot, RONDO_FOREVER), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_poll(hang.queued.slot), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_replay(hang.queued.slot), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_replay(hang.beside.slot), RONDO_DEVICE_LOST, cause);
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(hang.runtime, hang.queued.graph, NULL, &exec), RONDO_DEVICE_LOST, cause);
  lone_task_end(&hang.stuck);
  lone_task_end(&hang.queued);
  lone_task_end(&hang.beside);
  return hang;
}

static void require_known_leak(uint32_t lane_count) {
  pid_t threads[MOST_THREADS];
  int count = threads_now(threads, MOST_THREADS);
  struct hang hang = lose_a_device(lane_count);
  REQUIRE_OK(rondo_close(&hang.runtime));
  cr_assert_null(hang.runtime);
  cr_assert_eq(ledger.live_count, 4 + 2 * (int)lane_count,
               "what the stuck thread may touch is not given back: the host pool, the device, two slabs, each team's "
               "queue and threads, but not %d blocks",
               ledger.live_count);
  atomic_store(&gate_is_open, true);
  while (!atomic_load(&passed_gate)) sleep_us(100);
  while (threads_now(threads, MOST_THREADS) > count) sleep_us(1000); /* it ends by itself */
  cr_assert(!atomic_load(&ran_next), "nothing more is started");
}

Test(host, a_task_that_never_returns_costs_its_memory_and_not_the_program, OWN_PROCESS) { require_known_leak(1); }
Test(host, a_lane_that_never_returns_loses_the_device_for_all, OWN_PROCESS) { require_known_leak(3); }

static void require_no_leak(uint32_t lane_count) {
  struct hang hang = lose_a_device(lane_count);
  atomic_store(&gate_is_open, true);
  REQUIRE_OK(rondo_close(&hang.runtime));
  cr_assert_eq(ledger.live_count, 0);
  cr_assert(!atomic_load(&ran_next), "nothing more is started");
}

Test(host, a_lost_device_whose_task_returns_after_all_leaks_nothing, OWN_PROCESS) { require_no_leak(1); }
Test(host, a_lost_device_whose_lane_returns_after_all_leaks_nothing, OWN_PROCESS) { require_no_leak(3); }

/* ---- The queue --------------------------------------------------------------------------------------------------- */

static void run_nothing(struct team *team, void *owner, void *program) {
  (void)team;
  (void)owner;
  if (program) wait_at_gate(NULL, NULL);
}

Test(host, a_full_queue_is_busy_and_takes_more_later) {
  static struct team team;
  int mark = 0;
  atomic_store(&gate_is_open, false);
  REQUIRE_OK(team_start(&team, &ledger_allocator, NULL, 1, RONDO_WAIT_SPIN_YIELD, run_nothing, NULL));
  REQUIRE_OK(team_push(&team, &mark));
  while (team_push(&team, NULL) == RONDO_OK) {}
  while (atomic_load(&team.queue_tail) <= TEAM_QUEUE_LENGTH) team_push(&team, NULL); /* the leader takes one out */
  cr_assert_eq(atomic_load(&team.queue_tail), 1 + TEAM_QUEUE_LENGTH);
  REQUIRE_ERROR(team_push(&team, NULL), RONDO_BUSY, "4096 replays of the lane are queued");
  atomic_store(&gate_is_open, true);
  while (!team_has_finished(&team, 1 + TEAM_QUEUE_LENGTH)) sleep_us(100);
  for (uint32_t i = 0; i < 2 * TEAM_QUEUE_LENGTH; i++)
    while (team_push(&team, NULL) == RONDO_BUSY) sleep_us(100);
  cr_assert(teams_stop(&team, 1, &ledger_allocator, RONDO_FOREVER));
  cr_assert(team_has_finished(&team, 1 + 3 * TEAM_QUEUE_LENGTH), "a team that stops runs what is queued");
  cr_assert_eq(ledger.live_count, 0);
}
