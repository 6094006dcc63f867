/* gemm_oracle.c - see gemm_oracle.h. */
#include "gemm_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lane_sums.h"

enum { MOST_CHECKED = 30000, IMMENSE = 3000000 }; /* results of a problem */
enum { GROUP = 64 };                              /* columns with a sum of squares */

const struct gemm_size gemm_sizes[] = {
    {64, 4096, 512, "64x64"},
    {40, 16384, 576, "64x128"},
    {128, 2048, 576, "64x64_pair"},
    {256, 3072, 576, "64x96_turns"},
    {512, 3072, 576, "128x96"},
    {512, 2048, 640, "64x128_turns"},
    {2944, 512, 640, "128x128"},
    {2048, 4096, 1280, "128x256"},
    {1024, 3072, 1024, "128x192"},
    {64, 2048, 2048, "64x64_parts"},
    {2560, 2496, 256, "128x192"},
    {2944, 2880, 256, "128x192_turns"},
    {32, 6144, 2048, "32x64_parts_any"},
    {24, 4096, 2112, "32x64_parts_any"},
};
const size_t gemm_size_count = sizeof gemm_sizes / sizeof *gemm_sizes;

const struct gemm_size gemm_packed_sizes[] = {
    {40, 16384, 576, "nvfp4_64x128"},      {32, 16384, 1152, "nvfp4_slices"},
    {32, 2048, 4160, "nvfp4_slices_two"},  {24, 1024, 4160, "nvfp4_slices_three"},
    {32, 4096, 4160, "nvfp4_slices"},      {128, 16384, 640, "nvfp4_128x128"},
    {2048, 4096, 640, "nvfp4_256x128"},    {64, 3072, 2048, "nvfp4_64x64_parts"},
    {64, 2048, 2048, "nvfp4_64x64_three"}, {128, 3072, 2048, "nvfp4_128x64_parts"},
};
const size_t gemm_packed_size_count = sizeof gemm_packed_sizes / sizeof *gemm_packed_sizes;

int64_t gemm_fewer(rondo_backend backend, int64_t count) {
  return backend != RONDO_BACKEND_HOST ? count : count < 128 ? 16 : count / 8;
}

static int64_t batch_of(const struct gemm_problem_case *of) { return of->batch ? of->batch : 1; }

static int64_t results_of(const struct gemm_problem_case *of) { return of->silu_mul ? of->columns / 2 : of->columns; }

static struct frame operand_add(struct trial *trial, const struct gemm_problem_case *of, const char *name,
                                rondo_dtype dtype, int64_t rows, int64_t columns) {
  const int64_t extent[] = {of->batch, rows, columns};
  const uint32_t first = of->batch ? 0 : 1;
  return frame_add(trial, name, dtype, 3 - first, extent + first, of->room, of->unit ? of->unit : 1);
}

enum { BLOCK = 16, TILE_ROWS = 128, TILE_BLOCKS = 4 };

static int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

static struct frame scales_add(struct trial *trial, const struct gemm_problem_case *of) {
  if (!of->blocked) return operand_add(trial, of, "weight scales", RONDO_E4M3, of->columns, of->k / BLOCK);
  const int64_t extent[] = {of->batch, rounded_up(of->columns, TILE_ROWS), rounded_up(of->k / BLOCK, TILE_BLOCKS)};
  const uint32_t first = of->batch ? 0 : 1;
  return frame_add(trial, "weight scales", RONDO_E4M3, 3 - first, extent + first, 0, 1);
}

int64_t gemm_trial_scale(const struct gemm_trial *t, int64_t batch, int64_t column, int64_t block) {
  const int64_t blocks = t->of.k / BLOCK;
  if (!t->of.blocked) return frame_place(&t->scales, (batch * t->of.columns + column) * blocks + block);
  const int64_t tiles = rounded_up(blocks, TILE_BLOCKS) / TILE_BLOCKS, row = column % TILE_ROWS;
  const int64_t matrix = batch * rounded_up(t->of.columns, TILE_ROWS) * tiles * TILE_BLOCKS;
  return matrix + (column / TILE_ROWS * tiles + block / TILE_BLOCKS) * TILE_ROWS * TILE_BLOCKS + row % 32 * 16 +
         row / 32 * 4 + block % TILE_BLOCKS;
}

