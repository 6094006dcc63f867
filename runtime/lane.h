/* lane.h - see lane.c. */
#ifndef RONDO_LANE_H
#define RONDO_LANE_H

#include "runtime.h"

/* What any backend refuses. */
rondo_status lanes_check(const rondo_options *options);

/* For a backend's open: the lanes' names and wishes into a cleared info, or one lane without any. */
void lanes_describe(const rondo_options *options, struct device_info *info);

/* The arenas that lanes keep, once the pools are there. */
rondo_status lanes_reserve(rondo_runtime *runtime);

/* Execs of a lane follow each other, so they share the memory of their temporaries, which ends where the arena ends: it
 * grows at its other end, and shrinks to what the largest of the runtime's execs in the lane has, or to what the lane
 * keeps. The runtime's lock is held. */
rondo_status arena_take(rondo_runtime *runtime, uint32_t lane, uint64_t bytes);
/* What it would take of the pool besides. */
uint64_t arena_growth(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes);
void arena_give(rondo_runtime *runtime, uint32_t lane);
unsigned char *arena_memory(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes);

rondo_status lane_exists(const rondo_runtime *runtime, uint32_t lane, const char *phase);

#endif
