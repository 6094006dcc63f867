/* plan_places.h - where everything lies: constants and states one behind the other, inputs and outputs in a slot's
 * pinned extent, and buffers in the arena, which may share bytes where their lifetimes allow it. */
#ifndef RONDO_PLAN_PLACES_H
#define RONDO_PLAN_PLACES_H

#include "lifetimes.h"
#include "plan.h"

struct places {
  uint32_t *buffer_of_tensor;
  struct lifetimes lifetimes; /* its rows are free to be used before places_find */
  uint64_t *bytes, *offsets;  /* by buffer, as all below */
  uint32_t *first, *last;
  uint64_t *keys;
  uint32_t *by_key;
  uint64_t *conflicts; /* of all buffers, unless there are too many */
  void *placing;
};

/* How many of the tasks take a buffer of scratch. */
uint32_t places_scratch_count(const rondo_graph *graph);

void places_cut(struct places *places, struct cutter *cutter, uint32_t node_count, uint32_t tensor_count,
                uint32_t buffer_count, uint64_t access_count);

/* Fills the plan's offsets, buffers and bytes. The plan has its nodes and places; edges are those between the nodes. */
void places_find(struct places *places, const rondo_graph *graph, const struct reach_graph *edges,
                 const uint32_t *node_of_task, struct plan *plan);

#endif
