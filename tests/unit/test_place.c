/* test_place.c - placement against brute force: no two buffers in conflict share a byte, the peak is the one that is
 * told, small problems reach the optimum and known hard ones nearly the lower bound, and the same problem gives the
 * same placement. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/first_fit.h"
#include "../../runtime/placement.h"
#include "../support.h"

struct problem {
  struct placement_problem placement;
  uint64_t *bytes, *offsets;
  uint32_t *first, *last;
  void *work;
};

static struct problem problem_make(uint32_t count) {
  struct problem problem = {.bytes = calloc(count + 1, sizeof(uint64_t)),
                            .offsets = calloc(count + 1, sizeof(uint64_t)),
                            .first = calloc(count + 1, sizeof(uint32_t)),
                            .last = calloc(count + 1, sizeof(uint32_t)),
                            .work = malloc(placement_work_bytes(count) + 1)};
  uint64_t *words = calloc(1, bit_matrix_bytes(count, count) + 1);
  problem.placement = (struct placement_problem){.count = count,
                                                 .bytes = problem.bytes,
                                                 .first = problem.first,
                                                 .last = problem.last,
                                                 .conflicts = {words, bit_row_words(count)}};
  return problem;
}

static void problem_end(struct problem *problem) {
  free(problem->bytes), free(problem->offsets), free(problem->first), free(problem->last), free(problem->work);
  free(problem->placement.conflicts.words);
}

static bool conflict(const struct problem *problem, uint32_t a, uint32_t b) {
  return a != b && bit_get(bit_row(&problem->placement.conflicts, a), b);
}

static void set_conflict(struct problem *problem, uint32_t a, uint32_t b) {
  bit_put(bit_row(&problem->placement.conflicts, a), b);
  bit_put(bit_row(&problem->placement.conflicts, b), a);
}

static void conflicts_of_lifetimes(struct problem *problem) {
  for (uint32_t a = 0; a < problem->placement.count; a++)
    for (uint32_t b = 0; b < a; b++)
      if (problem->first[a] <= problem->last[b] && problem->first[b] <= problem->last[a]) set_conflict(problem, a, b);
}

/* Buffers of a random partial order of nodes: those that no path keeps apart conflict, as in a graph with parallel
 * branches. A buffer is touched by a few nodes; node n can come before node m > n only. */
static void random_partial_order(struct problem *problem, struct random *random) {
  enum { NODES = 60 };
  uint64_t before[NODES] = {0};
  for (uint32_t n = 0; n < NODES; n++)
    for (int i = 0; n && i < 2; i++) {
      uint32_t p = (uint32_t)random_between(random, n > 6 ? n - 6 : 0, n - 1);
      before[n] |= before[p] | UINT64_C(1) << p;
    }
  uint64_t *nodes = calloc(problem->placement.count + 1, sizeof *nodes);
  for (uint32_t b = 0; b < problem->placement.count; b++) {
    uint32_t n = (uint32_t)random_between(random, 0, NODES - 1);
    nodes[b] = UINT64_C(1) << n;
    for (int i = 0; i < 2; i++) nodes[b] |= UINT64_C(1) << random_between(random, n, n + 9 < NODES ? n + 9 : NODES - 1);
    problem->first[b] = n;
    problem->last[b] = 63 - (uint32_t)__builtin_clzll(nodes[b]);
    problem->bytes[b] = 256 * (uint64_t)random_between(random, 0, 60);
  }
  for (uint32_t a = 0; a < problem->placement.count; a++)
    for (uint32_t b = 0; b < a; b++) {
      bool a_first = true, b_first = true;
      for (uint32_t n = 0; n < NODES; n++) {
        if (nodes[b] >> n & 1) a_first = a_first && !(nodes[a] & ~before[n]);
        if (nodes[a] >> n & 1) b_first = b_first && !(nodes[b] & ~before[n]);
      }
      if (!a_first && !b_first) set_conflict(problem, a, b);
    }
  free(nodes);
}

