/* test_attention_oracle.h - what the attention tests share: one task with its data, tensors that are rectangles of
 * larger ones, softmax(scale Q K^T) V in double, and how far from it a result may be. No code in common with the
 * library. */
#ifndef RONDO_TEST_ATTENTION_ORACLE_H
#define RONDO_TEST_ATTENTION_ORACLE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

/* How numbers are drawn. */
enum data {
  NORMAL,
  EQUAL,   /* all scores of a row are equal */
  RISING,  /* each KV row scores more than the one before: the maximum grows in every tile */
  FALLING, /* the maximum is the first */
  OUTLIER, /* one score far above all others */
  ENORMOUS /* scores of some 10^4 */
};

/* Where tensors lie. */
enum place {
  DENSE,
  STRIDED,   /* a rectangle of a larger tensor, its rows at multiples of 16 bytes */
  MISALIGNED /* a rectangle whose rows begin at odd elements */
};

struct attention {
  rondo_dtype dtype;
  rondo_head_layout layout;
  int64_t batch, query_heads, kv_heads, query_length, capacity, dimension;
  float scale;
  int32_t causal, splits;
  const int32_t *lengths; /* [batch], or NULL: no such operand */
  bool lse_wanted;
  enum data data;
  enum place place;
  /* Filled by attention_add and attention_fill. */
  rondo_tensor q, k, v, o, lse, kv_lengths; /* the whole tensors */
  uint16_t *q_memory, *k_memory, *v_memory, *o_memory;
  float *lse_memory;
};

static inline void *attention_memory(int64_t count, size_t bytes) {
  void *memory = calloc((size_t)(count > 0 ? count : 1), bytes);
  cr_assert_not_null(memory);
  return memory;
}

static inline int64_t attention_length(const struct attention *a, int64_t batch) {
  int64_t length = a->lengths ? a->lengths[batch] : a->capacity;
  return length < 0 ? 0 : length > a->capacity ? a->capacity : length;
}

/* ---- Where an element lies --------------------------------------------------------------------------------------- */

struct rectangle {
  int64_t shape[4], offset[4], extent[4];
};

static inline struct rectangle rectangle_of(const struct attention *a, int64_t heads, int64_t length) {
  bool heads_first = a->layout == RONDO_BHSD;
  struct rectangle r = {.extent = {a->batch, heads_first ? heads : length, heads_first ? length : heads, a->dimension}};
  static const int64_t before[3][4] = {{0, 0, 0, 0}, {0, 1, 2, 8}, {1, 0, 1, 1}};
  static const int64_t around[3][4] = {{0, 0, 0, 0}, {1, 2, 3, 24}, {1, 1, 1, 3}};
  for (int i = 0; i < 4; i++) {
    r.offset[i] = before[a->place][i];
    r.shape[i] = r.extent[i] + around[a->place][i];
  }
  return r;
}

static inline int64_t rectangle_elements(const struct rectangle *r) {
  return r->shape[0] * r->shape[1] * r->shape[2] * r->shape[3];
}

/* Of the first number of a head's row. */
static inline int64_t row_index(const struct attention *a, const struct rectangle *r, int64_t batch, int64_t head,
                                int64_t position) {
  bool heads_first = a->layout == RONDO_BHSD;
  int64_t second = heads_first ? head : position, third = heads_first ? position : head;
  return (((batch + r->offset[0]) * r->shape[1] + second + r->offset[1]) * r->shape[2] + third + r->offset[2]) *
             r->shape[3] +
         r->offset[3];
}

static inline struct rectangle query_rectangle(const struct attention *a) {
  return rectangle_of(a, a->query_heads, a->query_length);
}
static inline struct rectangle kv_rectangle(const struct attention *a) {
  return rectangle_of(a, a->kv_heads, a->capacity);
}

/* The lse, [batch, heads, positions], likewise. */
static inline void lse_rectangle(const struct attention *a, int64_t *shape, int64_t *offset, int64_t *extent) {
  const int64_t extents[3] = {a->batch, a->query_heads, a->query_length};
  for (int i = 0; i < 3; i++) {
    offset[i] = a->place == DENSE ? 0 : 3 - i;
    extent[i] = extents[i];
    shape[i] = extent[i] + (a->place == DENSE ? 0 : 4);
  }
}

static inline int64_t lse_elements(const struct attention *a) {
  int64_t shape[3], offset[3], extent[3];
  lse_rectangle(a, shape, offset, extent);
  return shape[0] * shape[1] * shape[2];
}

static inline int64_t lse_index(const struct attention *a, int64_t batch, int64_t head, int64_t position) {
  int64_t shape[3], offset[3], extent[3];
  lse_rectangle(a, shape, offset, extent);
  return ((batch + offset[0]) * shape[1] + head + offset[1]) * shape[2] + position + offset[2];
}

