/* test_attention_wgmma.c - attention of many query rows, which GPUs with products of warpgroups compute in
 * attention_wgmma.cu, against double precision: every type, head dimension, mask and tile, what makes the kernels
 * compute a tile again, and where NaN and infinities may go. Faults that would show: a column at the end of a tile or a
 * window that is counted wrongly, weights that overflow before the maximum is found, a row after a length that is used,
 * a tile that is stored in another's place. */
#include <criterion/criterion.h>
#include <math.h>

#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Lengths around tiles of 64, 128 and 192 rows; fewer and more queries than keys; a limit at the very end of a tile. */
static const struct attention shapes[] = {
    {.name = "64 on one", .batch = 2, .query_heads = 1, .kv_heads = 1, .query_length = 64, .capacity = 1},
    {.name = "64 on 64, strided",
     .batch = 2,
     .query_heads = 2,
     .kv_heads = 1,
     .query_length = 64,
     .capacity = 64,
     .place = STRIDED},
    {.name = "65 on 63", .batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 65, .capacity = 63},
    {.name = "128 on 128", .batch = 2, .query_heads = 1, .kv_heads = 1, .query_length = 128, .capacity = 128},
    {.name = "129 on 257", .batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 129, .capacity = 257},
    {.name = "192 on 320, strided",
     .batch = 1,
     .query_heads = 3,
     .kv_heads = 3,
     .query_length = 192,
     .capacity = 320,
     .place = STRIDED},
    {.name = "191 on 127", .batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 191, .capacity = 127},
    {.name = "300 on 172", .batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 300, .capacity = 172},
    {.name = "333 on 333", .batch = 1, .query_heads = 4, .kv_heads = 2, .query_length = 333, .capacity = 333},
    {.name = "8 heads of a group",
     .batch = 1,
     .query_heads = 8,
     .kv_heads = 1,
     .query_length = 128,
     .capacity = 640,
     .place = STRIDED},
};

static void prefill(rondo_backend backend) {
  skip_under_sanitizers();
  struct attention cases[2 * COUNT(shapes)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    cases[i] = shapes[i % COUNT(shapes)];
    cases[i].causal = i < COUNT(shapes);
    cases[i].lse_wanted = i % 3 != 0;
  }
  attentions_check_cases(backend, BOTH_TYPES, cases, COUNT(cases));
}
BOTH_BACKENDS(attention_wgmma, many_rows_agree_with_double_precision, prefill)

/* So many rows and heads that tiles are high, blocks come in pairs, and each takes several. */
static void many_tiles(rondo_backend backend) {
  struct attention tasks[] = {
      {.name = "high tiles", .query_heads = 1, .kv_heads = 1, .query_length = 4200, .capacity = 130, .dimension = 64},
      {.name = "high tiles, causal",
       .query_heads = 1,
       .kv_heads = 1,
       .query_length = 4200,
       .capacity = 150,
       .dimension = 64,
       .causal = 1},
      {.name = "many heads", .query_heads = 140, .kv_heads = 70, .query_length = 300, .capacity = 40, .dimension = 128},
      {.name = "many heads, causal",
       .query_heads = 140,
       .kv_heads = 70,
       .query_length = 300,
       .capacity = 300,
       .dimension = 64,
       .causal = 1},
      {.name = "many heads of 256",
       .query_heads = 70,
       .kv_heads = 70,
       .query_length = 300,
       .capacity = 40,
       .dimension = 256},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = attention_types[i % 2];
    tasks[i].layout = RONDO_BSHD;
    tasks[i].batch = 1;
    tasks[i].lse_wanted = true;
    if (backend == RONDO_BACKEND_HOST && i < 2) tasks[i].query_length /= 10; /* its tiles are all of 16 rows */
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, many_tiles_find_their_places, many_tiles)

/* attention_fill puts NaN after every length. */
static const int32_t some_lengths[] = {0, -5, 1, 63, 64, 65, 200, 1000, 129};

static void lengths(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "70 rows", .query_length = 70},
      {.name = "70 rows, causal", .query_length = 70, .causal = 1},
      {.name = "210 rows", .query_length = 210},
      {.name = "210 rows, causal", .query_length = 210, .causal = 1},
  };
  struct attention tasks[COUNT(cases)];
  for (size_t i = 0; i < COUNT(cases); i++) {
    tasks[i] = cases[i];
    tasks[i].batch = COUNT(some_lengths), tasks[i].lengths = some_lengths;
    tasks[i].query_heads = 2, tasks[i].kv_heads = 1, tasks[i].capacity = 200;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, rows_after_a_length_may_hold_anything, lengths)