static void check(const struct problem *problem, uint64_t peak) {
  const uint64_t *offsets = problem->offsets, *bytes = problem->bytes;
  uint64_t seen = 0;
  for (uint32_t a = 0; a < problem->placement.count; a++) {
    if (!bytes[a]) cr_assert_eq(offsets[a], 0);
    if (offsets[a] + bytes[a] > seen) seen = offsets[a] + bytes[a];
    for (uint32_t b = 0; b < a; b++)
      if (conflict(problem, a, b) && bytes[a] && bytes[b])
        cr_assert(offsets[a] + bytes[a] <= offsets[b] || offsets[b] + bytes[b] <= offsets[a],
                  "buffers %u and %u share bytes", a, b);
  }
  cr_assert_eq(seen, peak);
}

static uint64_t place(struct problem *problem) {
  uint64_t peak = placement_find(&problem->placement, problem->offsets, problem->work);
  check(problem, peak);
  return peak;
}

/* ---- Promises ---------------------------------------------------------------------------------------------------- */

Test(place, never_overlaps_buffers_in_conflict_of_a_partial_order) {
  struct random random = {21};
  for (int round = 0; round < 60; round++) {
    struct problem problem = problem_make((uint32_t)random_between(&random, 1, 120));
    problem.placement.step_limit = 3000;
    random_partial_order(&problem, &random);
    place(&problem);
    problem_end(&problem);
  }
}

/* The lowest peak of all orders in which buffers are pushed down as far as they go: there is no better placement. */
static uint64_t best_of_all_orders(const struct problem *problem) {
  uint32_t count = problem->placement.count, order[8], used = 0, depth = 0;
  uint64_t offsets[8], best = UINT64_MAX;
  for (uint32_t i = 0; i < 8; i++) order[i] = 0;
  if (!count) return 0;
  for (;;) {
    uint32_t b = order[depth];
    while (b < count && (used >> b & 1)) b++;
    if (b == count) {
      order[depth] = 0;
      if (!depth--) return best;
      used &= ~(1u << order[depth]++);
      continue;
    }
    order[depth] = b;
    offsets[b] = 0;
    for (uint32_t i = 0; i < depth; i++) {
      uint32_t below = order[i];
      if (conflict(problem, b, below) && problem->bytes[b] && problem->bytes[below] &&
          offsets[below] + problem->bytes[below] > offsets[b])
        offsets[b] = offsets[below] + problem->bytes[below];
    }
    used |= 1u << b;
    if (++depth < count) continue;
    uint64_t peak = 0;
    for (uint32_t i = 0; i < count; i++)
      if (offsets[i] + problem->bytes[i] > peak) peak = offsets[i] + problem->bytes[i];
    if (peak < best) best = peak;
    used &= ~(1u << order[--depth]++);
  }
}

Test(place, finds_the_optimum_of_small_problems) {
  struct random random = {22};
  uint32_t above_bound = 0;
  const uint32_t rounds = rounds_here(4000);
  for (uint32_t round = 0; round < rounds; round++) {
    struct problem problem = problem_make((uint32_t)random_between(&random, 0, 7));
    uint64_t bound = 0;
    for (uint32_t b = 0; b < problem.placement.count; b++) {
      problem.bytes[b] = (uint64_t)random_between(&random, round % 3 ? 1 : 0, 9);
      problem.first[b] = (uint32_t)random_between(&random, 0, 12);
      problem.last[b] = problem.first[b] + (uint32_t)random_between(&random, 0, 5);
    }
    conflicts_of_lifetimes(&problem);
    for (int more = 0; round % 2 && problem.placement.count && more < 4; more++) {
      uint32_t a = (uint32_t)random_between(&random, 0, problem.placement.count - 1);
      uint32_t b = (uint32_t)random_between(&random, 0, problem.placement.count - 1);
      if (a != b) set_conflict(&problem, a, b);
    }
    for (uint32_t t = 0; t < 20; t++) {
      uint64_t alive = 0;
      for (uint32_t b = 0; b < problem.placement.count; b++)
        if (problem.first[b] <= t && t <= problem.last[b]) alive += problem.bytes[b];
      if (alive > bound) bound = alive;
    }
    uint64_t best = best_of_all_orders(&problem);
    cr_assert_eq(place(&problem), best, "round %d", round);
    above_bound += best > bound;
    problem_end(&problem);
  }
  cr_assert_gt(above_bound, rounds / 20, "all were easy: the test would prove little");
}