/* ---- One task ---------------------------------------------------------------------------------------------------- */

static inline rondo_tensor rectangle_add(rondo_graph *graph, const struct attention *a, const char *name,
                                         struct rectangle r, rondo_tensor *whole) {
  rondo_tensor view;
  REQUIRE_OK(rondo_state(graph, name, a->dtype, 4, r.shape, whole));
  REQUIRE_OK(rondo_view(graph, *whole, r.offset, r.extent, &view));
  return view;
}

/* All but the lengths are states: what o and lse hold before and around the result can be seen, and the planner has
 * nothing to place. */
static inline void attention_add(struct attention *a, struct trial *trial) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  rondo_attention_desc desc = {.layout = a->layout, .scale = a->scale, .causal = a->causal, .splits = a->splits};
  desc.q = rectangle_add(trial->graph, a, "q", query, &a->q);
  desc.k = rectangle_add(trial->graph, a, "k", kv, &a->k);
  desc.v = rectangle_add(trial->graph, a, "v", kv, &a->v);
  desc.o = rectangle_add(trial->graph, a, "o", query, &a->o);
  if (a->lengths) {
    REQUIRE_OK(rondo_input(trial->graph, "kv_lengths", RONDO_I32, 1, (int64_t[]){a->batch}, &a->kv_lengths));
    desc.kv_lengths = a->kv_lengths;
  }
  if (a->lse_wanted) {
    int64_t shape[3], offset[3], extent[3];
    lse_rectangle(a, shape, offset, extent);
    REQUIRE_OK(rondo_state(trial->graph, "lse", RONDO_F32, 3, shape, &a->lse));
    REQUIRE_OK(rondo_view(trial->graph, a->lse, offset, extent, &desc.lse));
  }
  REQUIRE_OK(rondo_add_attention(trial->graph, &desc));
}

enum { NAN_BITS = 0x7fff, GUARD_BITS = 0x5a5a };
static const float lse_guard = 12345.0f;

/* Nearly normal, of variance 1, at the price of one random number: the sum of its four quarters. */
static inline double roughly_normal(struct random *random) {
  uint64_t bits = random_bits(random);
  double sum = 0.0;
  for (int i = 0; i < 4; i++, bits >>= 16) sum += (double)(bits & 0xffff) * 0x1p-16;
  return (sum - 2.0) * 1.7320508;
}

/* One number of a row of q or k, as its data asks. */
static inline double number_of(const struct attention *a, struct random *random, bool key, int64_t position,
                               int64_t d) {
  double normal = roughly_normal(random), share = (double)(position + 1) / (double)(a->capacity + 1);
  switch (a->data) {
  case EQUAL:
    return key ? (double)(d % 5) - 2.0 : normal;
  case RISING:
    return key ? 8.0 * share + 0.1 * normal : 0.5 + 0.1 * normal;
  case FALLING:
    return key ? 8.0 * (1.0 - share) + 0.1 * normal : 0.5 + 0.1 * normal;
  case OUTLIER:
    return key && position != a->capacity / 2 ? 0.1 * normal : 4.0 + 0.1 * normal;
  case ENORMOUS:
    return 30.0 * normal;
  default:
    return normal;
  }
}

/* Rectangles get numbers; all around them and all KV rows behind the length, NaN. */
static inline void attention_fill(struct attention *a, struct random *random) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  int64_t query_elements = rectangle_elements(&query), kv_elements = rectangle_elements(&kv);
  a->q_memory = attention_memory(query_elements, 2);
  a->o_memory = attention_memory(query_elements, 2);
  a->k_memory = attention_memory(kv_elements, 2);
  a->v_memory = attention_memory(kv_elements, 2);
  a->lse_memory = attention_memory(lse_elements(a), sizeof(float));
  for (int64_t i = 0; i < query_elements; i++) a->q_memory[i] = NAN_BITS, a->o_memory[i] = GUARD_BITS;
  for (int64_t i = 0; i < kv_elements; i++) a->k_memory[i] = a->v_memory[i] = NAN_BITS;
  for (int64_t i = 0; i < lse_elements(a); i++) a->lse_memory[i] = lse_guard;
  for (int64_t b = 0; b < a->batch; b++) {
    for (int64_t h = 0; h < a->query_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++)
        for (int64_t d = 0; d < a->dimension; d++)
          oracle_write(a->dtype, a->q_memory, row_index(a, &query, b, h, i) + d, number_of(a, random, false, i, d));
    for (int64_t h = 0; h < a->kv_heads; h++)
      for (int64_t j = 0; j < attention_length(a, b); j++)
        for (int64_t d = 0; d < a->dimension; d++) {
          int64_t index = row_index(a, &kv, b, h, j) + d;
          oracle_write(a->dtype, a->k_memory, index, number_of(a, random, true, j, d));
          oracle_write(a->dtype, a->v_memory, index, roughly_normal(random));
        }
  }
}