/* Scores of +-1e4, and scores so far above all of the first KV tile that weights overflow. */
static void computed_again(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "rising scores", .data = RISING},
      {.name = "falling scores", .data = FALLING},
      {.name = "one score above all", .data = OUTLIER},
      {.name = "enormous scores", .data = ENORMOUS},
      {.name = "rising scores, scale 1", .data = RISING, .scale = 1.0f},
      {.name = "falling scores, scale 1", .data = FALLING, .scale = 1.0f},
      {.name = "one score above all, scale 1", .data = OUTLIER, .scale = 1.0f},
      {.name = "enormous scores, scale 1", .data = ENORMOUS, .scale = 1.0f},
  };
  struct attention tasks[2 * COUNT(cases)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i / 2];
    tasks[i].causal = i % 2;
    tasks[i].batch = 1, tasks[i].query_heads = 2, tasks[i].kv_heads = 1;
    tasks[i].query_length = 200, tasks[i].capacity = 520;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, scores_far_above_the_first_are_computed_again, computed_again)

/* From scores of which no tile has to look at a maximum to those of which each does. The last KV tile, which comes
 * first, has one column, eight, or all of them. */
static void deviations(rondo_backend backend) {
  skip_under_sanitizers();
  static const float some[] = {4, 12, 20, 32, 64, 300};
  static const struct attention cases[] = {
      {.name = "8 columns", .query_length = 200, .capacity = 520},
      {.name = "8 columns, causal", .query_length = 200, .capacity = 520, .causal = 1},
      {.name = "one column, capped", .query_length = 200, .capacity = 641, .soft_cap = 150},
      {.name = "one column, in a window", .query_length = 200, .capacity = 641, .causal = 1, .window = 150},
      {.name = "one column, square", .query_length = 385, .capacity = 385},
      {.name = "one column, square, causal and capped",
       .query_length = 385,
       .capacity = 385,
       .causal = 1,
       .soft_cap = 150},
      {.name = "all columns", .query_length = 200, .capacity = 512},
      {.name = "all columns, in a window", .query_length = 200, .capacity = 512, .causal = 1, .window = 150},
  };
  struct attention tasks[COUNT(some) * COUNT(cases)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i % COUNT(cases)];
    tasks[i].deviation = some[i / COUNT(cases)];
    tasks[i].batch = 1, tasks[i].query_heads = 2, tasks[i].kv_heads = 1;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, scores_of_any_deviation_agree_with_double_precision, deviations)

static void immense_scores(rondo_backend backend) {
  struct attention tasks[ATTENTION_TYPES];
  for (size_t t = 0; t < ATTENTION_TYPES; t++)
    tasks[t] = (struct attention){.dtype = attention_types[t],
                                  .layout = RONDO_BHSD,
                                  .batch = 1,
                                  .query_heads = 1,
                                  .kv_heads = 1,
                                  .query_length = 128,
                                  .capacity = 256,
                                  .dimension = 128};
  attentions_immense(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, scores_as_large_as_their_rounding_still_give_weights, immense_scores)

/* In q or k, a number that is none makes whole rows; in v, one column of those that see it. Some lie where few rows of
 * a tile do. */
static void plant(struct attention *a, bool values) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  static const double specials[] = {NAN, INFINITY, -INFINITY};
  for (int64_t i = 0; i < 12; i++) {
    int64_t row = i % 4 == 3 ? a->capacity - 1 - i : i * (a->capacity / 12), column = (i * 37) % a->dimension;
    double special = specials[i % 3];
    if (values) oracle_write(a->dtype, a->v_memory, row_index(a, &kv, i % a->batch, i % 2, row) + column, special);
  }
  if (values) return;
  oracle_write(a->dtype, a->q_memory, row_index(a, &query, 0, 0, 70) + 3, NAN);
  oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 0, a->capacity - 4) + 1, NAN);
  oracle_write(a->dtype, a->k_memory, row_index(a, &kv, 0, 1, a->capacity / 2) + 7, INFINITY);
}

