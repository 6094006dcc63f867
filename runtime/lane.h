/* lane.h - lanes: the wishes of rondo_open, what each lane was given, and the arena that its execs share. */
#pragma once

#include "runtime.h"

/* The errors that do not depend on the backend. */
rondo_status lanes_check(const rondo_options *options);

/* For a backend's open: writes the lanes' names and wishes into a cleared info, or one lane without wishes. */
void lanes_describe(const rondo_options *options, struct device_info *info);

/* Carves the arenas that lanes keep, once the pools exist. */
rondo_status lanes_reserve(rondo_runtime *runtime);

/* Replays of a lane follow each other, so its execs share the memory of their temporaries, the arena. Each exec's part
 * ends where the arena ends. The arena grows at its other end, and shrinks to the largest exec of the lane or to the
 * bytes that the lane keeps. The group's lock is held. */
rondo_status arena_take(rondo_runtime *runtime, uint32_t lane, uint64_t bytes);
/* The bytes that it would still take of the pool. */
uint64_t arena_growth(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes);
void arena_give(rondo_runtime *runtime, uint32_t lane);
unsigned char *arena_memory(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes);

rondo_status lane_exists(const rondo_runtime *runtime, uint32_t lane, const char *phase);
