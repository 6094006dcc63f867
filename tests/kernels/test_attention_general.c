/* test_attention_general.c - attention with pages, windows, soft caps and e4m3, alone and together, against double
 * precision, on whichever kernel takes them. Where only the way to a number differs, such as pages instead of dense
 * rows, the bits are the same. Faults that would show: a page or a row outside of the window that is used, a scale
 * factor that is applied twice, a table that is read beyond the length. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../oracles/attention_run.h"

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};
static const int64_t dimensions[] = {32, 64, 128, 256};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Few and many query rows, groups, fewer keys than queries; all capacities are whole pages of 16 to 256 rows. */
static const struct {
  int64_t query_length, capacity, query_heads, kv_heads;
} shapes[] = {{1, 512, 8, 2}, {3, 256, 4, 4}, {5, 768, 3, 1}, {70, 256, 2, 1}, {130, 512, 2, 2}, {300, 256, 3, 3}};

static const int32_t some_lengths[] = {701, 0, 16, 255, 1, 200};

static struct attention shaped(size_t shape, size_t i) {
  return (struct attention){.dtype = dtypes[i % 2],
                            .layout = i / 2 % 2 ? RONDO_BSHD : RONDO_BHSD,
                            .batch = 2,
                            .query_heads = shapes[shape].query_heads,
                            .kv_heads = shapes[shape].kv_heads,
                            .query_length = shapes[shape].query_length,
                            .capacity = shapes[shape].capacity,
                            .dimension = dimensions[i % COUNT(dimensions)],
                            .causal = 1,
                            .lse_wanted = i % 3 != 1};
}

/* ---- One thing at a time ----------------------------------------------------------------------------------------- */

static void pages(rondo_backend backend) {
  static const int64_t page_rows[] = {16, 32, 64, 128, 256};
  static struct attention tasks[COUNT(page_rows) * COUNT(shapes) * 3];
  size_t count = 0;
  for (size_t r = 0; r < COUNT(page_rows); r++)
    for (size_t s = 0; s < COUNT(shapes); s++)
      for (int table = SCATTERED; table <= MISSING; table++, count++) {
        tasks[count] = shaped(s, r + s + (size_t)table);
        tasks[count].page_rows = page_rows[r];
        tasks[count].table = (enum table)table;
        tasks[count].causal = (int32_t)(r + s) % 2;
        tasks[count].splits = count % 4 == 3 ? 3 : 0;
        tasks[count].place = (enum place)(count % 5 < 3 ? DENSE : count % 5 - 2);
        if (count % 3 == 0) tasks[count].batch = COUNT(some_lengths), tasks[count].lengths = some_lengths;
      }
  attentions_check(backend, tasks, count); /* NaN after lengths and in pages that nobody has */
}
BOTH_BACKENDS(attention_general, rows_are_found_through_tables_of_pages, pages)

static void windows(rondo_backend backend) {
  static const int32_t sizes[] = {1, 2, 15, 63, 64, 65, 200, 511, INT32_MAX};
  static struct attention tasks[COUNT(sizes) * COUNT(shapes)];
  size_t count = 0;
  for (size_t w = 0; w < COUNT(sizes); w++)
    for (size_t s = 0; s < COUNT(shapes); s++, count++) {
      tasks[count] = shaped(s, w + s);
      tasks[count].window = sizes[w];
      tasks[count].splits = count % 3 == 2 ? 4 : 0;
      tasks[count].place = (enum place)(count % 7 < 5 ? DENSE : count % 7 - 4);
      tasks[count].data = count % 4 == 3 ? RISING : NORMAL;
      if (count % 2) tasks[count].batch = COUNT(some_lengths), tasks[count].lengths = some_lengths;
    }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_general, rows_see_the_last_columns_of_their_window, windows)

static void caps(rondo_backend backend) {
  static const float sizes[] = {0.25f, 5.0f, 50.0f, 1e4f, 1e8f}; /* the last changes nothing */
  static const enum data kinds[] = {NORMAL, EQUAL, RISING, OUTLIER, ENORMOUS};
  static struct attention tasks[COUNT(sizes) * COUNT(kinds) * COUNT(shapes)];
  size_t count = 0;
  for (size_t c = 0; c < COUNT(sizes); c++)
    for (size_t d = 0; d < COUNT(kinds); d++)
      for (size_t s = 0; s < COUNT(shapes); s++, count++) {
        tasks[count] = shaped(s, c + d + s);
        tasks[count].batch = 1;
        tasks[count].soft_cap = sizes[c];
        tasks[count].data = kinds[d];
        tasks[count].causal = (int32_t)(c + s) % 2;
        tasks[count].scale = count % 3 ? 0.0f : count % 2 ? -0.25f : 0.5f;
        tasks[count].splits = count % 5 == 4 ? 2 : 0;
      }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_general, scores_are_capped_before_they_are_weighed, caps)

