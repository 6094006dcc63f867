/* cores.h - the processor cores for a runtime's threads, and how many of these threads can be busy all the time. Both
 * are found at open.
 *
 * The cores are those of the thread that opens the runtime. A single core means that this thread is pinned, as a
 * replaying thread should be, which says nothing of the process. Then the main thread's cores count. If these are a
 * single core too, the cores of the process at the load of the library count, if they were more. */
#pragma once

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
