/* test_attention_decode_numbers.c - the results of attention of few query rows: the same bits for an item in any batch,
 * with or without pages, and in every replay; lengths at every border of tiles and splits, against double precision;
 * scores at the end of fp32's range; NaN and infinities, which reach only the rows that see them. Faults that would
 * show: a sum whose order depends on the neighbours, a read after a length, a weight that becomes zero too early. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../kernels/attention/attention_decode.h"
#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};
static const int64_t dimensions[] = {64, 128, 256};

/* ---- The same bits ---------------------------------------------------------------------------------------------- */

/* What an item of `from` reads becomes what one of `to` reads, wherever either
 * has its rows. */
static void copy_item(const struct attention *from, int64_t from_item, struct attention *to, int64_t to_item) {
  const struct rectangle from_kv = kv_rectangle(from), to_kv = kv_rectangle(to);
  const struct rectangle from_query = query_rectangle(from), to_query = query_rectangle(to);
  const size_t query_bytes = (size_t)from->dimension * 2, kv_bytes = query_bytes / (from->e4m3_kv ? 2 : 1);
  const size_t number_bytes = from->e4m3_kv ? 1 : 2;
  for (int64_t h = 0; h < from->query_heads; h++)
    for (int64_t i = 0; i < from->query_length; i++)
      memcpy(to->q_memory + row_index(to, &to_query, to_item, h, i),
             from->q_memory + row_index(from, &from_query, from_item, h, i), query_bytes);
  for (int64_t h = 0; h < from->kv_heads; h++)
    for (int64_t j = 0; j < attention_length(from, from_item); j++) {
      const int64_t source = kv_index(from, &from_kv, from_item, h, j), target = kv_index(to, &to_kv, to_item, h, j);
      cr_assert(source >= 0 && target >= 0);
      memcpy((char *)to->k_memory + (size_t)target * number_bytes,
             (char *)from->k_memory + (size_t)source * number_bytes, kv_bytes);
      memcpy((char *)to->v_memory + (size_t)target * number_bytes,
             (char *)from->v_memory + (size_t)source * number_bytes, kv_bytes);
    }
}

/* Plain, general and e4m3. */
static struct attention of_kind(enum decode_kind kind) {
  struct attention task = {.causal = 1, .lse_wanted = true};
  if (kind == DECODE_PLAIN) return task;
  task.page_rows = 32, task.window = 700, task.soft_cap = 20.0f;
  if (kind == DECODE_E4M3) task.e4m3_kv = true, task.k_scale = 0.5f, task.v_scale = 3.0f;
  return task;
}