static inline void attention_set(const struct attention *a, struct trial *trial) {
  trial_set(trial, a->q, a->q_memory);
  trial_set(trial, a->k, a->k_memory);
  trial_set(trial, a->v, a->v_memory);
  trial_set(trial, a->o, a->o_memory);
  if (a->lengths) trial_set(trial, a->kv_lengths, a->lengths);
  if (a->lse_wanted) trial_set(trial, a->lse, a->lse_memory);
}

static inline void attention_get(struct attention *a, struct trial *trial) {
  trial_get(trial, a->o, a->o_memory);
  if (a->lse_wanted) trial_get(trial, a->lse, a->lse_memory);
}

static inline void attention_free(struct attention *a) {
  free(a->q_memory);
  free(a->k_memory);
  free(a->v_memory);
  free(a->o_memory);
  free(a->lse_memory);
}

/* "bf16 BSHD 2 x 6/2 heads x 65 on 200 x 64, causal, 3 splits". */
static inline const char *attention_text(const struct attention *a, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %s %ld x %ld/%ld heads x %ld on %ld x %ld%s%s, %d splits, data %d, place %d",
           rondo_dtype_name(a->dtype), a->layout == RONDO_BHSD ? "BHSD" : "BSHD", (long)a->batch, (long)a->query_heads,
           (long)a->kv_heads, (long)a->query_length, (long)a->capacity, (long)a->dimension, a->causal ? ", causal" : "",
           a->lengths ? ", lengths" : "", a->splits, a->data, a->place);
  return text;
}

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

static inline double rounded(rondo_dtype dtype, double value) {
  return dtype == RONDO_F16 ? oracle_f16(oracle_to_f16(value)) : oracle_bf16(oracle_to_bf16(value));
}

