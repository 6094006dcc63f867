/* decoder_oracle.c - see decoder_oracle.h.
 *
 * rondo.h allows roundings to 16 bits at certain places inside a half. Each rounding is off by at most u of the number,
 * 2^-8 in bf16 and 2^-11 in f16. The oracle takes it as a deviation of u, independent of all others, and carries the
 * deviations on as those of sums of independent terms. A result may be off by four times its deviation. Uniform errors
 * have 0.58 u, so that four deviations are almost seven of theirs: an error beyond that is no rounding. */
#include "decoder_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers, and how far off each may be: the squares of deviations. */
struct measured {
  int64_t rows, columns;
  double *value, *variance;
};

static struct measured measured_make(int64_t rows, int64_t columns) {
  const size_t bytes = (size_t)(rows * columns) * sizeof(double);
  struct measured m = {rows, columns, malloc(bytes), malloc(bytes)};
  memset(m.value, 0, bytes), memset(m.variance, 0, bytes);
  return m;
}

static void measured_free(struct measured *m) { free(m->value), free(m->variance); }

/* ---- What is expected -------------------------------------------------------------------------------------------- */

static double square(double x) { return x * x; }

static void matrix_row(const struct grid *matrix, const struct grid *scales, double scale, int64_t row,
                       double *weights) {
  double factor = scale;
  if (matrix->dtype == RONDO_E4M3 && scales->data) factor *= grid_read(scales, 0, row);
  for (int64_t c = 0; c < matrix->columns; c++) {
    if (matrix->dtype == RONDO_NVFP4 && c % HALF_BLOCK == 0) factor = scale * grid_read(scales, row, c / HALF_BLOCK);
    weights[c] = factor * grid_read(matrix, row, c);
  }
}

/* In lanes, which the compiler then computes side by side. */
ORACLE_LOOP static void vector_product(const double *w, const double *x, const double *variance, int64_t count,
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

static struct measured product(const struct half *h, const struct grid *matrix, const struct grid *scales,
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
static void round_all(const struct half *h, struct measured *m) {
  for (int64_t i = 0; i < m->rows * m->columns; i++) m->variance[i] += square(half_u(h->dtype) * m->value[i]);
}

/* Of what the task said that it sees. */
static struct measured seen_of(const struct half *h) {
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

static struct measured gated_of(const struct half *h, const struct measured *gate_up) {
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
static void turn(const struct half *h, int64_t position, double *value, double *variance) {
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

static double cache_read(const struct half *h, const struct grid *cache, int64_t row, int64_t j, int64_t head,
                         int64_t i) {
  return grid_read(cache, half_cache_row(h, row, j) + head, i);
}

/* The keys or values of one KV head: as they were, or of one sequence as the tokens before wrote them, which is checked
 * for itself; and the token's own. */
static struct measured rows_seen(const struct half *h, const struct grid *cache, const uint16_t *before, int64_t row,
                                 int64_t head, const double *value, const double *variance) {
  const int64_t length = half_length(h, row), at = half_position(h, row);
  struct measured rows = measured_make(length + 1, h->dimension);
  struct grid was = *cache;
  was.data = (void *)(uintptr_t)before;
  for (int64_t j = 0; j < length; j++)
    for (int64_t i = 0; i < h->dimension; i++) {
      rows.value[j * h->dimension + i] =
          j == at ? value[i]
                  : cache_read(h, h->one_sequence && j >= half_position(h, 0) ? cache : &was, row, j, head, i);
      rows.variance[j * h->dimension + i] = j == at ? variance[i] : 0;
    }
  rows.rows = length;
  return rows;
}

/* One query head. Scores that are off by ds move o by sum p ds (v - o); and weights may be rounded to 16 bits. */
static void attend(const struct half *h, const double *q, const double *q_variance, const struct measured *k,
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

/* Of one sequence: do other tokens write row `j`? */
static bool is_of_other_row(const struct half *h, int64_t j) {
  return h->one_sequence && j >= half_position(h, 0) && j < half_position(h, h->rows);
}

/* The token's own row of a cache, and that nothing else was written. */
static void cache_check(const struct half *h, const struct grid *cache, const uint16_t *before, int64_t row,
                        int64_t head, const double *value, const double *variance, const char *name) {
  const uint16_t *now = cache->data;
  for (int64_t j = 0; j < h->capacity; j++)
    for (int64_t i = 0; i < h->dimension; i++) {
      const int64_t index = (half_cache_row(h, row, j) + head) * h->dimension + i;
      if (j != half_position(h, row)) {
        if (is_of_other_row(h, j)) continue;
        cr_assert_eq(now[index], before[index], "%s: row %d of sequence %d was written", name, (int)j, (int)row);
        continue;
      }
      const double got = cache_read(h, cache, row, j, head, i), bound = 4 * sqrt(variance[i]) + 1e-6;
      cr_assert(fabs(got - value[i]) <= bound, "%s of sequence %d, row %d, head %d, %d: %g, expected %g, off > %g",
                name, (int)row, (int)j, (int)head, (int)i, got, value[i], bound);
    }
}

static void kv_head_attend(const struct half *h, struct measured *qkv, int64_t row, int64_t head, struct measured *o) {
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

static struct measured attended_of(const struct half *h, struct measured *qkv) {
  struct measured o = measured_make(h->rows, half_inner(h));
  round_all(h, qkv);
  for (int64_t row = 0; row < h->rows; row++)
    for (int64_t head = 0; head < h->kv_heads; head++) kv_head_attend(h, qkv, row, head, &o);
  round_all(h, &o);
  return o;
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

/* out is one rounding of x + the parts. */
static void out_check(const struct half *h, const char *what) {
  for (int64_t r = 0; r < h->rows; r++)
    for (int64_t c = 0; c < h->hidden; c++) {
      double sum = grid_read(&h->x, r, c), size = fabs(sum);
      for (int64_t p = 0; p < h->x_parts; p++) {
        const double part = grid_read(&h->parts, p * h->rows + r, c);
        sum += part, size += fabs(part);
      }
      const double got = grid_read(&h->out, r, c), u = half_u(h->stream);
      const double bound = u * fabs(sum) * (1 + 0x1p-10) + (double)(h->x_parts + 1) * 0x1p-24 * size + 0x1p-25;
      cr_assert(fabs(got - sum) <= bound, "%s: out of row %d, column %d: %g, expected %g", what, (int)r, (int)c, got,
                sum);
    }
}

void half_check(const struct half *h, const char *what) {
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
