/* test_decoder_oracle.h - what the tests of a decoder's halves share: one half in a graph, and its check against sums
 * in fp64.
 *
 * The gate: inside, numbers may be rounded to 16 bits wherever rondo.h allows it. Each such rounding is off by at most
 * u of the number, 2^-8 in bf16 and 2^-11 in f16, and is taken as a deviation of u that is independent of the others;
 * what is computed of such numbers has the deviation of sums of independent terms. A result may be off by four times
 * that: uniform errors have 0.58 of it, so four are almost seven deviations. An error that is no rounding is more. */
#ifndef RONDO_TEST_DECODER_ORACLE_H
#define RONDO_TEST_DECODER_ORACLE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/layer_form.h"
#include "../support.h"

enum { HALF_MOST_ROWS = 16, HALF_PADDING = 32, HALF_BLOCK = 16, HALF_MOST_PAIRS = 128 };

/* Rows of any type, with NaN (all bits set) behind each where there is padding. */
struct grid {
  rondo_dtype dtype;
  int64_t rows, columns, pitch;
  rondo_tensor whole, view;
  void *data;
};

struct half {
  bool attention;
  rondo_dtype dtype, weights;
  int64_t rows, hidden;
  int64_t query_heads, kv_heads, dimension, capacity; /* attention */
  int64_t columns;                                    /* feed forward */
  int64_t x_parts, out_parts;                         /* x_parts 0: absent */
  float epsilon;                                      /* 0: no norm */
  bool no_norm_weights, no_row_scales, padded;
  bool last_part_is_late; /* feed forward */
  float base;
  bool frequencies, one_position;
  bool state_position; /* so that it may be read before the tasks in front have ended */
  bool states;         /* so are the weights and the norm, which tasks may write then */
  rondo_rope_pairing pairing;
  int32_t positions[HALF_MOST_ROWS];
  /* Made by half_add. */
  float scale;
  struct grid x, parts, norm, out, out_sums;
  struct grid first, first_scales, last, last_scales; /* qkv or gate_up, output or down */
  struct grid k, v;                                   /* rows: of all sequences, capacity and KV heads */
  rondo_tensor position, rope_frequencies;
  float frequency[HALF_MOST_PAIRS];
  uint16_t *k_before, *v_before;
};

/* Numbers, and how far off each may be: the squares of deviations. */
struct measured {
  int64_t rows, columns;
  double *value, *variance;
};

static inline struct measured measured_make(int64_t rows, int64_t columns) {
  const size_t bytes = (size_t)(rows * columns) * sizeof(double);
  struct measured m = {rows, columns, malloc(bytes), malloc(bytes)};
  memset(m.value, 0, bytes), memset(m.variance, 0, bytes);
  return m;
}
static inline void measured_free(struct measured *m) { free(m->value), free(m->variance); }

static inline double half_u(rondo_dtype dtype) { return dtype == RONDO_F16 ? 0x1p-11 : 0x1p-8; }

/* ---- Grids ------------------------------------------------------------------------------------------------------- */

static inline size_t grid_bytes(const struct grid *g) {
  return (size_t)(g->rows * g->pitch) * rondo_dtype_bits(g->dtype) / 8;
}

typedef rondo_status (*half_tensor)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                    rondo_tensor *);

/* Of rank 2, or rank 1 where it is one row that is not padded. */
static inline struct grid grid_add(rondo_graph *graph, const char *name, half_tensor kind, rondo_dtype dtype,
                                   int64_t rows, int64_t columns, uint32_t rank, bool padded) {
  struct grid g = {dtype, rows, columns, columns + (padded ? HALF_PADDING : 0), {0}, {0}, NULL};
  const int64_t shape[] = {rows, g.pitch}, extent[] = {rows, columns}, offset[] = {0, 0};
  REQUIRE_OK(kind(graph, name, dtype, rank, shape + 2 - rank, &g.whole));
  g.view = g.whole;
  if (padded) REQUIRE_OK(rondo_view(graph, g.whole, offset, extent, &g.view));
  g.data = malloc(grid_bytes(&g));
  memset(g.data, 0xff, grid_bytes(&g));
  return g;
}

