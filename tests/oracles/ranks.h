/* ranks.h - the ranks of a group under test: for each a runtime, an exec that lends the state of its exchanges, and a
 * graph with exchanges. On the CUDA backend rank r has device r, counted over as many as there are. */
#pragma once

#include "../support.h"

struct ranks {
  rondo_backend backend;
  uint32_t count;
  rondo_runtime *runtimes[RONDO_MAX_RANKS];
  struct trial lenders[RONDO_MAX_RANKS]; /* without slots */
  struct trial trials[RONDO_MAX_RANKS];  /* without runtimes of their own */
  rondo_tensor exchange[RONDO_MAX_RANKS];
};

/* Empty graphs, and states for exchanges of up to `bytes` bytes. */
void ranks_describe(struct ranks *ranks, rondo_backend backend, uint32_t count, uint64_t bytes);
/* Pools of exactly the planned size, one slot each. */
void ranks_instantiate(struct ranks *ranks);
/* Replays all ranks and waits. */
void ranks_replay(struct ranks *ranks);
/* The same, one rank after the other in a random order, with pauses. */
void ranks_replay_apart(struct ranks *ranks, struct random *random);
/* In three of four rounds all at once, in the fourth apart. */
void ranks_replay_round(struct ranks *ranks, uint32_t round, struct random *random);
void ranks_end(struct ranks *ranks);
/* In place of ranks_end, without execs, or if their device is lost and the process ends: destroys the graphs. */
void ranks_abandon(struct ranks *ranks);