Test(place, gives_the_same_placement_every_time) {
  struct random random = {23};
  for (int round = 0; round < 10; round++) {
    struct problem problem = problem_make(100);
    uint64_t again[100], steps = 0;
    random_partial_order(&problem, &random);
    problem.placement.step_limit = 2000;
    problem.placement.steps = &steps;
    place(&problem);
    uint64_t steps_before = steps;
    memcpy(again, problem.offsets, sizeof again);
    memset(problem.work, 0xa5, placement_work_bytes(100)); /* what is left there must not matter */
    place(&problem);
    cr_assert_arr_eq(again, problem.offsets, sizeof again);
    cr_assert_eq(steps, steps_before);
    cr_assert_leq(steps, 2000);
    problem_end(&problem);
  }
}

Test(place, buffers_of_no_bytes_are_in_nobodys_way) {
  struct problem problem = problem_make(9);
  for (uint32_t b = 0; b < 9; b++) {
    problem.bytes[b] = b % 3 ? 256 * b : 0;
    problem.last[b] = 5;
  }
  conflicts_of_lifetimes(&problem);
  cr_assert_eq(place(&problem), UINT64_C(256) * (1 + 2 + 4 + 5 + 7 + 8));
  memset(problem.bytes, 0, 9 * sizeof(uint64_t));
  cr_assert_eq(place(&problem), 0);
  problem_end(&problem);
}

Test(place, zero_buffers_need_nothing_and_one_needs_its_size) {
  struct problem none = problem_make(0), one = problem_make(1);
  cr_assert_eq(place(&none), 0);
  one.bytes[0] = 4096;
  cr_assert_eq(place(&one), 4096);
  cr_assert_eq(one.offsets[0], 0);
  problem_end(&none), problem_end(&one);
}

/* Layers of a transformer, ten buffers each, between two residuals. */
static uint64_t layers_peak(uint32_t layers, uint64_t *steps) {
  static const struct {
    uint32_t begin, end;
    uint64_t kib;
  } layer[] = {{0, 1, 64},  {1, 4, 192}, {2, 5, 96},   {3, 6, 512},  {5, 7, 64},
               {6, 8, 160}, {7, 9, 64},  {8, 10, 256}, {9, 11, 256}, {0, 11, 72}};
  struct problem problem = problem_make(10 * layers);
  problem.placement.steps = steps;
  for (uint32_t b = 0; b < 10 * layers; b++) {
    problem.bytes[b] = layer[b % 10].kib * 1024;
    problem.first[b] = b / 10 * 11 + layer[b % 10].begin;
    problem.last[b] = b / 10 * 11 + layer[b % 10].end;
  }
  conflicts_of_lifetimes(&problem);
  uint64_t peak = place(&problem);
  problem_end(&problem);
  return peak;
}

Test(place, a_hundred_identical_layers_need_no_more_than_four) {
  uint64_t steps, four = layers_peak(4, &steps);
  cr_assert_eq(layers_peak(100, &steps), four);
  cr_assert_eq(layers_peak(24, &steps), four);
  cr_assert_leq(steps, 10000, "an everyday graph took %llu steps", (unsigned long long)steps);
}

/* Buffers that live from begin to end on a line, as the public minimalloc instances describe them. */
static double ratio_to_bound(struct random *random, uint32_t count) {
  struct problem problem = problem_make(count);
  uint64_t bound = 0;
  for (uint32_t b = 0; b < count; b++) {
    problem.bytes[b] = 256 * (uint64_t)random_between(random, 1, 400);
    problem.first[b] = (uint32_t)random_between(random, 0, 200);
    problem.last[b] = problem.first[b] + (uint32_t)random_between(random, 0, 39);
  }
  for (uint32_t t = 0; t < 300; t++) {
    uint64_t live = 0;
    for (uint32_t b = 0; b < count; b++) live += problem.first[b] <= t && t <= problem.last[b] ? problem.bytes[b] : 0;
    if (live > bound) bound = live;
  }
  conflicts_of_lifetimes(&problem);
  problem.placement.step_limit = 100000;
  uint64_t peak = place(&problem);
  problem_end(&problem);
  return (double)peak / (double)bound;
}

