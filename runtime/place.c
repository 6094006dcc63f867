/* place.c - see place.h.
 *
 * No single greedy order wins (measured on the minimalloc instances: size-descending first fit lies 29 to 41% above the
 * lower bound, and time order is better on some), so a portfolio of orders is tried and the best kept, then a bounded
 * local search moves single buffers within that order.
 */
#include "place.h"

#include <stdlib.h>
#include <string.h>

enum { IMPROVE_OPERATIONS = 200 * 1000 * 1000 }; /* bounds the improvement to about half a second, whatever the count */

struct interval {
  uint64_t begin, end;
};

struct work {
  struct interval *taken; /* of the buffers in conflict with the one being placed */
  uint32_t *order, *best_order;
  uint64_t *offsets;
  uint64_t *pressure;
};

uint64_t place_work_bytes(uint32_t count) {
  return (uint64_t)count * (sizeof(struct interval) + 2 * sizeof(uint32_t) + 2 * sizeof(uint64_t));
}

static struct work work_split(void *memory, uint32_t count) {
  struct work work;
  work.taken = memory;
  work.offsets = (uint64_t *)(void *)(work.taken + count);
  work.pressure = work.offsets + count;
  work.order = (uint32_t *)(void *)(work.pressure + count);
  work.best_order = work.order + count;
  return work;
}

static int compare_intervals(const void *a, const void *b) {
  uint64_t left = ((const struct interval *)a)->begin, right = ((const struct interval *)b)->begin;
  return (left > right) - (left < right);
}

/* The lowest gap that fits, or the tightest one. */
static uint64_t find_gap(const struct interval *taken, uint32_t count, uint64_t bytes, bool best_fit) {
  uint64_t end = 0, found = UINT64_MAX, found_slack = UINT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    if (taken[i].begin > end && taken[i].begin - end >= bytes) {
      if (!best_fit) return end;
      uint64_t slack = taken[i].begin - end - bytes;
      if (slack < found_slack) {
        found_slack = slack;
        found = end;
      }
    }
    if (taken[i].end > end) end = taken[i].end;
  }
  return found != UINT64_MAX ? found : end;
}

/* Places in the given order; gives up once the peak reaches `limit`. */
static uint64_t place_in_order(const struct placement_problem *problem, const uint32_t *order, bool best_fit,
                               uint64_t limit, uint64_t *offsets, struct interval *taken) {
  uint64_t peak = 0;
  for (uint32_t i = 0; i < problem->count; i++) {
    uint32_t buffer = order[i], taken_count = 0;
    const uint64_t *row = bit_row(&problem->conflicts, buffer);
    for (uint32_t j = 0; j < i; j++)
      if (bit_get(row, order[j]) && problem->bytes[order[j]])
        taken[taken_count++] = (struct interval){offsets[order[j]], offsets[order[j]] + problem->bytes[order[j]]};
    qsort(taken, taken_count, sizeof *taken, compare_intervals);
    offsets[buffer] = problem->bytes[buffer] ? find_gap(taken, taken_count, problem->bytes[buffer], best_fit) : 0;
    uint64_t end = offsets[buffer] + problem->bytes[buffer];
    if (end > peak) peak = end;
    if (peak >= limit) return UINT64_MAX;
  }
  return peak;
}

/* Insertion sort on keys computed once: counts are small. */
void place_order(uint32_t count, const uint64_t *keys, uint32_t *order) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t j = i;
    for (; j > 0 && keys[order[j - 1]] < keys[i]; j--) order[j] = order[j - 1];
    order[j] = i;
  }
}

enum key { KEY_SIZE, KEY_PRESSURE, KEY_AREA, KEY_TIME, KEY_TIME_REVERSED, KEY_COUNT };

static void keys_fill(const struct placement_problem *problem, enum key key, uint64_t *keys) {
  for (uint32_t b = 0; b < problem->count; b++) {
    const uint64_t *row = bit_row(&problem->conflicts, b);
    uint64_t neighbours = 0, neighbour_bytes = 0;
    for (uint32_t c = 0; c < problem->count; c++)
      if (c != b && bit_get(row, c)) {
        neighbours++;
        neighbour_bytes += problem->bytes[c];
      }
    switch (key) {
    case KEY_SIZE:
      keys[b] = problem->bytes[b];
      break;
    case KEY_PRESSURE:
      keys[b] = neighbour_bytes + problem->bytes[b];
      break;
    case KEY_AREA:
      keys[b] = problem->bytes[b] * (neighbours + 1);
      break;
    case KEY_TIME:
      keys[b] = UINT32_MAX - problem->first[b];
      break;
    case KEY_TIME_REVERSED:
    case KEY_COUNT:
      keys[b] = problem->first[b];
      break;
    }
  }
}

