/* shapes.h - graphs of tiny copies that are wide, long or both. The work of cuGraphLaunch depends on how many nodes
 * begin a graph, end it and lie side by side. */
#pragma once

#include <stdint.h>

#include <rondo.h>

enum shape_kind {
  SHAPE_BESIDE,  /* `width` tasks that have nothing to do with each other */
  SHAPE_BETWEEN, /* the same after one task and before another */
  SHAPE_CHAINS,  /* `width` chains of ten */
  SHAPE_KINDS
};

struct shape {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
};

/* "8 tasks side by side" */
void shape_name(char *text, size_t bytes, enum shape_kind kind, uint32_t width);

/* Instantiated in the runtime, with its slot. */
rondo_status shape_open(struct shape *shape, rondo_runtime *runtime, enum shape_kind kind, uint32_t width);
rondo_status shape_replay(const struct shape *shape, uint64_t count);
rondo_status shape_close(struct shape *shape);
