/* place.h - offsets for buffers of which some may share bytes and some may not: pure arithmetic, no graph, no device.
 */
#ifndef RONDO_PLACE_H
#define RONDO_PLACE_H

#include "bits.h"

/* Row b of `conflicts` has a bit for every buffer that must not share a byte with b (symmetric; the diagonal is not
 * read). */
struct placement_problem {
  uint32_t count;
  const uint64_t *bytes;        /* sizes, already rounded to the alignment wanted */
  const uint32_t *first, *last; /* when a buffer lives, in one legal order */
  struct bit_matrix conflicts;
  uint64_t lower_bound_bytes; /* a peak this low cannot be beaten: the search stops there */
};

/* Indices 0 .. count - 1 by descending key, ties by index. */
void place_order(uint32_t count, const uint64_t *keys, uint32_t *order);

/* Words of working memory that place_buffers needs. */
uint64_t place_work_bytes(uint32_t count);

/* Tries several orders with first fit and best fit, improves the best by a bounded local search, and keeps the
 * lowest peak. Deterministic. Writes offsets and returns the peak. */
uint64_t place_buffers(const struct placement_problem *problem, uint64_t *offsets, void *work);

typedef void (*conflict_rows)(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows);
uint64_t place_many(uint32_t count, const uint64_t *bytes, const uint32_t *order, conflict_rows rows, void *context,
                    uint64_t *offsets, void *work);

#endif