static void codes(rondo_backend backend) {
  skip_under_sanitizers();
  static const enum data kinds[] = {NORMAL, EQUAL, RISING, FALLING, OUTLIER, ENORMOUS};
  static struct attention tasks[COUNT(kinds) * COUNT(shapes) * 3];
  size_t count = 0;
  for (size_t d = 0; d < COUNT(kinds); d++)
    for (size_t s = 0; s < COUNT(shapes); s++)
      for (int q = 0; q < 3; q++, count++) {
        tasks[count] = shaped(s, d + s + (size_t)q);
        tasks[count].e4m3_kv = true;
        tasks[count].e4m3_q = q == 1;
        tasks[count].k_scale = q ? 0.375f : 0.0f;
        tasks[count].v_scale = q ? 3.0f : 0.0f;
        tasks[count].q_scale = q == 1 ? 1.25f : 0.0f;
        tasks[count].data = kinds[d];
        tasks[count].causal = (int32_t)(d + s) % 2;
        tasks[count].splits = count % 4 == 1 ? 3 : 0;
        tasks[count].place = (enum place)(count % 5 < 3 ? DENSE : count % 5 - 2);
        if (count % 6 == 5) tasks[count].batch = COUNT(some_lengths), tasks[count].lengths = some_lengths;
      }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_general, keys_values_and_queries_may_be_e4m3, codes)

/* ---- All together ------------------------------------------------------------------------------------------------ */

/* Each of 2^4 * 2 ways to say yes or no, on several shapes. */
static void together(rondo_backend backend) {
  skip_under_sanitizers();
  static const int32_t sizes[] = {1, 40, 100, 300};
  static struct attention tasks[32 * COUNT(shapes)];
  size_t count = 0;
  for (size_t bits = 0; bits < 32; bits++)
    for (size_t s = 0; s < COUNT(shapes); s++, count++) {
      struct attention *a = &tasks[count];
      *a = shaped(s, bits + s);
      a->page_rows = bits & 1 ? 16 << (count % 5) : 0;
      a->table = (enum table)(count % 3);
      a->window = bits & 2 ? sizes[(bits + s) % COUNT(sizes)] : 0;
      a->soft_cap = bits & 4 ? 3.0f : 0.0f;
      a->e4m3_kv = bits & 8;
      a->e4m3_q = bits & 16;
      a->v_scale = a->e4m3_kv ? 0.5f : 0.0f;
      a->q_scale = a->e4m3_q ? 2.0f : 0.0f;
      a->place = (enum place)(count % 3);
      a->splits = count % 4 == 3 ? 5 : 0;
      if (count % 5 < 3) a->batch = COUNT(some_lengths), a->lengths = some_lengths;
    }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_general, every_combination_agrees_with_double_precision, together)

static void empty(rondo_backend backend) {
  static const int32_t none[] = {0, -3};
  struct attention tasks[] = {
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 0, .page_rows = 16},
      {.batch = 2,
       .query_heads = 2,
       .kv_heads = 1,
       .query_length = 5,
       .capacity = 64,
       .page_rows = 16,
       .lengths = none},
      {.batch = 0, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 64, .page_rows = 32},
      {.batch = 2, .query_heads = 0, .kv_heads = 0, .query_length = 5, .capacity = 64, .page_rows = 16},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 0, .capacity = 64, .window = 3},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 0, .window = 3, .soft_cap = 1.0f},
      {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 5, .capacity = 0, .e4m3_q = true},
      {.batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 90, .capacity = 30, .window = 7, .splits = 3},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = RONDO_F16;
    tasks[i].dimension = 64;
    tasks[i].causal = 1;
    tasks[i].lse_wanted = true;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_general, empty_sizes_are_no_work_and_no_keys_give_zero, empty)

/* ---- What may lie where nobody looks ----------------------------------------------------------------------------- */