/* Every code; scales of 2^-3 to 4, and now and then any. */
static void fill_packed(struct gemm_trial *t, struct random *random) {
  for (int64_t i = 0; i < frame_count(&t->weights); i++) {
    const int64_t place = frame_place(&t->weights, i);
    const unsigned code = (unsigned)random_between(random, 0, 15) & (t->of.positive ? 7 : 15);
    uint8_t *byte = &t->weights.bytes[place / 2];
    *byte = (uint8_t)(place % 2 ? (*byte & 15) | code << 4 : (*byte & 0xf0) | code);
  }
  const int64_t blocks = t->of.k / BLOCK;
  for (int64_t i = 0; i < batch_of(&t->of) * t->of.columns * blocks; i++) {
    const bool any = random_between(random, 0, 50) == 0;
    const int64_t scale = any ? random_between(random, 0, 0x7e) : random_between(random, 0x20, 0x48);
    t->scales.bytes[gemm_trial_scale(t, i / blocks / t->of.columns, i / blocks % t->of.columns, i % blocks)] =
        (uint8_t)scale;
  }
}

/* Numbers of 2^-4 to 15, and now and then any. */
static void fill_e4m3(struct frame *f, struct random *random, bool positive) {
  for (int64_t i = 0; i < frame_count(f); i++) {
    const bool any = !positive && random_between(random, 0, 50) == 0;
    const int64_t code = any ? random_between(random, 0, 0x7e) : random_between(random, 0x18, 0x50);
    f->bytes[frame_place(f, i)] = (uint8_t)(code | (positive ? 0 : random_between(random, 0, 1) << 7));
  }
}

/* One of a table of normal numbers: the logarithm and the cosine of a new one would take most of a test's time. */
static double some_normal(struct random *random) {
  enum { NUMBERS = 1 << 14 };
  static double numbers[NUMBERS];
  struct random own = {NUMBERS};
  for (int i = 0; numbers[NUMBERS - 1] == 0 && i < NUMBERS; i++) numbers[i] = random_normal(&own);
  return numbers[random_bits(random) % NUMBERS];
}

static void fill(struct frame *f, struct random *random, double size, bool positive) {
  if (f->dtype == RONDO_E4M3) {
    fill_e4m3(f, random, positive);
    return;
  }
  for (int64_t i = 0; i < frame_count(f); i++)
    frame_write(f, i, positive ? size * (0.5 + random_uniform(random)) : size * some_normal(random));
}

/* Of rows of e4m3: f32 [batch, rows]. */
static struct frame row_scales_add(struct trial *trial, const struct gemm_problem_case *of, const char *name,
                                   int64_t rows) {
  const int64_t extent[] = {of->batch, rows};
  const uint32_t first = of->batch ? 0 : 1;
  return frame_add(trial, name, RONDO_F32, 2 - first, extent + first, of->room, 2);
}

static int64_t groups_of(int64_t columns) { return (columns + GROUP - 1) / GROUP; }

static void norms_add(struct gemm_trial *t, struct trial *trial, rondo_gemm_desc *desc) {
  const struct gemm_problem_case *of = &t->of;
  const int64_t columns = results_of(of);
  if (of->normed) {
    t->norm = frame_add(trial, "norm", of->dtype, 1, &columns, of->room, of->unit ? of->unit : 1);
    t->normed = operand_add(trial, of, "normed", of->dtype, of->rows, columns);
    t->squares = operand_add(trial, of, "squares", RONDO_F32, groups_of(columns), of->rows);
    desc->norm = t->norm.view, desc->normed = t->normed.view, desc->squares = t->squares.view;
  }
  if (of->epsilon > 0) {
    t->vector_squares = operand_add(trial, of, "vector squares", RONDO_F32, groups_of(of->k), of->rows);
    desc->vector_squares = t->vector_squares.view, desc->norm_epsilon = of->epsilon;
  }
}

