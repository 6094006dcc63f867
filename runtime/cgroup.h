/* cgroup.h - the control groups of this process (cgroups(7)) and their limits on memory and processor time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CGROUP_PATH_BYTES = 1024 };

struct cgroup {
  char folder[CGROUP_PATH_BYTES];
  size_t outermost; /* length of the outermost group's folder that is seen here */
};

/* The process's own group of a controller, such as "cpu": of version 1, or, with NULL, of version 2, which has one for
 * all controllers. False: there is none, or no /proc to tell. `root` is before all paths, "" but in tests. */
bool cgroup_find(struct cgroup *group, const char *root, const char *controller);
/* The group around it, whose limits hold for it too. False: it was the outermost. */
bool cgroup_leave(struct cgroup *group);
/* The first line of a file of the group's, without its end. False: there is no such file. */
bool cgroup_read(const struct cgroup *group, const char *file, char *line, size_t bytes);
/* The number that it begins with. False: there is no such file, or no number, as of "max". */
bool cgroup_number(const struct cgroup *group, const char *file, int64_t *number);

/* The number of a file's line "NAME NUMBER" or "NAME: NUMBER", as memory.stat and /proc/meminfo have them. False: there
 * is none. */
bool cgroup_field(const char *path, const char *name, uint64_t *number);