/* NaN, and infinity where the type has one, at the first and last columns of windows and of pages, in K and in V. */
static void plant(struct attention *a, size_t task) {
  const bool values = task / COUNT(shapes) % 2;
  const double specials[] = {NAN, a->e4m3_kv ? NAN : INFINITY, a->e4m3_kv ? NAN : -INFINITY};
  struct rectangle kv = kv_rectangle(a);
  for (int64_t i = 0; i < 10; i++) {
    const int64_t position = (i * 53 + 7) % a->capacity, column = i * 37 % a->dimension;
    const int64_t index = kv_index(a, &kv, i % a->batch, i % a->kv_heads, position);
    uint16_t *memory = values ? a->v_memory : a->k_memory;
    if (index >= 0 && (values || i < 3)) oracle_write(kv_dtype(a), memory, index + column, specials[i % 3]);
  }
}

static void special_numbers(rondo_backend backend) {
  static struct attention tasks[16 * COUNT(shapes)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(i % COUNT(shapes), i);
    tasks[i].page_rows = i % 3 ? 16 : 0;
    tasks[i].table = i % 3 == 2 ? MISSING : SHARED;
    tasks[i].window = i % 4 ? 90 : 0;
    tasks[i].soft_cap = i % 5 ? 0.0f : 20.0f;
    tasks[i].e4m3_kv = i % 7 == 3;
    tasks[i].splits = i % 6 == 5 ? 3 : 0;
  }
  attentions_planted(backend, tasks, COUNT(tasks), 31, plant);
}
BOTH_BACKENDS(attention_general, special_numbers_reach_exactly_the_rows_that_see_them, special_numbers)

/* ---- From replay to replay --------------------------------------------------------------------------------------- */

/* The same exec, other lengths and, where there are pages, another table: what counted before is NaN afterwards. */
static void replays_check(rondo_backend backend, struct attention *a) {
  static const int32_t first[] = {300, 17, 64}, second[] = {5, 320, 0};
  struct trial trial;
  struct random random = {37};
  a->batch = 3, a->capacity = 320, a->causal = 1, a->lse_wanted = true, a->lengths = first;
  trial_describe(&trial, backend);
  attention_add(a, &trial);
  trial_instantiate(&trial);
  for (int replay = 0; replay < 6; replay++) {
    a->lengths = replay % 2 ? second : first;
    a->table = (enum table)(replay % 3);
    attention_fill(a, &random);
    attention_set(a, &trial);
    trial_replay(&trial);
    attention_get(a, &trial);
    attention_check(a);
    attention_free(a);
  }
  trial_end(&trial);
}

static void changing_tables(rondo_backend backend) {
  struct attention tasks[] = {
      {.dtype = RONDO_BF16, .query_heads = 4, .kv_heads = 2, .query_length = 2, .dimension = 128},
      {.dtype = RONDO_F16, .query_heads = 2, .kv_heads = 1, .query_length = 80, .dimension = 64, .e4m3_kv = true},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].page_rows = 32;
    replays_check(backend, &tasks[i]);
  }
}
BOTH_BACKENDS(attention_general, tables_are_read_at_each_replay, changing_tables)

/* Of each family of kernels, with and without pages where it takes them. */
static void made_tables(rondo_backend backend) {
  struct attention tasks[] = {
      {.dtype = RONDO_BF16, .query_heads = 4, .kv_heads = 2, .query_length = 2, .dimension = 128},
      {.dtype = RONDO_BF16, .query_heads = 4, .kv_heads = 2, .query_length = 2, .dimension = 128, .page_rows = 16},
      {.dtype = RONDO_F16, .query_heads = 2, .kv_heads = 2, .query_length = 80, .dimension = 32, .scale = -0.125f},
      {.dtype = RONDO_F16, .query_heads = 2, .kv_heads = 1, .query_length = 80, .dimension = 64, .page_rows = 64},
      {.dtype = RONDO_BF16, .query_heads = 2, .kv_heads = 1, .query_length = 130, .dimension = 128},
      {.dtype = RONDO_F16, .query_heads = 2, .kv_heads = 1, .query_length = 130, .dimension = 128, .e4m3_q = true},
  };
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].made = true;
    replays_check(backend, &tasks[i]);
  }
}
BOTH_BACKENDS(attention_general, tables_and_lengths_may_come_from_earlier_tasks_of_the_graph, made_tables)