enum { HIGH_TILES = 4 * ATTENTION_DIMENSIONS }; /* the last task */

static void plant_either(struct attention *a, size_t i) { plant(a, i % 4 != 0 || i == HIGH_TILES); }

static void special_numbers(rondo_backend backend) {
  struct attention tasks[HIGH_TILES + 1];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = attention_types[i % 2],
                                  .layout = RONDO_BSHD,
                                  .batch = 2,
                                  .query_heads = 2,
                                  .kv_heads = 2,
                                  .query_length = 330,
                                  .capacity = i % 4 == 3 ? 270 : 400,
                                  .dimension = attention_dimensions[i / 4 % ATTENTION_DIMENSIONS],
                                  .causal = i % 4 != 2,
                                  .lse_wanted = true};
    /* High tiles, and KV rows that are more than 255 too far for the first of them. */
    if (i == HIGH_TILES) {
      tasks[i].dimension = 64, tasks[i].query_heads = 32;
      tasks[i].query_length = 261, tasks[i].capacity = 326, tasks[i].causal = 1;
    }
  }
  attentions_planted(backend, tasks, COUNT(tasks), 13, plant_either);
}
BOTH_BACKENDS(attention_wgmma, special_numbers_reach_exactly_the_rows_that_see_them, special_numbers)

/* Windows of one row, around tiles, and wider than some lengths; ends of rows anywhere in a tile of 128. */
static const int32_t windows[] = {1, 63, 64, 65, 127, 128, 129, 200, 300, 1000};

static void window_edges(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "square", .kv_heads = 2, .query_length = 333, .capacity = 333},
      {.name = "more keys, strided", .kv_heads = 1, .query_length = 200, .capacity = 457, .place = STRIDED},
      {.name = "fewer keys, capped", .kv_heads = 2, .query_length = 330, .capacity = 270, .soft_cap = 5.0f},
  };
  static struct attention tasks[COUNT(windows) * COUNT(cases)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i % COUNT(cases)];
    tasks[i].causal = 1, tasks[i].window = windows[i / COUNT(cases)];
    tasks[i].batch = 1, tasks[i].query_heads = 2;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, a_window_ends_at_its_row_wherever_tiles_do, window_edges)

