/* thread_team.c - the host team's protocol for ThreadSanitizer: jobs that several threads certainly share, since a
 * chunk does not end before another thread has one; plain bytes that pass from pusher to leader to workers and back;
 * and every pair of threads in it kept apart from any other order than the protocol's own (the counters here are
 * relaxed). */
#include "thread_team.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../runtime/host/team.h"

enum { THREADS = 3, ITEMS = 12, JOBS = 300, PROGRAMS = 10 };

static void require(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "team: %s\n", what);
  exit(1);
}

static void *take(void *user, size_t bytes, size_t alignment) {
  (void)user;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

static const rondo_allocator allocator = {.allocate = take, .release = give};

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

static uint64_t values[ITEMS], given, sum; /* plain: the protocol is what orders them */
static _Atomic uint32_t threads_in_job;
static _Thread_local uint64_t job_of_thread;
static _Atomic uint64_t job_number;

/* Counts this thread in, and waits for a second one: so the leader never runs a job alone. */
static void meet(void) {
  uint64_t job = atomic_load_explicit(&job_number, memory_order_relaxed);
  if (job_of_thread != job) atomic_fetch_add_explicit(&threads_in_job, 1, memory_order_relaxed);
  job_of_thread = job;
  while (atomic_load_explicit(&threads_in_job, memory_order_relaxed) < 2) sched_yield();
}

static void run_items(const struct op_call *call, int64_t first, int64_t last) {
  (void)call;
  meet();
  for (int64_t i = first; i < last; i++) values[i] = values[i] + given;
}

static void run_jobs(struct team *team, void *owner, void *program) {
  (void)owner;
  static const struct op op = {.name = "add", .host_run = run_items};
  static const struct op_task task = {.op = &op};
  struct op_call call = {.task = &task};
  const uint64_t *step = program;
  for (int j = 0; j < JOBS; j++) {
    struct team_job job = {&call, ITEMS, team_chunks(team, ITEMS)};
    atomic_store_explicit(&threads_in_job, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&job_number, 1, memory_order_relaxed);
    given = *step;
    team_run(team, &job);
    sum = 0;
    for (int i = 0; i < ITEMS; i++) sum += values[i];
    if (j % 100 == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* the workers fall asleep */
  }
}

void chunks_see_what_came_before_and_are_seen_behind(void) {
  static const rondo_wait_mode modes[] = {RONDO_WAIT_SPIN_YIELD, RONDO_WAIT_SPIN, RONDO_WAIT_BLOCK};
  for (int m = 0; m < 3; m++) {
    static struct team team;
    uint64_t step = 0, expected = 0;
    for (int i = 0; i < ITEMS; i++) values[i] = 0;
    require(team_start(&team, &allocator, NULL, THREADS, modes[m], run_jobs, NULL) == RONDO_OK, rondo_error_text());
    for (uint64_t p = 1; p <= PROGRAMS; p++) {
      step = p;
      expected += p * ITEMS * JOBS;
      require(team_push(&team, &step) == RONDO_OK, rondo_error_text());
      while (!team_has_finished(&team, p)) sched_yield();
      require(sum == expected, "a chunk was lost, run twice or not seen");
    }
    teams_stop(&team, 1, &allocator, RONDO_FOREVER);
  }
  puts("chunks see what came before and are seen behind: ok");
}

/* ---- The queue --------------------------------------------------------------------------------------------------- */

static uint64_t marks[2];
static _Atomic uint64_t runs, turn;

static void run_mark(struct team *team, void *owner, void *program) {
  (void)team;
  (void)owner;
  uint64_t *mark = program;
  *mark += 1;
  atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed);
}

/* Pushes a cell's second content without having been told of its first: all it knows is the cell. */
static void *push_the_last(void *argument) {
  while (!atomic_load_explicit(&turn, memory_order_relaxed)) sched_yield();
  require(team_push(argument, &marks[1]) == RONDO_OK, rondo_error_text());
  return NULL;
}

void cells_are_used_again(void) {
  static struct team team;
  pthread_t other;
  require(team_start(&team, &allocator, NULL, 1, RONDO_WAIT_SPIN_YIELD, run_mark, NULL) == RONDO_OK,
          rondo_error_text());
  pthread_create(&other, NULL, push_the_last, &team);
  for (int i = 0; i < TEAM_QUEUE_LENGTH; i++) require(team_push(&team, &marks[0]) == RONDO_OK, rondo_error_text());
  while (atomic_load_explicit(&runs, memory_order_relaxed) < TEAM_QUEUE_LENGTH) sched_yield();
  atomic_store_explicit(&turn, 1, memory_order_relaxed);
  while (!team_has_finished(&team, TEAM_QUEUE_LENGTH + 1)) sched_yield();
  require(marks[0] == TEAM_QUEUE_LENGTH && marks[1] == 1, "a program was lost");
  pthread_join(other, NULL);
  teams_stop(&team, 1, &allocator, RONDO_FOREVER);
  puts("cells are used again: ok");
}
