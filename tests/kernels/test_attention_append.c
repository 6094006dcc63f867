/* test_attention_append.c - attention that turns queries and new keys (RoPE), writes the new rows of K and V and
 * attends them, against double precision: every number that it writes, all that it leaves alone, and its results.
 * Numbers that are turned are drawn until fp32 rounds them as double precision does, so that the rows expected in the
 * caches are exact. Faults that would show: a row at the wrong position, a key that is turned by another position's
 * angle, a write beyond the capacity, a task that attends before its rows are there. Refusals:
 * test_attention_append_refused.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/attention/attention_append.h"
#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MOST_BATCH = 8 };

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};

/* An attention with what it does besides. `lengths` of it are not an operand here, but those that follow. */
struct appended {
  struct attention a;
  bool appends;
  float base;       /* 0: nothing is turned, but where there are frequencies */
  bool frequencies; /* are an operand */
  bool follows;     /* a task that writes q, and the position is settled: sines and cosines are there before it ends */
  rondo_rope_pairing pairing;
  int64_t position_count; /* 1 or the batch */
  int32_t positions[MOST_BATCH];
  int32_t lengths[MOST_BATCH];
  int64_t begins[MOST_BATCH];
  rondo_tensor new_k, new_v, position, rope_frequencies;
  uint16_t *new_k_memory, *new_v_memory;
  uint16_t *q_turned, *k_expected, *v_expected;
  float frequency[128];
};

