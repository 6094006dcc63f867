/* test_attention_numbers.c - the results of rondo_add_attention against softmax(scale Q K^T) V in double precision:
 * every type, head dimension, layout, mask, group of heads and split, scores that are hard to add up, NaN and
 * infinities, views and lengths. Faults that would show: a row or column at the edge of a tile that is left out or
 * counted twice, a mask that is off by one, splits that are merged wrongly, a read after a length or around a view, a
 * write outside of o.
 *
 * A case leaves type, layout and head dimension out: attentions_check_cases runs it with all of them (attention_run.h).
 */
#include <criterion/criterion.h>
#include <math.h>

#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* Lengths around tiles, fewer and more queries than keys: FlashAttention's list, shortened, and ours. */
static const struct attention prefills[] = {
    {.name = "one row on one", .batch = 2, .query_heads = 1, .kv_heads = 1, .query_length = 1, .capacity = 1},
    {.name = "7 on 7", .batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 7, .capacity = 7},
    {.name = "63 on a tile", .batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 63, .capacity = 64},
    {.name = "a tile on 65", .batch = 1, .query_heads = 3, .kv_heads = 1, .query_length = 64, .capacity = 65},
    {.name = "65 on 63", .batch = 1, .query_heads = 4, .kv_heads = 2, .query_length = 65, .capacity = 63},
    {.name = "128 on 128", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 128, .capacity = 128},
    {.name = "113 on 203", .batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 113, .capacity = 203},
    {.name = "239 on one", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 239, .capacity = 1},
    {.name = "108 on 256", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 108, .capacity = 256},
    {.name = "200 on 63", .batch = 1, .query_heads = 3, .kv_heads = 3, .query_length = 200, .capacity = 63},
    {.name = "128 on 217", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 128, .capacity = 217},
    {.name = "8 heads of a group", .batch = 1, .query_heads = 8, .kv_heads = 1, .query_length = 7, .capacity = 200},
    {.name = "333 on 333", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 333, .capacity = 333},
    {.name = "256 on 129", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 256, .capacity = 129},
};

static void prefills_check(rondo_backend backend, int32_t causal) {
  struct attention cases[COUNT(prefills)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    cases[i] = prefills[i];
    cases[i].causal = causal;
    cases[i].lse_wanted = causal || i % 2 == 0;
  }
  attentions_check_cases(backend, BOTH_TYPES, cases, COUNT(cases));
}

static void prefill(rondo_backend backend) { prefills_check(backend, 0); }
BOTH_BACKENDS(attention, prefill_agrees_with_double_precision, prefill)

static void masks(rondo_backend backend) { prefills_check(backend, 1); }
BOTH_BACKENDS(attention, masks_are_aligned_to_the_bottom_right, masks)

/* Few queries. 730 is no multiple of any tile or split. */
static void decode(rondo_backend backend) {
  static const int64_t groups[] = {1, 2, 3, 8};
  static const int32_t splits[] = {0, 1, 2, 5, 32};
  struct attention cases[COUNT(groups) * COUNT(splits)];
  for (size_t i = 0; i < COUNT(cases); i++)
    cases[i] = (struct attention){.name = "few queries",
                                  .batch = 2,
                                  .query_heads = 2 * groups[i / COUNT(splits)],
                                  .kv_heads = 2,
                                  .query_length = 1 + (int64_t)i % 4,
                                  .capacity = 730,
                                  .causal = i / 2 % 2,
                                  .splits = splits[i % COUNT(splits)],
                                  .lse_wanted = i % 2 == 0};
  attentions_check_cases(backend, TYPES_IN_TURN, cases, COUNT(cases));
}
BOTH_BACKENDS(attention, decode_agrees_with_double_precision_for_every_group_and_cut, decode)

static void long_decode(rondo_backend backend) {
  static const int32_t lengths[] = {16384, 9001};
  struct attention tasks[] = {
      {.dtype = RONDO_BF16, .query_heads = 8, .kv_heads = 1, .query_length = 1, .capacity = 16384, .splits = 0},
      {.dtype = RONDO_F16, .query_heads = 8, .kv_heads = 1, .query_length = 2, .capacity = 16384, .splits = 0},
      {.dtype = RONDO_BF16, .query_heads = 2, .kv_heads = 2, .query_length = 1, .capacity = 16384, .splits = 256},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].batch = 2;
    tasks[i].dimension = i == 1 ? 64 : 128;
    tasks[i].lengths = lengths;
    tasks[i].causal = 1;
    tasks[i].lse_wanted = true;
    tasks[i].layout = i ? RONDO_BSHD : RONDO_BHSD;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention, a_long_sequence_is_cut_and_merged_right, long_decode)

