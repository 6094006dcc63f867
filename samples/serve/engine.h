/* engine.h - the replaying thread. It owns the execs and the pages, and only replays: after the start it allocates
 * nothing and makes no system call, but to sleep and to wake the HTTP thread where that sleeps. */
#pragma once

#include <pthread.h>

#include "batch_model.h"
#include "metrics.h"
#include "pages.h"
#include "request.h"

enum { ENGINE_TEXT_BYTES = 512 };

struct engine_options {
  int32_t requests; /* records: those that run, wait, or are still written to their clients */
  const bool *ends; /* of each token: does it end an answer? Lives as long as the engine */
  bool spins;       /* also when there is nothing to do */
};

/* A sequence of the model that has a request. */
struct sequence {
  struct request *request; /* NULL: none */
  struct model_row row;    /* row.position: tokens in the caches */
  int32_t *pages;          /* room for the context */
  uint64_t answered_ns;    /* the time of the newest token */
};

struct engine {
  struct model *model;
  struct pages pages;
  struct engine_options options;
  pthread_t thread;

  _Atomic(struct request *) submitted; /* by the HTTP thread, the newest first: `before` is the next */
  int wake;                            /* an eventfd: the engine sleeps in it */
  atomic_bool asleep, stopping;

  int news; /* an eventfd for the HTTP thread, written only if news_wanted */
  atomic_bool news_wanted;
  atomic_ulong news_count; /* grows with each step that answered or ended a request */

  atomic_bool lost; /* the device; lost_text is set before */
  char lost_text[ENGINE_TEXT_BYTES];
  struct engine_metrics metrics;

  /* Of the replaying thread alone. */
  struct request **waiting; /* in order of arrival */
  int32_t waiting_count;
  struct sequence sequences[SEQUENCES_MOST];
  int32_t *page_lists;                   /* of all sequences */
  struct model_row rows[SEQUENCES_MOST]; /* of a decode step, and whose they are */
  int32_t row_owners[SEQUENCES_MOST];
  uint64_t news_told;       /* the news_count that was last written to the file */
  struct llama_step *chunk; /* the prefill in flight; NULL: none */
  int32_t chunk_owner, chunk_tokens, chunk_kind, chunk_lane;
  int32_t chunk_free; /* the longest kind that takes hardly longer than the shortest */
  uint64_t chunk_begun_ns, chunk_ns[2][MODEL_CHUNKS_MOST], decode_ns; /* smoothed times of steps, chunks' by lane */
};

/* Ends the program with a sentence if there is no memory or no thread. */
void engine_start(struct engine *engine, struct model *model, const struct engine_options *options);
/* Cancels what still runs, and waits for the thread; not after a lost device, whose replays may never end. False if one
 * has not ended for 5 s: nothing can be closed then. */
bool engine_stop(struct engine *engine);

/* For the HTTP thread. At most as many requests as there are records are submitted and have not ended. */
void engine_submit(struct engine *engine, struct request *request);

/* The parts of engine_start and engine_stop, for tests: engine_open starts no thread, and engine_close waits for none.
 * The thread only calls engine_round until that is false: it was stopped, or the device is lost. */
void engine_open(struct engine *engine, struct model *model, const struct engine_options *options);
bool engine_round(struct engine *engine);
void engine_close(struct engine *engine);