Test(place, stays_near_the_lower_bound_on_random_intervals) {
  struct random random = {5};
  double worst = 0, sum = 0;
  for (int i = 0; i < 10; i++) {
    double ratio = ratio_to_bound(&random, 150);
    sum += ratio;
    if (ratio > worst) worst = ratio;
  }
  cr_log_info("placement over lower bound: mean %.3f worst %.3f", sum / 10, worst);
  cr_assert_leq(worst, 1.03);
  cr_assert_geq(sum, 10.0 - 1e-9, "below the lower bound: the bound or the peak is wrong");
}

/* Cuts a box of `height` bytes by 60 positions into buffers: they fit exactly, and first fit does not find out. */
static void cut_box(struct problem *problem, struct random *random, uint64_t height) {
  struct {
    uint64_t low, high;
    uint32_t first, last;
  } box[256] = {{0, height, 0, 59}};
  for (uint32_t count = 1; count < problem->placement.count;) {
    uint32_t i = (uint32_t)random_between(random, 0, count - 1);
    bool in_time = random_between(random, 0, 1);
    if (in_time ? box[i].last - box[i].first < 2 : box[i].high - box[i].low < 512) continue;
    box[count] = box[i];
    if (in_time) {
      box[i].last = (uint32_t)random_between(random, box[i].first, box[i].last - 1);
      box[count].first = box[i].last + 1;
    } else {
      box[i].high =
          box[i].low + 256 * (uint64_t)random_between(random, 1, (int64_t)(box[i].high - box[i].low) / 256 - 1);
      box[count].low = box[i].high;
    }
    count++;
  }
  for (uint32_t b = 0; b < problem->placement.count; b++) {
    problem->bytes[b] = box[b].high - box[b].low;
    problem->first[b] = box[b].first;
    problem->last[b] = box[b].last;
  }
  conflicts_of_lifetimes(problem);
}

/* Boxes that are filled exactly, of so many. */
static uint32_t filled_boxes(uint32_t boxes, uint32_t count, uint64_t step_limit, uint64_t height) {
  struct random random = {24};
  uint32_t filled = 0;
  for (uint32_t i = 0; i < boxes; i++) {
    struct problem problem = problem_make(count);
    cut_box(&problem, &random, height);
    problem.placement.step_limit = step_limit;
    uint64_t peak = place(&problem);
    cr_assert_geq(peak, height);
    filled += peak == height;
    problem_end(&problem);
  }
  return filled;
}

/* An inference that is wrong once cuts the only solution off. */
Test(place, fills_every_small_box_that_was_cut_into_buffers) {
  for (uint32_t count = 6; count <= 24; count += 3)
    cr_assert_eq(filled_boxes(100, count, 0, UINT64_C(256) * 64), 100, "of %u buffers", count);
}

Test(place, fills_most_large_boxes_that_were_cut_into_buffers) {
  uint32_t filled = filled_boxes(20, 120, 20000, UINT64_C(256) * 1000);
  cr_log_info("%u of 20 boxes filled", filled);
  cr_assert_geq(filled, 15, "%u of 20 boxes filled", filled);
}

/* Tasks that nothing orders: all buffers conflict although their positions say they do not. */
Test(place, conflicts_beyond_the_positions_are_kept_and_known_to_be_the_optimum) {
  struct problem problem = problem_make(40);
  uint64_t sum = 0, steps = 1;
  problem.placement.steps = &steps;
  for (uint32_t b = 0; b < 40; b++) {
    sum += problem.bytes[b] = UINT64_C(256) * (b + 1);
    problem.first[b] = problem.last[b] = b;
    for (uint32_t c = 0; c < b; c++) set_conflict(&problem, b, c);
  }
  cr_assert_eq(place(&problem), sum);
  cr_assert_eq(steps, 0, "a search, although nothing can be better");
  problem_end(&problem);
}

/* ---- Very many --------------------------------------------------------------------------------------------------- */

static void rows_of_problem(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows) {
  const struct problem *problem = context;
  uint32_t words = problem->placement.conflicts.row_words;
  cr_assert_leq(batch_count, FIRST_FIT_BATCH);
  for (uint32_t i = 0; i < batch_count; i++)
    memcpy(rows + (uint64_t)i * words, bit_row(&problem->placement.conflicts, batch[i]), words * sizeof(uint64_t));
}

/* First fit by its definition: the first multiple of 256 at which the buffer overlaps none that it conflicts with.
 * `conflicting` has room for those. */