static bool turns(const struct appended *t) { return t->base > 0.0f || t->frequencies; }
static struct rectangle new_rectangle(const struct attention *a) {
  return rectangle_of(a, a->batch, a->kv_heads, a->query_length);
}
static int64_t position_of(const struct appended *t, int64_t batch) {
  return t->positions[t->position_count > 1 ? batch : 0];
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static void add(struct appended *t, struct trial *trial) {
  const struct rectangle rows = new_rectangle(&t->a);
  t->a.lengths = NULL;
  rondo_attention_desc desc = attention_describe(&t->a, trial);
  if (t->appends) {
    desc.new_k = rectangle_add(trial->graph, "new_k", t->a.dtype, 4, rows, &t->new_k);
    desc.new_v = rectangle_add(trial->graph, "new_v", t->a.dtype, 4, rows, &t->new_v);
  }
  REQUIRE_OK((t->follows ? rondo_state : rondo_input)(trial->graph, "position", RONDO_I32, 1, &t->position_count,
                                                      &t->position));
  desc.position = t->position;
  desc.rope_base = t->base, desc.rope_pairing = t->pairing;
  if (t->frequencies) {
    REQUIRE_OK(
        rondo_state(trial->graph, "frequencies", RONDO_F32, 1, (int64_t[]){t->a.dimension / 2}, &t->rope_frequencies));
    desc.rope_frequencies = t->rope_frequencies;
  }
  if (t->follows) {
    const struct attention *a = &t->a;
    const bool by_head = a->layout == RONDO_BHSD;
    const int64_t shape[] = {a->batch, by_head ? a->query_heads : a->query_length,
                             by_head ? a->query_length : a->query_heads, a->dimension};
    const rondo_tensor q = desc.q;
    REQUIRE_OK(rondo_temporary(trial->graph, "q copied", a->dtype, 4, shape, &desc.q));
    REQUIRE_OK(rondo_add_copy(trial->graph, &(rondo_copy_desc){.src = q, .dst = desc.q}));
  }
  REQUIRE_OK(rondo_add_attention(trial->graph, &desc));
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The angle is one product of fp32. */
static double angle_of(const struct appended *t, int64_t position, int64_t pair) {
  const float product = (float)position * t->frequency[pair];
  return (double)product;
}

static uint16_t rounded_bits(rondo_dtype dtype, double value) {
  return dtype == RONDO_F16 ? oracle_to_f16(value) : oracle_to_bf16(value);
}

/* Is a number, off by what fp32 may err, still rounded alike? */
static bool is_clear(rondo_dtype dtype, double value, double size) {
  const double off = size * 0x1p-20;
  return rounded_bits(dtype, value - off) == rounded_bits(dtype, value + off);
}

/* A row as it is given, and as it is at a position. */
static void row_make(const struct appended *t, struct random *random, bool key, int64_t position, uint16_t *given,
                     uint16_t *turned) {
  const rondo_dtype dtype = t->a.dtype;
  const int64_t pairs = t->a.dimension / 2;
  const bool halves = t->pairing == RONDO_ROPE_HALVES;
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t low = halves ? i : 2 * i, high = halves ? i + pairs : 2 * i + 1;
    double new_low, new_high, size;
    do {
      given[low] = rounded_bits(dtype, number_of(&t->a, random, key, position, low));
      given[high] = rounded_bits(dtype, number_of(&t->a, random, key, position, high));
      const double x = oracle_read(dtype, given, low), y = oracle_read(dtype, given, high);
      const double angle = turns(t) ? angle_of(t, position, i) : 0.0;
      new_low = x * cos(angle) - y * sin(angle), new_high = y * cos(angle) + x * sin(angle);
      size = turns(t) ? fabs(x) + fabs(y) : 0.0;
    } while (!is_clear(dtype, new_low, size) || !is_clear(dtype, new_high, size));
    turned[low] = rounded_bits(dtype, new_low), turned[high] = rounded_bits(dtype, new_high);
  }
}

static void frequencies_make(struct appended *t, struct random *random) {
  for (int64_t i = 0; i < t->a.dimension / 2; i++) {
    const double of_base = pow((double)t->base, -2.0 * (double)i / (double)t->a.dimension);
    t->frequency[i] = (float)(t->frequencies ? random_uniform(random) : of_base);
  }
}

static uint16_t *copy_of(const uint16_t *memory, const struct rectangle *r) {
  const size_t bytes = (size_t)rectangle_elements(r) * sizeof(uint16_t);
  return memcpy(attention_memory(rectangle_elements(r), sizeof(uint16_t)), memory, bytes);
}

/* New rows, what they are to become, and NaN where they are to be. */
static void new_rows_fill(struct appended *t, struct random *random) {
  struct attention *a = &t->a;
  const struct rectangle rows = new_rectangle(a), kv = kv_rectangle(a);
  const size_t bytes = (size_t)a->dimension * sizeof(uint16_t);
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->kv_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++) {
        uint16_t turned[256];
        const int64_t at = position_of(t, b) + i, from = row_index(a, &rows, b, h, i);
        row_make(t, random, true, at, t->new_k_memory + from, turned);
        for (int64_t d = 0; d < a->dimension; d++)
          t->new_v_memory[from + d] = rounded_bits(a->dtype, roughly_normal(random));
        const int64_t to = at >= 0 && at < a->capacity ? kv_index(a, &kv, b, h, at) : -1;
        if (to < 0) continue;
        memcpy(t->k_expected + to, turned, bytes);
        memcpy(t->v_expected + to, t->new_v_memory + from, bytes);
        for (int64_t d = 0; d < a->dimension; d++) a->k_memory[to + d] = a->v_memory[to + d] = NAN_BITS;
      }
}

