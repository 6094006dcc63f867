/* cores.c - see cores.h. */
#include "cores.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "cgroup.h"

/* ---- Affinity ---------------------------------------------------------------------------------------------------- */

/* Written once, by the loader. */
static struct cores at_load;

static void affinity_of(pid_t thread, struct cores *cores) {
  cores->count = 0;
  if (sched_getaffinity(thread, sizeof cores->set, cores->set)) return;
  cores->count = (uint32_t)CPU_COUNT_S(sizeof cores->set, cores->set);
}

__attribute__((constructor)) static void note_cores(void) { affinity_of(0, &at_load); }

const struct cores *cores_choose(const struct cores *caller, const struct cores *main_thread,
                                 const struct cores *loaded) {
  if (caller->count > 1) return caller;
  if (main_thread->count > 1) return main_thread;
  return loaded->count > 1 ? loaded : caller;
}

void cores_find(struct cores *cores) {
  struct cores caller, main_thread;
  affinity_of(0, &caller);
  affinity_of(getpid(), &main_thread);
  *cores = *cores_choose(&caller, &main_thread, &at_load);
  cores->quota = cores_quota("");
}

uint32_t cores_threads(const struct cores *cores) {
  uint32_t count = cores->count ? cores->count : 1;
  return cores->quota && cores->quota < count ? cores->quota : count;
}

/* ---- Quota ------------------------------------------------------------------------------------------------------- */

/* Microseconds of processors' time in a period. */
struct bandwidth {
  int64_t quota, period;
};

/* "max 100000" is no limit, and is not read; neither is a quota of -1. */
static bool read_bandwidth(const struct cgroup *group, bool is_version_2, struct bandwidth *bandwidth) {
  char line[64];
  if (is_version_2)
    return cgroup_read(group, "cpu.max", line, sizeof line) &&
           sscanf(line, "%" SCNd64 " %" SCNd64, &bandwidth->quota, &bandwidth->period) == 2;
  return cgroup_number(group, "cpu.cfs_quota_us", &bandwidth->quota) &&
         cgroup_number(group, "cpu.cfs_period_us", &bandwidth->period);
}

/* Rounded down: one thread more would be stopped for a part of each period, and the others would wait for it. */
static uint32_t quota_of(const char *root, const char *controller) {
  struct cgroup group;
  uint32_t least = 0;
  if (!cgroup_find(&group, root, controller)) return 0;
  do {
    struct bandwidth bandwidth;
    if (!read_bandwidth(&group, !controller, &bandwidth) || bandwidth.quota <= 0 || bandwidth.period <= 0) continue;
    int64_t processors = bandwidth.quota / bandwidth.period;
    if (processors < 1) processors = 1;
    if (processors < UINT32_MAX && (!least || (uint32_t)processors < least)) least = (uint32_t)processors;
  } while (cgroup_leave(&group));
  return least;
}

uint32_t cores_quota(const char *root) {
  uint32_t version_1 = quota_of(root, "cpu"), version_2 = quota_of(root, NULL);
  return version_1 && (!version_2 || version_1 < version_2) ? version_1 : version_2;
}