static void batches(rondo_backend backend) {
  /* Of 20 items pairs of blocks fill a GPU, and 64 blocks that are alone; of 150 more than two share a part of it. */
  static const int64_t sizes[] = {1, 7, 20, 64, 150};
  for (size_t c = 0; c < 2 * COUNT(dimensions) * 3; c++) {
    const bool may_crowd = c % 3 == DECODE_PLAIN && dimensions[c / 6] == 64;
    const size_t count = backend == RONDO_BACKEND_HOST ? 2 : may_crowd ? 5 : 4;
    static int32_t lengths[150];
    struct attention tasks[COUNT(sizes)];
    struct trial trial;
    struct random random = {19};
    for (int i = 0; i < 150; i++) lengths[i] = 1 + 37 * i % 1100;
    lengths[0] = 1093;
    trial_describe(&trial, backend);
    for (size_t i = 0; i < count; i++) {
      tasks[i] = of_kind((enum decode_kind)(c % 3));
      tasks[i].dtype = dtypes[c / 3 % 2];
      tasks[i].batch = sizes[i];
      tasks[i].query_heads = 4, tasks[i].kv_heads = 2, tasks[i].query_length = c / 3 % 2 ? 1 : 3;
      tasks[i].capacity = 1120, tasks[i].dimension = dimensions[c / 6], tasks[i].lengths = lengths;
      attention_add(&tasks[i], &trial);
    }
    trial_instantiate(&trial);
    for (size_t i = 0; i < count; i++) {
      attention_fill(&tasks[i], &random);
      copy_item(&tasks[0], 0, &tasks[i], 0);
      attention_set(&tasks[i], &trial);
    }
    trial_replay(&trial);
    const size_t elements = (size_t)(4 * tasks[0].query_length * tasks[0].dimension);
    for (size_t i = 0; i < count; i++) {
      attention_get(&tasks[i], &trial);
      cr_expect(!memcmp(tasks[i].o_memory, tasks[0].o_memory, elements * sizeof(uint16_t)),
                "case %zu: o of an item differs in a batch of %ld", c, (long)sizes[i]);
      cr_expect(!memcmp(tasks[i].lse_memory, tasks[0].lse_memory, 4 * (size_t)tasks[0].query_length * sizeof(float)),
                "case %zu: lse of an item differs in a batch of %ld", c, (long)sizes[i]);
    }
    for (size_t i = 0; i < count; i++) attention_free(&tasks[i]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(attention_decode, an_item_has_the_same_bits_in_any_batch, batches)

/* By the plain kernel, where there is one, and by the general one; with e4m3, by one kernel both
 * times. */
static void same_rows(rondo_backend backend) {
  skip_under_sanitizers();
  for (size_t c = 0; c < 4 * COUNT(dimensions); c++) {
    static const int32_t lengths[] = {577, 0, 16, 592, 47, 555, 500};
    struct attention tasks[2];
    struct trial trial;
    struct random random = {31};
    trial_describe(&trial, backend);
    for (int i = 0; i < 2; i++) {
      tasks[i] = (struct attention){.dtype = dtypes[c / 2 % 2],
                                    .layout = c % 3 ? RONDO_BHSD : RONDO_BSHD,
                                    .batch = c % 2 ? 7 : 1,
                                    .query_heads = 20,
                                    .kv_heads = 10,
                                    .query_length = 2,
                                    .capacity = 592,
                                    .dimension = dimensions[c / 4],
                                    .causal = 1,
                                    .lengths = lengths,
                                    .lse_wanted = true,
                                    .e4m3_kv = c % 4 == 3,
                                    .page_rows = i ? 16 : 0};
      attention_add(&tasks[i], &trial);
    }
    trial_instantiate(&trial);
    for (int i = 0; i < 2; i++) attention_fill(&tasks[i], &random);
    for (int64_t b = 0; b < tasks[0].batch; b++) copy_item(&tasks[0], b, &tasks[1], b);
    for (int i = 0; i < 2; i++) attention_set(&tasks[i], &trial);
    trial_replay(&trial);
    for (int i = 0; i < 2; i++) attention_get(&tasks[i], &trial);
    attention_check(&tasks[1]);
    const size_t rows = (size_t)(tasks[0].batch * 20 * 2), elements = rows * (size_t)tasks[0].dimension;
    cr_expect(!memcmp(tasks[0].o_memory, tasks[1].o_memory, elements * sizeof(uint16_t)), "case %zu: o differs", c);
    cr_expect(!memcmp(tasks[0].lse_memory, tasks[1].lse_memory, rows * sizeof(float)), "case %zu: lse differs", c);
    for (int i = 0; i < 2; i++) attention_free(&tasks[i]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(attention_decode, a_table_of_pages_changes_no_bit, same_rows)

static void replays(rondo_backend backend) {
  enum { REPLAYS = 1000 };
  struct attention tasks[] = {
      {.batch = 1, .query_heads = 8, .kv_heads = 2, .query_length = 1, .capacity = 1500, .dimension = 128},
      {.batch = 40, .query_heads = 4, .kv_heads = 2, .query_length = 2, .capacity = 130, .dimension = 64},
      {.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 1, .capacity = 9000, .dimension = 64},
      {.batch = 1,
       .query_heads = 8,
       .kv_heads = 2,
       .query_length = 1,
       .capacity = 1504,
       .dimension = 128,
       .page_rows = 16},
      {.batch = 40,
       .query_heads = 4,
       .kv_heads = 2,
       .query_length = 2,
       .capacity = 1504,
       .dimension = 128,
       .window = 999},
      {.batch = 40,
       .query_heads = 4,
       .kv_heads = 2,
       .query_length = 2,
       .capacity = 130,
       .dimension = 64,
       .e4m3_kv = true},
      {.batch = 1,
       .query_heads = 2,
       .kv_heads = 1,
       .query_length = 1,
       .capacity = 9000,
       .dimension = 128,
       .e4m3_kv = true},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = dtypes[i % 2];
    tasks[i].causal = 1;
  }
  attentions_same_bits(backend, tasks, COUNT(tasks), backend == RONDO_BACKEND_HOST ? 2 : REPLAYS);
}
BOTH_BACKENDS(attention_decode, a_thousand_replays_give_the_same_bits, replays)

/* ---- Lengths and numbers ---------------------------------------------------------------------------------------- */

/* Around tiles, parts and runs; with few heads in clusters, with many alone. */
static const int32_t borders[] = {0,   1,   2,   15,  16,  17,  63,   64,   65,   127,  128,  129,
                                  511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 1537, 1599, 1600};

static void lengths(rondo_backend backend) {
  static struct attention tasks[8 * COUNT(dimensions)];
  const int64_t most_heads = backend == RONDO_BACKEND_HOST ? 1 : 3; /* the host has no clusters */
  size_t count = 0;
  for (int kind = DECODE_PLAIN; kind <= DECODE_E4M3; kind++)
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (int64_t kv_heads = 1; kv_heads <= most_heads; kv_heads += 2)
        for (int64_t rows = kind == DECODE_PLAIN ? 1 : 6; rows < 7; rows += 5, count++) {
          tasks[count] = of_kind((enum decode_kind)kind);
          tasks[count].dtype = dtypes[count % 2];
          tasks[count].layout = count % 3 ? RONDO_BHSD : RONDO_BSHD;
          tasks[count].batch = COUNT(borders), tasks[count].lengths = borders;
          tasks[count].query_heads = tasks[count].kv_heads = kv_heads;
          tasks[count].query_length = rows, tasks[count].capacity = 1600, tasks[count].dimension = dimensions[n];
          if (kind && count % 4 == 0) tasks[count].page_rows = 0;
          if (kind && count % 4 == 1) tasks[count].window = 0, tasks[count].table = MISSING;
          if (kind && count % 4 == 2) tasks[count].window = 17, tasks[count].soft_cap = 0.0f;
        }
  attentions_check(backend, tasks, count); /* attention_fill has put NaN after every length */
}
BOTH_BACKENDS(attention_decode, lengths_at_every_border_agree_with_double_precision, lengths)

/* Equal scores of -1.2e38, whose exponents to base 2 are near the least that a
 * float holds: they are no less seen. */
static void least_scores(rondo_backend backend) {
  struct attention tasks[4 * COUNT(dimensions)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const bool window = i % 4 >= 2;
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .batch = i % 2 ? 70 : 1, /* heads alone, and in clusters */
                                  .query_heads = 2,
                                  .kv_heads = 1,
                                  .query_length = window ? 3 : 1,
                                  .capacity = 300,
                                  .dimension = dimensions[i / 4],
                                  .causal = window,
                                  .window = window ? 100 : 0};
    tasks[i].scale = -1.2e38f / (24320.0f * 24320.0f * (float)tasks[i].dimension);
  }
  attentions_immense(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_decode, scores_near_the_least_float_still_give_weights, least_scores)

/* The last KV rows are seen by the last positions only, and lie in one tile
 * with rows that all see. */
static const double planted[] = {NAN, INFINITY, -INFINITY};

static void plant_in_the_last(struct attention *a, size_t i) {
  struct rectangle kv = kv_rectangle(a);
  const double value = planted[i / (2 * COUNT(dimensions))];
  for (int64_t b = 0; b < a->batch; b++) {
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, b, 0, 69) + 3, value);
    oracle_write(a->dtype, a->v_memory, row_index(a, &kv, b, 0, 67) + 9, value);
  }
}

static void not_numbers(rondo_backend backend) {
  struct attention tasks[2 * COUNT(dimensions) * COUNT(planted)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .batch = i % 2 ? 1 : 70,
                                  .query_heads = 2,
                                  .kv_heads = 1,
                                  .query_length = 5,
                                  .capacity = 70,
                                  .dimension = dimensions[i / 2 % COUNT(dimensions)],
                                  .causal = 1,
                                  .lse_wanted = true};
  }
  attentions_planted(backend, tasks, COUNT(tasks), 29, plant_in_the_last);
}
BOTH_BACKENDS(attention_decode, nan_and_infinity_in_values_reach_only_rows_that_see_them, not_numbers)