static void fill(struct appended *t, struct random *random) {
  struct attention *a = &t->a;
  for (int64_t b = 0; b < a->batch; b++) {
    const int64_t length = t->appends ? position_of(t, b) + a->query_length : a->capacity;
    t->lengths[b] = (int32_t)(length < 0 ? 0 : length > a->capacity ? a->capacity : length);
    t->begins[b] = position_of(t, b);
  }
  a->lengths = t->lengths;
  attention_fill(a, random);
  a->lengths = NULL;
  frequencies_make(t, random);
  const struct rectangle rows = new_rectangle(a), kv = kv_rectangle(a), query = query_rectangle(a);
  t->new_k_memory = attention_memory(rectangle_elements(&rows), sizeof(uint16_t));
  t->new_v_memory = attention_memory(rectangle_elements(&rows), sizeof(uint16_t));
  for (int64_t i = 0; i < rectangle_elements(&rows); i++) t->new_k_memory[i] = t->new_v_memory[i] = NAN_BITS;
  t->k_expected = copy_of(a->k_memory, &kv), t->v_expected = copy_of(a->v_memory, &kv);
  if (t->appends) new_rows_fill(t, random);
  t->q_turned = copy_of(a->q_memory, &query);
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->query_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++) {
        const int64_t at = row_index(a, &query, b, h, i);
        row_make(t, random, false, position_of(t, b) + i, a->q_memory + at, t->q_turned + at);
      }
}

static void set(const struct appended *t, struct trial *trial) {
  attention_set(&t->a, trial);
  trial_set(trial, t->position, t->positions);
  if (t->frequencies) trial_set(trial, t->rope_frequencies, t->frequency);
  if (!t->appends) return;
  trial_set(trial, t->new_k, t->new_k_memory);
  trial_set(trial, t->new_v, t->new_v_memory);
}

