/* patience.h - whether whoever waits again and again for replays of one kind better spins or rests (waiting.h). To rest
 * costs the time until a sleeper runs again; to spin takes a core that the work may need. Which costs more depends on
 * the work, on the cores, and on what else runs on them. So both are tried, and what was sooner is kept for a while. */
#ifndef RONDO_PATIENCE_H
#define RONDO_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

enum {
  PATIENCE_WARM = 3,  /* first waits of a trial of each way, which do not count: caches and threads get used to it */
  PATIENCE_TRIES = 5, /* the others: their median counts */
  PATIENCE_TURN = PATIENCE_WARM + PATIENCE_TRIES,
  PATIENCE_KEPT_LEAST = 64, /* waits until both are tried again; twice as many each time that the same way is sooner */
  PATIENCE_KEPT_MOST = 4096,
  PATIENCE_OFF = 3, /* waits in a row that take far more or less than those of the trial: it is made again */
  PATIENCE_SHORT_NS = 2 * 1000,   /* less than a system call: nobody rests */
  PATIENCE_LONG_NS = 1000 * 1000, /* more than forty wakes: nobody spins */
  PATIENCE_FIRST_NS = 100 * 1000  /* as long as that, while nothing is known */
};

/* All zeros at first. Waits of several threads may mix, and are lost here now and then. */
struct patience {
  _Atomic uint64_t tries_ns[2][PATIENCE_TRIES]; /* waits that spun, and that rested */
  _Atomic uint32_t waits;                       /* since the trial began */
  _Atomic uint32_t kept;                        /* 0: there was none */
  _Atomic uint32_t rests;                       /* which way is kept */
  _Atomic uint32_t off;
  _Atomic uint64_t before_ns; /* what waits that ended too soon have taken already */
};

/* How long the next wait spins before it rests. */
uint64_t patience_spin_ns(const struct patience *patience);
/* How long it took. */
void patience_learn(struct patience *patience, uint64_t waited_ns);
/* The wait ended before what it was for: the next one goes on with it. */
void patience_end_early(struct patience *patience, uint64_t waited_ns);

#endif
