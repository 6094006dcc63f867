/* team.c - see team.h. An item is the work of one thread in a fixed order, and items do not overlap. So the bits do not
 * depend on the thread that computes an item. */
#include "team.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "../cpu_relax.h"
#include "../own_thread.h"

enum { TICKET_BITS = 13, CHUNKS_PER_THREAD = 4, SPINS_BEFORE_YIELD = 4000, YIELDS_BEFORE_SLEEP = 1000 };
enum { END_POLL_NS = 1000 * 1000 };
static const uint64_t ticket_mask = (UINT64_C(1) << TICKET_BITS) - 1;
static_assert(TEAM_MAX_THREADS * CHUNKS_PER_THREAD < 1 << TICKET_BITS, "a chunk count fits a ticket");

/* Programs, and so functions of the user's, run on the leader, which was started before it got one. */
bool team_is_mine(const struct team *team) { return pthread_equal(pthread_self(), team->threads[0]); }

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

/* Spins, yields, then sleeps on the bell; the thread that makes `ready` true rings it. With RONDO_WAIT_SPIN the leader
 * never sleeps, so no replay needs a system call to wake it. */
static void wait_for(struct team *team, bool (*ready)(void *team), struct bell *bell) {
  bool only_spins = team->wait_mode == RONDO_WAIT_SPIN && bell == &team->leader_bell;
  uint32_t yields = team->wait_mode == RONDO_WAIT_BLOCK ? 0 : YIELDS_BEFORE_SLEEP;
  for (uint32_t steps = 0; !ready(team); steps++) {
    if (only_spins || steps < SPINS_BEFORE_YIELD) {
      cpu_relax();
    } else if (steps < SPINS_BEFORE_YIELD + yields) {
      sched_yield();
    } else {
      bell_sleep(bell, ready, team, NULL);
      steps--;
    }
  }
}

/* What is waited for. */
static bool is_chunk_left(uint64_t ticket) { return (ticket & ticket_mask) < (ticket >> TICKET_BITS & ticket_mask); }

static bool worker_is_wanted(void *argument) {
  const struct team *team = argument;
  return is_chunk_left(atomic_load(&team->ticket)) || atomic_load(&team->stop);
}

static bool is_program_queued(const struct team *team) {
  return atomic_load(&team->queue[team->queue_head % TEAM_QUEUE_LENGTH].sequence) == team->queue_head + 1;
}

static bool leader_is_wanted(void *argument) {
  const struct team *team = argument;
  return is_program_queued(team) || atomic_load(&team->stop);
}

static bool all_chunks_are_done(void *argument) {
  const struct team *team = argument;
  return atomic_load(&team->unfinished_chunks) == 0;
}

/* ---- Sharing a job ----------------------------------------------------------------------------------------------- */

static void run_chunk(const struct team_job *job, uint32_t chunk) {
  int64_t first = job->items * chunk / job->chunks, last = job->items * (chunk + 1) / job->chunks;
  if (first < last) job->call->task->op->host_run(job->call, first, last);
}

/* Takes and runs one chunk of the job in progress; false if there is none left. The load of the ticket acquires what
 * came before the job: the swaps of others since then continue the release sequence of the leader's store. */
static bool help(struct team *team) {
  uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  if (!is_chunk_left(ticket)) return false;
  /* Still the job of this ticket if the swap succeeds: the leader replaces it only when all its chunks are done. */
  const struct team_job *job = atomic_load_explicit(&team->job, memory_order_relaxed);
  if (!atomic_compare_exchange_strong_explicit(&team->ticket, &ticket, ticket + 1, memory_order_relaxed,
                                               memory_order_relaxed))
    return true;
  run_chunk(job, (uint32_t)(ticket & ticket_mask));
  if (atomic_fetch_sub(&team->unfinished_chunks, 1) == 1) bell_ring(&team->leader_bell, 1);
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
  bell_ring(&team->worker_bell, job->chunks - 1);
  while (help(team)) {}
  wait_for(team, all_chunks_are_done, &team->leader_bell);
}

/* ---- The queue --------------------------------------------------------------------------------------------------- */

rondo_status team_push(struct team *team, void *program) {
  uint64_t position = atomic_load_explicit(&team->queue_tail, memory_order_relaxed);
  for (;;) {
    struct team_cell *cell = &team->queue[position % TEAM_QUEUE_LENGTH];
    uint64_t sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
    if (sequence < position)
      return status_set(RONDO_BUSY,
                        "replay: %d replays of the lane are queued, and there can be no more: try again later",
                        TEAM_QUEUE_LENGTH);
    if (sequence == position && atomic_compare_exchange_weak_explicit(&team->queue_tail, &position, position + 1,
                                                                      memory_order_relaxed, memory_order_relaxed)) {
      cell->program = program;
      atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);
      bell_ring(&team->leader_bell, 1);
      return RONDO_OK;
    }
    if (sequence > position) position = atomic_load_explicit(&team->queue_tail, memory_order_relaxed);
  }
}

