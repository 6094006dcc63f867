/* test_attention_parts.c - attention under the causal mask with few query tiles, of which two blocks of a cluster take
 * a part each of the KV tiles, against double precision: numbers of KV tiles that are even, odd and one; lengths and
 * positions that end anywhere; and what makes a query tile be computed again. Faults that would show: a KV tile that no
 * block takes or both do, references of two parts that are mixed up, an infinity of V that only one block sees and the
 * other one's columns lack, a packet that is overwritten before it is read. */
#include <criterion/criterion.h>
#include <math.h>

#include "../../kernels/attention/attention_choose.h"
#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Heads of 32 and 64 in both types, in both layouts. */
static struct attention task_of(size_t i, int64_t query_length, int64_t capacity) {
  return (struct attention){.dtype = attention_types[i % 2],
                            .layout = i / 2 % 2 ? RONDO_BSHD : RONDO_BHSD,
                            .batch = 1,
                            .query_heads = 2,
                            .kv_heads = 1,
                            .query_length = query_length,
                            .capacity = capacity,
                            .dimension = i % 3 ? 64 : 32,
                            .causal = 1,
                            .lse_wanted = true};
}

/* From one KV tile of a query tile to eight. In the last case a cluster has several query tiles. */
static void tiles(rondo_backend backend) {
  static const struct {
    int64_t query_heads, query_length, capacity;
  } sizes[] = {{2, 512, 512}, {3, 575, 575}, {1, 640, 1024}, {4, 450, 962}, {2, 64, 704}, {9, 1024, 1024}};
  struct attention tasks[2 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const size_t s = i / 2;
    tasks[i] = task_of(i + s, sizes[s].query_length, sizes[s].capacity);
    tasks[i].query_heads = sizes[s].query_heads;
    tasks[i].place = s % 2 ? STRIDED : DENSE;
    if (backend == RONDO_BACKEND_HOST && sizes[s].query_heads == 9) tasks[i].query_heads = 1;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_parts, every_number_of_kv_tiles_agrees_with_double_precision, tiles)

/* attention_fill puts NaN after every length. */
static void lengths(rondo_backend backend) {
  static const int32_t some[] = {0, -5, 1, 64, 129, 200, 257, 384, 391, 519, 640, 1000};
  struct attention tasks[4];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = task_of(i, i / 2 ? 512 : 128, 640);
    tasks[i].batch = COUNT(some), tasks[i].lengths = some;
    tasks[i].query_heads = 1;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_parts, lengths_may_end_in_any_place_of_a_kv_tile, lengths)

/* Scores of which one part's are far above the other's, or above those of its own first KV tile. */
static void computed_again(rondo_backend backend) {
  static const enum data data[] = {RISING, FALLING, OUTLIER, ENORMOUS};
  struct attention tasks[2 * COUNT(data)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = task_of(i, 300, 940);
    tasks[i].data = data[i / 2], tasks[i].scale = i % 2 ? 1.0f : 0.0f;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_parts, scores_far_above_the_first_are_computed_again, computed_again)

static void deviations(rondo_backend backend) {
  static const float some[] = {1, 4, 12, 20, 32, 64, 300};
  struct attention tasks[2 * COUNT(some)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = task_of(i, i % 2 ? 520 : 384, i % 2 ? 520 : 1024);
    tasks[i].scale = some[i / 2] / sqrtf((float)tasks[i].dimension);
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_parts, scores_of_any_deviation_agree_with_double_precision, deviations)

/* NaN and infinities in V, which go to exactly the rows that see them: those of either part, and in one column both
 * infinities, one in each part. Task 1 has others in K and Q too. */
static void plant(struct attention *a, size_t i) {
  static const double specials[] = {NAN, INFINITY, -INFINITY};
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  for (int64_t n = 0; n < 14; n++) {
    const int64_t row = n * (a->capacity / 14), column = (n * 37) % a->dimension;
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, row) + column, specials[n % 3]);
  }
  oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, 130) + 5, INFINITY);
  oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, 300) + 5, -INFINITY);
  if (i % 2) return;
  oracle_write(a->dtype, a->q_memory, row_index(a, &query, 0, 0, 70) + 3, NAN);
  oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 0, a->capacity - 4) + 1, NAN);
  oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 0, 260) + 7, INFINITY);
}

static void special_numbers(rondo_backend backend) {
  struct attention tasks[6];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = task_of(i, i / 2 ? 520 : 270, i / 2 ? 520 : 782);
    if (i >= 4 && backend == RONDO_BACKEND_CUDA) tasks[i].scale = 3.0f; /* of weights that vanish */
  }
  attentions_planted(backend, tasks, COUNT(tasks), 31, plant);
}
BOTH_BACKENDS(attention_parts, special_numbers_reach_exactly_the_rows_that_see_them, special_numbers)

/* A packet arrives early or late from one query tile to the next, since clusters have several of them. */
static void repeat(rondo_backend backend) {
  enum { REPLAYS = 1000 };
  static struct attention tasks[4];
  const bool is_host = backend == RONDO_BACKEND_HOST;
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = task_of(i, is_host ? 256 : 1024, is_host ? 256 : 1024);
    tasks[i].query_heads = is_host ? 1 : 9;
    tasks[i].data = i / 2 ? FALLING : NORMAL;
    tasks[i].scale = i / 2 ? 1.0f : 0.0f;
  }
  attentions_same_bits(backend, tasks, COUNT(tasks), is_host ? 3 : REPLAYS);
}
BOTH_BACKENDS(attention_parts, a_thousand_replays_give_the_same_bits, repeat)

/* The tasks above do go to these kernels. */
Test(attention_parts, few_long_query_tiles_are_planned_in_parts) {
  static const struct {
    int64_t batch, query_heads, query_length, capacity;
    bool has_ends, parts;
  } cases[] = {{1, 2, 512, 512, false, true},   {1, 3, 575, 575, false, true},    {1, 1, 640, 1024, false, true},
               {1, 4, 450, 962, false, true},   {1, 2, 64, 704, false, true},     {1, 9, 1024, 1024, false, true},
               {12, 1, 128, 640, false, true},  {12, 1, 512, 640, false, true},   {1, 2, 300, 940, false, true},
               {1, 9, 128, 4111, true, true},   {1, 9, 2048, 4111, true, true},   {1, 32, 128, 4111, true, true},
               {1, 2, 128, 128, false, false},  {1, 9, 8192, 8192, false, false}, {1, 32, 512, 4111, true, false},
               {1, 32, 2048, 4111, true, false}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const struct attention_problem problem = {.chip = {90, 132, 232448},
                                              .shape = {.causal = true,
                                                        .scale = 0.125f,
                                                        .batch = cases[i].batch,
                                                        .query_heads = cases[i].query_heads,
                                                        .kv_heads = 1,
                                                        .group = cases[i].query_heads,
                                                        .query_length = cases[i].query_length,
                                                        .capacity = cases[i].capacity,
                                                        .has_ends = cases[i].has_ends,
                                                        .head_dimension = 64},
                                              .q = RONDO_BF16,
                                              .has_maps = true};
    struct attention_plan plan;
    cr_assert(attention_wgmma_plan_of(&problem, &plan), "case %zu", i);
    cr_expect_eq(plan.wgmma.variant->parts, cases[i].parts ? 2 : 1, "case %zu", i);
  }
}