static inline double grid_read(const struct grid *g, int64_t row, int64_t column) {
  return oracle_read(g->dtype, g->data, row * g->pitch + column);
}

static inline void grid_fill(struct grid *g, struct random *random, double size, double middle) {
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t c = 0; c < g->columns; c++)
      oracle_write(g->dtype, g->data, r * g->pitch + c, middle + size * random_normal(random));
}

/* NVFP4: every code, and scales from 0.5 to 1.9. */
static inline void codes_fill(struct grid *codes, struct grid *scales, struct random *random) {
  uint8_t *bytes = codes->data, *scale = scales->data;
  for (int64_t r = 0; r < codes->rows; r++) {
    for (int64_t c = 0; c < codes->columns / 2; c++) bytes[r * codes->pitch / 2 + c] = (uint8_t)random_bits(random);
    for (int64_t c = 0; c < scales->columns; c++)
      scale[r * scales->pitch + c] = (uint8_t)(0x30 | (random_bits(random) & 0xf));
  }
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static inline int64_t half_first_rows(const struct half *h) {
  return h->attention ? (h->query_heads + 2 * h->kv_heads) * h->dimension : 2 * h->columns;
}
static inline int64_t half_inner(const struct half *h) {
  return h->attention ? h->query_heads * h->dimension : h->columns;
}

static inline void matrix_add(rondo_graph *graph, const struct half *h, int64_t rows, int64_t columns,
                              struct grid *matrix, struct grid *scales) {
  const half_tensor kind = h->states ? rondo_state : rondo_constant;
  *matrix = grid_add(graph, "weights", kind, h->weights, rows, columns, 2, h->padded);
  if (h->weights == RONDO_NVFP4)
    *scales = grid_add(graph, "scales", kind, RONDO_E4M3, rows, columns / HALF_BLOCK, 2, h->padded);
  else if (h->weights == RONDO_E4M3 && !h->no_row_scales)
    *scales = grid_add(graph, "scales", kind, RONDO_F32, 1, rows, 1, false);
}

/* f32 [parts, rows, hidden]; as a grid, parts and rows are rows. */
static inline struct grid parts_add(rondo_graph *graph, const struct half *h, const char *name, int64_t parts) {
  struct grid g = {RONDO_F32, parts * h->rows, h->hidden, h->hidden, {0}, {0}, NULL};
  REQUIRE_OK(rondo_state(graph, name, RONDO_F32, 3, (int64_t[]){parts, h->rows, h->hidden}, &g.whole));
  g.view = g.whole;
  g.data = malloc(grid_bytes(&g));
  memset(g.data, 0xff, grid_bytes(&g));
  return g;
}

static inline struct grid cache_add(rondo_graph *graph, const struct half *h, const char *name) {
  struct grid g = {h->dtype, h->rows * h->capacity * h->kv_heads, h->dimension, h->dimension, {0}, {0}, NULL};
  const int64_t shape[] = {h->rows, h->capacity, h->kv_heads, h->dimension};
  REQUIRE_OK(rondo_state(graph, name, h->dtype, 4, shape, &g.whole));
  g.view = g.whole;
  g.data = malloc(grid_bytes(&g) + 1);
  return g;
}

static inline rondo_attention_block_desc half_attention_desc(const struct half *h) {
  return (rondo_attention_block_desc){.x = h->x.view,
                                      .x_parts = h->parts.view,
                                      .norm = h->norm.view,
                                      .norm_epsilon = h->epsilon,
                                      .scale = h->scale,
                                      .qkv = h->first.view,
                                      .qkv_scales = h->first_scales.view,
                                      .output = h->last.view,
                                      .output_scales = h->last_scales.view,
                                      .k = h->k.view,
                                      .v = h->v.view,
                                      .position = h->position,
                                      .rope_frequencies = h->rope_frequencies,
                                      .rope_base = h->base,
                                      .rope_pairing = h->pairing,
                                      .out = h->out.view,
                                      .out_parts = h->out_sums.view};
}

static inline rondo_feed_forward_desc half_feed_forward_desc(const struct half *h) {
  return (rondo_feed_forward_desc){.x = h->x.view,
                                   .x_parts = h->parts.view,
                                   .norm = h->norm.view,
                                   .norm_epsilon = h->epsilon,
                                   .scale = h->scale,
                                   .gate_up = h->first.view,
                                   .gate_up_scales = h->first_scales.view,
                                   .down = h->last.view,
                                   .down_scales = h->last_scales.view,
                                   .out = h->out.view,
                                   .out_parts = h->out_sums.view};
}

static inline void half_place_add(rondo_graph *graph, struct half *h) {
  h->k = cache_add(graph, h, "k");
  h->v = cache_add(graph, h, "v");
  const half_tensor kind = h->state_position ? rondo_state : rondo_input;
  REQUIRE_OK(kind(graph, "position", RONDO_I32, 1, (int64_t[]){h->one_position ? 1 : h->rows}, &h->position));
  if (h->frequencies)
    REQUIRE_OK(rondo_constant(graph, "frequencies", RONDO_F32, 1, (int64_t[]){h->dimension / 2}, &h->rope_frequencies));
}

/* Behind `before`, what it leaves; NULL: of inputs. */
static inline void half_tensors_add(rondo_graph *graph, struct half *h, const struct half *before) {
  const bool sixteen = h->weights == RONDO_F16 || h->weights == RONDO_BF16;
  h->scale = h->weights == RONDO_NVFP4 ? 0.3f / sqrtf((float)h->hidden) : sixteen ? 0 : 0.25f;
  if (before) {
    h->x = before->out, h->parts = before->out_sums;
    h->x_parts = before->out_parts;
  } else {
    h->x = grid_add(graph, "x", rondo_input, h->dtype, h->rows, h->hidden, 2, h->padded);
    if (h->x_parts) h->parts = parts_add(graph, h, "x_parts", h->x_parts);
  }
  if (h->epsilon > 0 && !h->no_norm_weights)
    h->norm = grid_add(graph, "norm", h->states ? rondo_state : rondo_constant, h->dtype, 1, h->hidden, 1, false);
  matrix_add(graph, h, half_first_rows(h), h->hidden, &h->first, &h->first_scales);
  matrix_add(graph, h, h->hidden, half_inner(h), &h->last, &h->last_scales);
  h->out = grid_add(graph, "out", rondo_state, h->dtype, h->rows, h->hidden, 2, h->padded);
  h->out_sums = parts_add(graph, h, "out_parts", h->out_parts);
  if (h->attention) half_place_add(graph, h);
}

static inline void half_task_add(rondo_graph *graph, const struct half *h) {
  if (h->attention) {
    const rondo_attention_block_desc desc = half_attention_desc(h);
    REQUIRE_OK(rondo_add_attention_block(graph, &desc));
  } else {
    const rondo_feed_forward_desc desc = half_feed_forward_desc(h);
    REQUIRE_OK(feed_forward_add(graph, &desc, h->last_part_is_late));
  }
}

static inline void half_add(rondo_graph *graph, struct half *h, const struct half *before) {
  half_tensors_add(graph, h, before);
  half_task_add(graph, h);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Of one deviation, between its root of three and the other sign's. */
static inline double even(struct random *random) { return 3.4641 * (random_uniform(random) - 0.5); }

static inline void numbers_fill(struct grid *g, struct random *random, double size) {
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t c = 0; c < g->columns; c++) oracle_write(g->dtype, g->data, r * g->pitch + c, size * even(random));
}

static inline void matrix_fill(struct grid *matrix, struct grid *scales, struct random *random) {
  const double size = 1 / sqrt((double)matrix->columns);
  if (matrix->dtype == RONDO_NVFP4) {
    codes_fill(matrix, scales, random);
    return;
  }
  numbers_fill(matrix, random, scales->data ? 1 : matrix->dtype == RONDO_E4M3 ? 0.1 : size);
  if (!scales->data) return;
  grid_fill(scales, random, size, 4 * size);
}

static inline int64_t half_position(const struct half *h, int64_t row) {
  return h->positions[h->one_position ? 0 : row];
}

/* Rows that the token sees, its own among them. */
static inline int64_t half_length(const struct half *h, int64_t row) {
  const int64_t length = half_position(h, row) + 1;
  return length < 0 ? 0 : length > h->capacity ? h->capacity : length;
}

/* NaN from the token's own row on. */
static inline void cache_fill(const struct half *h, struct grid *cache, uint16_t **before, struct random *random) {
  numbers_fill(cache, random, 1);
  uint16_t *numbers = cache->data;
  for (int64_t b = 0; b < h->rows; b++) {
    const int64_t at = half_position(h, b), first = at < 0 ? 0 : at > h->capacity ? h->capacity : at;
    for (int64_t i = first * h->kv_heads * h->dimension; i < h->capacity * h->kv_heads * h->dimension; i++)
      numbers[b * h->capacity * h->kv_heads * h->dimension + i] = 0xffff;
  }
  *before = malloc(grid_bytes(cache) + 1);
  memcpy(*before, cache->data, grid_bytes(cache));
}

static inline void half_fill(struct half *h, struct random *random, bool is_first) {
  if (is_first) grid_fill(&h->x, random, 1, 0);
  if (is_first && h->x_parts) grid_fill(&h->parts, random, 1 / sqrt((double)h->x_parts), 0);
  if (h->norm.data) grid_fill(&h->norm, random, 0.3, 1);
  matrix_fill(&h->first, &h->first_scales, random);
  matrix_fill(&h->last, &h->last_scales, random);
  if (!h->attention) return;
  cache_fill(h, &h->k, &h->k_before, random);
  cache_fill(h, &h->v, &h->v_before, random);
  for (int64_t i = 0; i < h->dimension / 2; i++)
    h->frequency[i] = (float)(h->frequencies ? random_uniform(random)
                                             : pow((double)h->base, -2.0 * (double)i / (double)h->dimension));
}

/* States begin as NaN. */
static inline void half_set(const struct half *h, struct trial *trial, bool is_first) {
  const struct grid *grids[] = {&h->x, &h->parts,       &h->norm, &h->first, &h->first_scales, &h->last,
                                &h->k, &h->last_scales, &h->v,    &h->out,   &h->out_sums};
  for (size_t i = is_first ? 0 : 2; i < sizeof grids / sizeof *grids; i++)
    if (grids[i]->data && grids[i]->rows) trial_set(trial, grids[i]->whole, grids[i]->data);
  if (h->attention) trial_set(trial, h->position, h->positions);
  if (h->rope_frequencies.graph) trial_set(trial, h->rope_frequencies, h->frequency);
}

static inline void half_get(struct half *h, struct trial *trial) {
  trial_get(trial, h->out.whole, h->out.data);
  trial_get(trial, h->out_sums.whole, h->out_sums.data);
  if (!h->attention || !h->capacity) return;
  trial_get(trial, h->k.whole, h->k.data);
  trial_get(trial, h->v.whole, h->v.data);
}

static inline void half_free(struct half *h, bool is_first) {
  void *all[] = {h->norm.data, h->first.data, h->first_scales.data, h->last.data, h->last_scales.data, h->k.data,
                 h->v.data,    h->k_before,   h->v_before,          h->out.data,  h->out_sums.data};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  if (is_first) free(h->x.data), free(h->parts.data);
}

/* ---- What is expected -------------------------------------------------------------------------------------------- */

static inline double square(double x) { return x * x; }

static inline void matrix_row(const struct grid *matrix, const struct grid *scales, double scale, int64_t row,
                              double *weights) {
  double factor = scale;
  if (matrix->dtype == RONDO_E4M3 && scales->data) factor *= grid_read(scales, 0, row);
  for (int64_t c = 0; c < matrix->columns; c++) {
    if (matrix->dtype == RONDO_NVFP4 && c % HALF_BLOCK == 0) factor = scale * grid_read(scales, row, c / HALF_BLOCK);
    weights[c] = factor * grid_read(matrix, row, c);
  }
}

/* In lanes, which the compiler then computes side by side. */
ORACLE_LOOP static inline void vector_product(const double *w, const double *x, const double *variance, int64_t count,
                                              double *sum, double *sum_variance) {
  enum { LANES = 8 };
  double sums[LANES] = {0}, deviations[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int64_t lane = 0; lane < LANES; lane++) {
      const double weight = w[i + lane], number = x[i + lane];
      sums[lane] += weight * number;
      deviations[lane] += weight * weight * (variance[i + lane] + 0x1p-40 * number * number); /* fp32 */
    }
  for (; i < count; i++) sums[0] += w[i] * x[i], deviations[0] += w[i] * w[i] * (variance[i] + 0x1p-40 * x[i] * x[i]);
  *sum = *sum_variance = 0;
  for (int lane = 0; lane < LANES; lane++) *sum += sums[lane], *sum_variance += deviations[lane];
}

static inline struct measured product(const struct half *h, const struct grid *matrix, const struct grid *scales,
                                      const struct measured *x) {
  struct measured y = measured_make(x->rows, matrix->rows);
  double *weights = malloc((size_t)matrix->columns * sizeof *weights);
  for (int64_t r = 0; r < matrix->rows; r++) {
    matrix_row(matrix, scales, h->scale == 0 ? 1 : (double)h->scale, r, weights);
    for (int64_t v = 0; v < x->rows; v++)
      vector_product(weights, x->value + v * x->columns, x->variance + v * x->columns, x->columns,
                     &y.value[v * y.columns + r], &y.variance[v * y.columns + r]);
  }
  free(weights);
  return y;
}

/* One more rounding of all. */
static inline void round_all(const struct half *h, struct measured *m) {
  for (int64_t i = 0; i < m->rows * m->columns; i++) m->variance[i] += square(half_u(h->dtype) * m->value[i]);
}

/* Of what the task said that it sees. */
static inline struct measured seen_of(const struct half *h) {
  struct measured seen = measured_make(h->rows, h->hidden);
  for (int64_t r = 0; r < h->rows; r++) {
    double squares = 0;
    for (int64_t c = 0; c < h->hidden; c++) squares += square(grid_read(&h->out, r, c));
    const double factor = h->epsilon > 0 ? 1 / sqrt(squares / (double)h->hidden + (double)h->epsilon) : 1;
    for (int64_t c = 0; c < h->hidden; c++)
      seen.value[r * h->hidden + c] =
          grid_read(&h->out, r, c) * factor * (h->norm.data ? grid_read(&h->norm, 0, c) : 1);
  }
  round_all(h, &seen);
  return seen;
}

static inline struct measured gated_of(const struct half *h, const struct measured *gate_up) {
  struct measured gated = measured_make(h->rows, h->columns);
  for (int64_t i = 0; i < h->rows * h->columns; i++) {
    const double gate = gate_up->value[2 * i], up = gate_up->value[2 * i + 1], sigmoid = 1 / (1 + exp(-gate));
    const double slope = sigmoid * (1 + gate * (1 - sigmoid));
    gated.value[i] = gate * sigmoid * up;
    gated.variance[i] =
        square(slope * up) * gate_up->variance[2 * i] + square(gate * sigmoid) * gate_up->variance[2 * i + 1];
  }
  round_all(h, &gated);
  return gated;
}

/* Turns a head's d numbers. */
static inline void turn(const struct half *h, int64_t position, double *value, double *variance) {
  const int64_t pairs = h->dimension / 2;
  const bool halves = h->pairing == RONDO_ROPE_HALVES;
  if (h->base == 0 && !h->frequencies) return;
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t low = halves ? i : 2 * i, high = halves ? i + pairs : 2 * i + 1;
    const float angle = (float)position * h->frequency[i];
    const double a = value[low], b = value[high], cosine = cos((double)angle), sine = sin((double)angle);
    const double of_a = variance[low], of_b = variance[high], u = half_u(h->dtype);
    value[low] = a * cosine - b * sine, value[high] = b * cosine + a * sine;
    variance[low] = of_a * square(cosine) + of_b * square(sine) + square(u * value[low]);
    variance[high] = of_b * square(cosine) + of_a * square(sine) + square(u * value[high]);
  }
}

