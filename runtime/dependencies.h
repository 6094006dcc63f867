/* dependencies.h - the tasks that each task must follow, inferred from the rectangles that tasks read and write. */
#pragma once

#include "graph.h"

/* Units are the tasks, then the joins. A join does nothing. If many tasks wait for the same many others, they wait for
 * one join instead, and the join waits for the others. So edges grow with the tasks, not with the pairs of tasks. */
struct dependencies {
  uint32_t task_count, join_count;
  uint32_t *begin;        /* of a unit's predecessors below; task_count + join_count + 1 */
  uint32_t *predecessors; /* each once; some are implied by others */
  uint32_t *join_task;    /* by join: the first task that waits for it; all that it waits for come before that one */
  bool is_checked;        /* all that is read has been written */
};

/* Infers once and keeps the answer in the graph. Errors: out of memory and, where a check is asked for, an element that
 * is read, or is part of an output, and that no task writes before. */
rondo_status dependencies_of(rondo_graph *graph, bool check, const struct dependencies **dependencies);
/* The most host memory that was in use while they were inferred. They have been inferred. */
uint64_t dependencies_most_bytes(const rondo_graph *graph);

/* Must `first` come before `second`, through inferred dependencies and what rondo_after has said? */
rondo_status dependencies_reach(rondo_graph *graph, uint32_t first, uint32_t second, bool *reached);
