/* spare_memory.h - the memory that a process can still get: of the machine, and of the control groups of a container or
 * a service. A system that overcommits promises a pool beyond it, and ends the process that then uses the pool. */
#pragma once

#include <stdbool.h>

#include "status.h"

struct spare_memory {
  uint64_t bytes;    /* UINT64_MAX if not known */
  const char *whose; /* "the machine" or "the control group" */
};

/* As the files below root say, "" for those of the system. What the kernel would give up counts: caches, and where
 * has_swap says so what it could swap. Without /proc: all that the machine has. */
struct spare_memory spare_memory_under(const char *root, bool has_swap);

/* RONDO_OUT_OF_MEMORY unless there are these bytes; the text begins with the purpose. */
rondo_status spare_memory_check(uint64_t bytes, const char *purpose);
/* The same of memory that cannot be swapped. */
rondo_status spare_memory_check_pinned(uint64_t bytes, const char *purpose);

/* Has every page of what was allocated now, and not when it is first written to: a replay is then free of page faults.
 * Leaves the content as it is, also where others use it meanwhile. Where pages may be lacking, `checks` says that those
 * that are to come are compared with what there is. */
rondo_status spare_memory_settle(void *memory, uint64_t bytes, bool checks, const char *purpose);
