/* reach.c - see reach.h. Nodes are numbered in a legal order, so one pass over the edges sees each predecessor first.
 */
#include "reach.h"

#include <string.h>

static const uint32_t dropped = UINT32_C(1) << 31;

/* One pass for the edges that leave the nodes [first, first + REACH_COLUMNS): rows[n] becomes which of those nodes lie
 * before n, and an edge is implied if its begin lies before another predecessor. */
static void mark_implied(const struct reach_graph *graph, uint32_t first, uint64_t *rows) {
  uint32_t last = graph->node_count - first < REACH_COLUMNS ? graph->node_count : first + REACH_COLUMNS;
  for (uint32_t n = first; n < graph->node_count; n++) {
    uint64_t further[REACH_WORDS] = {0}, *row = reach_row(rows, n);
    bool has_column = false;
    for (uint32_t i = graph->begin[n]; i < graph->begin[n + 1]; i++) {
      uint32_t before = graph->predecessors[i] & ~dropped;
      if (before < first) continue;
      bits_or(further, reach_row(rows, before), REACH_WORDS);
      has_column |= before < last;
    }
    memcpy(row, further, sizeof further);
    if (!has_column) continue;
    for (uint32_t i = graph->begin[n]; i < graph->begin[n + 1]; i++) {
      uint32_t before = graph->predecessors[i] & ~dropped;
      if (before < first || before >= last) continue;
      if (bit_get(row, before - first)) graph->predecessors[i] |= dropped; /* implied, or there twice */
      bit_put(row, before - first);
    }
  }
}

void reach_reduce(struct reach_graph *graph, uint64_t *rows) {
  for (uint32_t first = 0; first < graph->node_count; first += REACH_COLUMNS) mark_implied(graph, first, rows);
  uint32_t kept = 0;
  for (uint32_t n = 0; n < graph->node_count; n++) {
    uint32_t begin = graph->begin[n];
    graph->begin[n] = kept;
    for (uint32_t i = begin; i < graph->begin[n + 1]; i++)
      if (!(graph->predecessors[i] & dropped)) graph->predecessors[kept++] = graph->predecessors[i];
  }
  graph->begin[graph->node_count] = kept;
}

void reach_spread_forward(const struct reach_graph *graph, uint64_t *rows) {
  for (uint32_t n = 0; n < graph->node_count; n++)
    for (uint32_t i = graph->begin[n]; i < graph->begin[n + 1]; i++)
      bits_or(reach_row(rows, n), reach_row(rows, graph->predecessors[i]), REACH_WORDS);
}

void reach_spread_backward(const struct reach_graph *graph, uint64_t *rows) {
  for (uint32_t n = graph->node_count; n-- > 0;)
    for (uint32_t i = graph->begin[n]; i < graph->begin[n + 1]; i++)
      bits_or(reach_row(rows, graph->predecessors[i]), reach_row(rows, n), REACH_WORDS);
}
