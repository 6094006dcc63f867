/* place.h - offsets for buffers of which some may share bytes and some may not: pure arithmetic, no graph, no device.
 *
 * Nothing here allocates: the caller gives working memory of the size that *_work_bytes names. Everything is
 * deterministic, bounded by counts of steps and never by a clock. A buffer of 0 bytes gets offset 0 and is in nobody's
 * way. The bytes of all buffers together must stay below 2^63. */
#ifndef RONDO_PLACE_H
#define RONDO_PLACE_H

#include "bits.h"

enum {
  PLACE_SEARCH_COUNT = 4096,              /* more buffers than these are placed greedily only */
  PLACE_DEFAULT_WORK = 128 * 1024 * 1024, /* steps times buffers: a second or two, more for thousands */
  PLACE_BATCH = 512,                      /* rows that place_many asks for at a time */
};

/* Row b of `conflicts` has a bit for every buffer that must not share a byte with b (symmetric; the diagonal is not
 * read). Two buffers whose [first, last] have a position in common must conflict; others may, since tasks that no path
 * orders may run at the same time. */
struct placement_problem {
  uint32_t count;
  const uint64_t *bytes;        /* already rounded to the alignment wanted */
  const uint32_t *first, *last; /* positions of the first and last use, in one legal order */
  struct bit_matrix conflicts;
  uint64_t lower_bound_bytes; /* a peak this low ends the search; 0: not known */
  uint64_t step_limit;        /* of the search: buffers put down; 0: PLACE_DEFAULT_WORK / count */
  uint64_t *steps;            /* NULL, or where to say how many it took */
};

uint64_t place_work_bytes(uint32_t count);

/* Tries first fit in a few orders, then searches (place_search.h) unless the bound is reached. The lowest peak found is
 * kept. Writes offsets and returns the peak. */
uint64_t place_buffers(const struct placement_problem *problem, uint64_t *offsets, void *work)
    __attribute__((nonnull(3)));

/* Fills `rows` with one row of bits for each buffer of the batch: who conflicts with it. Rows are
 * bit_row_words(count) wide and not cleared before the call. */
typedef void (*conflict_rows)(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows);

uint64_t place_many_work_bytes(uint32_t count);

/* First fit in the given order: for so many buffers that their conflicts are better made a batch at a time than kept.
 * Writes offsets and returns the peak. */
uint64_t place_many(uint32_t count, const uint64_t *bytes, const uint32_t *order, conflict_rows rows, void *context,
                    uint64_t *offsets, void *work) __attribute__((nonnull(7)));

/* Indices 0 .. count - 1 by descending key, ties by index. */
void place_order(uint32_t count, const uint64_t *keys, uint32_t *order);

#endif
