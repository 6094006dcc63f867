/* counted_ranks.h - replays of several ranks in one process, for the proofs that they ask for nothing. */
#pragma once

#include "proof.h"

/* Replays all ranks so often; RONDO_INTERNAL if a result is wrong. */
typedef rondo_status ranks_replay(uint64_t count);

/* Replays at most `count` times, and no longer than SYSTEM_CALL_SECONDS: on a busy core threads that spin take a time
 * slice a replay. Returns how often it has. Ends the proof if a replay fails. */
uint64_t ranks_replay_for(const struct proof *proof, ranks_replay *replay, uint64_t count, const char *what);

/* What was counted: replays, and allocations by threads that are not Rondo's. */
struct counted_ranks {
  uint64_t replays, foreign;
};

/* Ends the proof if replays of the ranks allocate, or ask a pool or the driver for anything but a launch of each rank.
 */
struct counted_ranks ranks_count(const struct proof *proof, ranks_replay *replay, uint32_t ranks);