static uint64_t lowest_fit(const struct problem *problem, const uint32_t *order, uint32_t placed,
                           uint32_t *conflicting) {
  uint32_t b = order[placed], count = 0;
  for (uint32_t i = 0; i < placed; i++)
    if (conflict(problem, b, order[i])) conflicting[count++] = order[i];
  for (uint64_t offset = 0;; offset += 256) {
    bool fits = true;
    for (uint32_t i = 0; i < count && fits; i++) {
      uint32_t c = conflicting[i];
      fits = offset >= problem->offsets[c] + problem->bytes[c] || problem->offsets[c] >= offset + problem->bytes[b];
    }
    if (fits) return offset;
  }
}

static void check_first_fit(struct problem *problem) {
  uint32_t count = problem->placement.count;
  uint32_t *order = malloc(count * sizeof *order), *conflicting = malloc(count * sizeof *conflicting);
  void *work = malloc(first_fit_work_bytes(count));
  first_fit_order(count, problem->bytes, order);
  check(problem, first_fit(count, problem->bytes, order, rows_of_problem, problem, problem->offsets, work));
  for (uint32_t i = 0; i < count; i++)
    if (problem->bytes[order[i]]) cr_assert_eq(problem->offsets[order[i]], lowest_fit(problem, order, i, conflicting));
  free(order), free(conflicting), free(work);
}

Test(place, many_are_placed_by_first_fit_in_the_order_given) {
  struct random random = {25};
  for (int round = 0; round < 20; round++) {
    struct problem problem = problem_make((uint32_t)random_between(&random, 1, 150));
    random_partial_order(&problem, &random);
    check_first_fit(&problem);
    problem_end(&problem);
  }
}

/* More than two batches, with few and with many conflicts for each. */
Test(place, many_are_placed_by_first_fit_across_batches) {
  struct random random = {26};
  for (uint32_t length = 2; length <= 200; length *= 10) {
    struct problem problem = problem_make(1200);
    for (uint32_t b = 0; b < 1200; b++) {
      problem.bytes[b] = 256 * (uint64_t)random_between(&random, 0, 5);
      problem.first[b] = (uint32_t)random_between(&random, 0, 500);
      problem.last[b] = problem.first[b] + (uint32_t)random_between(&random, 0, length);
    }
    conflicts_of_lifetimes(&problem);
    check_first_fit(&problem);
    problem_end(&problem);
  }
}

/* Each conflicts with the next and the one before. */
static void rows_of_chain(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows) {
  uint32_t count = *(const uint32_t *)context, words = bit_row_words(count);
  memset(rows, 0, batch_count * (uint64_t)words * sizeof *rows);
  for (uint32_t i = 0; i < batch_count; i++) {
    if (batch[i] > 0) bit_put(rows + (uint64_t)i * words, batch[i] - 1);
    if (batch[i] + 1 < count) bit_put(rows + (uint64_t)i * words, batch[i] + 1);
  }
}

Test(place, a_long_chain_needs_two_buffers) {
  uint32_t count = 20000, *order = malloc(count * sizeof *order);
  uint64_t *bytes = malloc(count * sizeof *bytes), *offsets = malloc(count * sizeof *offsets);
  void *work = malloc(first_fit_work_bytes(count));
  for (uint32_t b = 0; b < count; b++) bytes[b] = 256;
  first_fit_order(count, bytes, order);
  cr_assert_eq(first_fit(count, bytes, order, rows_of_chain, &count, offsets, work), 512);
  for (uint32_t b = 1; b < count; b++) cr_assert_neq(offsets[b], offsets[b - 1]);
  free(order), free(bytes), free(offsets), free(work);
}

Test(place, an_order_is_descending_with_ties_by_index) {
  struct random random = {27};
  uint64_t keys[300] = {0};
  uint32_t order[300];
  for (uint32_t count = 0; count <= 300; count += 25) {
    for (uint32_t i = 0; i < count; i++) keys[i] = (uint64_t)random_between(&random, 0, 40);
    first_fit_order(count, keys, order);
    for (uint32_t i = 1; i < count; i++) {
      uint64_t before = keys[order[i - 1]], here = keys[order[i]];
      cr_assert(before > here || (before == here && order[i - 1] < order[i]));
    }
  }
}
