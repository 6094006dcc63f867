/* lifetimes.h - the pairs of buffers that may share bytes.
 *
 * Two buffers may share bytes only if, along every path of the graph, all accesses of one precede all accesses of the
 * other. Then no legal order, however parallel, lets them live at the same time. Planners that look at one total order
 * (TFLM, XNNPACK, XLA's heap simulator) allow more, and would race here. */
#pragma once

#include "cutter.h"
#include "reach.h"

struct lifetimes {
  const struct reach_graph *graph;
  uint32_t buffer_count;
  const uint64_t *bytes; /* 0: conflicts with nothing */
  /* By buffer, in ascending order: the nodes that touch it. */
  uint32_t *begin; /* buffer_count + 1 */
  uint32_t *nodes;
  /* Working memory. Of those nodes, the ones that no other of them directly follows, or precedes. */
  uint32_t *first_begin, *first_nodes, *last_begin, *last_nodes;
  uint32_t *mark, *other_mark;       /* by node */
  uint32_t *column_of_node, *next;   /* the columns that stand for a node, as a list; by node, by column */
  uint64_t *rows, *other_rows;       /* by node */
  uint64_t *ordered, *other_ordered; /* by buffer: bit x, it lies wholly after, or before, buffer x of the batch */
  uint64_t *live;                    /* bytes, by node */
};

/* Cuts all arrays; nodes has room for access_count. The caller then fills begin and nodes, and calls lifetimes_prepare
 * before the other functions. */
void lifetimes_cut(struct lifetimes *lifetimes, struct cutter *cutter, uint32_t node_count, uint32_t buffer_count,
                   uint64_t access_count);
void lifetimes_prepare(struct lifetimes *lifetimes);

/* For up to REACH_COLUMNS buffers, each a row of bit_row_words(buffer_count) words: which others it conflicts with. */
void lifetimes_conflicts(void *lifetimes, const uint32_t *batch, uint32_t batch_count, uint64_t *rows);

/* The most bytes that live at one node: the buffers that it touches, and those touched both before and after it, live
 * together, since two of them that did not conflict would put an access after one of its own ancestors. */
uint64_t lifetimes_bound(struct lifetimes *lifetimes);
