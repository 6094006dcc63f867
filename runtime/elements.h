/* elements.h - the elements of its root that a tensor, a view or a reshape has. If `is_box` is true, they are all
 * elements of its box, and the box is enough. These functions are exact for all others too. Elements are counted in the
 * order of memory, from the root's first. */
#pragma once

#include "graph.h"

/* Fills in box and is_box. */
void elements_find_box(struct tensor *tensor, const struct tensor *root);

static inline bool boxes_overlap(const struct box *a, const struct box *b) {
  bool apart = false;
  for (int i = 0; i < RONDO_MAX_RANK; i++) apart |= a->low[i] >= b->high[i] || b->low[i] >= a->high[i];
  return !apart;
}

bool elements_overlap(const struct tensor *a, const struct tensor *b);
/* Do both have the same elements? May be false for equal sets of different shapes if one is no box. */
bool elements_equal(const struct tensor *a, const struct tensor *b);

/* The position of element `index` of the tensor in the root. */
int64_t elements_at(const struct tensor *tensor, int64_t index);
/* The number of elements of the tensor from position `at` on without a gap; 0 if it does not have that element. */
int64_t elements_run(const struct tensor *tensor, int64_t at);
