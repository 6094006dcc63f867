/* test_decoder_run.h - what the tests of a decoder's halves share: a case, from its description to its check, the sizes
 * of models, and which kernel a case is for. */
#ifndef RONDO_TEST_DECODER_RUN_H
#define RONDO_TEST_DECODER_RUN_H

#include <stdio.h>

#include "../../kernels/common/launch.h"
#include "../../runtime/graph.h"
#include "test_decoder_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static inline void describe(const struct half *h, char text[200]) {
  snprintf(text, 200, "%s, %s, weights %s, %d rows, hidden %d, heads %d/%d of %d, columns %d, parts %d -> %d",
           h->attention ? "attention block" : "feed forward", rondo_dtype_name(h->dtype), rondo_dtype_name(h->weights),
           (int)h->rows, (int)h->hidden, (int)h->query_heads, (int)h->kv_heads, (int)h->dimension, (int)h->columns,
           (int)h->x_parts, (int)h->out_parts);
}

/* Replays again: the same bits. */
static inline void repeat(struct half *h, struct trial *trial, const char *what) {
  struct half again = *h;
  const struct grid *before[] = {&h->out, &h->out_sums, &h->k, &h->v};
  struct grid *now[] = {&again.out, &again.out_sums, &again.k, &again.v};
  for (int i = 0; i < 4; i++)
    if (before[i]->data) now[i]->data = malloc(grid_bytes(now[i]) + 1);
  trial_replay(trial);
  half_get(&again, trial);
  for (int i = 0; i < 4; i++) {
    if (!before[i]->data) continue;
    cr_assert_eq(memcmp(before[i]->data, now[i]->data, grid_bytes(now[i])), 0, "%s: other bits in another replay",
                 what);
    free(now[i]->data);
  }
}

/* ---- Which kernel ------------------------------------------------------------------------------------------------ */

/* What the task's first launch is, on a chip that has clusters, is said here once more, for the sizes that the tests
 * have: a case that takes another kernel than the one that it is for tests nothing. */
#define HALF_STEPS "rondo_sum_parts" /* the first of them, where no kernel does all */
enum { HALF_KERNEL_BYTES = 64 };

/* The largest hidden size whose weights several rows' warps hold in registers, by query heads of a KV head. */
static inline int64_t half_widest_rows(const struct half *h) {
  static const int64_t of_bf16[] = {0, 960, 768, 640, 512, 0, 0, 0, 256},
                       of_nvfp4[] = {0, 1152, 1152, 768, 768, 0, 0, 0, 384};
  return (h->weights == RONDO_NVFP4 ? of_nvfp4 : of_bf16)[h->query_heads / h->kv_heads];
}

/* Of the weights that one of a KV head's eight blocks has, of one row. */
static inline double half_bytes_of_block(const struct half *h) {
  const int64_t columns = h->query_heads / h->kv_heads * h->dimension;
  const int64_t numbers = (columns + 2 * h->dimension) * h->hidden + h->hidden * columns;
  return (double)numbers / 8 * (h->weights == RONDO_NVFP4 ? 0.5625 : 2);
}

static inline void half_attention_kernel(const struct half *h, char name[HALF_KERNEL_BYTES]) {
  const char *weights = h->weights == RONDO_NVFP4 ? "nvfp4" : "bf16";
  const int64_t d = h->dimension, group = h->query_heads / h->kv_heads;
  const bool wide = h->hidden == 2048 && d == 64 && group % 2 == 0 && h->out_parts >= h->query_heads / 2;
  snprintf(name, HALF_KERNEL_BYTES, HALF_STEPS);
  if (h->padded || h->dtype != RONDO_BF16 || h->weights == RONDO_E4M3 || h->hidden % 64 || (d != 64 && d != 128) ||
      group > 8 || h->out_parts < h->kv_heads || !h->capacity)
    return;
  if (h->rows > 1 && d == 64 && h->hidden <= half_widest_rows(h))
    snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_rows_%s", weights);
  if (h->rows == 1 && wide) snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_block_wide_%s", weights);
  if (h->rows == 1 && !wide && half_bytes_of_block(h) <= 1 << 17)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_block_%s_%d", weights, (int)d);
}

