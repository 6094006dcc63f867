/* team.c - see team.h. Which thread computes an item never changes its bits: an item is one thread's work in a fixed
 * order, and items do not overlap. */
#include "team.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
  TICKET_BITS = 20,
  CHUNKS_PER_THREAD = 4,
  SPINS_BEFORE_YIELD = 4000,
  YIELDS_BEFORE_SLEEP = 2000,
  SLEEP_NS = 50000
};
static const uint64_t ticket_mask = (UINT64_C(1) << TICKET_BITS) - 1;

/* One step of waiting for work; `steps` counts from the last work seen. A sleeper looks again by itself: nobody has to
 * wake it, so that pushing a program needs no system call. */
static void idle(const struct team *team, uint64_t steps) {
  if (team->wait_mode == RONDO_WAIT_SPIN || steps < SPINS_BEFORE_YIELD) {
#if defined(__x86_64__)
    _mm_pause();
#endif
  } else if (team->wait_mode == RONDO_WAIT_SPIN_YIELD && steps < SPINS_BEFORE_YIELD + YIELDS_BEFORE_SLEEP) {
    sched_yield();
  } else {
    struct timespec sleep = {.tv_nsec = SLEEP_NS};
    nanosleep(&sleep, NULL);
  }
}

static void run_chunk(const struct team_job *job, uint32_t chunk) {
  int64_t first = job->items * chunk / job->chunks, last = job->items * (chunk + 1) / job->chunks;
  if (first < last) job->call->task->op->host_run(job->call, first, last);
}

/* Takes and runs one chunk of the job in progress; false if there is none left. */
static bool help(struct team *team) {
  uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  uint32_t chunk = (uint32_t)(ticket & ticket_mask);
  if (chunk >= ((ticket >> TICKET_BITS) & ticket_mask)) return false;
  /* Still the job of this ticket if the swap succeeds: the leader replaces it only when all its chunks are taken. */
  const struct team_job *job = atomic_load_explicit(&team->job, memory_order_relaxed);
  if (!atomic_compare_exchange_strong_explicit(&team->ticket, &ticket, ticket + 1, memory_order_acq_rel,
                                               memory_order_relaxed))
    return true;
  run_chunk(job, chunk);
  atomic_fetch_sub_explicit(&team->unfinished_chunks, 1, memory_order_release);
  return true;
}

uint32_t team_chunks(const struct team *team, int64_t items) {
  if (team->thread_count == 1 || items <= 1) return 1;
  int64_t most = (int64_t)team->thread_count * CHUNKS_PER_THREAD;
  return (uint32_t)(items < most ? items : most);
}

void team_run(struct team *team, const struct team_job *job) {
  if (job->chunks <= 1) {
    run_chunk(job, 0);
    return;
  }
  atomic_store_explicit(&team->unfinished_chunks, job->chunks, memory_order_relaxed);
  atomic_store_explicit(&team->job, job, memory_order_relaxed);
  uint64_t generation = (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> (2 * TICKET_BITS)) + 1;
  atomic_store_explicit(&team->ticket, generation << (2 * TICKET_BITS) | (uint64_t)job->chunks << TICKET_BITS,
                        memory_order_release);
  while (help(team)) {}
  for (uint64_t steps = 0; atomic_load_explicit(&team->unfinished_chunks, memory_order_acquire); steps++)
    idle(team, steps);
}

static void *worker(void *argument) {
  struct team *team = argument;
  for (uint64_t steps = 0; !atomic_load_explicit(&team->stop, memory_order_relaxed);) {
    if (help(team))
      steps = 0;
    else
      idle(team, steps++);
  }
  return NULL;
}

static void *leader(void *argument) {
  struct team *team = argument;
  for (uint64_t steps = 0;;) {
    struct team_cell *cell = &team->queue[team->queue_head % TEAM_QUEUE_LENGTH];
    if (atomic_load_explicit(&cell->sequence, memory_order_acquire) == team->queue_head + 1) {
      void *program = cell->program;
      atomic_store_explicit(&cell->sequence, team->queue_head + TEAM_QUEUE_LENGTH, memory_order_release);
      team->queue_head++;
      team->program(team, program);
      atomic_fetch_add_explicit(&team->finished, 1, memory_order_release);
      steps = 0;
    } else if (atomic_load_explicit(&team->stop, memory_order_relaxed)) {
      return NULL;
    } else {
      idle(team, steps++);
    }
  }
}

rondo_status team_push(struct team *team, void *program) {
  uint64_t position = atomic_load_explicit(&team->queue_tail, memory_order_relaxed);
  for (;;) {
    struct team_cell *cell = &team->queue[position % TEAM_QUEUE_LENGTH];
    uint64_t sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
    if (sequence < position) return status_set(RONDO_BUSY, "replay: %d replays are queued", TEAM_QUEUE_LENGTH);
    if (sequence == position && atomic_compare_exchange_weak_explicit(&team->queue_tail, &position, position + 1,
                                                                      memory_order_relaxed, memory_order_relaxed)) {
      cell->program = program;
      atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);
      return RONDO_OK;
    }
    if (sequence > position) position = atomic_load_explicit(&team->queue_tail, memory_order_relaxed);
  }
}

static size_t queue_bytes(void) { return TEAM_QUEUE_LENGTH * sizeof(struct team_cell); }

rondo_status team_start(struct team *team, const rondo_allocator *allocator, uint32_t thread_count,
                        rondo_wait_mode wait_mode, team_program program) {
  memset(team, 0, sizeof *team);
  team->wait_mode = wait_mode;
  team->program = program;
  team->queue = allocator->allocate(allocator->user, queue_bytes(), 64);
  team->threads = allocator->allocate(allocator->user, thread_count * sizeof(pthread_t), 64);
  rondo_status status = RONDO_OK;
  if (!team->queue || !team->threads)
    status =
        status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no memory for a team of %u threads", thread_count);
  for (uint64_t i = 0; i < TEAM_QUEUE_LENGTH && status == RONDO_OK; i++) atomic_init(&team->queue[i].sequence, i);
  uint32_t started = 0;
  for (; started < thread_count && status == RONDO_OK; started++) {
    bool is_leader = started + 1 == thread_count;
    if (is_leader) team->thread_count = thread_count; /* read by the leader only, which starts last */
    if (pthread_create(&team->threads[started], NULL, is_leader ? leader : worker, team)) {
      status = status_set(RONDO_OUT_OF_MEMORY, "open: thread %u of %u could not be started", started + 1, thread_count);
      break;
    }
  }
  if (status == RONDO_OK) return RONDO_OK;
  team->thread_count = started; /* no leader runs, and workers do not read it */
  team_stop(team, allocator);
  return status;
}

void team_stop(struct team *team, const rondo_allocator *allocator) {
  uint32_t count = team->thread_count;
  atomic_store(&team->stop, true);
  for (uint32_t i = 0; i < count; i++) pthread_join(team->threads[i], NULL);
  if (team->queue) allocator->release(allocator->user, team->queue, queue_bytes());
  if (team->threads) allocator->release(allocator->user, team->threads, count * sizeof(pthread_t));
}
