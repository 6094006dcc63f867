/* decoder_run.c - see decoder_run.h.
 *
 * half_kernel says once more which kernel a half of these sizes is, apart from the library: a case that takes another
 * kernel than the one that it is for tests nothing. */
#include "decoder_run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/common/launch.h"
#include "../../runtime/graph.h"

void half_describe(const struct half *h, char text[200]) {
  snprintf(text, 200, "%s, x %s, %s, weights %s, %d rows, hidden %d, heads %d/%d of %d, columns %d, parts %d -> %d",
           h->attention ? "attention block" : "feed forward", rondo_dtype_name(h->stream), rondo_dtype_name(h->dtype),
           rondo_dtype_name(h->weights), (int)h->rows, (int)h->hidden, (int)h->query_heads, (int)h->kv_heads,
           (int)h->dimension, (int)h->columns, (int)h->x_parts, (int)h->out_parts);
}

void half_repeat(struct half *h, struct trial *trial, const char *what) {
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

/* What the task's first launch is, on a chip that has clusters, is said here once more, for the sizes that the tests
 * have: a case that takes another kernel than the one that it is for tests nothing. */
#define HALF_STEPS "rondo_rms_norm_parts" /* where no kernel does all: the first step of short rows */

/* The largest hidden size whose weights several rows' warps hold in registers, by query heads of a KV head. */
static int64_t half_widest_rows(const struct half *h) {
  static const int64_t of_bf16[] = {0, 960, 768, 640, 512, 0, 0, 0, 256},
                       of_nvfp4[] = {0, 1152, 1152, 768, 768, 0, 0, 0, 384};
  return (h->weights == RONDO_NVFP4 ? of_nvfp4 : of_bf16)[h->query_heads / h->kv_heads];
}

/* Of the weights that one of a KV head's eight blocks has, of one row. */
static double half_bytes_of_block(const struct half *h) {
  const int64_t columns = h->query_heads / h->kv_heads * h->dimension;
  const int64_t numbers = (columns + 2 * h->dimension) * h->hidden + h->hidden * columns;
  return (double)numbers / 8 * (h->weights == RONDO_NVFP4 ? 0.5625 : 2);
}

static void half_attention_kernel(const struct half *h, bool has_wgmma, char name[HALF_KERNEL_BYTES]) {
  const char *weights = h->weights == RONDO_NVFP4 ? "nvfp4" : "bf16";
  const int64_t d = h->dimension, group = h->query_heads / h->kv_heads;
  if (h->one_sequence && h->as_tokens) {
    const bool takes = h->stream == RONDO_F32 && h->dtype == RONDO_BF16 && h->weights == RONDO_BF16 && d == 64;
    const bool fits = takes && h->rows <= 8 && !h->padded && h->out_parts >= h->kv_heads && !h->page_rows;
    snprintf(name, HALF_KERNEL_BYTES, fits ? "rondo_attention_several_tokens_bf16" : HALF_STEPS);
    return;
  }
  if (h->one_sequence) {
    const bool known = h->hidden == 576 && h->query_heads == 9 && h->kv_heads == 3 && d == 64;
    const bool takes = known && h->stream == RONDO_F32 && h->dtype == RONDO_BF16 && h->weights == RONDO_BF16;
    const bool fits = takes && has_wgmma && h->x_parts % 3 == 0 && !h->padded && h->out_parts == 3 && h->capacity;
    snprintf(name, HALF_KERNEL_BYTES, "%s%s", fits ? "rondo_attention_many_tokens_smollm2_135m" : HALF_STEPS,
             fits && h->rows > 64 ? "_two_tiles" : "");
    return;
  }
  const bool wide = h->hidden == 2048 && d == 64 && group % 2 == 0 && h->out_parts >= h->query_heads / 2;
  snprintf(name, HALF_KERNEL_BYTES, HALF_STEPS);
  if (h->padded || h->stream != RONDO_F32 || h->dtype != RONDO_BF16 || h->weights == RONDO_E4M3 || h->hidden % 64 ||
      (d != 64 && d != 128) || group > 8 || h->out_parts < h->kv_heads || !h->capacity)
    return;
  if (h->rows > 1 && d == 64 && h->hidden <= half_widest_rows(h))
    snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_several_tokens_%s",
             h->rows >= 25 || h->weights == RONDO_NVFP4 ? "nvfp4_or_pairs" : weights);
  if (h->rows == 1 && wide) snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_block_wide_%s", weights);
  if (h->rows == 1 && !wide && half_bytes_of_block(h) <= 1 << 17)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_attention_block_%s_%d", weights, (int)d);
}