/* A fixed sequence of choices (Knuth's MMIX generator): the same plan every time. */
static uint32_t choose(uint64_t *state, uint32_t below) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((*state >> 33) % below);
}

static uint32_t index_in(const uint32_t *order, uint32_t buffer) {
  uint32_t i = 0;
  while (order[i] != buffer) i++;
  return i;
}

/* Which buffer to move, by its place in the order: half the time one that ends at the peak, mostly else one that is in
 * conflict with it, now and then any. */
static uint32_t choose_move(const struct placement_problem *problem, const uint32_t *order, const uint64_t *offsets,
                            uint64_t peak, uint64_t *state) {
  uint32_t kind = choose(state, 8), top = problem->count - 1;
  if (kind == 7) return choose(state, problem->count);
  while (offsets[order[top]] + problem->bytes[order[top]] != peak) top--;
  if (kind < 4) return top;
  const uint64_t *row = bit_row(&problem->conflicts, order[top]);
  uint32_t words = problem->conflicts.row_words;
  uint32_t neighbour = bits_next(row, words, choose(state, problem->count));
  if (neighbour >= problem->count) neighbour = bits_next(row, words, 0);
  return neighbour < problem->count ? index_in(order, neighbour) : top;
}

static void move(uint32_t *order, uint32_t from, uint32_t to) {
  uint32_t moved = order[from];
  if (to < from)
    memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
  else
    memmove(&order[from], &order[from + 1], (to - from) * sizeof *order);
  order[to] = moved;
}

/* Moves one buffer in the order, over and over, and keeps what does not make the peak worse. */
static uint64_t improve(const struct placement_problem *problem, struct work work, uint64_t peak, bool best_fit,
                        uint64_t *offsets) {
  uint32_t count = problem->count;
  uint64_t rounds = IMPROVE_OPERATIONS / ((uint64_t)count * count + 1), state = 1;
  if (rounds > 20000) rounds = 20000;
  for (uint64_t round = 0; round < rounds && peak > problem->lower_bound_bytes; round++) {
    memcpy(work.order, work.best_order, count * sizeof *work.order);
    uint32_t from = choose_move(problem, work.order, offsets, peak, &state);
    move(work.order, from, choose(&state, count));
    uint64_t got = place_in_order(problem, work.order, best_fit, peak + 1, work.offsets, work.taken);
    if (got > peak) continue;
    peak = got;
    memcpy(offsets, work.offsets, count * sizeof *offsets);
    memcpy(work.best_order, work.order, count * sizeof *work.order);
  }
  return peak;
}

uint64_t place_buffers(const struct placement_problem *problem, uint64_t *offsets, void *memory) {
  struct work work = work_split(memory, problem->count);
  uint64_t best = UINT64_MAX;
  bool best_fit = false;
  for (int key = 0; key < KEY_COUNT; key++) {
    keys_fill(problem, (enum key)key, work.pressure);
    place_order(problem->count, work.pressure, work.order);
    for (int fit = 0; fit < 2; fit++) {
      uint64_t peak = place_in_order(problem, work.order, fit == 1, best, work.offsets, work.taken);
      if (peak >= best) continue;
      best = peak;
      best_fit = fit == 1;
      memcpy(offsets, work.offsets, problem->count * sizeof *offsets);
      memcpy(work.best_order, work.order, problem->count * sizeof *work.order);
    }
  }
  if (problem->count < 2) return problem->count ? best : 0;
  return improve(problem, work, best, best_fit, offsets);
}

uint64_t place_many(uint32_t count, const uint64_t *bytes, const uint32_t *order, conflict_rows rows, void *context,
                    uint64_t *offsets, void *work) {
  uint32_t words = bit_row_words(count);
  uint64_t *batch_rows = malloc(512 * (size_t)words * 8), peak = 0;
  struct interval *taken = work;
  bool *placed = calloc(count, 1);
  for (uint32_t i = 0; i < count; i += 512) {
    uint32_t n = count - i < 512 ? count - i : 512;
    rows(context, order + i, n, batch_rows);
    for (uint32_t j = 0; j < n; j++) {
      uint32_t b = order[i + j], k = 0;
      const uint64_t *row = batch_rows + (uint64_t)j * words;
      for (uint32_t c = bits_next(row, words, 0); c < count; c = bits_next(row, words, c + 1))
        if (placed[c] && bytes[c]) taken[k++] = (struct interval){offsets[c], offsets[c] + bytes[c]};
      qsort(taken, k, sizeof *taken, compare_intervals);
      offsets[b] = bytes[b] ? find_gap(taken, k, bytes[b], false) : 0;
      placed[b] = true;
      if (offsets[b] + bytes[b] > peak) peak = offsets[b] + bytes[b];
    }
  }
  free(batch_rows), free(placed);
  return peak;
}