void gemm_trial_add(struct gemm_trial *t, struct trial *trial, const struct gemm_problem_case *of,
                    struct random *random) {
  *t = (struct gemm_trial){.of = *of};
  struct gemm_problem_case of_codes = *of;
  of_codes.unit = 4 * (of->unit ? of->unit : 1);
  t->weights = of->packed ? operand_add(trial, &of_codes, "weights", RONDO_NVFP4, of->columns, of->k)
                          : operand_add(trial, of, "weights", of->dtype, of->columns, of->k);
  if (of->packed) t->scales = scales_add(trial, of);
  if (of->scaled) {
    t->scales = row_scales_add(trial, of, "weight scales", of->columns);
    t->vector_scales = row_scales_add(trial, of, "vector scales", of->rows);
  }
  t->vectors = operand_add(trial, of, "vectors", of->dtype, of->rows, of->k);
  t->out = operand_add(trial, of, "out", of->out_dtype, of->rows, results_of(of));
  rondo_gemm_desc desc = {.name = "product",
                          .weights = t->weights.view,
                          .weight_scales = t->scales.view,
                          .weight_scale_layout = of->blocked ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW,
                          .vectors = t->vectors.view,
                          .vector_scales = t->vector_scales.view,
                          .out = t->out.view,
                          .scale = of->scale,
                          .one_order = of->one_order,
                          .silu_mul = of->silu_mul};
  if (of->bias_dtype) {
    const int64_t extent[] = {of->batch, of->columns};
    const uint32_t first = of->batch && !of->bias_for_all ? 0 : 1;
    t->bias = frame_add(trial, "bias", of->bias_dtype, 2 - first, extent + first, of->room, of->unit ? of->unit : 1);
    desc.bias = t->bias.view;
  }
  if (of->residual_dtype && !of->in_place) {
    t->residual = operand_add(trial, of, "residual", of->residual_dtype, of->rows, results_of(of));
    desc.residual = t->residual.view;
  }
  if (of->in_place) desc.residual = t->out.view;
  norms_add(t, trial, &desc);
  REQUIRE_OK(rondo_add_gemm(trial->graph, &desc));
  if (of->packed)
    fill_packed(t, random);
  else
    fill(&t->weights, random, 1, of->positive);
  fill(&t->vectors, random, 1, of->positive);
  if (of->scaled) fill(&t->scales, random, 1, of->positive), fill(&t->vector_scales, random, 1, of->positive);
  if (t->bias.bytes) fill(&t->bias, random, 4, of->positive);
  if (t->residual.bytes) fill(&t->residual, random, 8, of->positive);
  if (of->in_place) fill(&t->out, random, 8, of->positive);
  if (t->norm.bytes) fill(&t->norm, random, 1, false);
  if (t->vector_squares.bytes) fill(&t->vector_squares, random, 32, true);
}

void gemm_trial_set(struct gemm_trial *t, struct trial *trial) {
  frame_set(trial, &t->weights), frame_set(trial, &t->vectors), frame_set(trial, &t->out);
  if (t->scales.bytes) frame_set(trial, &t->scales);
  if (t->vector_scales.bytes) frame_set(trial, &t->vector_scales);
  if (t->bias.bytes) frame_set(trial, &t->bias);
  if (t->residual.bytes) frame_set(trial, &t->residual);
  if (t->norm.bytes) frame_set(trial, &t->norm), frame_set(trial, &t->normed), frame_set(trial, &t->squares);
  if (t->vector_squares.bytes) frame_set(trial, &t->vector_squares);
}

void gemm_trial_begin(struct gemm_trial *t, struct trial *trial, rondo_backend backend,
                      const struct gemm_problem_case *of) {
  struct random random = {5};
  trial_describe(trial, backend);
  gemm_trial_add(t, trial, of, &random);
  trial_instantiate(trial);
}

struct frame gemm_trial_replayed(struct gemm_trial *t, struct trial *trial) {
  gemm_trial_set(t, trial);
  trial_replay(trial);
  return frame_get(trial, &t->out, "out");
}