static inline double cache_read(const struct half *h, const struct grid *cache, int64_t row, int64_t j, int64_t head,
                                int64_t i) {
  return grid_read(cache, (row * h->capacity + j) * h->kv_heads + head, i);
}

/* The keys or values of one KV head: as they were, and the token's own. */
static inline struct measured rows_seen(const struct half *h, const struct grid *cache, const uint16_t *before,
                                        int64_t row, int64_t head, const double *value, const double *variance) {
  const int64_t length = half_length(h, row), at = half_position(h, row);
  struct measured rows = measured_make(length + 1, h->dimension);
  struct grid was = *cache;
  was.data = (void *)(uintptr_t)before;
  for (int64_t j = 0; j < length; j++)
    for (int64_t i = 0; i < h->dimension; i++) {
      rows.value[j * h->dimension + i] = j == at ? value[i] : cache_read(h, &was, row, j, head, i);
      rows.variance[j * h->dimension + i] = j == at ? variance[i] : 0;
    }
  rows.rows = length;
  return rows;
}

/* One query head. Scores that are off by ds move o by sum p ds (v - o); and weights may be rounded to 16 bits. */
static inline void attend(const struct half *h, const double *q, const double *q_variance, const struct measured *k,
                          const struct measured *v, double *o, double *o_variance) {
  const int64_t d = h->dimension, length = k->rows;
  double *p = malloc((size_t)(length + 1) * sizeof *p), most = -INFINITY, sum = 0, off = 0;
  const double u = half_u(h->dtype);
  for (int64_t j = 0; j < length; j++) {
    double score = 0, variance = 0;
    for (int64_t i = 0; i < d; i++) {
      const double key = k->value[j * d + i];
      score += q[i] * key;
      variance += square(key) * q_variance[i] + square(q[i]) * k->variance[j * d + i];
    }
    p[j] = score / sqrt((double)d);
    most = fmax(most, p[j]), off = fmax(off, variance / (double)d);
  }
  for (int64_t j = 0; j < length; j++) p[j] = exp(p[j] - most), sum += p[j];
  for (int64_t i = 0; i < d; i++) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < length; j++) mean += p[j] / sum * v->value[j * d + i];
    for (int64_t j = 0; j < length; j++) {
      const double weight = p[j] / sum, value = v->value[j * d + i];
      variance += weight * square(value - mean) * (off + 0x1p-40) + square(weight) * v->variance[j * d + i] +
                  square(2 * u * weight * value);
    }
    o[i] = mean, o_variance[i] = variance;
  }
  free(p);
}