static void half_feed_forward_kernel(const struct half *h, bool has_wgmma, char name[HALF_KERNEL_BYTES]) {
  const bool codes = h->weights == RONDO_NVFP4, small = h->hidden == 576 && h->columns == 1536;
  const char *weights = codes ? "nvfp4" : "bf16";
  snprintf(name, HALF_KERNEL_BYTES, HALF_STEPS);
  if (h->padded || h->stream != RONDO_F32 || h->dtype != RONDO_BF16 || h->weights == RONDO_E4M3 || h->hidden % 64 ||
      h->columns % 64 || h->x_parts > 16 || h->out_parts > 16 || h->out_parts > h->columns / 64)
    return;
  if (h->as_tokens) {
    if (small && !codes && h->rows <= 8 && h->out_parts == 8 && h->x_parts <= 8)
      snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_several_tokens_smollm2_135m_bf16_16");
    return;
  }
  const bool is_many = has_wgmma && h->rows > 1 && small && !codes && h->out_parts == 6 && h->x_parts % 3 == 0;
  if (is_many) snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_many_tokens_smollm2_135m");
  if (is_many || h->rows > 16) return;
  if (h->rows == 1 && codes && h->hidden % 256 == 0)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_stream");
  else if (h->rows == 1 && small && h->out_parts == 8 && h->x_parts <= 8)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_one_token_smollm2_135m_%s", weights);
  else if (h->rows > 1 && small && h->out_parts == 8 && h->x_parts <= 8)
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_several_tokens_smollm2_135m_%s_%d", weights,
             h->rows <= 8 ? 8 : 16);
  else
    snprintf(name, HALF_KERNEL_BYTES, "rondo_feed_forward_%s_%s", weights, h->rows <= 4 ? "few" : "many");
}

/* The kernels of many tokens take wgmma. Clusters of sixteen blocks take a chip or a lane that surely holds one. */
static void half_kernel(const struct half *h, const struct chip *chip, char name[HALF_KERNEL_BYTES]) {
  const bool has_wgmma = chip->version == 90;
  if (h->attention)
    half_attention_kernel(h, has_wgmma, name);
  else
    half_feed_forward_kernel(h, has_wgmma, name);
  if (chip->multiprocessors <= 120 && strstr(name, "_two_tiles")) snprintf(name, HALF_KERNEL_BYTES, HALF_STEPS);
}

void half_check_launches(const rondo_graph *graph, uint32_t index, const struct half *h, const char *what) {
  static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {90, 120, 232448}, {100, 148, 232448}};
  char expected[HALF_KERNEL_BYTES];
  for (size_t i = 0; i < COUNT(chips); i++) {
    struct op_operand operands[OP_MAX_OPERANDS];
    struct op_task task = graph_op_task(graph, &graph->tasks[index], operands);
    struct op_launches launches;
    REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i], &launches));
    half_kernel(h, &chips[i], expected);
    const bool steps = chips[i].version < 90 || !strcmp(expected, HALF_STEPS);
    const bool is_long = h->hidden >= 1024 && chips[i].version >= 90;
    const char *first_step = is_long ? "rondo_rms_norm_parts_cluster" : HALF_STEPS;
    cr_assert_str_eq(launches.items[0].kernel, steps ? first_step : expected, "%s, chip %d", what, chips[i].version);
    cr_assert(launches.count <= task.op->launches_most, "%s, chip %d", what, chips[i].version);
    cr_assert(steps ? launches.count > 1 : launches.count == 1, "%s, chip %d", what, chips[i].version);
    for (uint32_t l = 0; l < launches.count && h->hidden % 64 == 0 && !h->padded; l++)
      cr_assert_str_neq(launches.items[l].kernel, "rondo_gemv_scalar", "%s, chip %d", what, chips[i].version);
  }
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

