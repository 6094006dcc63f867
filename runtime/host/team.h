/* team.h - a fixed team of threads, one for each lane of the host backend: a leader that takes queued programs one
 * after the other, and workers that share the items of one task at a time. */
#pragma once

#include <pthread.h>

#include "../cores.h"
#include "../device.h"
#include "bell.h"

enum { TEAM_QUEUE_LENGTH = 4096, TEAM_MAX_THREADS = 1024 };

/* What the leader runs for one queued entry. */
struct team;
typedef void (*team_program)(struct team *team, void *owner, void *program);

/* A task whose items may be computed side by side, in `chunks` runs of items. */
struct team_job {
  const struct op_call *call;
  int64_t items;
  uint32_t chunks;
};

struct team {
  const struct cores *cores;
  rondo_wait_mode wait_mode;
  uint32_t thread_count;
  uint32_t started_count; /* less only where not all could be started */
  team_program program;
  void *owner;
  pthread_t *threads;
  /* Bounded queue of programs; any thread may push, the leader pops. A cell is full when sequence == position + 1. */
  struct team_cell {
    _Atomic uint64_t sequence;
    void *program;
  } * queue;
  _Alignas(128) _Atomic uint64_t queue_tail;
  _Alignas(128) uint64_t queue_head;
  _Atomic uint64_t finished; /* programs run to their end */
  /* The job in progress. ticket = generation | chunk count | next chunk: taking a chunk is one compare-and-swap, which
   * fails if the leader has moved on, so a worker that slept through a job delays no one. */
  _Alignas(128) _Atomic uint64_t ticket;
  _Atomic(const struct team_job *) job;
  _Alignas(128) _Atomic uint32_t unfinished_chunks;
  _Atomic uint32_t ended_count; /* threads that will touch nothing any more */
  _Atomic bool stop;
  struct bell leader_bell, worker_bell;
};

/* On these cores, which are read until the threads have begun; NULL: where they are started. */
rondo_status team_start(struct team *team, const rondo_allocator *allocator, const struct cores *cores,
                        uint32_t thread_count, rondo_wait_mode wait_mode, team_program program, void *owner);
/* Ends the threads of `count` teams once their queues are empty, and gives back the teams' memory. False, and nothing
 * of any team is given back, if that takes longer than timeout_ns: all the threads are left to themselves, since those
 * of one team may push to another. */
bool teams_stop(struct team *teams, uint32_t count, const rondo_allocator *allocator, uint64_t timeout_ns);
/* RONDO_BUSY if TEAM_QUEUE_LENGTH programs are queued. */
rondo_status team_push(struct team *team, void *program);
/* Have the first `count` programs pushed run to their end? What they wrote is then visible. */
bool team_has_finished(const struct team *team, uint64_t count);
/* Leader only: runs all items of a job and returns when they are done. */
void team_run(struct team *team, const struct team_job *job);
uint32_t team_chunks(const struct team *team, int64_t items);
/* Is the calling thread one of the team's, and so inside one of its programs? */
bool team_is_mine(const struct team *team);