/* The token's own row of a cache, and that nothing else was written. */
static inline void cache_check(const struct half *h, const struct grid *cache, const uint16_t *before, int64_t row,
                               int64_t head, const double *value, const double *variance, const char *name) {
  const uint16_t *now = cache->data;
  for (int64_t j = 0; j < h->capacity; j++)
    for (int64_t i = 0; i < h->dimension; i++) {
      const int64_t index = ((row * h->capacity + j) * h->kv_heads + head) * h->dimension + i;
      if (j != half_position(h, row)) {
        cr_assert_eq(now[index], before[index], "%s: row %d of sequence %d was written", name, (int)j, (int)row);
        continue;
      }
      const double got = cache_read(h, cache, row, j, head, i), bound = 4 * sqrt(variance[i]) + 1e-6;
      cr_assert(fabs(got - value[i]) <= bound, "%s of sequence %d, row %d, head %d, %d: %g, expected %g, off > %g",
                name, (int)row, (int)j, (int)head, (int)i, got, value[i], bound);
    }
}

static inline void kv_head_attend(const struct half *h, struct measured *qkv, int64_t row, int64_t head,
                                  struct measured *o) {
  const int64_t d = h->dimension, group = h->query_heads / h->kv_heads, start = row * qkv->columns;
  const int64_t k_at = start + (h->query_heads + head) * d, v_at = k_at + h->kv_heads * d;
  turn(h, half_position(h, row), qkv->value + k_at, qkv->variance + k_at);
  cache_check(h, &h->k, h->k_before, row, head, qkv->value + k_at, qkv->variance + k_at, "k");
  cache_check(h, &h->v, h->v_before, row, head, qkv->value + v_at, qkv->variance + v_at, "v");
  struct measured k = rows_seen(h, &h->k, h->k_before, row, head, qkv->value + k_at, qkv->variance + k_at);
  struct measured v = rows_seen(h, &h->v, h->v_before, row, head, qkv->value + v_at, qkv->variance + v_at);
  for (int64_t g = 0; g < group; g++) {
    const int64_t at = (head * group + g) * d;
    turn(h, half_position(h, row), qkv->value + start + at, qkv->variance + start + at);
    attend(h, qkv->value + start + at, qkv->variance + start + at, &k, &v, o->value + row * o->columns + at,
           o->variance + row * o->columns + at);
  }
  measured_free(&k), measured_free(&v);
}