/* Lengths differ, and some are shorter than the window; tiles are high, and a block takes several. */
static void windows_of_lengths(rondo_backend backend) {
  const int64_t rows = backend == RONDO_BACKEND_HOST ? 420 : 4200; /* the host's tiles are all of 16 */
  struct attention cases[] = {
      {.name = "70 rows, 40 of them", .query_length = 70, .window = 40},
      {.name = "70 rows, a window of a tile", .query_length = 70, .window = 128},
      {.name = "210 rows", .query_length = 210, .window = 150},
  };
  struct attention large[] = {
      {.name = "high tiles", .query_heads = 1, .query_length = rows, .capacity = rows, .dimension = 64, .window = 130},
      {.name = "many heads", .query_heads = 140, .query_length = 300, .capacity = 310, .dimension = 128, .window = 100},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    cases[i].batch = COUNT(some_lengths), cases[i].lengths = some_lengths, cases[i].capacity = 200;
    cases[i].query_heads = 2, cases[i].kv_heads = 1, cases[i].causal = 1;
    cases[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, cases, COUNT(cases));
  for (size_t i = 0; i < COUNT(large); i++) {
    large[i].dtype = attention_types[i];
    large[i].batch = large[i].kv_heads = 1, large[i].causal = 1;
    large[i].lse_wanted = true;
  }
  attentions_check(backend, large, COUNT(large));
}
BOTH_BACKENDS(attention_wgmma, windows_fit_every_length, windows_of_lengths)

/* Scores far below the cap, around it and far above it; a cap far above all. */
static void soft_caps(rondo_backend backend) {
  static const struct attention cases[] = {
      {.name = "scores below the cap", .soft_cap = 50.0f},
      {.name = "scores around the cap", .soft_cap = 2.0f},
      {.name = "scores that rise to the cap", .soft_cap = 50.0f, .data = RISING},
      {.name = "scores far above the cap", .soft_cap = 5.0f, .scale = 1.0f, .data = ENORMOUS},
      {.name = "a cap far above all", .soft_cap = 1000.0f},
  };
  struct attention tasks[2 * COUNT(cases)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = cases[i / 2];
    tasks[i].causal = i % 2;
    tasks[i].batch = 1, tasks[i].query_heads = tasks[i].kv_heads = 3;
    tasks[i].query_length = 150, tasks[i].capacity = 333;
    tasks[i].lse_wanted = true;
  }
  attentions_check_cases(backend, TYPES_IN_TURN, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, soft_caps_agree_with_double_precision, soft_caps)

static void plant_values(struct attention *a, size_t i) {
  (void)i;
  plant(a, true);
}

/* With a window, numbers that are none leave a row's sight again. */
static void special_numbers_in_windows(rondo_backend backend) {
  struct attention tasks[ATTENTION_DIMENSIONS * 3];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = attention_types[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 2,
                                  .query_heads = 2,
                                  .kv_heads = 2,
                                  .query_length = 330,
                                  .capacity = i % 3 == 2 ? 270 : 400,
                                  .dimension = attention_dimensions[i / 3],
                                  .causal = 1,
                                  .window = (const int32_t[]){20, 140, 300}[i % 3],
                                  .soft_cap = i % 2 ? 30.0f : 0.0f,
                                  .lse_wanted = true};
  }
  attentions_planted(backend, tasks, COUNT(tasks), 19, plant_values);
}
BOTH_BACKENDS(attention_wgmma, special_numbers_reach_only_rows_whose_window_has_them, special_numbers_in_windows)

/* Two weights, far apart, are 2^127.5 times those of the first KV tile: sums end at 2^128. */
static void plant_far_apart(struct attention *a, size_t i) {
  /* Times the dimension, scale and log2(e): 127.5 to 127.7. */
  static const double keys[ATTENTION_DIMENSIONS] = {15.625, 11.0625, 7.8125, 5.53125};
  struct rectangle kv = kv_rectangle(a), query = query_rectangle(a);
  for (int64_t n = 0; n < rectangle_elements(&query); n++) oracle_write(a->dtype, a->q_memory, n, 1.0);
  for (int64_t n = 0; n < rectangle_elements(&kv); n++)
    oracle_write(a->dtype, a->k_memory, n, n / a->dimension == 20 || n / a->dimension == 200 ? keys[i / 4] : 0.0);
}

static void nearly_infinite(rondo_backend backend) {
  struct attention tasks[ATTENTION_DIMENSIONS * 4];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = attention_types[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 1,
                                  .query_heads = 2,
                                  .kv_heads = 1,
                                  .query_length = 300,
                                  .capacity = i / 2 % 2 ? 600 : 700,
                                  .dimension = attention_dimensions[i / 4],
                                  .causal = i / 2 % 2,
                                  .lse_wanted = true};
  }
  attentions_planted(backend, tasks, COUNT(tasks), 29, plant_far_apart);
}
BOTH_BACKENDS(attention_wgmma, a_sum_that_is_nearly_infinite_counts, nearly_infinite)

static void repeat(rondo_backend backend) {
  enum { REPLAYS = 1000 };
  static struct attention tasks[2 * ATTENTION_DIMENSIONS];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const bool again = i % 2; /* a tile is computed again */
    tasks[i] = (struct attention){.dtype = attention_types[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 1,
                                  .query_heads = 4,
                                  .kv_heads = 2,
                                  .query_length = 130,
                                  .capacity = 300,
                                  .dimension = attention_dimensions[i / 2],
                                  .scale = again ? 1.0f : 0.0f,
                                  .causal = 1,
                                  .lse_wanted = true,
                                  .data = again ? FALLING : NORMAL};
  }
  attentions_same_bits(backend, tasks, COUNT(tasks), backend == RONDO_BACKEND_CUDA ? REPLAYS : 3);
}
BOTH_BACKENDS(attention_wgmma, a_thousand_replays_give_the_same_bits, repeat)
