/* patience.h - should a thread that waits for the same replay again and again spin or rest (waiting.h)? A rest costs
 * the time in which a sleeper wakes up. A spin takes a core that the work may need. The dearer way depends on the work,
 * the cores and the load. So waits try both ways, and keep the faster one for a while. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
  PATIENCE_WARM = 3,  /* waits of each way at the start of a trial that do not count: caches and threads adapt */
  PATIENCE_TRIES = 5, /* waits of each way after these: their median counts */
  PATIENCE_TURN = PATIENCE_WARM + PATIENCE_TRIES,
  PATIENCE_KEPT_LEAST = 64, /* waits until the next trial; twice as many after each trial with the same result */
  PATIENCE_KEPT_MOST = 4096,
  PATIENCE_OFF = 3,               /* waits in a row far from the trial's median: then there is a new trial */
  PATIENCE_SHORT_NS = 2 * 1000,   /* a shorter wait costs less than a system call, and never rests */
  PATIENCE_LONG_NS = 1000 * 1000, /* a longer wait loses little by a rest: it spins for PATIENCE_FIRST_NS at most */
  PATIENCE_FIRST_NS = 100 * 1000  /* the longest spin before anything is known */
};

/* Zero at first. If several threads wait, their updates may mix, and some may be lost. */
struct patience {
  _Atomic uint64_t tries_ns[2][PATIENCE_TRIES]; /* of the last trial: spins, rests */
  _Atomic uint32_t waits;                       /* since the trial began */
  _Atomic uint32_t kept;                        /* 0: there was none */
  _Atomic uint32_t rests;                       /* which way is kept */
  _Atomic uint32_t off;
  _Atomic uint64_t before_ns; /* sum of the waits for this replay that ended at their time limit */
};

/* How long the next wait is to spin before it rests. */
uint64_t patience_spin_ns(const struct patience *patience);
/* The wait has ended with its replay. */
void patience_learn(struct patience *patience, uint64_t waited_ns);
/* The wait has ended at its time limit: the next one continues it. */
void patience_end_early(struct patience *patience, uint64_t waited_ns);