/* More than one row tile with splits: every partial result finds its way back. */
static void cut_prefill(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "2 splits, causal", .query_heads = 2, .query_length = 70, .causal = 1, .splits = 2},
      {.name = "3 splits of groups", .query_heads = 6, .query_length = 70, .splits = 3},
      {.name = "4 splits, 300 rows", .query_heads = 2, .query_length = 300, .causal = 1, .splits = 4},
  };
  struct attention tasks[COUNT(cases)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    tasks[i] = cases[i];
    tasks[i].batch = 2, tasks[i].kv_heads = 2, tasks[i].capacity = 250;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(cases));
}
BOTH_BACKENDS(attention, splits_and_row_tiles_go_together, cut_prefill)

/* As many rows as take the wide kernels of a GPU. */
static void wide(rondo_backend backend) {
  skip_under_sanitizers();
  static const int32_t lengths[] = {130, 0, 1, 129, 64, 65, 128, 130, 77, 2, 112, 113};
  static const struct attention cases[] = {
      {.name = "rising scores", .query_heads = 8, .query_length = 131, .capacity = 300, .causal = 1, .data = RISING},
      {.name = "groups of 2 heads", .query_heads = 16, .query_length = 66, .capacity = 130, .causal = 1},
      {.name = "misaligned, lengths",
       .query_heads = 8,
       .query_length = 131,
       .capacity = 130,
       .lengths = lengths,
       .place = MISALIGNED},
      {.name = "negative scale, lengths",
       .query_heads = 8,
       .query_length = 131,
       .capacity = 130,
       .scale = -0.25f,
       .causal = 1,
       .lengths = lengths},
  };
  struct attention tasks[COUNT(cases)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    tasks[i] = cases[i];
    tasks[i].batch = 12, tasks[i].kv_heads = 8, tasks[i].splits = 1;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(cases));
}
BOTH_BACKENDS(attention, many_rows_agree_with_double_precision, wide)

/* Splits of whole and of half tiles of the wide kernels. */
static void wide_splits(rondo_backend backend) {
  static const struct attention cases[] = {{.name = "2 splits", .splits = 2},
                                           {.name = "3 splits", .causal = 1, .splits = 3},
                                           {.name = "4 splits", .splits = 4}};
  struct attention tasks[COUNT(cases)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    tasks[i] = cases[i];
    tasks[i].batch = 8, tasks[i].query_heads = tasks[i].kv_heads = 8;
    tasks[i].query_length = 130, tasks[i].capacity = 256;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(cases));
}
BOTH_BACKENDS(attention, many_rows_with_splits_agree_with_double_precision, wide_splits)

/* ---- Lengths ----------------------------------------------------------------------------------------------------- */

/* attention_fill puts NaN after every length. */
static void lengths(rondo_backend backend) {
  static const int32_t some[] = {0, -5, 1, 63, 64, 65, 200, 1000}, splits[] = {0, 1, 3};
  struct attention cases[2 * COUNT(splits)];
  for (size_t i = 0; i < COUNT(cases); i++)
    cases[i] = (struct attention){.name = "lengths",
                                  .batch = COUNT(some),
                                  .query_heads = 4,
                                  .kv_heads = 2,
                                  .query_length = i / 2 == 1 ? 40 : 3,
                                  .capacity = 200,
                                  .causal = i % 2,
                                  .splits = splits[i / 2],
                                  .lengths = some,
                                  .lse_wanted = true};
  attentions_check_cases(backend, TYPES_IN_TURN, cases, COUNT(cases));
}
BOTH_BACKENDS(attention, what_lies_after_a_length_is_never_used, lengths)