static void repeat(rondo_backend backend) {
  static struct attention tasks[16];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(i % COUNT(shapes), i);
    tasks[i].page_rows = i & 1 ? 64 : 0;
    tasks[i].window = i & 2 ? 100 : 0;
    tasks[i].soft_cap = i & 4 ? 10.0f : 0.0f;
    tasks[i].e4m3_kv = i & 8;
  }
  attentions_same_bits(backend, tasks, COUNT(tasks), backend == RONDO_BACKEND_HOST ? 3 : 1000);
}
BOTH_BACKENDS(attention_general, a_thousand_replays_give_the_same_bits, repeat)

/* Of few query rows, cut into a number of splits that is said: 1, 7 or 64 items with the same pages. */
static void batches(rondo_backend backend) {
  skip_under_sanitizers();
  static const int64_t sizes[] = {1, 7, 64};
  for (int c = 0; c < 8; c++) {
    struct attention tasks[COUNT(sizes)];
    struct trial trial;
    trial_describe(&trial, backend);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      tasks[i] = (struct attention){.dtype = dtypes[c % 2],
                                    .batch = sizes[i],
                                    .query_heads = 4,
                                    .kv_heads = 1,
                                    .query_length = c % 2 ? 1 : 3,
                                    .capacity = 1088,
                                    .dimension = dimensions[1 + c % 3],
                                    .causal = 1,
                                    .splits = 3,
                                    .lse_wanted = true,
                                    .window = c & 2 ? 700 : 0,
                                    .soft_cap = c & 4 ? 15.0f : 0.0f,
                                    .e4m3_kv = c & 1,
                                    .page_rows = 64};
      attention_add(&tasks[i], &trial);
    }
    trial_instantiate(&trial);
    const size_t query = (size_t)(4 * tasks[0].query_length * tasks[0].dimension);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      attention_fill(&tasks[i], &(struct random){47});
      if (i) { /* the first item's query and pages are those of the only item */
        const size_t pool = (size_t)(pool_pages(&tasks[0]) * 64 * tasks[0].dimension);
        memcpy(tasks[i].q_memory, tasks[0].q_memory, query * sizeof(uint16_t));
        memcpy(tasks[i].k_memory, tasks[0].k_memory, pool * (tasks[0].e4m3_kv ? 1 : 2));
        memcpy(tasks[i].v_memory, tasks[0].v_memory, pool * (tasks[0].e4m3_kv ? 1 : 2));
        for (int64_t p = 0; p < item_pages(&tasks[0]); p++) *page_entry(&tasks[i], 0, p) = *page_entry(&tasks[0], 0, p);
      }
      attention_set(&tasks[i], &trial);
    }
    trial_replay(&trial);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      attention_get(&tasks[i], &trial);
      cr_expect(!memcmp(tasks[i].o_memory, tasks[0].o_memory, query * sizeof(uint16_t)),
                "case %d: o of an item differs in a batch of %ld", c, (long)sizes[i]);
      cr_expect(!memcmp(tasks[i].lse_memory, tasks[0].lse_memory, 4 * (size_t)tasks[0].query_length * sizeof(float)),
                "case %d: lse of an item differs in a batch of %ld", c, (long)sizes[i]);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) attention_free(&tasks[i]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(attention_general, an_item_has_the_same_bits_in_any_batch, batches)

/* A window that takes in everything is none: not even another kernel. */
static void needless_window(rondo_backend backend) {
  struct attention tasks[] = {shaped(3, 0), shaped(3, 0), shaped(0, 2), shaped(0, 2)};
  tasks[1].window = 256;
  tasks[3].window = INT32_MAX;
  for (size_t i = 0; i < COUNT(tasks); i += 2) {
    struct trial trial;
    trial_describe(&trial, backend);
    for (size_t j = i; j < i + 2; j++) attention_add(&tasks[j], &trial);
    trial_instantiate(&trial);
    for (size_t j = i; j < i + 2; j++) {
      attention_fill(&tasks[j], &(struct random){43});
      attention_set(&tasks[j], &trial);
    }
    trial_replay(&trial);
    uint64_t bytes;
    REQUIRE_OK(rondo_tensor_bytes(tasks[i].o, &bytes));
    for (size_t j = i; j < i + 2; j++) attention_get(&tasks[j], &trial);
    cr_expect(!memcmp(tasks[i].o_memory, tasks[i + 1].o_memory, bytes));
    for (size_t j = i; j < i + 2; j++) attention_free(&tasks[j]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(attention_general, a_window_of_everything_changes_no_bit, needless_window)