static inline struct measured attended_of(const struct half *h, struct measured *qkv) {
  struct measured o = measured_make(h->rows, half_inner(h));
  round_all(h, qkv);
  for (int64_t row = 0; row < h->rows; row++)
    for (int64_t head = 0; head < h->kv_heads; head++) kv_head_attend(h, qkv, row, head, &o);
  round_all(h, &o);
  return o;
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

/* out is one rounding of x + the parts. */
static inline void out_check(const struct half *h, const char *what) {
  for (int64_t r = 0; r < h->rows; r++)
    for (int64_t c = 0; c < h->hidden; c++) {
      double sum = grid_read(&h->x, r, c), size = fabs(sum);
      for (int64_t p = 0; p < h->x_parts; p++) {
        const double part = grid_read(&h->parts, p * h->rows + r, c);
        sum += part, size += fabs(part);
      }
      const double got = grid_read(&h->out, r, c), u = half_u(h->dtype);
      const double bound = u * fabs(sum) * (1 + 0x1p-10) + (double)(h->x_parts + 1) * 0x1p-24 * size + 0x1p-25;
      cr_assert(fabs(got - sum) <= bound, "%s: out of row %d, column %d: %g, expected %g", what, (int)r, (int)c, got,
                sum);
    }
}

static inline void half_check(const struct half *h, const char *what) {
  out_check(h, what);
  struct measured seen = seen_of(h), first = product(h, &h->first, &h->first_scales, &seen);
  struct measured inner = h->attention ? attended_of(h, &first) : gated_of(h, &first);
  struct measured last = product(h, &h->last, &h->last_scales, &inner);
  for (int64_t r = 0; r < h->rows; r++)
    for (int64_t c = 0; c < h->hidden; c++) {
      double got = 0;
      for (int64_t p = 0; p < h->out_parts; p++) got += grid_read(&h->out_sums, p * h->rows + r, c);
      const double expected = last.value[r * h->hidden + c], bound = 4 * sqrt(last.variance[r * h->hidden + c]) + 1e-6;
      cr_assert(fabs(got - expected) <= bound, "%s: row %d, column %d: %g, expected %g, off by %g > %g", what, (int)r,
                (int)c, got, expected, fabs(got - expected), bound);
    }
  measured_free(&seen), measured_free(&first), measured_free(&inner), measured_free(&last);
}

#endif