static inline double *numbers_of(rondo_dtype dtype, const uint16_t *memory, int64_t count) {
  double *numbers = attention_memory(count, sizeof(double));
  for (int64_t i = 0; i < count; i++) numbers[i] = dtype == RONDO_F16 ? oracle_f16(memory[i]) : oracle_bf16(memory[i]);
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

/* K and V rows are `stride` numbers apart. */
static inline void oracle_row(const struct attention *a, const double *q, const double *k, const double *v,
                              int64_t stride, int64_t count, double *scores, double *low_scores,
                              struct oracle_row *row) {
  double scale = a->scale != 0.0f ? (double)a->scale : 1.0 / sqrt((double)a->dimension);
  double max = -INFINITY, low_max = -INFINITY, sum = 0.0, low_sum = 0.0, most = 0.0;
  memset(row, 0, sizeof *row);
  for (int64_t j = 0; j < count; j++) {
    double score = 0.0, low = 0.0, magnitude = 0.0;
    for (int64_t d = 0; d < a->dimension; d++) {
      double product = q[d] * k[j * stride + d];
      score += product;
      magnitude += fabs(product);
    }
    low = rounded(a->dtype, score * scale);
    scores[j] = score * scale;
    low_scores[j] = low;
    max = fmax(max, scores[j]);
    low_max = fmax(low_max, low);
    if (isfinite(magnitude)) most = fmax(most, magnitude * fabs(scale));
  }
  for (int64_t j = 0; j < count; j++) {
    sum += scores[j] = exp(scores[j] - max);
    low_sum += low_scores[j] = exp(low_scores[j] - low_max);
  }
  for (int64_t j = 0; j < count; j++) {
    double weight = scores[j] / sum, low_weight = rounded(a->dtype, low_scores[j] / low_sum);
    for (int64_t d = 0; d < a->dimension; d++) {
      double value = v[j * stride + d];
      row->exact[d] += weight * value;
      row->mass[d] += weight * fabs(value);
      row->all[d] += fabs(value);
      row->low[d] += low_weight * value;
    }
  }
  for (int64_t d = 0; d < a->dimension; d++) row->low[d] = rounded(a->dtype, row->low[d]);
  row->lse = count ? max + log(sum) : -INFINITY;
  row->score_error = most * 0x1p-20;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* What is known of a task's results. */
struct verdict {
  double error, low_error, store_error; /* the largest; low_error: of 16-bit arithmetic, store_error: of storing */
  int64_t wrong;                        /* numbers beyond their bound */
};

/* One number against its own bound: its own rounding and that of the weights to 16 bits, what fp32 does to scores and
 * sums, and, in f16, weights too small for it. NaN and infinity must be the very same. */
static inline void number_check(const struct attention *a, const struct oracle_row *row, int64_t d, double got,
                                struct verdict *verdict) {
  double exact = row->exact[d], error = fabs(got - exact);
  if (!isfinite(exact) || !isfinite(got)) {
    verdict->wrong += isnan(exact) ? !isnan(got) : got != exact;
    return;
  }
  double unit = a->dtype == RONDO_F16 ? 0x1p-11 : 0x1p-8, tiny = a->dtype == RONDO_F16 ? 0x1p-25 : 0.0;
  double bound = 1.01 * unit * (fabs(exact) + row->mass[d]) + (4.0 * row->score_error + 0x1p-18) * row->mass[d] +
                 tiny * (row->all[d] + 1.0);
  verdict->wrong += error > bound;
  verdict->error = fmax(verdict->error, error);
  verdict->low_error = fmax(verdict->low_error, fabs(row->low[d] - exact));
  double stored = rounded(a->dtype, exact);
  verdict->store_error =
      fmax(verdict->store_error, fabs(rounded(a->dtype, rounded(a->dtype, stored + 0.3) - 0.3) - stored));
}

static inline void lse_check(const struct attention *a, const struct oracle_row *row, int64_t count, double got,
                             struct verdict *verdict) {
  if (!a->lse_wanted) return;
  if (isnan(row->lse))
    verdict->wrong += !isnan(got);
  else if (isinf(row->lse))
    verdict->wrong += got != row->lse;
  else
    verdict->wrong += !(fabs(got - row->lse) <= row->score_error + 1e-6 * (fabs(row->lse) + log((double)count) + 1.0));
}

/* Every number of the rectangle against the oracle, and nothing around it touched. */
static inline struct verdict attention_verdict(const struct attention *a) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  int64_t elements = rectangle_elements(&query), group = a->kv_heads ? a->query_heads / a->kv_heads : 1;
  double *q = numbers_of(a->dtype, a->q_memory, elements);
  double *k = numbers_of(a->dtype, a->k_memory, rectangle_elements(&kv));
  double *v = numbers_of(a->dtype, a->v_memory, rectangle_elements(&kv));
  double *scores = attention_memory(2 * a->capacity, sizeof(double));
  bool *inside = attention_memory(elements, sizeof(bool)),
       *lse_inside = attention_memory(lse_elements(a), sizeof(bool));
  struct verdict verdict = {0};
  struct oracle_row row;
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->query_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++) {
        int64_t length = attention_length(a, b), count = a->causal ? i + length - a->query_length + 1 : length;
        int64_t at = row_index(a, &query, b, h, i);
        int64_t first = a->capacity ? row_index(a, &kv, b, h / group, 0) : 0;
        int64_t stride = a->capacity > 1 ? row_index(a, &kv, b, h / group, 1) - first : 0;
        count = count < 0 ? 0 : count;
        oracle_row(a, q + at, k + first, v + first, stride, count, scores, scores + a->capacity, &row);
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
  free(scores);
  free(inside);
  free(lse_inside);
  return verdict;
}

/* The rule of FlashAttention's own tests, and every number's own bound. */
static inline void attention_check(const struct attention *a) {
  char text[256];
  struct verdict verdict = attention_verdict(a);
  cr_expect(verdict.wrong == 0, "%s: %ld numbers are wrong, the largest error is %g",
            attention_text(a, text, sizeof text), (long)verdict.wrong, verdict.error);
  cr_expect(verdict.error <= 2.0 * verdict.low_error + 2.0 * verdict.store_error,
            "%s: the largest error is %g, that of 16-bit arithmetic %g", attention_text(a, text, sizeof text),
            verdict.error, verdict.low_error);
}

/* ---- Many tasks in one graph ------------------------------------------------------------------------------------- */

static inline void attentions_run(rondo_backend backend, struct attention *tasks, size_t count) {
  struct trial trial;
  struct random random = {7};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) attention_add(&tasks[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) attention_get(&tasks[i], &trial);
  trial_end(&trial);
}

/* For tasks whose operands hold numbers that are none: replays once, and all that comes out is what double precision
 * says of each row. */
static inline void attentions_end(struct trial *trial, struct attention *tasks, size_t count) {
  trial_replay(trial);
  for (size_t i = 0; i < count; i++) {
    char text[256];
    attention_get(&tasks[i], trial);
    struct verdict verdict = attention_verdict(&tasks[i]);
    cr_expect(verdict.wrong == 0, "%s: %ld numbers are wrong", attention_text(&tasks[i], text, sizeof text),
              (long)verdict.wrong);
    attention_free(&tasks[i]);
  }
  trial_end(trial);
}

static inline void attentions_check(rondo_backend backend, struct attention *tasks, size_t count) {
  attentions_run(backend, tasks, count);
  for (size_t i = 0; i < count; i++) {
    attention_check(&tasks[i]);
    attention_free(&tasks[i]);
  }
}

#endif
