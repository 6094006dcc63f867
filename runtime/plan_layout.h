/* plan_layout.h - the offset of each tensor: constants and states one after the other in the exec's own memory, inputs
 * and outputs in a slot's pinned extent, temporaries and scratch in the arena, where buffers may share bytes. */
#pragma once

#include "lifetimes.h"
#include "plan.h"

struct layout {
  uint32_t *buffer_of_tensor;
  struct lifetimes lifetimes; /* its rows are free to be used before layout_find */
  uint64_t *bytes, *offsets;  /* by buffer, as all below */
  uint32_t *first, *last;
  uint64_t *keys;
  uint32_t *by_key;
  uint64_t *conflicts; /* of all buffers, unless there are too many */
  void *placing;
};

/* The number of tasks with a buffer of scratch. */
uint32_t layout_scratch_count(const rondo_graph *graph);

void layout_cut(struct layout *layout, struct cutter *cutter, uint32_t node_count, uint32_t tensor_count,
                uint32_t buffer_count, uint64_t access_count);

/* Fills the plan's offsets, buffers and bytes. The plan has its nodes and allocations; `edges` are those between the
 * nodes. */
void layout_find(struct layout *layout, const rondo_graph *graph, const struct reach_graph *edges,
                 const uint32_t *node_of_task, struct plan *plan);