static inline void half_feed_forward_kernel(const struct half *h, char name[HALF_KERNEL_BYTES]) {
  const bool codes = h->weights == RONDO_NVFP4, small = h->hidden == 576 && h->columns == 1536;
  const char *weights = codes ? "nvfp4" : "bf16";
  snprintf(name, HALF_KERNEL_BYTES, HALF_STEPS);
  if (h->padded || h->dtype != RONDO_BF16 || h->weights == RONDO_E4M3 || h->hidden % 64 || h->columns % 64 ||
      h->x_parts > 16 || h->out_parts > 16 || h->out_parts > h->columns / 64)
    return;
  if (h->rows == 1 && codes && h->hidden % 256 == 0)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_stream");
  else if (h->rows == 1 && small && h->out_parts == 8 && h->x_parts <= 8)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_one_%s_576", weights);
  else if (h->rows > 1 && small && h->out_parts == 8 && h->x_parts <= 8)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_rows_%s_576_%d", weights, h->rows <= 8 ? 8 : 16);
  else
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_%s_%s", weights, h->rows <= 4 ? "few" : "many");
}

static inline void half_kernel(const struct half *h, char name[HALF_KERNEL_BYTES]) {
  if (h->attention)
    half_attention_kernel(h, name);
  else
    half_feed_forward_kernel(h, name);
}

/* Chips without clusters take steps; on the others the half is the one kernel that it is said to be, or steps. */
static inline void half_check_launches(const rondo_graph *graph, uint32_t index, const struct half *h,
                                       const char *what) {
  static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};
  char expected[HALF_KERNEL_BYTES];
  half_kernel(h, expected);
  for (size_t i = 0; i < COUNT(chips); i++) {
    struct op_operand operands[OP_MAX_OPERANDS];
    struct op_task task = graph_op_task(graph, &graph->tasks[index], operands);
    struct op_launches launches;
    REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i], &launches));
    const bool steps = chips[i].version < 90 || !strcmp(expected, HALF_STEPS);
    cr_assert_str_eq(launches.items[0].kernel, steps ? HALF_STEPS : expected, "%s, chip %d", what, chips[i].version);
    cr_assert(launches.count <= task.op->launches_most, "%s, chip %d", what, chips[i].version);
    cr_assert(steps ? launches.count > 1 : launches.count == 1, "%s, chip %d", what, chips[i].version);
    for (uint32_t l = 0; l < launches.count && h->hidden % 64 == 0 && !h->padded; l++)
      cr_assert_str_neq(launches.items[l].kernel, "rondo_gemv_scalar", "%s, chip %d", what, chips[i].version);
  }
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

/* Where this is set, cases are described only, and their kernels noted. */
struct half_noted {
  int count;
  char names[1024][HALF_KERNEL_BYTES];
};
static struct half_noted *half_noted;

/* For a list of kernels: each is that of a case. */
#define REQUIRE_HALF_FOR(chips, parameters, name, ...)                                                                 \
  for (int i = 0, there = 0; !there; i++) {                                                                            \
    cr_assert_lt(i, half_noted->count, "no case for " #name);                                                          \
    there = !strcmp(half_noted->names[i], #name);                                                                      \
  }

static inline void half_note(const struct half *h) {
  cr_assert_lt(half_noted->count, (int)COUNT(half_noted->names));
  half_kernel(h, half_noted->names[half_noted->count++]);
}

static inline void run_changed(rondo_backend backend, struct half *h, void (*change)(struct half *)) {
  struct trial trial;
  struct random random = {(uint64_t)(h->rows + h->hidden)};
  char what[200];
  describe(h, what);
  trial_describe(&trial, backend);
  half_add(trial.graph, h, NULL);
  half_check_launches(trial.graph, 0, h, what);
  if (half_noted) {
    half_note(h);
  } else {
    trial_instantiate(&trial);
    half_fill(h, &random, true);
    if (change) change(h);
    half_set(h, &trial, true);
    trial_replay(&trial);
    half_get(h, &trial);
    half_check(h, what);
    repeat(h, &trial, what);
  }
  trial_end(&trial);
  half_free(h, true);
}
static inline void run(rondo_backend backend, struct half *h) { run_changed(backend, h, NULL); }

/* ---- Other numbers of x ------------------------------------------------------------------------------------------ */

/* Numbers of x of very different sizes, beside each other and in different places; huge ones, tiny ones, and zeros. */
static inline void far_apart(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    oracle_write(h->dtype, h->x.data, c, grid_read(&h->x, 0, c) * ldexp(1, (int)(c / 128 * 7 + c) % 40 - 20));
}
static inline void huge(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, ldexp(grid_read(&h->x, 0, c), 40));
}
static inline void tiny(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, ldexp(grid_read(&h->x, 0, c), -60));
}
static inline void mostly_zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    if (c % 48 > 1) oracle_write(h->dtype, h->x.data, c, 0);
}
static inline void zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, 0);
}
static void (*const x_changes[])(struct half *) = {far_apart, huge, tiny, mostly_zero, zero};