/* The same exec, other lengths: memory that counted before is NaN afterwards. */
static void changing_lengths(rondo_backend backend) {
  static const int32_t first[] = {700, 0, 65}, second[] = {64, 700, 1}, third[] = {699, 333, 0};
  const int32_t *const all[] = {first, second, third};
  struct attention a = {.dtype = RONDO_BF16,
                        .layout = RONDO_BSHD,
                        .batch = 3,
                        .query_heads = 4,
                        .kv_heads = 2,
                        .query_length = 2,
                        .capacity = 700,
                        .dimension = 64,
                        .causal = 1,
                        .lengths = first,
                        .lse_wanted = true};
  struct trial trial;
  struct random random = {11};
  trial_describe(&trial, backend);
  attention_add(&a, &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < COUNT(all); i++) {
    a.lengths = all[i];
    attention_fill(&a, &random);
    attention_set(&a, &trial);
    trial_replay(&trial);
    attention_get(&a, &trial);
    attention_check(&a);
    attention_free(&a);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(attention, lengths_are_read_at_each_replay, changing_lengths)

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void hard_numbers(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "equal scores", .data = EQUAL, .splits = 1},
      {.name = "equal scores, cut", .data = EQUAL, .splits = 2, .causal = 1},
      {.name = "rising scores", .data = RISING, .splits = 1, .causal = 1},
      {.name = "rising scores, cut", .data = RISING, .splits = 2},
      {.name = "falling scores", .data = FALLING, .splits = 1},
      {.name = "falling scores, cut", .data = FALLING, .splits = 2, .causal = 1},
      {.name = "one score above all", .data = OUTLIER, .splits = 1, .causal = 1},
      {.name = "one score above all, cut", .data = OUTLIER, .splits = 2},
      {.name = "scores of 10^4", .data = ENORMOUS, .scale = 1.0f, .splits = 1},
      {.name = "scores of 10^4, cut", .data = ENORMOUS, .scale = 1.0f, .splits = 2, .causal = 1},
      {.name = "rising, negative scale", .data = RISING, .scale = -0.125f, .splits = 1, .causal = 1},
      {.name = "one above all, negative scale, cut", .data = OUTLIER, .scale = -0.125f, .splits = 2},
  };
  struct attention tasks[COUNT(cases)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    tasks[i] = cases[i];
    tasks[i].batch = 1, tasks[i].query_heads = 2, tasks[i].kv_heads = 1;
    tasks[i].query_length = 50, tasks[i].capacity = 300;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(cases));
}
BOTH_BACKENDS(attention, hard_scores_agree_with_double_precision, hard_numbers)

/* Rows that are not aligned, and a negative scale, for which no chip has a kernel of its own. */
static void immense_scores(rondo_backend backend) {
  enum { FEW = 80, MANY = 129 };
  static const struct attention cases[] = {
      {.name = "few rows", .query_length = FEW, .capacity = 257},
      {.name = "negative scale", .query_length = FEW, .capacity = 257, .scale = -0.125f},
      {.name = "many rows", .batch = 12, .query_heads = 8, .kv_heads = 8, .query_length = MANY, .capacity = MANY},
      {.name = "a window of all rows but one", .query_length = FEW, .capacity = 257, .causal = 1, .window = 256},
  };
  enum { OF_CASE = ATTENTION_DIMENSIONS * ATTENTION_TYPES };
  struct attention tasks[COUNT(cases) * OF_CASE];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i / OF_CASE];
    tasks[i].dtype = attention_types[i % ATTENTION_TYPES];
    tasks[i].dimension = attention_dimensions[i / ATTENTION_TYPES % ATTENTION_DIMENSIONS];
    tasks[i].layout = RONDO_BHSD, tasks[i].splits = 1, tasks[i].place = MISALIGNED;
    if (!tasks[i].batch) tasks[i].batch = tasks[i].query_heads = tasks[i].kv_heads = 1;
  }
  attentions_immense(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention, scores_as_large_as_their_rounding_still_give_weights, immense_scores)

/* NaN and infinities in rows that are seen: through scores into the rows that see them, through values into their
 * column alone, and there into no row that does not see them. In each of two heads; the oracle knows where they go. */
static void plant(struct attention *a, size_t i) {
  const bool values = i / ATTENTION_TYPES % 2;
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  int64_t third = a->capacity / 3;
  if (!values) {
    oracle_write(a->dtype, a->q_memory, row_index(a, &query, 0, 0, 5) + 3, NAN);
    oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 0, a->capacity - 4) + 1, NAN);
    oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 1, third) + 7, INFINITY);
    oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 1, 2 * third) + 7, -INFINITY);
  } else {
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, third) + 2, NAN);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, third) + 4, INFINITY);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, a->capacity - 4) + 9, NAN);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 0, a->capacity - 70) + 17, -INFINITY);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 1, third) + 5, -INFINITY);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 1, third) + 6, INFINITY);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, 0, 1, 2 * third) + 6, -INFINITY);
  }
}

