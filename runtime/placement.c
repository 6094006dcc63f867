/* placement.c - see placement.h. For most graphs first fit in one of five orders reaches the lower bound. No order is
 * best for all graphs. If none reaches the bound, the search starts from the best of them. */
#include "placement.h"

#include <string.h>

#include "cutter.h"
#include "first_fit.h"
#include "placement_search.h"

/* ---- First fit --------------------------------------------------------------------------------------------------- */

enum key { KEY_BYTES, KEY_TIME, KEY_TIME_REVERSED, KEY_AREA, KEY_PRESSURE, KEY_COUNT };

static uint64_t key_of(const struct placement_problem *problem, enum key key, uint32_t buffer) {
  const uint64_t *row = bit_row(&problem->conflicts, buffer);
  uint64_t sum = problem->bytes[buffer];
  switch (key) {
  case KEY_BYTES:
    return problem->bytes[buffer];
  case KEY_TIME:
    return UINT32_MAX - problem->first[buffer];
  case KEY_TIME_REVERSED:
    return problem->last[buffer];
  case KEY_AREA: /* bytes times neighbours */
    for (uint32_t w = 0; w < problem->conflicts.row_words; w++)
      sum += problem->bytes[buffer] * (uint64_t)__builtin_popcountll(row[w]);
    return sum;
  case KEY_PRESSURE: /* bytes of the neighbours */
    for (uint32_t b = bits_next(row, problem->conflicts.row_words, 0); b < problem->count;
         b = bits_next(row, problem->conflicts.row_words, b + 1))
      sum += problem->bytes[b];
    return sum;
  case KEY_COUNT:
    break;
  }
  return 0;
}

static void rows_of_matrix(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows) {
  const struct placement_problem *problem = context;
  uint32_t words = bit_row_words(problem->count);
  for (uint32_t i = 0; i < batch_count; i++)
    memcpy(rows + (uint64_t)i * words, bit_row(&problem->conflicts, batch[i]), words * sizeof(uint64_t));
}

struct work {
  uint64_t *offsets, *keys;
  uint32_t *order;
  void *rest; /* of first fit, then of the search */
};

static struct work cut_work(struct cutter *cutter, uint32_t count) {
  uint64_t fit_bytes = first_fit_work_bytes(count), search_bytes = placement_search_work_bytes(count);
  struct work work;
  work.offsets = cut(cutter, count * sizeof *work.offsets);
  work.keys = cut(cutter, count * sizeof *work.keys);
  work.order = cut(cutter, count * sizeof *work.order);
  work.rest = cut(cutter, fit_bytes > search_bytes ? fit_bytes : search_bytes);
  return work;
}

uint64_t placement_work_bytes(uint32_t count) {
  struct cutter cutter = {0};
  cut_work(&cutter, count);
  return cutter.used;
}

uint64_t placement_find(const struct placement_problem *problem, uint64_t *offsets, void *memory) {
  struct work work = cut_work(&(struct cutter){memory, 0}, problem->count);
  struct placement_problem context = *problem;
  uint64_t best = UINT64_MAX;
  if (problem->steps) *problem->steps = 0;
  for (int key = 0; key < KEY_COUNT && best > problem->lower_bound_bytes; key++) {
    for (uint32_t b = 0; b < problem->count; b++) work.keys[b] = key_of(problem, (enum key)key, b);
    first_fit_order(problem->count, work.keys, work.order);
    uint64_t peak =
        first_fit(problem->count, problem->bytes, work.order, rows_of_matrix, &context, work.offsets, work.rest);
    if (peak >= best) continue;
    best = peak;
    memcpy(offsets, work.offsets, problem->count * sizeof *offsets);
  }
  if (best <= problem->lower_bound_bytes || problem->count > PLACEMENT_SEARCH_MOST) return best;
  return placement_search(problem, offsets, work.rest);
}
