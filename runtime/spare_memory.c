/* spare_memory.c - see spare_memory.h. */
#include "spare_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cgroup.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { PATH_BYTES = 256, PAGES_A_LOOK = 4096 };

/* ---- What there is ----------------------------------------------------------------------------------------------- */

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static uint64_t machine_bytes(const char *root, uint64_t *swap_bytes) {
  char path[PATH_BYTES];
  struct sysinfo info;
  uint64_t available = 0;
  *swap_bytes = 0;
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (cgroup_field(path, "MemAvailable", &available)) { /* Linux 3.14 */
    if (cgroup_field(path, "SwapFree", swap_bytes)) *swap_bytes *= 1024;
    return available * 1024 + *swap_bytes;
  }
  if (sysinfo(&info) != 0) return UINT64_MAX;
  *swap_bytes = (uint64_t)info.totalswap * info.mem_unit;
  return (uint64_t)info.totalram * info.mem_unit + *swap_bytes;
}

/* The two versions of control groups, of which a system has one for memory, or neither. The first limits memory and
 * swap together, the second swap by itself. */
static const struct version {
  const char *controller, *limit, *use;
  const char *swap_limit, *swap_use;
  bool swap_has_memory;
  const char *reclaimed[3]; /* in memory.stat: what goes when memory is wanted */
} versions[] = {{NULL,
                 "memory.max",
                 "memory.current",
                 "memory.swap.max",
                 "memory.swap.current",
                 false,
                 {"inactive_file", "active_file", "slab_reclaimable"}},
                {"memory",
                 "memory.limit_in_bytes",
                 "memory.usage_in_bytes",
                 "memory.memsw.limit_in_bytes",
                 "memory.memsw.usage_in_bytes",
                 true,
                 {"total_inactive_file", "total_active_file", "total_slab"}}};

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t reclaimed_bytes(const struct cgroup *group, const struct version *version) {
  char path[CGROUP_PATH_BYTES + 64];
  uint64_t reclaimed = 0;
  snprintf(path, sizeof path, "%s/memory.stat", group->folder);
  for (size_t i = 0; i < sizeof version->reclaimed / sizeof *version->reclaimed; i++) {
    uint64_t bytes = 0;
    if (cgroup_field(path, version->reclaimed[i], &bytes)) reclaimed = sum(reclaimed, bytes);
  }
  return reclaimed;
}

/* What a limit leaves; UINT64_MAX if there is none. */
static uint64_t left_bytes(const struct cgroup *group, const char *limit_file, const char *use_file,
                           uint64_t reclaimed) {
  int64_t limit = 0, use = 0;
  if (!cgroup_number(group, limit_file, &limit) || !cgroup_number(group, use_file, &use) || limit < 0)
    return UINT64_MAX;
  return smaller(sum(limit > use ? (uint64_t)(limit - use) : 0, reclaimed), (uint64_t)limit);
}

/* What a group has left, where the machine has so much swap; UINT64_MAX if it has no limit. */
static uint64_t group_bytes(const struct cgroup *group, const struct version *version, uint64_t swap_bytes) {
  uint64_t reclaimed = reclaimed_bytes(group, version);
  uint64_t memory = left_bytes(group, version->limit, version->use, reclaimed);
  uint64_t swap = left_bytes(group, version->swap_limit, version->swap_use, version->swap_has_memory ? reclaimed : 0);
  return version->swap_has_memory ? smaller(sum(memory, swap_bytes), swap) : sum(memory, smaller(swap, swap_bytes));
}

struct spare_memory spare_memory_under(const char *root, bool has_swap) {
  uint64_t swap_bytes;
  struct spare_memory spare = {machine_bytes(root, &swap_bytes), "the machine"};
  if (!has_swap) spare.bytes -= swap_bytes, swap_bytes = 0;
  for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
    struct cgroup group;
    if (!cgroup_find(&group, root, versions[v].controller)) continue;
    do {
      uint64_t bytes = group_bytes(&group, &versions[v], swap_bytes);
      if (bytes < spare.bytes) spare = (struct spare_memory){bytes, "the control group"};
    } while (cgroup_leave(&group));
  }
  return spare;
}

static rondo_status compare(struct spare_memory spare, uint64_t bytes, const char *purpose) {
  if (bytes <= spare.bytes) return RONDO_OK;
  return status_set(RONDO_OUT_OF_MEMORY, "%s: %" PRIu64 " bytes are needed, but %s has %" PRIu64 " to spare", purpose,
                    bytes, spare.whose, spare.bytes);
}

rondo_status spare_memory_check(uint64_t bytes, const char *purpose) {
  return compare(spare_memory_under("", true), bytes, purpose);
}

rondo_status spare_memory_check_pinned(uint64_t bytes, const char *purpose) {
  return compare(spare_memory_under("", false), bytes, purpose);
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

/* In pages that are not there yet; not much more than `enough`. */
static uint64_t lacking_bytes(unsigned char *begin, uint64_t bytes, uint64_t page_bytes, uint64_t enough) {
  uint64_t lacking = 0;
  for (uint64_t at = 0; at < bytes && lacking <= enough; at += PAGES_A_LOOK * page_bytes) {
    unsigned char is_there[PAGES_A_LOOK];
    uint64_t rest = bytes - at, some = rest < PAGES_A_LOOK * page_bytes ? rest : PAGES_A_LOOK * page_bytes;
    if (mincore(begin + at, some, is_there) != 0) return lacking + page_bytes; /* not known: some may be lacking */
    for (uint64_t i = 0; i * page_bytes < some; i++) lacking += is_there[i] & 1 ? 0 : page_bytes;
  }
  return lacking;
}

/* By the kernel, or by an addition of nothing to a byte of each page, which no other access can come between. */
static void populate(unsigned char *begin, uint64_t bytes, uint64_t page_bytes) {
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (uint64_t at = 0; at < bytes; at += page_bytes) __atomic_fetch_add(begin + at, 0, __ATOMIC_RELAXED);
}

rondo_status spare_memory_settle(void *memory, uint64_t bytes, bool checks, const char *purpose) {
  uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
  if (!bytes) return RONDO_OK;
  /* Whole pages: those at the edges are the allocator's or another extent's too, and there. */
  unsigned char *begin = (unsigned char *)memory - (uintptr_t)memory % page_bytes;
  uint64_t whole = ((uintptr_t)memory + bytes - (uintptr_t)begin + page_bytes - 1) / page_bytes * page_bytes;
  struct spare_memory spare = checks ? spare_memory_under("", true) : (struct spare_memory){UINT64_MAX, ""};
  uint64_t lacking = lacking_bytes(begin, whole, page_bytes, spare.bytes);
  rondo_status status = compare(spare, lacking, purpose);
  if (status == RONDO_OK && lacking) populate(begin, whole, page_bytes);
  return status;
}
