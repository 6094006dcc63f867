/* elements.h - which elements of its root a tensor, a view or a reshape has. Nobody needs more than the box where
 * `is_box` says that it is all; what is here is exact for the others too. Elements are counted in the order of memory,
 * from the root's first. */
#ifndef RONDO_ELEMENTS_H
#define RONDO_ELEMENTS_H

#include "graph.h"

/* Fills in box and is_box. */
void elements_find_box(struct tensor *tensor, const struct tensor *root);

static inline bool boxes_overlap(const struct box *a, const struct box *b) {
  bool apart = false;
  for (int i = 0; i < RONDO_MAX_RANK; i++) apart |= a->low[i] >= b->high[i] || b->low[i] >= a->high[i];
  return !apart;
}

bool elements_overlap(const struct tensor *a, const struct tensor *b);
/* Are they the same? May be false for equal sets in different shapes, of which one is no box. */
bool elements_equal(const struct tensor *a, const struct tensor *b);

/* Where element `index` of the tensor lies. */
int64_t elements_at(const struct tensor *tensor, int64_t index);
/* How many elements from `at` on lie one behind the other in the tensor; 0 if it has not that one. */
int64_t elements_run(const struct tensor *tensor, int64_t at);

#endif