void gemm_trial_end(struct gemm_trial *t) {
  free(t->weights.bytes), free(t->scales.bytes), free(t->vectors.bytes), free(t->out.bytes), free(t->bias.bytes),
      free(t->residual.bytes), free(t->norm.bytes), free(t->normed.bytes), free(t->squares.bytes),
      free(t->vector_squares.bytes), free(t->vector_scales.bytes);
}

void gemm_rows_check(rondo_backend backend, struct gemm_problem_case of, const int64_t *counts, size_t count) {
  struct frame most = {0};
  for (size_t i = 0; i < count; i++) {
    of.rows = backend == RONDO_BACKEND_HOST ? (counts[i] + 7) / 8 : counts[i];
    struct gemm_trial t;
    struct trial trial;
    gemm_trial_begin(&t, &trial, backend, &of);
    struct frame got = gemm_trial_replayed(&t, &trial);
    if (!i) most = got;
    cr_assert_eq(memcmp(got.bytes, most.bytes, got.size), 0, "%lld rows, %lld columns, k %lld", (long long)of.rows,
                 (long long)of.columns, (long long)of.k);
    if (i) free(got.bytes);
    trial_end(&trial), gemm_trial_end(&t);
  }
  free(most.bytes);
}

int64_t gemm_trial_result(const struct gemm_trial *t, int64_t batch, int64_t row, int64_t column) {
  return (batch * t->of.rows + row) * results_of(&t->of) + column;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static double *decoded(const struct frame *f) {
  const int64_t count = frame_count(f);
  double *numbers = malloc((size_t)(count + 1) * sizeof *numbers);
  for (int64_t i = 0; i < count; i++) numbers[i] = frame_read(f, i);
  return numbers;
}

static double *decoded_weights(const struct gemm_trial *t) {
  double *numbers = decoded(&t->weights);
  const int64_t k = t->of.k, count = batch_of(&t->of) * t->of.columns;
  for (int64_t i = 0; t->of.packed && i < count * k; i++)
    numbers[i] *= oracle_read(RONDO_E4M3, t->scales.bytes,
                              gemm_trial_scale(t, i / k / t->of.columns, i / k % t->of.columns, i % k / BLOCK));
  return numbers;
}

/* The largest finite number of the type. */
static double most_of(rondo_dtype dtype) {
  return dtype == RONDO_F16 ? 65504 : dtype == RONDO_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

/* A number that a result is made of, and what its error may be. */
struct bounded {
  double value, error;
};

/* 1/sqrt(mean + epsilon) of a row, and what it may be off by, as a part of it. */
static double factor_of(const struct gemm_trial *t, int64_t batch, int64_t row, double *error) {
  const int64_t groups = groups_of(t->of.k);
  double sum = 0;
  *error = 0;
  if (!t->vector_squares.bytes) return 1;
  for (int64_t i = 0; i < groups; i++) sum += frame_read(&t->vector_squares, (batch * groups + i) * t->of.rows + row);
  *error = (8 + (double)groups) * 0x1p-24;
  return 1 / sqrt(sum / (double)t->of.k + (double)t->of.epsilon);
}

/* Of the scales of both rows. */
static double scales_of(const struct gemm_trial *t, int64_t batch, int64_t row, int64_t column) {
  if (!t->of.scaled) return 1;
  return frame_read(&t->scales, batch * t->of.columns + column) *
         frame_read(&t->vector_scales, batch * t->of.rows + row);
}

/* What a sum may be off by, as a part of its terms' sizes: the header's bound. That of e4m3 is for terms of one sign;
 * of others, errors cancel like the terms, but a GPU exceeds 2^-10 now and then. */
static double sum_error(const struct gemm_trial *t) {
  const double of_fp32 = (8 + (double)t->of.k / 16) * 0x1p-23;
  if (t->of.dtype != RONDO_E4M3) return of_fp32;
  return of_fp32 + (t->of.positive ? 0x1p-6 : 0x1p-9);
}

/* scale * (W x) + bias of one column, with the row's factor. The header's bound, then the roundings of scale and bias.
 */
static struct bounded product_of(const struct gemm_trial *t, const double *w, const double *x, int64_t batch,
                                 int64_t row, int64_t column) {
  const int64_t k = t->of.k;
  double magnitude, off;
  const double factor = factor_of(t, batch, row, &off) * scales_of(t, batch, row, column);
  const double scale = (t->of.scale == 0 ? 1 : (double)t->of.scale) * factor;
  const bool own_bias = t->bias.bytes && t->bias.rank == 2;
  const double bias = t->bias.bytes ? frame_read(&t->bias, own_bias ? batch * t->of.columns + column : column) : 0;
  const double sum = scale * lanes_product(w + (batch * t->of.columns + column) * k, x + (batch * t->of.rows + row) * k,
                                           k, &magnitude);
  return (struct bounded){sum + bias, fabs(scale) * (sum_error(t) * magnitude + (double)k * 0x1p-133) +
                                          off * fabs(sum) + 0x1p-22 * (fabs(sum) + fabs(bias)) + 0x1p-148};
}

/* silu(gate) * up; silu nowhere rises by more than 1.1. */
static struct bounded gated(struct bounded gate, struct bounded up) {
  const double silu = gate.value / (1 + exp(-gate.value)), value = silu * up.value;
  return (struct bounded){value, 1.1 * gate.error * (fabs(up.value) + up.error) + fabs(silu) * up.error +
                                     0x1p-19 * fabs(value) + 0x1p-119 * fabs(up.value)};
}

/* One result with its residual, and the rounding of out. */
static void result_check(const struct gemm_trial *t, struct bounded expected, double residual, double got,
                         int64_t batch, int64_t row, int64_t column) {
  const double value = expected.value + residual;
  double error = expected.error + 0x1p-23 * (fabs(expected.value) + fabs(residual));
  error += frame_half_unit(t->of.out_dtype, fabs(value) + error);
  const bool is_right = isnan(value)                                     ? isnan(got)
                        : fabs(value) - error > most_of(t->of.out_dtype) ? isinf(got) && (got > 0) == (value > 0)
                        : isinf(got) ? fabs(value) + error > most_of(t->of.out_dtype)
                                     : fabs(got - value) <= error;
  cr_assert(
      is_right,
      "%s%s to %s, batch %lld, %lld rows, %lld columns, k %lld, room %lld%s: out[%lld][%lld][%lld] is %.9g, expected "
      "%.9g within %.3g",
      t->of.packed ? "nvfp4 x " : "", rondo_dtype_name(t->of.dtype), rondo_dtype_name(t->of.out_dtype),
      (long long)t->of.batch, (long long)t->of.rows, (long long)t->of.columns, (long long)t->of.k,
      (long long)t->of.room, t->of.silu_mul ? ", silu_mul" : "", (long long)batch, (long long)row, (long long)column,
      got, value, error);
}

void gemm_trial_check(struct gemm_trial *t, struct trial *trial) {
  const int64_t rows = t->of.rows, columns = results_of(&t->of), count = batch_of(&t->of) * rows * columns;
  struct frame got = frame_get(trial, &t->out, "out");
  double *w = decoded_weights(t), *x = decoded(&t->vectors);
  struct random random = {17};
  for (int64_t i = 0; i < count;) {
    const int64_t batch = i / (rows * columns), row = i / columns % rows, column = i % columns;
    const double residual = t->of.in_place      ? frame_read(&t->out, i)
                            : t->residual.bytes ? frame_read(&t->residual, i)
                                                : 0;
    const struct bounded expected = t->of.silu_mul ? gated(product_of(t, w, x, batch, row, 2 * column),
                                                           product_of(t, w, x, batch, row, 2 * column + 1))
                                                   : product_of(t, w, x, batch, row, column);
    result_check(t, expected, residual, frame_read(&got, i), batch, row, column);
    const bool is_edge = row == 0 || row == rows - 1 || column == 0 || column == columns - 1;
    const int64_t mean = count / MOST_CHECKED;
    i += mean && (!is_edge || count > IMMENSE) ? random_between(&random, 1, 2 * mean + 1) : 1;
  }
  free(w), free(x), free(got.bytes);
}

/* A result in fp32, before it is rounded to out. */
static struct bounded result_of(const struct gemm_trial *t, const double *w, const double *x, int64_t batch,
                                int64_t row, int64_t column) {
  const int64_t i = gemm_trial_result(t, batch, row, column);
  const double residual = t->of.in_place ? frame_read(&t->out, i) : t->residual.bytes ? frame_read(&t->residual, i) : 0;
  const struct bounded product = product_of(t, w, x, batch, row, column);
  return (struct bounded){product.value + residual, product.error + 0x1p-23 * (fabs(product.value) + fabs(residual))};
}

/* A row's 64 columns from the group's first on. */
static void group_check(const struct gemm_trial *t, const struct frame *normed, const struct frame *squares,
                        const double *w, const double *x, int64_t batch, int64_t row, int64_t group) {
  double sum = 0, error = 0;
  const int64_t end = (group + 1) * GROUP < t->of.columns ? (group + 1) * GROUP : t->of.columns;
  for (int64_t column = group * GROUP; column < end; column++) {
    const struct bounded result = result_of(t, w, x, batch, row, column);
    const double norm = frame_read(&t->norm, column), value = result.value * norm;
    const double got = frame_read(normed, gemm_trial_result(t, batch, row, column));
    double most = (result.error + 0x1p-23 * fabs(result.value)) * fabs(norm);
    most += frame_half_unit(t->of.dtype, fabs(value) + most);
    cr_assert(fabs(got - value) <= most,
              "%lld rows, %lld columns, k %lld: normed[%lld][%lld][%lld] is %.9g, expected "
              "%.9g within %.3g",
              (long long)t->of.rows, (long long)t->of.columns, (long long)t->of.k, (long long)batch, (long long)row,
              (long long)column, got, value, most);
    sum += result.value * result.value;
    error += (2 * fabs(result.value) + result.error) * result.error;
  }
  const double got = frame_read(squares, (batch * groups_of(t->of.columns) + group) * t->of.rows + row);
  error += GROUP * 0x1p-23 * sum;
  cr_assert(fabs(got - sum) <= error,
            "%lld rows, %lld columns, k %lld: squares[%lld][%lld][%lld] is %.9g, expected "
            "%.9g within %.3g",
            (long long)t->of.rows, (long long)t->of.columns, (long long)t->of.k, (long long)batch, (long long)group,
            (long long)row, got, sum, error);
}

/* All groups, or of many a sample, with those of the edges. */
static void norms_check(const struct gemm_trial *t, struct trial *trial) {
  const int64_t groups = groups_of(t->of.columns), rows = t->of.rows, count = batch_of(&t->of) * rows * groups;
  struct frame normed = frame_get(trial, &t->normed, "normed"), squares = frame_get(trial, &t->squares, "squares");
  double *w = decoded_weights(t), *x = decoded(&t->vectors);
  struct random random = {18};
  const int64_t mean = count / (MOST_CHECKED / GROUP);
  for (int64_t i = 0; i < count;) {
    group_check(t, &normed, &squares, w, x, i / groups / rows, i / groups % rows, i % groups);
    i += mean ? random_between(&random, 1, 2 * mean + 1) : 1;
  }
  if (count) group_check(t, &normed, &squares, w, x, batch_of(&t->of) - 1, rows - 1, groups - 1);
  free(w), free(x), free(normed.bytes), free(squares.bytes);
}

void gemm_problems_check(rondo_backend backend, const struct gemm_problem_case *problems, size_t count) {
  struct trial trial;
  struct random random = {count};
  struct gemm_trial *trials = calloc(count, sizeof *trials);
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) gemm_trial_add(&trials[i], &trial, &problems[i], &random);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) gemm_trial_set(&trials[i], &trial);
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    gemm_trial_check(&trials[i], &trial);
    if (problems[i].normed) norms_check(&trials[i], &trial);
    gemm_trial_end(&trials[i]);
  }
  trial_end(&trial);
  free(trials);
}