/* Products of one token and NVFP4 are of integers, which know neither NaN nor infinity: each of them in x, and whether
 * it is seen in every result. */
static inline void run_not_finite(rondo_backend backend, const struct half *of) {
  static const double values[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < COUNT(values); i++) {
    struct half h = *of;
    struct trial trial;
    struct random random = {i + 1};
    trial_describe(&trial, backend);
    half_add(trial.graph, &h, NULL);
    half_check_launches(trial.graph, 0, &h, "not finite");
    trial_instantiate(&trial);
    half_fill(&h, &random, true);
    oracle_write(h.dtype, h.x.data, 77, values[i]);
    half_set(&h, &trial, true);
    trial_replay(&trial);
    half_get(&h, &trial);
    for (int64_t c = 0; c < h.hidden; c++) {
      double sum = 0;
      for (int64_t p = 0; p < h.out_parts; p++) sum += grid_read(&h.out_sums, p, c);
      cr_assert(!isfinite(sum), "%g in x, column %d: %g", values[i], (int)c, sum);
    }
    trial_end(&trial);
    half_free(&h, true);
  }
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static const struct {
  rondo_dtype dtype, weights;
} types[] = {{RONDO_BF16, RONDO_BF16}, {RONDO_F16, RONDO_F16},    {RONDO_BF16, RONDO_E4M3},
             {RONDO_F16, RONDO_E4M3},  {RONDO_BF16, RONDO_NVFP4}, {RONDO_F16, RONDO_NVFP4}};
enum { IN_BF16 = 0, IN_NVFP4 = 4 }; /* of x in bf16 */
static const int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16};

static inline struct half with_types(struct half h, size_t type, int64_t rows, bool attention) {
  h.dtype = types[type].dtype, h.weights = types[type].weights;
  h.rows = rows, h.attention = attention;
  if (h.epsilon == 0) h.epsilon = 1e-5f;
  return h;
}

/* Positions all over the capacity, among them the first and the last row. */
static inline struct half at_positions(struct half h, uint64_t seed) {
  struct random random = {seed};
  for (int64_t b = 0; b < h.rows; b++) h.positions[b] = (int32_t)random_between(&random, 0, h.capacity - 1);
  h.positions[seed % (uint64_t)h.rows] = seed % 2 ? 0 : (int32_t)h.capacity - 1;
  return h;
}

/* As models are: SmolLM2 135M and 360M, Llama 1B; and a small one with larger heads. */
static const struct half models[] = {
    {.hidden = 576, .query_heads = 9, .kv_heads = 3, .dimension = 64, .capacity = 527, .columns = 1536},
    {.hidden = 960, .query_heads = 15, .kv_heads = 5, .dimension = 64, .capacity = 300, .columns = 2560},
    {.hidden = 512, .query_heads = 8, .kv_heads = 2, .dimension = 128, .capacity = 200, .columns = 1024},
};

static inline void models_run(rondo_backend backend, bool attention) {
  for (size_t type = 0; type < COUNT(types); type++)
    for (size_t r = 0; r < COUNT(row_counts); r++) {
      const size_t number = type + 5 * r;
      struct half h = with_types(models[(type + r) % COUNT(models)], type, row_counts[r], attention);
      h.x_parts = number % 3 ? (number % 2 ? h.kv_heads : 8) : 0;
      h.out_parts = attention ? h.kv_heads : 8;
      h.base = 100000.0f, h.pairing = number % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
      h.state_position = number / 2 % 2;
      h = at_positions(h, number);
      run(backend, &h);
    }
}
#endif