struct half_noted *half_noted;

static void half_note(const struct half *h) {
  static const struct chip h200 = {90, 132, 232448};
  cr_assert_lt(half_noted->count, (int)COUNT(half_noted->names));
  half_kernel(h, &h200, half_noted->names[half_noted->count++]);
}

void half_run_changed(rondo_backend backend, struct half *h, void (*change)(struct half *)) {
  struct trial trial;
  struct random random = {(uint64_t)(h->rows + h->hidden)};
  char what[200];
  half_describe(h, what);
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
    half_repeat(h, &trial, what);
  }
  trial_end(&trial);
  half_free(h, true);
}

void half_run(rondo_backend backend, struct half *h) { half_run_changed(backend, h, NULL); }

/* ---- Other numbers of x ------------------------------------------------------------------------------------------ */

/* Numbers of x of very different sizes, beside each other and in different places; huge ones, tiny ones, and zeros. */
static void x_far_apart(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    oracle_write(h->stream, h->x.data, c, grid_read(&h->x, 0, c) * ldexp(1, (int)(c / 128 * 7 + c) % 40 - 20));
}

static void x_huge(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->stream, h->x.data, c, ldexp(grid_read(&h->x, 0, c), 40));
}

static void x_tiny(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->stream, h->x.data, c, ldexp(grid_read(&h->x, 0, c), -60));
}

void x_mostly_zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    if (c % 48 > 1) oracle_write(h->stream, h->x.data, c, 0);
}

void x_zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->stream, h->x.data, c, 0);
}

void (*const x_changes[X_CHANGES])(struct half *) = {x_far_apart, x_huge, x_tiny, x_mostly_zero, x_zero};

void half_run_not_finite(rondo_backend backend, const struct half *of) {
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
    oracle_write(h.stream, h.x.data, 77, values[i]);
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

struct half with_types(struct half h, size_t type, int64_t rows, bool attention) {
  h.stream = types[type].stream, h.dtype = types[type].dtype, h.weights = types[type].weights;
  h.rows = rows, h.attention = attention;
  if (h.epsilon == 0) h.epsilon = 1e-5f;
  return h;
}

struct half with_norm_weights(struct half h, bool has_weights) {
  h.no_norm_weights = !has_weights;
  if (h.no_norm_weights && h.stream == RONDO_F32) h.dtype = RONDO_BF16;
  return h;
}

struct half without_norm(struct half h) {
  h.epsilon = 0;
  if (h.stream == RONDO_F32) h.dtype = RONDO_BF16;
  return h;
}

struct half at_positions(struct half h, uint64_t seed) {
  struct random random = {seed};
  for (int64_t b = 0; b < h.rows; b++) h.positions[b] = (int32_t)random_between(&random, 0, h.capacity - 1);
  h.positions[seed % (uint64_t)h.rows] = seed % 2 ? 0 : (int32_t)h.capacity - 1;
  return h;
}

void models_run(rondo_backend backend, bool attention) {
  for (size_t type = 0; type < COUNT(types); type++)
    for (size_t r = 0; r < COUNT(row_counts); r++) {
      const size_t number = type + 5 * r;
      struct half h = with_types(models[(type + r) % COUNT(models)], type, row_counts[r], attention);
      h.x_parts = number % 3 ? (number % 2 ? h.kv_heads : 8) : 0;
      h.out_parts = attention ? h.kv_heads : 8;
      h.base = 100000.0f, h.pairing = number % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
      h.state_position = number / 2 % 2;
      h = at_positions(h, number);
      half_run(backend, &h);
    }
}
