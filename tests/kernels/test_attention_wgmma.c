/* test_attention_wgmma.c - attention of many query rows, as the kernels of attention_wgmma.cu compute it where there
 * are tensor maps and products of warpgroups: every type, head dimension, mask and tile against double precision, what
 * makes them compute a tile again, and where numbers that are none may go. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/attention_run.h"

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};
static const int64_t dimensions[] = {32, 64, 128, 256};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Lengths around tiles of 64, 128 and 192 rows; fewer and more queries than keys; a limit at the very end of a tile. */
static const struct {
  int64_t query_length, capacity, query_heads, kv_heads;
} shapes[] = {
    {64, 1, 1, 1},    {64, 64, 2, 1},   {65, 63, 2, 2},   {128, 128, 1, 1}, {129, 257, 2, 1},
    {192, 320, 3, 3}, {191, 127, 1, 1}, {300, 172, 2, 1}, {333, 333, 4, 2}, {128, 640, 8, 1},
};

static void prefill(rondo_backend backend) {
  static struct attention tasks[COUNT(dimensions) * 2 * COUNT(shapes)];
  for (size_t t = 0; t < COUNT(dtypes); t++) {
    size_t count = 0;
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (int32_t causal = 0; causal < 2; causal++)
        for (size_t s = 0; s < COUNT(shapes); s++, count++)
          tasks[count] = (struct attention){.dtype = dtypes[t],
                                            .layout = (s + t) % 2 ? RONDO_BSHD : RONDO_BHSD,
                                            .batch = s < 4 ? 2 : 1,
                                            .query_heads = shapes[s].query_heads,
                                            .kv_heads = shapes[s].kv_heads,
                                            .query_length = shapes[s].query_length,
                                            .capacity = shapes[s].capacity,
                                            .dimension = dimensions[n],
                                            .causal = causal,
                                            .lse_wanted = s % 3 != 0,
                                            .place = s % 4 == 1 ? STRIDED : DENSE};
    attentions_check(backend, tasks, count);
  }
}
BOTH_BACKENDS(attention_wgmma, many_rows_agree_with_double_precision, prefill)

