/* attention_oracle.c - see attention_oracle.h.
 *
 * A number's bound adds up its own rounding, the rounding of the weights to 16 bits, what fp32 does to scores and sums,
 * and weights too small for f16 or, if all are small, for fp32. NaN and infinity must be the very same. */
#include "attention_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lane_sums.h"

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

double attention_rounded(rondo_dtype dtype, double value) {
  return dtype == RONDO_F16 ? oracle_f16(oracle_to_f16(value)) : oracle_bf16(oracle_to_bf16(value));
}

static double *numbers_of(rondo_dtype dtype, const uint16_t *memory, int64_t count) {
  double *numbers = attention_memory(count, sizeof(double));
  for (int64_t i = 0; i < count; i++) numbers[i] = oracle_read(dtype, memory, i);
  return numbers;
}

/* A query row and what it should give. */
struct oracle_row {
  double exact[256]; /* o */
  double mass[256];  /* sum of p |v| */
  double all[256];   /* sum of |v| */
  double low[256];   /* o as 16-bit arithmetic gives it, with scores, weights and result rounded to it */
  double lse;
  double score_error; /* what fp32 may err in a score */
};

static double scale_or_one(float scale) { return scale != 0.0f ? (double)scale : 1.0; }

/* Of products of q and k. */
static double scale_of(const struct attention *a) {
  double scale = a->scale != 0.0f ? (double)a->scale : 1.0 / sqrt((double)a->dimension);
  return scale * scale_or_one(a->q_scale) * scale_or_one(a->k_scale);
}

static double capped(const struct attention *a, double score) {
  const double cap = (double)a->soft_cap;
  return cap > 0.0 ? cap * tanh(score / cap) : score;
}

/* Where all is e4m3, the device may round weights to it as well, and products of e4m3 keep 14 bits of a term
 * (attention_wgmma_e4m3.cu). */
static bool weights_e4m3(const struct attention *a) { return a->device && a->e4m3_q && a->dimension == 128; }

/* Beside an e4m3 cache it may round them to f16, whatever q and o are. */
static bool weights_f16(const struct attention *a) { return a->device && kv_dtype(a) == RONDO_E4M3; }

/* As 16-bit arithmetic has it or, before it is divided, e4m3. */
static double low_weight_of(const struct attention *a, double weight, double sum) {
  if (!weights_e4m3(a) || isnan(weight)) return attention_rounded(a->dtype, weight / sum);
  return oracle_e4m3(oracle_to_e4m3(64.0 * weight)) / 64.0 / sum;
}

enum { LANES = 16 }; /* dimensions are multiples of it */

ORACLE_LOOP static void row_add(struct oracle_row *restrict row, const double *restrict v, int64_t dimension,
                                double v_scale, double weight, double low_weight) {
  for (int64_t first = 0; first < dimension; first += LANES)
    for (int64_t d = first; d < first + LANES; d++) {
      const double value = v[d] * v_scale;
      row->exact[d] += weight * value;
      row->mass[d] += weight * fabs(value);
      row->all[d] += fabs(value);
      row->low[d] += low_weight * value;
    }
}

/* The K and V rows that it sees begin at the numbers rows[0 .. count). */
static void oracle_row(const struct attention *a, const double *q, const double *k, const double *v,
                       const int64_t *rows, int64_t count, double *scores, double *low_scores, struct oracle_row *row) {
  const double scale = scale_of(a), v_scale = scale_or_one(a->v_scale);
  double max = -INFINITY, low_max = -INFINITY, sum = 0.0, low_sum = 0.0, most = 0.0;
  memset(row, 0, sizeof *row);
  for (int64_t j = 0; j < count; j++) {
    double magnitude, product = lanes_product(q, k + rows[j], a->dimension, &magnitude);
    scores[j] = capped(a, product * scale);
    low_scores[j] = attention_rounded(a->dtype, scores[j]);
    max = fmax(max, scores[j]);
    low_max = fmax(low_max, low_scores[j]);
    if (isfinite(magnitude)) most = fmax(most, magnitude * fabs(scale));
  }
  for (int64_t j = 0; j < count; j++) {
    sum += scores[j] = exp(scores[j] - max);
    low_sum += low_scores[j] = exp(low_scores[j] - low_max);
  }
  for (int64_t j = 0; j < count; j++) {
    const double weight = scores[j] / sum, low_weight = low_weight_of(a, low_scores[j], low_sum);
    row_add(row, v + rows[j], a->dimension, v_scale, weight, low_weight);
  }
  for (int64_t d = 0; d < a->dimension; d++) row->low[d] = attention_rounded(a->dtype, row->low[d]);
  row->lse = count ? max + log(sum) : -INFINITY;
  row->score_error = most * 0x1p-20;
  if (a->soft_cap > 0.0f) row->score_error += fabs(capped(a, most)) * 0x1p-18;
  if (weights_e4m3(a)) row->score_error += most * 0x1p-9;
  if (a->soft_cap > 0.0f && a->device) row->score_error += fabs(capped(a, most)) * 0x1p-10; /* of tanh.approx */
}

