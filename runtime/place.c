/* place.c - see place.h.
 *
 * No single greedy order wins (measured on the minimalloc instances: size-descending first fit lies 29 to 41% above the
 * lower bound, and time order is better on some), so a portfolio of orders is tried and the best kept, then a bounded
 * number of rounds moves a buffer at the peak to the front of the order and keeps the change if it does not get worse.
 */
#include "place.h"

#include <stdlib.h>
#include <string.h>

enum {
  IMPROVE_OPERATIONS = 50 * 1000 * 1000
}; /* bounds the improvement to some tenths of a second, whatever the count */

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

/* Orders by descending key, ties by index. Insertion sort on keys computed once: counts are small. */
static void order_by(uint32_t count, const uint64_t *keys, uint32_t *order) {
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
      keys[b] = UINT32_MAX - problem->birth[b];
      break;
    case KEY_TIME_REVERSED:
    case KEY_COUNT:
      keys[b] = problem->birth[b];
      break;
    }
  }
}

/* Moves one of the buffers that end at the peak to the front, over and over; a fixed sequence of choices. */
static uint64_t improve(const struct placement_problem *problem, struct work work, uint64_t peak, bool best_fit,
                        uint64_t *offsets) {
  uint32_t count = problem->count;
  uint64_t cost = (uint64_t)count * count + 1, rounds = IMPROVE_OPERATIONS / cost, choice = 1;
  if (rounds > 20000) rounds = 20000;
  for (uint64_t round = 0; round < rounds && peak > problem->lower_bound_bytes; round++) {
    memcpy(work.order, work.best_order, count * sizeof *work.order);
    uint32_t top = 0;
    for (uint32_t i = 0; i < count; i++)
      if (offsets[work.order[i]] + problem->bytes[work.order[i]] == peak) top = i;
    choice = choice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t to = top ? (uint32_t)((choice >> 33) % top) : 0;
    uint32_t moved = work.order[top];
    memmove(&work.order[to + 1], &work.order[to], (top - to) * sizeof *work.order);
    work.order[to] = moved;
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
    order_by(problem->count, work.pressure, work.order);
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