static void release(struct appended *t) {
  attention_free(&t->a);
  free(t->new_k_memory), free(t->new_v_memory), free(t->q_turned), free(t->k_expected), free(t->v_expected);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static void same_memory(const struct appended *t, struct trial *trial, rondo_tensor tensor, const uint16_t *expected,
                        const char *name) {
  const struct rectangle kv = kv_rectangle(&t->a);
  uint16_t *got = attention_memory(rectangle_elements(&kv), sizeof(uint16_t));
  trial_get(trial, tensor, got);
  int64_t wrong = 0, first = -1;
  for (int64_t i = rectangle_elements(&kv); i-- > 0;)
    if (got[i] != expected[i]) wrong++, first = i;
  char text[256];
  cr_expect(!wrong, "%s, %s position %d: %ld numbers of %s differ, the first is %ld: %x, expected %x",
            attention_text(&t->a, text, sizeof text), turns(t) ? "turned," : "", t->positions[0], (long)wrong, name,
            (long)first, first < 0 ? 0 : got[first], first < 0 ? 0 : expected[first]);
  free(got);
}

/* What is attended is then what an attention of turned rows, which lie there, gives. */
static void check(struct appended *t, struct trial *trial) {
  struct attention *a = &t->a;
  same_memory(t, trial, a->k, t->k_expected, "k");
  same_memory(t, trial, a->v, t->v_expected, "v");
  attention_get(a, trial);
  struct attention turned = *a;
  turned.q_memory = t->q_turned, turned.k_memory = t->k_expected, turned.v_memory = t->v_expected;
  turned.lengths = t->lengths;
  if (t->appends) turned.begins = t->begins;
  attention_check(&turned);
}

static void run(rondo_backend backend, struct appended *tasks, size_t count) {
  enum { MOST = 60 };
  struct random random = {77};
  for (size_t first = 0; first < count; first += MOST) {
    const size_t end = first + MOST < count ? first + MOST : count;
    struct trial trial;
    trial_describe(&trial, backend);
    for (size_t i = first; i < end; i++) add(&tasks[i], &trial);
    trial_instantiate(&trial);
    for (size_t i = first; i < end; i++) fill(&tasks[i], &random), set(&tasks[i], &trial);
    trial_replay(&trial);
    for (size_t i = first; i < end; i++) check(&tasks[i], &trial), release(&tasks[i]);
    trial_end(&trial);
  }
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* Where new rows begin: everywhere, in particular at borders of tiles, pages and the capacity, and beyond. */
static int32_t draw_position(struct random *random, const struct attention *a) {
  const int64_t room = a->capacity - a->query_length, tile = random_between(random, 0, 20) * 16;
  static const int32_t far[] = {INT32_MIN, INT32_MAX, INT32_MAX - 3, -100000, 1 << 27};
  switch (random_between(random, 0, 7)) {
  case 0:
    return 0;
  case 1:
    return (int32_t)room;
  case 2:
    return (int32_t)(room + random_between(random, 1, a->query_length + 2));
  case 3:
    return (int32_t)-random_between(random, 1, a->query_length);
  case 4:
    return (int32_t)(tile - random_between(random, 0, 2));
  case 5:
    if (random_between(random, 0, 3) == 0) return far[random_between(random, 0, 4)];
    return (int32_t)random_between(random, 0, room > 0 ? room : 0);
  default:
    return (int32_t)random_between(random, 0, room > 0 ? room : 0);
  }
}

static struct appended draw(struct random *random) {
  static const int64_t dimensions[] = {32, 64, 64, 64, 128, 128, 256};
  static const int64_t groups[] = {1, 2, 3, 4, 8};
  static const int64_t lengths[] = {1, 1, 1, 1, 2, 4, 5, 16, 17, 70};
  struct appended t = {.appends = random_between(random, 0, 9) > 0};
  struct attention *a = &t.a;
  t.pairing = random_between(random, 0, 1) ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
  t.frequencies = random_between(random, 0, 4) == 0;
  static const float bases[] = {10000.0f, 10000.0f, 500000.0f, 1.5f};
  t.base = t.appends && random_between(random, 0, 3) == 0 ? 0.0f : bases[random_between(random, 0, 3)];
  *a = (struct attention){.dtype = dtypes[random_between(random, 0, 1)]};
  a->layout = random_between(random, 0, 1) ? RONDO_BHSD : RONDO_BSHD;
  a->batch = random_between(random, 0, 2) ? random_between(random, 1, 3) : MOST_BATCH;
  a->kv_heads = random_between(random, 1, 3);
  a->query_length = lengths[random_between(random, 0, 9)];
  a->capacity = 16 * random_between(random, 1, 20);
  a->dimension = dimensions[random_between(random, 0, 6)];
  a->causal = random_between(random, 0, 5) > 0;
  a->splits = random_between(random, 0, 3) ? 0 : (int32_t)random_between(random, 1, 3);
  a->lse_wanted = random_between(random, 0, 1);
  a->place = (enum place)(random_between(random, 0, 3) ? random_between(random, 0, 1) : MISALIGNED);
  a->query_heads = a->kv_heads * groups[random_between(random, 0, 4)];
  if (random_between(random, 0, 3) == 0) a->capacity += random_between(random, 1, 15);
  if (random_between(random, 0, 5) == 0) a->capacity += 1000;
  if (random_between(random, 0, 2) == 0) {
    a->page_rows = (int64_t)16 << random_between(random, 0, 2);
    a->capacity = (a->capacity + a->page_rows - 1) / a->page_rows * a->page_rows;
    a->table = random_between(random, 0, 1) ? MISSING : SCATTERED;
  }
  if (a->causal && random_between(random, 0, 3) == 0) a->window = (int32_t)random_between(random, 1, a->capacity);
  if (random_between(random, 0, 4) == 0) a->soft_cap = 5.0f;
  t.position_count = random_between(random, 0, 2) ? a->batch : 1;
  for (int64_t i = 0; i < t.position_count; i++) t.positions[i] = draw_position(random, a);
  return t;
}

/* The host has one kernel, so fewer tasks are enough for it. */
static void drawn(rondo_backend backend) {
  enum { TASKS = 480, HOST_TASKS = 60 };
  static struct appended tasks[TASKS];
  struct random random = {5};
  for (int i = 0; i < TASKS; i++) tasks[i] = draw(&random);
  run(backend, tasks, backend == RONDO_BACKEND_HOST ? HOST_TASKS : TASKS);
}
BOTH_BACKENDS(attention_append, writes_turned_rows_and_attends_them, drawn)

/* What a model's decoding asks for, each with one query position and with a chunk. */
static void models(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    int64_t batch, query_heads, kv_heads, capacity, dimension;
  } shapes[] = {{1, 9, 3, 512, 64},   {8, 32, 8, 512, 64},  {1, 32, 8, 4096, 64}, {2, 32, 8, 1000, 128},
                {1, 8, 1, 9000, 128}, {1, 8, 4, 2048, 256}, {4, 32, 8, 1000, 64}, /* by pairs of blocks */
                {4, 32, 8, 1000, 128}};
  static struct appended tasks[COUNT(shapes) * 3];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    static const int64_t lengths[] = {1, 4, 16};
    struct appended *t = &tasks[i];
    *t = (struct appended){.appends = true, .base = 100000.0f, .pairing = RONDO_ROPE_HALVES};
    t->a = (struct attention){.dtype = dtypes[i % 2],
                              .layout = RONDO_BHSD,
                              .batch = shapes[i / 3].batch,
                              .query_heads = shapes[i / 3].query_heads,
                              .kv_heads = shapes[i / 3].kv_heads,
                              .query_length = lengths[i % 3],
                              .capacity = shapes[i / 3].capacity,
                              .dimension = shapes[i / 3].dimension,
                              .causal = 1};
    t->position_count = t->a.batch;
    for (int64_t b = 0; b < t->a.batch; b++) t->positions[b] = (int32_t)(t->a.capacity - 17 * (b + 1));
  }
  run(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_append, decode_and_prefill_of_models_agree_with_double_precision, models)

/* Chunks of a prompt: the first, one amid the capacity, and the last one that fits, where rows end in any place of a KV
 * tile. Capacities are beyond those of few KV rows, except for the case with high query tiles. */
static void chunks(rondo_backend backend) {
  static const struct {
    int64_t query_heads, kv_heads, query_length, capacity, dimension;
  } shapes[] = {{3, 1, 128, 1039, 64}, {4, 2, 200, 1039, 128}, {3, 3, 130, 1039, 256}, {6, 1, 64, 1039, 32},
                {2, 1, 257, 1100, 64}, {48, 2, 384, 399, 64},  {3, 1, 1025, 1040, 32}};
  enum { BEGINS = 3 };
  static struct appended tasks[COUNT(shapes)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const int64_t room = shapes[i].capacity - shapes[i].query_length;
    struct appended *t = &tasks[i];
    *t = (struct appended){.appends = true, .base = i % 2 ? 0.0f : 500000.0f, .position_count = BEGINS};
    t->a = (struct attention){.dtype = dtypes[i % 2],
                              .layout = i / 2 % 2 ? RONDO_BHSD : RONDO_BSHD,
                              .batch = BEGINS,
                              .query_heads = shapes[i].query_heads,
                              .kv_heads = shapes[i].kv_heads,
                              .query_length = shapes[i].query_length,
                              .capacity = shapes[i].capacity,
                              .dimension = shapes[i].dimension,
                              .lse_wanted = true,
                              .causal = 1};
    if (backend == RONDO_BACKEND_HOST && shapes[i].query_heads > 8) t->a.query_heads /= 12; /* one kind of tile */
    t->positions[1] = (int32_t)(room / 2 - 3), t->positions[2] = (int32_t)room;
  }
  run(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_append, a_chunk_of_a_prompt_may_begin_at_any_position, chunks)

/* Rows moved by vectors, or else by words of 8 bytes: rows that are not aligned, and more heads than a block has
 * threads for. Some rows are before the cache or beyond it, and the last blocks are not full. */
static void settled(rondo_backend backend) {
  static const struct {
    int64_t query_heads, kv_heads, query_length, capacity, dimension, position;
    rondo_rope_pairing pairing;
    enum place place;
    bool frequencies;
    bool rotates_alone;
  } shapes[] = {{3, 1, 130, 200, 64, 70, RONDO_ROPE_HALVES, DENSE, false, false},
                {9, 3, 133, 140, 64, 11, RONDO_ROPE_INTERLEAVED, DENSE, false, false},
                {3, 1, 131, 200, 64, 75, RONDO_ROPE_HALVES, STRIDED, true, false},
                {2, 2, 129, 300, 128, 0, RONDO_ROPE_INTERLEAVED, DENSE, true, false},
                {2, 1, 130, 200, 64, -3, RONDO_ROPE_HALVES, DENSE, false, false},
                {1, 1, 128, 128, 256, 0, RONDO_ROPE_HALVES, DENSE, false, false},
                {40, 4, 65, 128, 64, 0, RONDO_ROPE_HALVES, DENSE, false, false},
                {129, 3, 66, 128, 64, 0, RONDO_ROPE_HALVES, DENSE, false, false},
                {2, 1, 128, 200, 64, 5, RONDO_ROPE_HALVES, MISALIGNED, false, false},
                {2, 1, 130, 200, 32, 5, RONDO_ROPE_INTERLEAVED, DENSE, false, false},
                {3, 1, 100, 140, 64, 40, RONDO_ROPE_HALVES, DENSE, false, true},
                {1, 1, 1031, 1100, 64, 75, RONDO_ROPE_HALVES, DENSE, false, false}};
  static struct appended tasks[COUNT(shapes)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    struct appended *t = &tasks[i];
    *t = (struct appended){.appends = !shapes[i].rotates_alone,
                           .base = 500000.0f,
                           .follows = true,
                           .position_count = 1,
                           .pairing = shapes[i].pairing,
                           .frequencies = shapes[i].frequencies};
    t->a = (struct attention){.dtype = dtypes[i % 2],
                              .layout = i % 3 ? RONDO_BSHD : RONDO_BHSD,
                              .batch = 1,
                              .query_heads = shapes[i].query_heads,
                              .kv_heads = shapes[i].kv_heads,
                              .query_length = shapes[i].query_length,
                              .capacity = shapes[i].capacity,
                              .dimension = shapes[i].dimension,
                              .place = shapes[i].place,
                              .causal = 1};
    t->positions[0] = (int32_t)shapes[i].position;
  }
  run(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_append, rows_at_a_settled_position_agree_with_double_precision, settled)

/* New rows of which the capacity cuts some off, for each kernel: few query rows and many, aligned or not, in pages,
 * with windows and soft caps. */
static void cut_off(rondo_backend backend) {
  static const struct {
    int64_t kv_heads, group, query_length, capacity, dimension, page_rows;
    int32_t window, splits;
    float soft_cap;
    enum place place;
  } shapes[] = {{1, 1, 16, 24, 64, 0, 0, 0, 0, DENSE},      {2, 1, 8, 40, 128, 0, 0, 0, 0, DENSE},
                {1, 4, 4, 300, 64, 0, 0, 3, 0, DENSE},      {1, 2, 8, 300, 128, 0, 0, 0, 0, STRIDED},
                {1, 1, 16, 40, 256, 0, 0, 0, 0, DENSE},     {2, 1, 16, 64, 64, 16, 0, 0, 0, DENSE},
                {1, 1, 16, 700, 128, 0, 9, 0, 0, DENSE},    {1, 2, 7, 96, 64, 32, 5, 0, 5, DENSE},
                {1, 1, 16, 33, 32, 0, 0, 0, 0, DENSE},      {2, 3, 180, 250, 64, 0, 0, 0, 0, MISALIGNED},
                {1, 1, 40, 1100, 128, 0, 0, 2, 0, DENSE},   {2, 2, 90, 128, 256, 64, 0, 0, 0, DENSE},
                {1, 2, 90, 128, 64, 64, 30, 0, 5, DENSE},   {2, 2, 200, 384, 64, 0, 0, 0, 0, DENSE},
                {2, 2, 128, 384, 128, 0, 0, 0, 0, DENSE},   {1, 2, 200, 300, 128, 0, 0, 0, 0, DENSE},
                {1, 2, 128, 256, 256, 0, 0, 0, 0, DENSE},   {1, 2, 200, 300, 64, 0, 50, 0, 0, STRIDED},
                {1, 2, 200, 301, 128, 0, 130, 0, 0, DENSE}, {1, 1, 200, 400, 256, 0, 70, 0, 0, DENSE},
                {1, 2, 128, 384, 64, 0, 0, 0, 5, DENSE},    {1, 2, 200, 300, 128, 0, 20, 0, 5, DENSE},
                {1, 1, 128, 384, 256, 0, 0, 0, 5, DENSE},   {1, 1, 64, 64, 32, 0, 0, 0, 0, DENSE}};
  enum { BEGINS = 6 };
  static struct appended tasks[COUNT(shapes) * 2];
  size_t count = 0;
  for (size_t i = 0; i < COUNT(tasks); i++) {
    const size_t s = i / 2;
    if (backend == RONDO_BACKEND_HOST && (i + s) % 2) continue; /* it has one kernel: each shape in one type */
    struct appended *t = &tasks[count++];
    const int64_t capacity = shapes[s].capacity, rows = shapes[s].query_length;
    *t = (struct appended){.appends = true, .base = i % 2 ? 10000.0f : 0.0f, .position_count = BEGINS};
    t->a = (struct attention){.dtype = dtypes[i % 2],
                              .layout = s % 2 ? RONDO_BHSD : RONDO_BSHD,
                              .batch = BEGINS,
                              .query_heads = shapes[s].kv_heads * shapes[s].group,
                              .kv_heads = shapes[s].kv_heads,
                              .query_length = rows,
                              .capacity = capacity,
                              .dimension = shapes[s].dimension,
                              .page_rows = shapes[s].page_rows,
                              .window = shapes[s].window,
                              .splits = shapes[s].splits,
                              .soft_cap = shapes[s].soft_cap,
                              .place = shapes[s].place,
                              .lse_wanted = true,
                              .causal = 1};
    const int64_t begins[BEGINS] = {capacity - rows + 1, capacity - rows / 2,       capacity - 1, capacity,
                                    capacity + 40,       capacity - rows - rows / 3};
    for (int b = 0; b < BEGINS; b++) t->positions[b] = (int32_t)begins[b];
  }
  run(backend, tasks, count);
}
BOTH_BACKENDS(attention_append, rows_that_do_not_fit_see_those_up_to_their_position, cut_off)

/* ---- One task, and three ----------------------------------------------------------------------------------------- */

struct growing {
  rondo_tensor q, new_k, new_v, position, length, o;
};

enum { GROWN = 70, HEADS = 6, KV_HEADS = 2, DIMENSION = 64 };

static rondo_tensor tensor(rondo_graph *graph, const char *name, int64_t heads, int64_t rows) {
  rondo_tensor made;
  REQUIRE_OK(rondo_state(graph, name, RONDO_BF16, 4, (int64_t[]){1, heads, rows, DIMENSION}, &made));
  return made;
}

/* A sequence that grows row by row, by this task and by two appends before an attention: the same bits. */
static void grows(rondo_backend backend) {
  struct trial trial;
  struct random random = {3};
  rondo_tensor position, length, k[2], v[2], o[2];
  trial_describe(&trial, backend);
  rondo_graph *g = trial.graph;
  const rondo_tensor q = tensor(g, "q", HEADS, 1), new_k = tensor(g, "new_k", KV_HEADS, 1),
                     new_v = tensor(g, "new_v", KV_HEADS, 1);
  REQUIRE_OK(rondo_input(g, "position", RONDO_I32, 1, (int64_t[]){1}, &position));
  REQUIRE_OK(rondo_input(g, "length", RONDO_I32, 1, (int64_t[]){1}, &length));
  for (int i = 0; i < 2; i++) {
    k[i] = tensor(g, "k", KV_HEADS, GROWN), v[i] = tensor(g, "v", KV_HEADS, GROWN), o[i] = tensor(g, "o", HEADS, 1);
    rondo_attention_desc desc = {.q = q, .k = k[i], .v = v[i], .o = o[i], .causal = 1};
    if (i) {
      REQUIRE_OK(rondo_add_append(g, &(rondo_append_desc){"k", new_k, k[i], position, 2}));
      REQUIRE_OK(rondo_add_append(g, &(rondo_append_desc){"v", new_v, v[i], position, 2}));
      desc.kv_lengths = length;
    } else {
      desc.new_k = new_k, desc.new_v = new_v, desc.position = position;
    }
    REQUIRE_OK(rondo_add_attention(g, &desc));
  }
  trial_instantiate(&trial);
  for (int32_t at = 0; at < GROWN; at++) {
    uint16_t q_row[HEADS * DIMENSION], k_row[KV_HEADS * DIMENSION], v_row[KV_HEADS * DIMENSION], got[2][COUNT(q_row)];
    for (size_t i = 0; i < COUNT(q_row); i++) q_row[i] = oracle_to_bf16(random_normal(&random));
    for (size_t i = 0; i < COUNT(k_row); i++) {
      k_row[i] = oracle_to_bf16(random_normal(&random));
      v_row[i] = oracle_to_bf16(random_normal(&random));
    }
    trial_set(&trial, q, q_row), trial_set(&trial, new_k, k_row), trial_set(&trial, new_v, v_row);
    trial_set(&trial, position, &at), trial_set(&trial, length, &(int32_t){at + 1});
    trial_replay(&trial);
    for (int i = 0; i < 2; i++) trial_get(&trial, o[i], got[i]);
    cr_assert(!memcmp(got[0], got[1], sizeof got[0]), "o differs at position %d", at);
  }
  static uint16_t rows[2][KV_HEADS * GROWN * DIMENSION];
  for (int i = 0; i < 2; i++) trial_get(&trial, k[i], rows[i]);
  cr_expect(!memcmp(rows[0], rows[1], sizeof rows[0]));
  for (int i = 0; i < 2; i++) trial_get(&trial, v[i], rows[i]);
  cr_expect(!memcmp(rows[0], rows[1], sizeof rows[0]));
  trial_end(&trial);
}
BOTH_BACKENDS(attention_append, a_sequence_that_grows_has_the_bits_of_appends_and_an_attention, grows)

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

static void replays(rondo_backend backend) {
  enum { REPLAYS = 1000, TASKS = 24 };
  static struct appended tasks[TASKS];
  struct random random = {9};
  struct trial trial;
  uint16_t *first[TASKS];
  trial_describe(&trial, backend);
  for (int i = 0; i < TASKS; i++) tasks[i] = draw(&random), add(&tasks[i], &trial);
  trial_instantiate(&trial);
  for (int i = 0; i < TASKS; i++) fill(&tasks[i], &random), set(&tasks[i], &trial);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 2 : REPLAYS); replay++) {
    trial_replay(&trial);
    for (int i = 0; i < TASKS; i++) {
      const struct rectangle query = query_rectangle(&tasks[i].a);
      attention_get(&tasks[i].a, &trial);
      if (!replay) first[i] = copy_of(tasks[i].a.o_memory, &query);
      cr_assert(!memcmp(first[i], tasks[i].a.o_memory, (size_t)rectangle_elements(&query) * sizeof(uint16_t)),
                "task %d differs in replay %d", i, replay);
    }
  }
  for (int i = 0; i < TASKS; i++) check(&tasks[i], &trial), release(&tasks[i]), free(first[i]);
  trial_end(&trial);
}
BOTH_BACKENDS(attention_append, a_thousand_replays_give_the_same_bits, replays)