/* The KV rows that a query row sees, as oracle_row wants them: how many. */
static int64_t rows_seen(const struct attention *a, const struct rectangle *kv, int64_t batch, int64_t head,
                         int64_t position, int64_t *rows) {
  const int64_t length = attention_length(a, batch);
  const int64_t self = a->begins ? a->begins[batch] + position : position + length - a->query_length;
  const int64_t last = self < length ? self : length - 1;
  int64_t count = 0;
  for (int64_t j = 0; j < length; j++) {
    const int64_t index = kv_index(a, kv, batch, head, j);
    if (a->causal && (j > last || (a->window && j <= last - a->window))) continue;
    if (index >= 0) rows[count++] = index;
  }
  return count;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* One number against its own bound: its own rounding and that of the weights to 16 bits, what fp32 does to scores and
 * sums, and weights too small for f16 or, where they are all of a number, for fp32. NaN and infinity must be the very
 * same. */
static void number_check(const struct attention *a, const struct oracle_row *row, int64_t d, double got,
                         struct verdict *verdict) {
  double exact = row->exact[d], error = fabs(got - exact);
  if (!isfinite(exact) || !isfinite(got)) {
    verdict->wrong += isnan(exact) ? !isnan(got) : got != exact;
    return;
  }
  double unit = a->dtype == RONDO_F16 ? 0x1p-11 : 0x1p-8, tiny = a->dtype == RONDO_F16 ? 0x1p-25 : 0x1p-126;
  /* In e4m3 each weight errs by up to 2^-4, and as much their sum. */
  double weight_unit = weights_e4m3(a) ? 0x1p-3 : unit, weight_tiny = weights_f16(a) ? 0x1p-25 : tiny;
  if (weights_e4m3(a)) weight_tiny = 0x1p-16;
  double bound = 1.01 * (unit * fabs(exact) + weight_unit * row->mass[d]) +
                 (4.0 * row->score_error + 0x1p-18) * row->mass[d] + weight_tiny * row->all[d] + tiny;
  verdict->wrong += error > bound;
  verdict->error = fmax(verdict->error, error);
  verdict->low_error = fmax(verdict->low_error, fabs(row->low[d] - exact));
  double stored = attention_rounded(a->dtype, exact);
  verdict->store_error =
      fmax(verdict->store_error,
           fabs(attention_rounded(a->dtype, attention_rounded(a->dtype, stored + 0.3) - 0.3) - stored));
}

static void lse_check(const struct attention *a, const struct oracle_row *row, int64_t count, double got,
                      struct verdict *verdict) {
  if (!a->lse_wanted) return;
  if (isnan(row->lse))
    verdict->wrong += !isnan(got);
  else if (isinf(row->lse))
    verdict->wrong += got != row->lse;
  else
    verdict->wrong += !(fabs(got - row->lse) <= row->score_error + (weights_e4m3(a) ? 0x1.4p-4 : 0.0) +
                                                    1e-6 * (fabs(row->lse) + log((double)count) + 1.0));
}

struct verdict attention_verdict(const struct attention *a) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  int64_t elements = rectangle_elements(&query), group = a->kv_heads ? a->query_heads / a->kv_heads : 1;
  double *q = numbers_of(q_dtype(a), a->q_memory, elements);
  double *k = numbers_of(kv_dtype(a), a->k_memory, rectangle_elements(&kv));
  double *v = numbers_of(kv_dtype(a), a->v_memory, rectangle_elements(&kv));
  int64_t *rows = attention_memory(a->capacity, sizeof(int64_t));
  double *scores = attention_memory(2 * a->capacity, sizeof(double));
  bool *inside = attention_memory(elements, sizeof(bool)),
       *lse_inside = attention_memory(lse_elements(a), sizeof(bool));
  struct verdict verdict = {0};
  struct oracle_row row;
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->query_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++) {
        int64_t at = row_index(a, &query, b, h, i), count = rows_seen(a, &kv, b, h / group, i, rows);
        oracle_row(a, q + at, k, v, rows, count, scores, scores + a->capacity, &row);
        for (int64_t d = 0; d < a->dimension; d++) {
          inside[at + d] = true;
          number_check(a, &row, d, oracle_read(a->dtype, a->o_memory, at + d), &verdict);
          if (!count) verdict.wrong += a->o_memory[at + d] != 0;
        }
        int64_t lse_at = lse_index(a, b, h, i);
        lse_inside[lse_at] = true;
        lse_check(a, &row, count, (double)a->lse_memory[lse_at], &verdict);
      }
  for (int64_t i = 0; i < elements; i++) verdict.wrong += !inside[i] && a->o_memory[i] != GUARD_BITS;
  for (int64_t i = 0; i < lse_elements(a); i++) verdict.wrong += !lse_inside[i] && a->lse_memory[i] != lse_guard;
  free(q);
  free(k);
  free(v);
  free(rows);
  free(scores);
  free(inside);
  free(lse_inside);
  return verdict;
}

void attention_check(const struct attention *a) {
  char text[256];
  struct verdict verdict = attention_verdict(a);
  cr_expect(verdict.wrong == 0, "%s: %ld numbers are wrong, the largest error is %g",
            attention_text(a, text, sizeof text), (long)verdict.wrong, verdict.error);
  cr_expect(verdict.error <= 2.0 * verdict.low_error + 2.0 * verdict.store_error,
            "%s: the largest error is %g, that of 16-bit arithmetic %g", attention_text(a, text, sizeof text),
            verdict.error, verdict.low_error);
}
