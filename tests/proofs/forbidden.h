/* forbidden.h - traps for what Rondo must not do once an exec is instantiated: carve from a pool or give back to it,
 * and ask the driver for anything but what a replay is made of. The program is linked so that Rondo's calls come here
 * first (--wrap in build/programs.ninja) and go on from here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From here on calls count, on all threads. Forgets what was counted before. */
void forbidden_count(void);
/* No longer. The number of calls that no replay makes. */
uint64_t forbidden_stop(void);
/* "pool_carve 3, cuMemAlloc 1": what was counted of those. */
void forbidden_describe(char *text, size_t bytes);
/* Of the calls that a replay does make: its one launch. */
uint64_t forbidden_launches(void);

/* Of how many kinds they are. */
int forbidden_kinds(bool is_cuda);

/* Springs each trap on purpose, before a driver is loaded. NULL if all noticed, else the name of one that did not. */
const char *forbidden_unseen(void);
/* Are the traps in Rondo's way? NULL if the main calls of opening, instantiating, rebinding and closing an exec were
 * counted, else the name of what was not. */
const char *forbidden_missed(bool is_cuda);
