/* filling.h - ordinary memory copied piece by piece into pinned memory, by the thread that uploads and a few that help
 * it. Who uploads adds pieces, in order, fills some itself and sees which are filled; where they lie and what becomes
 * of them is its own affair. One thread at a time.
 *
 * Helpers start as bytes come and end by themselves a moment after the last upload: a model is hundreds of uploads, one
 * right behind the other, and to start eight threads takes 0.16 ms, in which the bus moves 9 MB. */
#ifndef RONDO_FILLING_H
#define RONDO_FILLING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cores.h"

enum { PLACES = 1024, HELPERS_MOST = 8 };

enum helper_state { HELPER_NONE, HELPER_WORKS, HELPER_HAS_LEFT /* and is to be joined */ };
struct helper {
  struct filling *filling;
  pthread_t thread;
  atomic_int state;
};

/* What piece i is stands at place i % PLACES. */
struct place {
  const unsigned char *source;
  unsigned char *memory;
  uint64_t bytes, zeros;   /* of the source, and behind them */
  _Atomic uint64_t filled; /* its last piece, plus one */
};

/* All zeros at first, but for the cores. */
struct filling {
  struct cores cores; /* where helpers run */
  struct helper helpers[HELPERS_MOST];
  uint32_t helpers_wanted, helpers_seen; /* by this upload, and of those that it has looked for */
  uint64_t burst_bytes, ended_ns;        /* of uploads one right behind the other */
  atomic_bool is_uploading;
  _Alignas(64) _Atomic uint64_t added;
  _Alignas(64) _Atomic uint64_t claimed; /* pieces that somebody fills or has filled */
  _Alignas(64) struct place places[PLACES];
};

/* Around an upload of so many bytes. */
void filling_begin(struct filling *filling, uint64_t bytes);
void filling_end(struct filling *filling);
/* Starts one more helper if so many bytes can do with it; false: there are enough. */
bool filling_recruit(struct filling *filling);

/* The next piece. Its place is free: no more than PLACES are in use. */
void filling_add(struct filling *filling, const struct place *piece);
/* The first pieces that nobody has begun: one of few, several of many. False: there is none. */
bool filling_fill_some(struct filling *filling);
bool filling_is_filled(const struct filling *filling, uint64_t piece);
/* Where there is nothing to do, for the `idle`th time in a row: the bus may be slow. */
void filling_rest(uint32_t idle);

/* Until the helpers have ended. */
void filling_close(struct filling *filling);

#endif