static void *pop(struct team *team) {
  struct team_cell *cell = &team->queue[team->queue_head % TEAM_QUEUE_LENGTH];
  void *program = cell->program;
  atomic_store_explicit(&cell->sequence, team->queue_head + TEAM_QUEUE_LENGTH, memory_order_release);
  team->queue_head++;
  return program;
}

bool team_has_finished(const struct team *team, uint64_t count) {
  return atomic_load_explicit(&team->finished, memory_order_acquire) >= count;
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void *worker(void *argument) {
  struct team *team = argument;
  own_thread_begin(team->cores);
  while (!atomic_load_explicit(&team->stop, memory_order_relaxed)) {
    while (help(team)) {}
    wait_for(team, worker_is_wanted, &team->worker_bell);
  }
  atomic_fetch_add_explicit(&team->ended_count, 1, memory_order_release);
  return NULL;
}

static void *leader(void *argument) {
  struct team *team = argument;
  own_thread_begin(team->cores);
  for (;;) {
    wait_for(team, leader_is_wanted, &team->leader_bell);
    if (!is_program_queued(team)) break;
    team->program(team, team->owner, pop(team));
    atomic_fetch_add_explicit(&team->finished, 1, memory_order_release);
  }
  atomic_fetch_add_explicit(&team->ended_count, 1, memory_order_release);
  return NULL;
}

static rondo_status start_threads(struct team *team) {
  rondo_status status = RONDO_OK;
  for (uint32_t i = 0; i < team->thread_count && status == RONDO_OK; i++) {
    if (own_thread_start(&team->threads[i], i ? worker : leader, team))
      status = status_set(RONDO_OUT_OF_MEMORY, "open: thread %u of %u could not be started", i + 1, team->thread_count);
    else
      team->started_count++;
  }
  return status;
}

static size_t queue_bytes(void) { return TEAM_QUEUE_LENGTH * sizeof(struct team_cell); }

rondo_status team_start(struct team *team, const rondo_allocator *allocator, const struct cores *cores,
                        uint32_t thread_count, rondo_wait_mode wait_mode, team_program program, void *owner) {
  memset(team, 0, sizeof *team);
  team->cores = cores;
  team->wait_mode = wait_mode;
  team->thread_count = thread_count;
  team->program = program;
  team->owner = owner;
  team->queue = allocator->allocate(allocator->user, queue_bytes(), 64);
  team->threads = allocator->allocate(allocator->user, thread_count * sizeof(pthread_t), 64);
  rondo_status status = RONDO_OK;
  if (!team->queue || !team->threads)
    status = status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no memory for a team of %u thread%s",
                        thread_count, PLURAL(thread_count));
  for (uint64_t i = 0; i < TEAM_QUEUE_LENGTH && status == RONDO_OK; i++) atomic_init(&team->queue[i].sequence, i);
  if (status == RONDO_OK) status = start_threads(team);
  if (status != RONDO_OK) teams_stop(team, 1, allocator, RONDO_FOREVER);
  return status;
}

/* Have all threads ended, after a wait of timeout_ns at most? */
static bool have_ended(const struct team *teams, uint32_t count, uint64_t timeout_ns) {
  uint32_t ended = 0;
  for (uint64_t waited_ns = 0;; waited_ns += END_POLL_NS) {
    while (ended < count &&
           atomic_load_explicit(&teams[ended].ended_count, memory_order_acquire) == teams[ended].started_count)
      ended++;
    if (ended == count) return true;
    if (waited_ns >= timeout_ns) return false;
    nanosleep(&(struct timespec){.tv_nsec = END_POLL_NS}, NULL);
  }
}

bool teams_stop(struct team *teams, uint32_t count, const rondo_allocator *allocator, uint64_t timeout_ns) {
  for (struct team *team = teams; team < teams + count; team++) {
    atomic_store(&team->stop, true);
    bell_ring(&team->leader_bell, 1);
    bell_ring(&team->worker_bell, team->thread_count);
  }
  bool will_end = timeout_ns == RONDO_FOREVER || have_ended(teams, count, timeout_ns);
  for (struct team *team = teams; team < teams + count; team++)
    for (uint32_t i = 0; i < team->started_count; i++)
      will_end ? pthread_join(team->threads[i], NULL) : pthread_detach(team->threads[i]);
  if (!will_end) return false;
  for (struct team *team = teams; team < teams + count; team++) {
    if (team->queue) allocator->release(allocator->user, team->queue, queue_bytes());
    if (team->threads) allocator->release(allocator->user, team->threads, team->thread_count * sizeof(pthread_t));
  }
  return true;
}
