/* random_task.h - tasks of random sizes, types, layouts and options, one of each kind. */
#pragma once

#include "../support.h"

/* Adds a task of this kind to the graph. Most are right; some have a size or a combination that rondo_add_* refuses. */
struct random_task {
  const char *name;
  rondo_status (*add)(rondo_graph *graph, struct random *random);
};
extern const struct random_task random_tasks[];
extern const size_t random_task_count;
