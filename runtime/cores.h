/* cores.h - where the threads of a runtime run, and how many of them can be busy all the time: found when it is opened.
 *
 * The cores are those of the thread that opens it. One core alone says that this thread is pinned, as the thread that
 * replays should be, and nothing of the process: then they are the main thread's, and where that has one alone too,
 * those that the process had when the library was loaded, if they were more. */
#ifndef RONDO_CORES_H
#define RONDO_CORES_H

#include <sched.h>
#include <stdint.h>

enum { CORES_SETS = 8 }; /* 8192 cores, as many as Linux can be built for */

struct cores {
  cpu_set_t set[CORES_SETS];
  uint32_t count; /* in the set; 0: unknown, and nothing is done about it */
  uint32_t quota; /* processors that the control groups of the process let it use, rounded down; 0: there is no limit */
};

void cores_find(struct cores *cores);
/* The choice of three, by their counts. */
const struct cores *cores_choose(const struct cores *caller, const struct cores *main_thread,
                                 const struct cores *loaded);
/* As many threads as can be busy all the time; at least 1. */
uint32_t cores_threads(const struct cores *cores);
/* The quota; `root` is before all paths, "" but in tests. */
uint32_t cores_quota(const char *root);

#endif
