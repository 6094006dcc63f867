/* reach.h - which nodes of a graph follow which. The question is asked for REACH_COLUMNS nodes at a time, with one bit
 * for each, and one pass over the edges answers it. So the memory grows with the number of nodes, not with its square.
 */
#pragma once

#include "bits.h"

enum { REACH_WORDS = 8, REACH_COLUMNS = 64 * REACH_WORDS };

/* Nodes in a legal order: every predecessor has a lower number. */
struct reach_graph {
  uint32_t node_count;
  uint32_t *begin; /* of a node's predecessors; node_count + 1 */
  uint32_t *predecessors;
};

/* One row of REACH_WORDS words a node or a buffer. */
static inline uint64_t *reach_row(uint64_t *rows, uint32_t index) { return rows + (uint64_t)index * REACH_WORDS; }
static inline uint64_t reach_rows_bytes(uint32_t count) { return (uint64_t)count * REACH_WORDS * sizeof(uint64_t); }

/* Drops every edge that other edges imply. `rows` has a row for each node. */
void reach_reduce(struct reach_graph *graph, uint64_t *rows);

/* Bits are passed on along the edges, from each node to all that follow it, or to all that precede it. */
void reach_spread_forward(const struct reach_graph *graph, uint64_t *rows);
void reach_spread_backward(const struct reach_graph *graph, uint64_t *rows);