static void not_numbers(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "not causal", .batch = 1, .query_heads = 2, .kv_heads = 2, .query_length = 80, .splits = 1},
      {.name = "not causal, cut", .batch = 1, .query_heads = 2, .kv_heads = 2, .query_length = 80, .splits = 2},
      {.name = "causal", .batch = 1, .query_heads = 2, .kv_heads = 2, .query_length = 80, .causal = 1, .splits = 1},
      {.name = "causal, cut",
       .batch = 1,
       .query_heads = 2,
       .kv_heads = 2,
       .query_length = 80,
       .causal = 1,
       .splits = 2},
      {.name = "many rows",
       .batch = 12,
       .query_heads = 8,
       .kv_heads = 8,
       .query_length = 140,
       .causal = 1,
       .splits = 1},
  };
  enum { PLANTS = 2 * ATTENTION_TYPES, OF_CASE = ATTENTION_DIMENSIONS * PLANTS }; /* into scores and into values */
  static struct attention tasks[COUNT(cases) * OF_CASE];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i / OF_CASE];
    tasks[i].dtype = attention_types[i % ATTENTION_TYPES];
    tasks[i].dimension = attention_dimensions[i / PLANTS % ATTENTION_DIMENSIONS];
    tasks[i].layout = RONDO_BSHD, tasks[i].capacity = 150;
    tasks[i].lse_wanted = true;
  }
  attentions_planted(backend, tasks, COUNT(tasks), 13, plant);
}
BOTH_BACKENDS(attention, nan_and_infinity_go_where_they_are_seen, not_numbers)

/* ---- Views ------------------------------------------------------------------------------------------------------- */

/* NaN stands around q, k and v, and a guard around o. */
static void views(rondo_backend backend) {
  static const int32_t three[] = {130, 64, 77};
  static const struct attention cases[] = {
      {.name = "one query", .query_heads = 4, .kv_heads = 2, .query_length = 1, .lse_wanted = true},
      {.name = "2 splits, no lse", .query_heads = 4, .kv_heads = 2, .query_length = 67, .splits = 2},
      {.name = "lengths",
       .query_heads = 4,
       .kv_heads = 2,
       .query_length = 67,
       .causal = 1,
       .lengths = three,
       .lse_wanted = true},
      {.name = "no groups", .query_heads = 3, .kv_heads = 3, .query_length = 67, .causal = 1, .lse_wanted = true},
  };
  struct attention tasks[2 * COUNT(cases)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i % COUNT(cases)];
    tasks[i].place = i < COUNT(cases) ? STRIDED : MISALIGNED;
    tasks[i].batch = 3, tasks[i].capacity = 130;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention, views_are_read_and_written_inside_their_rectangles, views)

static void empty(rondo_backend backend) {
  static const int32_t none[] = {0, 3};
  struct attention tasks[] = {
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 0},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 0, .splits = 4, .lengths = none},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 0, .capacity = 9},
      {.batch = 0, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 9},
      {.batch = 2, .query_heads = 0, .kv_heads = 3, .query_length = 5, .capacity = 9},
      {.batch = 2, .query_heads = 0, .kv_heads = 0, .query_length = 5, .capacity = 9},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 9, .causal = 1},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = RONDO_F16;
    tasks[i].dimension = 64;
    tasks[i].lse_wanted = true;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention, empty_sizes_are_no_work_and_no_keys_give_zero, empty)

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

static void repeat(rondo_backend backend) {
  skip_under_sanitizers();
  static struct attention tasks[2 * ATTENTION_DIMENSIONS];
  for (size_t i = 0; i < COUNT(tasks); i++)
    tasks[i] = (struct attention){.dtype = attention_types[i % ATTENTION_TYPES],
                                  .layout = RONDO_BHSD,
                                  .batch = 2,
                                  .query_heads = 4,
                                  .kv_heads = 2,
                                  .query_length = i < ATTENTION_DIMENSIONS ? 130 : 2,
                                  .capacity = 1100,
                                  .dimension = attention_dimensions[i % ATTENTION_DIMENSIONS],
                                  .causal = 1,
                                  .lse_wanted = true};
  attentions_same_bits(backend, tasks, COUNT(tasks), 5);
}
BOTH_BACKENDS(attention, every_replay_gives_the_same_bits, repeat)
