/* plan_moves.h - the allocation of each tensor, and the nodes that copy inputs to the device and outputs back. */
#pragma once

#include "cutter.h"
#include "plan.h"

enum { NO_NODE = UINT32_MAX };

/* The tensors to copy of one kind. Small tensors share nodes; large ones have nodes of their own, after those. */
struct move_counts {
  uint32_t small_tensors, small_nodes, large_tensors;
  uint32_t last_tensors; /* in the last node of small ones */
  uint64_t last_bytes;
};

struct moves {
  struct move_counts inputs, outputs;
  uint32_t in_arena; /* how many roots lie there, moved or not */
  uint8_t *allocations;
  uint32_t *node_of_tensor; /* by root: that moves it, or NO_NODE */
  uint32_t *tensors;        /* node by node */
};

static inline uint32_t move_tensors(const struct move_counts *counts) {
  return counts->small_tensors + counts->large_tensors;
}
static inline uint32_t move_nodes(const struct move_counts *counts) {
  return counts->small_nodes + counts->large_tensors;
}

/* Counts, then cuts the arrays, then fills them; nodes of outputs are numbered from first_output. */
void moves_count(struct moves *moves, const rondo_graph *graph);
void moves_cut(struct moves *moves, struct cutter *cutter, uint32_t tensor_count);
void moves_fill(struct moves *moves, const rondo_graph *graph, uint32_t first_output);
