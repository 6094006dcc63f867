/* written.c - see written.h. */
#include "written.h"

#include <string.h>

#include "elements.h"

enum { PIECES_MOST = 256 /* that are compared in pairs */ };

/* Writes that were found. */
struct pieces {
  const struct access_list *writes;
  const rondo_graph *graph;
  const uint32_t *found;
  uint32_t count;
};

/* From the first to the last: they were found the other way round. */
static const struct tensor *piece_of(const struct pieces *pieces, uint32_t index) {
  return &pieces->graph->tensors[pieces->writes->items[pieces->found[pieces->count - 1 - index]].tensor];
}

static bool box_has(const struct box *box, const uint32_t *element) {
  bool inside = true;
  for (int d = 0; d < RONDO_MAX_RANK; d++) inside &= box->low[d] <= element[d] && element[d] < box->high[d];
  return inside;
}

/* Goes through `box` in the order of memory, from the end of one written rectangle to the next; false at the first
 * element that neither `written` nor one of the pieces has, which is left in `element`. All lines between `element` and
 * `line_end` are covered by the same rectangles, so they are passed at once. */
static bool is_box_written(const struct pieces *pieces, const struct box *written, const struct box *box,
                           uint32_t *element) {
  uint32_t line_end[RONDO_MAX_RANK], hint = 0, count = pieces->count;
  memcpy(element, box->low, sizeof box->low);
  memcpy(line_end, box->high, sizeof box->high);
  for (;;) {
    const struct box *write = box_has(written, element) ? written : NULL;
    for (uint32_t i = 0; i < count && !write; i++) {
      uint32_t candidate = hint + i < count ? hint + i : hint + i - count;
      const struct box *other = &piece_of(pieces, candidate)->box;
      if (!box_has(other, element)) continue;
      write = other;
      hint = candidate; /* neighbours are mostly written one after the other */
    }
    if (!write) return false;
    for (int d = 0; d < RONDO_MAX_RANK; d++)
      if (write->high[d] < line_end[d]) line_end[d] = write->high[d];
    int d = RONDO_MAX_RANK - 1;
    while (line_end[d] >= box->high[d]) { /* this direction is done: the next line of the one outside it */
      if (d == 0) return true;
      element[d] = box->low[d];
      line_end[d] = box->high[d];
      d--;
    }
    element[d] = line_end[d];
    line_end[d] = box->high[d];
  }
}

/* The same where not all are boxes: from the end of one written run of memory to the next. */
static bool are_elements_written(const struct pieces *pieces, const struct tensor *tensor, uint32_t *element) {
  int64_t count = tensor_elements(tensor), run;
  uint32_t hint = 0;
  for (int64_t i = 0; i < count; i += run) {
    int64_t at = elements_at(tensor, i), written = 0;
    for (uint32_t f = 0; f < pieces->count && !written; f++) {
      uint32_t candidate = hint + f < pieces->count ? hint + f : hint + f - pieces->count;
      written = elements_run(piece_of(pieces, candidate), at);
      if (written) hint = candidate;
    }
    if (!written) {
      const struct tensor *root = &pieces->graph->tensors[tensor->root];
      for (uint32_t d = 0; d < root->rank; at %= root->stride[d++]) element[d] = (uint32_t)(at / root->stride[d]);
      return false;
    }
    run = elements_run(tensor, at);
    if (written < run) run = written;
  }
  return true;
}

/* Is it plain without a look at every element: one write has all of them, or they lie in as many pieces as there are
 * writes? */
static bool is_plainly_written(const struct pieces *pieces, const struct tensor *tensor) {
  int64_t left = tensor_elements(tensor);
  bool are_inside = tensor->is_box;
  for (uint32_t i = 0; i < pieces->count; i++) {
    const struct tensor *write = piece_of(pieces, i);
    if ((write->is_box && box_covers(&write->box, &tensor->box)) || elements_equal(write, tensor)) return true;
    are_inside &= box_covers(&tensor->box, &write->box);
    left -= tensor_elements(write);
  }
  if (left || !are_inside || pieces->count > PIECES_MOST) return false;
  for (uint32_t i = 0; i < pieces->count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (elements_overlap(piece_of(pieces, i), piece_of(pieces, j))) return false;
  return true;
}

void written_grow(struct box *written, const struct tensor *tensor) {
  if (tensor->is_box && box_elements(&tensor->box) > box_elements(written)) *written = tensor->box;
}

bool is_written(const struct access_list *writes, const rondo_graph *graph, const struct tensor *tensor,
                struct box *written, uint32_t *found, uint32_t *element) {
  if (box_covers(written, &tensor->box)) return true;
  bool are_boxes = tensor->is_box && writes->has_only_boxes;
  struct pieces pieces = {writes, graph, found, 0};
  pieces.count = access_list_find(writes, graph, tensor, NULL, are_boxes ? written : NULL, found);
  bool is_whole = are_boxes ? is_box_written(&pieces, written, &tensor->box, element)
                            : is_plainly_written(&pieces, tensor) || are_elements_written(&pieces, tensor, element);
  if (is_whole) written_grow(written, tensor);
  return is_whole;
}