/* So many rows and heads that tiles are high, blocks come in pairs, and each takes several. */
static void many_tiles(rondo_backend backend) {
  struct attention tasks[] = {
      {.query_heads = 1, .kv_heads = 1, .query_length = 4200, .capacity = 130, .dimension = 64},
      {.query_heads = 1, .kv_heads = 1, .query_length = 4200, .capacity = 150, .dimension = 64, .causal = 1},
      {.query_heads = 140, .kv_heads = 70, .query_length = 300, .capacity = 40, .dimension = 128},
      {.query_heads = 140, .kv_heads = 70, .query_length = 300, .capacity = 300, .dimension = 64, .causal = 1},
      {.query_heads = 70, .kv_heads = 70, .query_length = 300, .capacity = 40, .dimension = 256},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = dtypes[i % 2];
    tasks[i].layout = RONDO_BSHD;
    tasks[i].batch = 1;
    tasks[i].lse_wanted = true;
    if (backend == RONDO_BACKEND_HOST && i < 2) tasks[i].query_length /= 10; /* its tiles are all of 16 rows */
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, many_tiles_find_their_places, many_tiles)

static void lengths(rondo_backend backend) {
  static const int32_t some[] = {0, -5, 1, 63, 64, 65, 200, 1000, 129};
  static struct attention tasks[COUNT(dimensions) * 4];
  size_t count = 0;
  for (size_t n = 0; n < COUNT(dimensions); n++)
    for (int32_t i = 0; i < 4; i++, count++)
      tasks[count] = (struct attention){.dtype = dtypes[(n + (size_t)i) % 2],
                                        .layout = i % 2 ? RONDO_BHSD : RONDO_BSHD,
                                        .batch = COUNT(some),
                                        .query_heads = 2,
                                        .kv_heads = 1,
                                        .query_length = i < 2 ? 70 : 210,
                                        .capacity = 200,
                                        .dimension = dimensions[n],
                                        .causal = i % 2,
                                        .lengths = some,
                                        .lse_wanted = true};
  attentions_check(backend, tasks, count); /* attention_fill has put NaN behind every length */
}
BOTH_BACKENDS(attention_wgmma, rows_behind_a_length_may_hold_anything, lengths)

/* Scores of +-1e4, and some that leave all that the first KV tile had so far behind that weights overflow. */
static void computed_again(rondo_backend backend) {
  static const enum data kinds[] = {RISING, FALLING, OUTLIER, ENORMOUS};
  static struct attention tasks[COUNT(kinds) * COUNT(dimensions) * 4];
  size_t count = 0;
  for (size_t d = 0; d < COUNT(kinds); d++)
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (int32_t i = 0; i < 4; i++, count++)
        tasks[count] = (struct attention){.dtype = dtypes[(d + n + (size_t)i / 2) % 2],
                                          .layout = RONDO_BHSD,
                                          .batch = 1,
                                          .query_heads = 2,
                                          .kv_heads = 1,
                                          .query_length = 200,
                                          .capacity = 520,
                                          .dimension = dimensions[n],
                                          .scale = i < 2 ? 0.0f : 1.0f,
                                          .causal = i % 2,
                                          .lse_wanted = true,
                                          .data = kinds[d]};
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_wgmma, scores_far_above_the_first_are_computed_again, computed_again)

/* From scores of which no tile has to look at a maximum to those of which each does; last KV tiles, which come first,
 * of one column, of eight, and whole ones too. */
static void deviations(rondo_backend backend) {
  static const float some[] = {4, 12, 20, 32, 64, 300};
  static const int64_t capacities[] = {520, 641, 385, 512};
  static struct attention tasks[COUNT(some) * COUNT(dimensions) * COUNT(capacities) * 2];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const size_t n = i / 2 % COUNT(dimensions), c = i / 2 / COUNT(dimensions) % COUNT(capacities);
    struct attention *a = &tasks[i];
    *a = (struct attention){.dtype = dtypes[(i / 3) % 2],
                            .layout = RONDO_BSHD,
                            .batch = 1,
                            .query_heads = 2,
                            .kv_heads = 1,
                            .query_length = c == 2 ? 385 : 200,
                            .capacity = capacities[c],
                            .dimension = dimensions[n],
                            .causal = i % 2,
                            .lse_wanted = true};
    a->scale = some[i / 2 / COUNT(dimensions) / COUNT(capacities)] / sqrtf((float)a->dimension);
    if (i % 4 == 3) a->window = 150;
    if (i % 7 == 5) a->soft_cap = 150;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_wgmma, scores_of_any_deviation_agree_with_double_precision, deviations)

static void immense_scores(rondo_backend backend) {
  struct attention tasks[COUNT(dtypes)];
  for (size_t t = 0; t < COUNT(dtypes); t++)
    tasks[t] = (struct attention){.dtype = dtypes[t],
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

static void plant_either(struct attention *a, size_t i) { plant(a, i % 4 != 0 || i == COUNT(dimensions) * 4); }

static void special_numbers(rondo_backend backend) {
  struct attention tasks[COUNT(dimensions) * 4 + 1];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .layout = RONDO_BSHD,
                                  .batch = 2,
                                  .query_heads = 2,
                                  .kv_heads = 2,
                                  .query_length = 330,
                                  .capacity = i % 4 == 3 ? 270 : 400,
                                  .dimension = dimensions[i / 4 % COUNT(dimensions)],
                                  .causal = i % 4 != 2,
                                  .lse_wanted = true};
    /* High tiles, and KV rows that are more than 255 too far for the first of them. */
    if (i == COUNT(dimensions) * 4) {
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
  static struct attention tasks[COUNT(windows) * COUNT(dimensions) * 3];
  static const int64_t lengths[][2] = {{333, 333}, {200, 457}, {330, 270}};
  size_t count = 0;
  for (size_t w = 0; w < COUNT(windows); w++)
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (size_t i = 0; i < COUNT(lengths); i++, count++)
        tasks[count] = (struct attention){.dtype = dtypes[(w + n + i) % 2],
                                          .layout = (w + i) % 2 ? RONDO_BSHD : RONDO_BHSD,
                                          .batch = 1,
                                          .query_heads = 2,
                                          .kv_heads = i == 1 ? 1 : 2,
                                          .query_length = lengths[i][0],
                                          .capacity = lengths[i][1],
                                          .dimension = dimensions[n],
                                          .causal = 1,
                                          .window = windows[w],
                                          .soft_cap = (w + n) % 4 == 3 ? 5.0f : 0.0f,
                                          .lse_wanted = true,
                                          .place = i == 1 ? STRIDED : DENSE};
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_wgmma, a_window_ends_at_its_row_wherever_tiles_do, window_edges)

/* A block takes several tiles; tiles are high; lengths differ, and some are shorter than the window. */
static void windows_of_lengths(rondo_backend backend) {
  static const int32_t some[] = {0, -5, 1, 63, 64, 65, 200, 1000, 129};
  static struct attention tasks[COUNT(dimensions) * 3 + 2];
  size_t count = 0;
  for (size_t n = 0; n < COUNT(dimensions); n++)
    for (int32_t i = 0; i < 3; i++, count++)
      tasks[count] = (struct attention){.batch = COUNT(some),
                                        .query_heads = 2,
                                        .query_length = i < 2 ? 70 : 210,
                                        .capacity = 200,
                                        .dimension = dimensions[n],
                                        .lengths = some,
                                        .window = (const int32_t[]){40, 128, 150}[i]};
  const int64_t rows = backend == RONDO_BACKEND_HOST ? 420 : 4200; /* the host's tiles are all of 16 */
  tasks[count++] = (struct attention){
      .batch = 1, .query_heads = 1, .query_length = rows, .capacity = rows, .dimension = 64, .window = 130};
  tasks[count++] = (struct attention){
      .batch = 1, .query_heads = 140, .query_length = 300, .capacity = 310, .dimension = 128, .window = 100};
  for (size_t i = 0; i < count; i++) {
    tasks[i].dtype = dtypes[i % 2];
    tasks[i].layout = i / 2 % 2 ? RONDO_BHSD : RONDO_BSHD;
    tasks[i].kv_heads = 1;
    tasks[i].causal = 1;
    tasks[i].lse_wanted = true;
  }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_wgmma, windows_fit_every_length, windows_of_lengths)

/* Scores far below the cap, around it and far above it; a cap far above all. */
static void soft_caps(rondo_backend backend) {
  static const struct {
    float cap, scale;
    enum data data;
  } cases[] = {{50.0f, 0.0f, NORMAL},
               {2.0f, 0.0f, NORMAL},
               {50.0f, 0.0f, RISING},
               {5.0f, 1.0f, ENORMOUS},
               {1000.0f, 0.0f, NORMAL}};
  static struct attention tasks[COUNT(cases) * COUNT(dimensions) * 2];
  size_t count = 0;
  for (size_t c = 0; c < COUNT(cases); c++)
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (int32_t causal = 0; causal < 2; causal++, count++)
        tasks[count] = (struct attention){.dtype = dtypes[(c + n) % 2],
                                          .layout = RONDO_BSHD,
                                          .batch = 1,
                                          .query_heads = 3,
                                          .kv_heads = 3,
                                          .query_length = 150,
                                          .capacity = 333,
                                          .dimension = dimensions[n],
                                          .scale = cases[c].scale,
                                          .causal = causal,
                                          .soft_cap = cases[c].cap,
                                          .lse_wanted = true,
                                          .data = cases[c].data};
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_wgmma, soft_caps_agree_with_double_precision, soft_caps)

static void plant_values(struct attention *a, size_t i) {
  (void)i;
  plant(a, true);
}

/* With a window, numbers that are none leave a row's sight again. */
static void special_numbers_in_windows(rondo_backend backend) {
  struct attention tasks[COUNT(dimensions) * 3];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 2,
                                  .query_heads = 2,
                                  .kv_heads = 2,
                                  .query_length = 330,
                                  .capacity = i % 3 == 2 ? 270 : 400,
                                  .dimension = dimensions[i / 3],
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
  static const double keys[COUNT(dimensions)] = {15.625, 11.0625, 7.8125, 5.53125};
  struct rectangle kv = kv_rectangle(a), query = query_rectangle(a);
  for (int64_t n = 0; n < rectangle_elements(&query); n++) oracle_write(a->dtype, a->q_memory, n, 1.0);
  for (int64_t n = 0; n < rectangle_elements(&kv); n++)
    oracle_write(a->dtype, a->k_memory, n, n / a->dimension == 20 || n / a->dimension == 200 ? keys[i / 4] : 0.0);
}

static void nearly_infinite(rondo_backend backend) {
  struct attention tasks[COUNT(dimensions) * 4];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 1,
                                  .query_heads = 2,
                                  .kv_heads = 1,
                                  .query_length = 300,
                                  .capacity = i / 2 % 2 ? 600 : 700,
                                  .dimension = dimensions[i / 4],
                                  .causal = i / 2 % 2,
                                  .lse_wanted = true};
  }
  attentions_planted(backend, tasks, COUNT(tasks), 29, plant_far_apart);
}
BOTH_BACKENDS(attention_wgmma, a_sum_that_is_nearly_infinite_counts, nearly_infinite)

static void repeat(rondo_backend backend) {
  enum { REPLAYS = 1000 };
  static struct attention tasks[COUNT(dimensions) * 2];
  struct trial trial;
  struct random random = {17};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .layout = RONDO_BHSD,
                                  .batch = 1,
                                  .query_heads = 4,
                                  .kv_heads = 2,
                                  .query_length = 130,
                                  .capacity = 300,
                                  .dimension = dimensions[i / 2],
                                  .scale = i % 2 ? 1.0f : 0.0f, /* computed again */
                                  .causal = 1,
                                  .lse_wanted = true,
                                  .data = i % 2 ? FALLING : NORMAL};
    attention_add(&tasks[i], &trial);
  }
  trial_instantiate(&trial);
  uint16_t *first[COUNT(tasks)];
  uint64_t bytes[COUNT(tasks)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
    REQUIRE_OK(rondo_tensor_bytes(tasks[i].o, &bytes[i]));
    first[i] = attention_memory((int64_t)bytes[i], 1);
  }
  for (int replay = 0; replay < (backend == RONDO_BACKEND_CUDA ? REPLAYS : 3); replay++) {
    for (size_t i = 0; i < COUNT(tasks); i++) trial_set(&trial, tasks[i].o, tasks[i].q_memory); /* something else */
    trial_replay(&trial);
    for (size_t i = 0; i < COUNT(tasks); i++) {
      attention_get(&tasks[i], &trial);
      if (!replay) memcpy(first[i], tasks[i].o_memory, bytes[i]);
      cr_expect(!memcmp(first[i], tasks[i].o_memory, bytes[i]), "task %zu differs in replay %d", i, replay);
    }
  }
  for (size_t i = 0; i < COUNT(tasks); i++) {
    free(first[i]);
    attention_free(&tasks[i]);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(attention_wgmma, a_thousand_replays_give_the_same_bits, repeat)
