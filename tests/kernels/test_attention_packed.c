/* test_attention_packed.c - attention of packed rows, whose items the device finds by offsets, against double
 * precision: each item as if it were alone, every number of the caches, rows of no item, and offsets that are wrong.
 * Faults that would show: a row that sees another item's KV rows, a tile that crosses items, an append to another
 * item's cache, a row beyond the offsets that keeps old numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/attention_run.h"

enum { MOST_ITEMS = 70, ROTATED_TRIES = 1000 };

/* `a` has the sizes: its batch is the items, its query length all rows. */
struct packed {
  struct attention a;
  float base; /* 0: no rotary embedding */
  rondo_rope_pairing pairing;
  int64_t missing; /* every so many pages one is missing; 0: none */
  int32_t offsets[MOST_ITEMS + 1], positions[MOST_ITEMS];
  int64_t starts[MOST_ITEMS + 1]; /* as the header says offsets count */
  rondo_tensor new_k, new_v, row_offsets, position;
  uint16_t *new_k_memory, *new_v_memory, *rotated, *k_expected, *v_expected;
};

static struct rectangle rows_rectangle(const struct packed *t, int64_t heads) {
  return rectangle_of(&t->a, 1, heads, t->a.query_length);
}

static void starts_make(struct packed *t) {
  int64_t start = 0;
  for (int64_t i = 0; i <= t->a.batch; i++) {
    if (t->offsets[i] > start) start = t->offsets[i];
    if (start > t->a.query_length) start = t->a.query_length;
    t->starts[i] = start;
  }
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static void add(struct packed *t, struct trial *trial) {
  struct attention *a = &t->a;
  rondo_graph *g = trial->graph;
  const struct rectangle query = rows_rectangle(t, a->query_heads), rows = rows_rectangle(t, a->kv_heads),
                         kv = kv_rectangle(a);
  rondo_attention_desc desc = {.layout = a->layout,
                               .causal = 1,
                               .window = a->window,
                               .soft_cap = a->soft_cap,
                               .splits = a->splits,
                               .rope_base = t->base,
                               .rope_pairing = t->pairing};
  a->device = trial->backend != RONDO_BACKEND_HOST;
  desc.q = rectangle_add(g, "q", a->dtype, 4, query, &a->q);
  desc.o = rectangle_add(g, "o", a->dtype, 4, query, &a->o);
  desc.k = rectangle_add(g, "k", a->dtype, 4, kv, &a->k);
  desc.v = rectangle_add(g, "v", a->dtype, 4, kv, &a->v);
  desc.new_k = rectangle_add(g, "new_k", a->dtype, 4, rows, &t->new_k);
  desc.new_v = rectangle_add(g, "new_v", a->dtype, 4, rows, &t->new_v);
  REQUIRE_OK(rondo_input(g, "row_offsets", RONDO_I32, 1, (int64_t[]){a->batch + 1}, &t->row_offsets));
  REQUIRE_OK(rondo_input(g, "position", RONDO_I32, 1, (int64_t[]){a->batch}, &t->position));
  desc.row_offsets = t->row_offsets, desc.position = t->position;
  if (a->lse_wanted) {
    REQUIRE_OK(rondo_state(g, "lse", RONDO_F32, 3, (int64_t[]){1, a->query_heads, a->query_length}, &a->lse));
    desc.lse = a->lse;
  }
  if (a->page_rows) {
    REQUIRE_OK(rondo_input(g, "kv_pages", RONDO_I32, 2, (int64_t[]){a->batch, item_pages(a)}, &a->kv_pages));
    desc.kv_pages = a->kv_pages;
  }
  REQUIRE_OK(rondo_add_attention(g, &desc));
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static uint16_t bits_of(rondo_dtype dtype, double value) {
  return dtype == RONDO_F16 ? oracle_to_f16(value) : oracle_to_bf16(value);
}

/* Two numbers of a row, and what a rotation by `angle` makes of them. They are drawn until an error of fp32 does not
 * change what these are rounded to. */
static void pair_make(const struct packed *t, struct random *random, double angle, uint16_t given[2],
                      uint16_t turned[2]) {
  const rondo_dtype dtype = t->a.dtype;
  for (int tries = 0; tries < ROTATED_TRIES; tries++) {
    for (int i = 0; i < 2; i++) given[i] = turned[i] = bits_of(dtype, roughly_normal(random));
    if (t->base == 0.0f) return;
    const double x = oracle_read(dtype, given, 0), y = oracle_read(dtype, given, 1),
                 off = (fabs(x) + fabs(y)) * 0x1p-20;
    const double made[2] = {x * cos(angle) - y * sin(angle), y * cos(angle) + x * sin(angle)};
    bool clear = true;
    for (int i = 0; i < 2; i++) {
      turned[i] = bits_of(dtype, made[i]);
      clear = clear && bits_of(dtype, made[i] - off) == turned[i] && bits_of(dtype, made[i] + off) == turned[i];
    }
    if (clear) return;
  }
  cr_assert_fail("no pair of numbers is rounded clearly");
}

static void row_make(const struct packed *t, struct random *random, int64_t position, uint16_t *given,
                     uint16_t *turned) {
  const int64_t pairs = t->a.dimension / 2;
  const bool halves = t->pairing == RONDO_ROPE_HALVES;
  for (int64_t i = 0; i < pairs; i++) {
    const float frequency = (float)pow((double)t->base, -2.0 * (double)i / (double)t->a.dimension);
    const float angle = (float)position * frequency;
    const int64_t at[2] = {halves ? i : 2 * i, halves ? i + pairs : 2 * i + 1};
    uint16_t one[2], other[2];
    pair_make(t, random, (double)angle, one, other);
    for (int half = 0; half < 2; half++) given[at[half]] = one[half], turned[at[half]] = other[half];
  }
}

static uint16_t *memory_of(const struct rectangle *r, uint16_t bits) {
  uint16_t *memory = attention_memory(rectangle_elements(r), sizeof(uint16_t));
  for (int64_t i = 0; i < rectangle_elements(r); i++) memory[i] = bits;
  return memory;
}

static void pages_make(struct packed *t) {
  struct attention *a = &t->a;
  const int64_t of_item = item_pages(a), pool = pool_pages(a);
  a->pages_memory = attention_memory(a->batch * of_item, sizeof(int32_t));
  for (int64_t i = 0; i < a->batch * of_item; i++) {
    const int32_t none[] = {-1, INT32_MAX, INT32_MIN, (int32_t)pool};
    const bool is_missing = t->missing && i % t->missing == t->missing - 1;
    a->pages_memory[i] = is_missing ? none[i % 4] : (int32_t)(pool - 1 - i);
  }
}

/* Of the KV row in the whole cache; -1: its page is missing. */
static int64_t cache_index(const struct packed *t, int64_t item, int64_t head, int64_t position) {
  const struct attention *a = &t->a;
  const struct rectangle kv = kv_rectangle(a);
  if (!a->page_rows) return row_index(a, &kv, item, head, position);
  const int64_t page = a->pages_memory[item * item_pages(a) + position / a->page_rows];
  return page < 0 || page >= pool_pages(a) ? -1 : row_index(a, &kv, page, head, position % a->page_rows);
}

/* The item's cache before its position; from there on NaN. */
static void cache_fill(struct packed *t, struct random *random, int64_t item) {
  struct attention *a = &t->a;
  for (int64_t h = 0; h < a->kv_heads; h++)
    for (int64_t j = 0; j < a->capacity && j < t->positions[item]; j++) {
      const int64_t at = cache_index(t, item, h, j);
      for (int64_t d = 0; d < a->dimension && at >= 0; d++) {
        a->k_memory[at + d] = bits_of(a->dtype, roughly_normal(random));
        a->v_memory[at + d] = bits_of(a->dtype, roughly_normal(random));
      }
    }
}

static void item_fill(struct packed *t, struct random *random, int64_t item) {
  struct attention *a = &t->a;
  const struct rectangle query = rows_rectangle(t, a->query_heads), rows = rows_rectangle(t, a->kv_heads);
  const size_t bytes = (size_t)a->dimension * sizeof(uint16_t);
  for (int64_t row = t->starts[item]; row < t->starts[item + 1]; row++) {
    const int64_t position = t->positions[item] + row - t->starts[item];
    for (int64_t h = 0; h < a->query_heads; h++) {
      const int64_t at = row_index(a, &query, 0, h, row);
      row_make(t, random, position, a->q_memory + at, t->rotated + at);
    }
    for (int64_t h = 0; h < a->kv_heads; h++) {
      const int64_t from = row_index(a, &rows, 0, h, row);
      uint16_t turned[256];
      row_make(t, random, position, t->new_k_memory + from, turned);
      for (int64_t d = 0; d < a->dimension; d++) t->new_v_memory[from + d] = bits_of(a->dtype, roughly_normal(random));
      const int64_t to = position >= 0 && position < a->capacity ? cache_index(t, item, h, position) : -1;
      if (to < 0) continue;
      memcpy(t->k_expected + to, turned, bytes);
      memcpy(t->v_expected + to, t->new_v_memory + from, bytes);
    }
  }
}

static void fill(struct packed *t, struct random *random) {
  struct attention *a = &t->a;
  const struct rectangle query = rows_rectangle(t, a->query_heads), rows = rows_rectangle(t, a->kv_heads),
                         kv = kv_rectangle(a);
  starts_make(t);
  a->q_memory = memory_of(&query, NAN_BITS), t->rotated = memory_of(&query, NAN_BITS);
  a->o_memory = memory_of(&query, GUARD_BITS);
  a->k_memory = memory_of(&kv, NAN_BITS), a->v_memory = memory_of(&kv, NAN_BITS);
  t->new_k_memory = memory_of(&rows, NAN_BITS), t->new_v_memory = memory_of(&rows, NAN_BITS);
  a->lse_memory = attention_memory(a->query_heads * a->query_length, sizeof(float));
  if (a->page_rows) pages_make(t);
  for (int64_t i = 0; i < a->batch; i++) cache_fill(t, random, i);
  t->k_expected = memory_of(&kv, 0), t->v_expected = memory_of(&kv, 0);
  memcpy(t->k_expected, a->k_memory, (size_t)rectangle_elements(&kv) * sizeof(uint16_t));
  memcpy(t->v_expected, a->v_memory, (size_t)rectangle_elements(&kv) * sizeof(uint16_t));
  for (int64_t i = 0; i < a->batch; i++) item_fill(t, random, i);
}

static void set(const struct packed *t, struct trial *trial) {
  const struct attention *a = &t->a;
  trial_set(trial, a->q, a->q_memory);
  trial_set(trial, a->o, a->o_memory);
  trial_set(trial, a->k, a->k_memory);
  trial_set(trial, a->v, a->v_memory);
  trial_set(trial, t->new_k, t->new_k_memory);
  trial_set(trial, t->new_v, t->new_v_memory);
  trial_set(trial, t->row_offsets, t->offsets);
  trial_set(trial, t->position, t->positions);
  if (a->page_rows) trial_set(trial, a->kv_pages, a->pages_memory);
}

static void release(struct packed *t) {
  attention_free(&t->a);
  free(t->new_k_memory), free(t->new_v_memory), free(t->rotated), free(t->k_expected), free(t->v_expected);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static void same_cache(const struct packed *t, struct trial *trial, rondo_tensor tensor, const uint16_t *expected,
                       const char *name) {
  const struct rectangle kv = kv_rectangle(&t->a);
  uint16_t *got = memory_of(&kv, 0);
  int64_t wrong = 0, first = -1;
  char text[256];
  trial_get(trial, tensor, got);
  for (int64_t i = rectangle_elements(&kv); i-- > 0;)
    if (got[i] != expected[i]) wrong++, first = i;
  cr_expect(!wrong, "%s: %ld numbers of %s differ, the first is %ld", attention_text(&t->a, text, sizeof text),
            (long)wrong, name, (long)first);
  free(got);
}

/* An item's rows as an attention of one item, dense, for the oracle. */
static void item_check(const struct packed *t, int64_t item, bool *seen) {
  const struct attention *a = &t->a;
  const struct rectangle query = rows_rectangle(t, a->query_heads);
  const size_t bytes = (size_t)a->dimension * sizeof(uint16_t);
  struct attention one = *a;
  one.batch = 1, one.place = DENSE, one.layout = RONDO_BHSD;
  one.query_length = t->starts[item + 1] - t->starts[item];
  const int64_t begins[] = {t->positions[item]}, ends = begins[0] + one.query_length;
  const int32_t lengths[] = {(int32_t)(ends < 0 ? 0 : ends > a->capacity ? a->capacity : ends)};
  one.begins = begins, one.lengths = lengths;
  if (!one.query_length) return;
  const struct rectangle one_query = query_rectangle(&one), one_kv = kv_rectangle(&one);
  one.q_memory = memory_of(&one_query, 0), one.o_memory = memory_of(&one_query, 0);
  one.k_memory = memory_of(&one_kv, NAN_BITS), one.v_memory = memory_of(&one_kv, NAN_BITS);
  one.lse_memory = attention_memory(a->query_heads * one.query_length, sizeof(float));
  one.pages_memory = attention_memory(item_pages(a), sizeof(int32_t));
  for (int64_t p = 0; p < item_pages(a); p++)
    one.pages_memory[p] = cache_index(t, item, 0, p * a->page_rows) < 0 ? -1 : (int32_t)p;
  for (int64_t h = 0; h < a->query_heads; h++)
    for (int64_t i = 0; i < one.query_length; i++) {
      const int64_t row = t->starts[item] + i, from = row_index(a, &query, 0, h, row),
                    to = row_index(&one, &one_query, 0, h, i);
      memcpy(one.q_memory + to, t->rotated + from, bytes);
      memcpy(one.o_memory + to, a->o_memory + from, bytes);
      for (int64_t d = 0; d < a->dimension; d++) seen[from + d] = true;
      one.lse_memory[h * one.query_length + i] = a->lse_memory[h * a->query_length + row];
    }
  for (int64_t h = 0; h < a->kv_heads; h++)
    for (int64_t j = 0; j < lengths[0]; j++) {
      const int64_t from = cache_index(t, item, h, j), to = kv_index(&one, &one_kv, 0, h, j);
      if (from < 0) continue;
      memcpy(one.k_memory + to, t->k_expected + from, bytes);
      memcpy(one.v_memory + to, t->v_expected + from, bytes);
    }
  attention_check(&one);
  attention_free(&one);
}

static void check(struct packed *t, struct trial *trial) {
  struct attention *a = &t->a;
  const struct rectangle query = rows_rectangle(t, a->query_heads);
  bool *seen = attention_memory(rectangle_elements(&query), sizeof(bool));
  char text[256];
  int64_t wrong = 0;
  attention_get(a, trial);
  same_cache(t, trial, a->k, t->k_expected, "k");
  same_cache(t, trial, a->v, t->v_expected, "v");
  for (int64_t i = 0; i < a->batch; i++) item_check(t, i, seen);
  for (int64_t h = 0; h < a->query_heads; h++)
    for (int64_t row = 0; row < a->query_length; row++) {
      const int64_t at = row_index(a, &query, 0, h, row);
      if (row >= t->starts[0] && row < t->starts[a->batch]) continue;
      for (int64_t d = 0; d < a->dimension; d++) wrong += a->o_memory[at + d] != 0, seen[at + d] = true;
      if (a->lse_wanted) wrong += a->lse_memory[h * a->query_length + row] != -INFINITY;
    }
  for (int64_t i = 0; i < rectangle_elements(&query); i++) wrong += !seen[i] && a->o_memory[i] != GUARD_BITS;
  cr_expect(!wrong, "%s: %ld numbers of rows of no item, or around o", attention_text(a, text, sizeof text),
            (long)wrong);
  free(seen);
}

static void run(rondo_backend backend, struct packed *tasks, size_t count) {
  struct random random = {78};
  struct trial trial;
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) add(&tasks[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) fill(&tasks[i], &random), set(&tasks[i], &trial);
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) check(&tasks[i], &trial), release(&tasks[i]);
  trial_end(&trial);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* Items of all lengths, some empty, at any position, some beyond the capacity. */
static void items_draw(struct packed *t, struct random *random) {
  struct attention *a = &t->a;
  const int64_t end = a->query_length - random_between(random, 0, 2) * 5;
  t->offsets[0] = random_between(random, 0, 3) ? 0 : 3;
  for (int64_t i = 0; i < a->batch; i++) {
    const int64_t left = end > t->offsets[i] ? end - t->offsets[i] : 0;
    const int64_t most = random_between(random, 0, 3) ? 2 * left / (a->batch - i) : left;
    int64_t rows = random_between(random, 0, 4) ? random_between(random, 0, most < left ? most : left) : 0;
    if (i == a->batch - 1) rows = left;
    t->offsets[i + 1] = t->offsets[i] + (int32_t)rows;
    const int64_t room = a->capacity - rows;
    const int64_t positions[] = {0, room, room + 1, a->capacity, random_between(random, 0, room > 0 ? room : 0), -3};
    t->positions[i] = (int32_t)positions[random_between(random, 0, 9) % 6];
  }
}

/* Offsets that fall, are negative, or lie beyond the rows. */
static void offsets_spoil(struct packed *t, struct random *random) {
  for (int64_t i = 0; i <= t->a.batch; i++)
    if (random_between(random, 0, 2) == 0) {
      const int32_t bad[] = {INT32_MIN, INT32_MAX, -1, (int32_t)t->a.query_length + 1, t->offsets[i] - 20};
      t->offsets[i] = bad[random_between(random, 0, 4)];
      if (t->offsets[i] == INT32_MAX && i < t->a.batch / 2) t->offsets[i] = 0; /* else all are empty too often */
    }
}

static struct packed draw(struct random *random) {
  static const int64_t dimensions[] = {32, 64, 64, 64, 128, 128, 256}, groups[] = {1, 2, 3, 4, 8},
                       rows[] = {1, 5, 40, 64, 130, 200, 256, 300};
  struct packed t = {.base = random_between(random, 0, 2) ? 10000.0f : 0.0f};
  struct attention *a = &t.a;
  t.pairing = random_between(random, 0, 1) ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
  *a = (struct attention){.causal = 1, .dtype = random_between(random, 0, 1) ? RONDO_F16 : RONDO_BF16};
  a->layout = random_between(random, 0, 1) ? RONDO_BHSD : RONDO_BSHD;
  a->batch = random_between(random, 0, 3) ? random_between(random, 1, 6) : 40;
  a->kv_heads = random_between(random, 1, 2);
  a->query_length = RANDOM_OF(random, rows);
  a->capacity = random_between(random, 1, 400);
  a->dimension = RANDOM_OF(random, dimensions);
  a->lse_wanted = random_between(random, 0, 1);
  a->place = random_between(random, 0, 3) ? (random_between(random, 0, 1) ? DENSE : STRIDED) : MISALIGNED;
  a->query_heads = a->kv_heads * RANDOM_OF(random, groups);
  if (random_between(random, 0, 2) == 0) {
    a->page_rows = (int64_t)16 << random_between(random, 0, 2);
    a->capacity = (a->capacity + a->page_rows - 1) / a->page_rows * a->page_rows;
    t.missing = random_between(random, 0, 1) ? 5 : 0;
  }
  if (random_between(random, 0, 3) == 0) a->window = (int32_t)random_between(random, 1, a->capacity);
  if (random_between(random, 0, 4) == 0) a->soft_cap = 5.0f;
  items_draw(&t, random);
  if (random_between(random, 0, 3) == 0) offsets_spoil(&t, random);
  return t;
}

static void drawn(rondo_backend backend) {
  enum { TASKS = 240, HOST_TASKS = 60, AT_ONCE = 60 };
  static struct packed tasks[TASKS];
  struct random random = {6};
  for (int i = 0; i < TASKS; i++) tasks[i] = draw(&random);
  for (int i = 0; i < (backend == RONDO_BACKEND_HOST ? HOST_TASKS : TASKS); i += AT_ONCE)
    run(backend, tasks + i, AT_ONCE);
}
BOTH_BACKENDS(attention_packed, each_item_agrees_with_double_precision_also_with_wrong_offsets, drawn)

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

enum { BITS_ITEMS = 6, BITS_ROWS = 600, BITS_CAPACITY = 320 };

static void bits_task(struct packed *t, int64_t dimension, rondo_dtype dtype, int64_t page_rows) {
  static const int32_t offsets[] = {0, 7, 137, 137, 265, 500, 600}, positions[] = {5, 100, 0, 0, 40, 220};
  *t = (struct packed){.base = 10000.0f};
  t->a = (struct attention){.dtype = dtype,
                            .layout = RONDO_BSHD,
                            .batch = BITS_ITEMS,
                            .query_heads = 6,
                            .kv_heads = 2,
                            .query_length = BITS_ROWS,
                            .capacity = BITS_CAPACITY,
                            .dimension = dimension,
                            .page_rows = page_rows,
                            .causal = 1};
  memcpy(t->offsets, offsets, sizeof offsets);
  memcpy(t->positions, positions, sizeof positions);
}

static size_t row_bytes(const struct packed *t) {
  return (size_t)(t->a.query_heads * t->a.dimension) * sizeof(uint16_t);
}

/* Numbers of one item that are none, or far too large, change no bit of another item. */
static void spoiled(rondo_backend backend) {
  skip_under_sanitizers();
  static const int64_t dimensions[] = {64, 128, 256}, pages[] = {0, 32};
  for (size_t c = 0; c < 6; c++)
    for (int64_t victim = 0; victim < BITS_ITEMS; victim += backend == RONDO_BACKEND_HOST ? 3 : 1) {
      struct packed t;
      struct trial trial;
      struct random random = {(uint64_t)victim + 1};
      bits_task(&t, dimensions[c % 3], c % 2 ? RONDO_F16 : RONDO_BF16, pages[c / 3]);
      trial_describe(&trial, backend);
      add(&t, &trial);
      trial_instantiate(&trial);
      fill(&t, &random), set(&t, &trial);
      trial_replay(&trial);
      attention_get(&t.a, &trial);
      uint16_t *before = attention_memory(BITS_ROWS, row_bytes(&t));
      memcpy(before, t.a.o_memory, BITS_ROWS * row_bytes(&t));
      const uint16_t bad[] = {NAN_BITS, t.a.dtype == RONDO_F16 ? 0x7c00 : 0x7f80, 0x7bff};
      for (int64_t row = t.starts[victim]; row < t.starts[victim + 1]; row++)
        for (int64_t i = 0; i < t.a.query_heads * t.a.dimension; i++) {
          t.a.q_memory[row * t.a.query_heads * t.a.dimension + i] = bad[(row + i) % 3];
          if (i >= t.a.kv_heads * t.a.dimension) continue;
          t.new_k_memory[row * t.a.kv_heads * t.a.dimension + i] = bad[(row + 2 * i) % 3];
          t.new_v_memory[row * t.a.kv_heads * t.a.dimension + i] = bad[(2 * row + i) % 3];
        }
      set(&t, &trial);
      trial_replay(&trial);
      attention_get(&t.a, &trial);
      const char *got = (const char *)t.a.o_memory, *expected = (const char *)before;
      for (int64_t row = 0; row < BITS_ROWS; row++) {
        const bool is_victim = row >= t.starts[victim] && row < t.starts[victim + 1];
        const size_t at = (size_t)row * row_bytes(&t);
        cr_assert(is_victim || !memcmp(got + at, expected + at, row_bytes(&t)),
                  "d = %ld, pages of %ld: row %ld differs after NaN in item %ld", (long)t.a.dimension,
                  (long)t.a.page_rows, (long)row, (long)victim);
      }
      free(before), release(&t), trial_end(&trial);
    }
}
BOTH_BACKENDS(attention_packed, nan_in_one_item_changes_no_bit_of_another, spoiled)

/* The same exec with other offsets in each replay, and the same bits whenever they come again. */
static void again(rondo_backend backend) {
  enum { KINDS = 4, ROUNDS = 50 };
  static const int32_t all_offsets[KINDS][BITS_ITEMS + 1] = {{0, 7, 137, 137, 265, 500, 600},
                                                             {0, 0, 0, 600, 600, 600, 600},
                                                             {0, 100, 200, 300, 400, 500, 600},
                                                             {300, 299, 310, 305, 700, -1, 2}};
  const int rounds = backend == RONDO_BACKEND_HOST ? 2 : ROUNDS;
  struct packed t;
  struct trial trial;
  struct random random = {4};
  uint16_t *first[KINDS];
  bits_task(&t, 128, RONDO_BF16, 0);
  trial_describe(&trial, backend);
  add(&t, &trial);
  trial_instantiate(&trial);
  fill(&t, &random);
  for (int round = 0; round < rounds * KINDS; round++) {
    const int kind = round % KINDS;
    memcpy(t.offsets, all_offsets[kind], sizeof all_offsets[kind]);
    set(&t, &trial); /* the caches too */
    trial_replay(&trial);
    const size_t bytes = BITS_ROWS * row_bytes(&t);
    uint16_t *got = attention_memory(BITS_ROWS, row_bytes(&t));
    trial_get(&trial, t.a.o, got);
    if (round < KINDS)
      first[kind] = got;
    else
      cr_assert(!memcmp(first[kind], got, bytes), "round %d differs", round);
    if (round >= KINDS) free(got);
  }
  for (int kind = 0; kind < KINDS; kind++) free(first[kind]);
  release(&t), trial_end(&trial);
}
BOTH_BACKENDS(attention_packed, the_same_offsets_give_the_same_bits, again)
