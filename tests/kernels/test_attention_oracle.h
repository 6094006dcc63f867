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
  EQUAL,    /* all scores of a row are equal */
  RISING,   /* each KV row scores more than the one before: the maximum grows in every tile */
  FALLING,  /* the maximum is the first */
  OUTLIER,  /* one score far above all others */
  ENORMOUS, /* scores of some 10^4 */
  IMMENSE   /* equal scores of more than 2^30, whose rounding alone is more than f16 has exponents */
};

/* Where tensors lie. */
enum place {
  DENSE,
  STRIDED,   /* a rectangle of a larger tensor, its rows at multiples of 16 bytes */
  MISALIGNED /* a rectangle whose rows begin at odd elements */
};

/* What a table of pages holds. Entries of pages wholly behind the length are no pages in all of them. */
enum table {
  SCATTERED, /* each item its own pages, in no order */
  SHARED,    /* items share the first half of their pages */
  MISSING    /* some entries are no pages */
};

struct attention {
  rondo_dtype dtype; /* of o, and of what is not e4m3 */
  rondo_head_layout layout;
  int64_t batch, query_heads, kv_heads, query_length, capacity, dimension;
  float scale;
  int32_t causal, splits;
  const int32_t *lengths; /* [batch], or NULL: no such operand */
  const int64_t *begins;  /* [batch], of query row 0 the position; or NULL: the last query row is the last KV row */
  bool lse_wanted;
  enum data data;
  enum place place;
  int32_t window;
  float soft_cap;
  bool e4m3_q, e4m3_kv; /* q e4m3 means k and v too */
  float q_scale, k_scale, v_scale;
  int64_t page_rows; /* 0: no pages; else capacity is a multiple */
  enum table table;
  bool made; /* lengths and pages are temporaries, which tasks in front of it copy */
  /* Filled by attention_add and attention_fill. */
  bool device;
  rondo_tensor q, k, v, o, lse, kv_lengths, kv_pages;  /* the whole tensors */
  uint16_t *q_memory, *k_memory, *v_memory, *o_memory; /* bytes where they are e4m3 */
  float *lse_memory;
  int32_t *pages_memory;
};

static inline rondo_dtype q_dtype(const struct attention *a) { return a->e4m3_q ? RONDO_E4M3 : a->dtype; }
static inline rondo_dtype kv_dtype(const struct attention *a) {
  return a->e4m3_q || a->e4m3_kv ? RONDO_E4M3 : a->dtype;
}

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

static inline struct rectangle rectangle_of(const struct attention *a, int64_t batch, int64_t heads, int64_t length) {
  bool heads_first = a->layout == RONDO_BHSD;
  struct rectangle r = {.extent = {batch, heads_first ? heads : length, heads_first ? length : heads, a->dimension}};
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

static inline int64_t item_pages(const struct attention *a) { return a->page_rows ? a->capacity / a->page_rows : 0; }
static inline int64_t pool_pages(const struct attention *a) { return a->batch * item_pages(a) + 3; }

static inline struct rectangle query_rectangle(const struct attention *a) {
  return rectangle_of(a, a->batch, a->query_heads, a->query_length);
}
static inline struct rectangle kv_rectangle(const struct attention *a) {
  if (a->page_rows) return rectangle_of(a, pool_pages(a), a->kv_heads, a->page_rows);
  return rectangle_of(a, a->batch, a->kv_heads, a->capacity);
}

/* The table of pages, [batch, pages of an item], likewise. */
static inline struct rectangle pages_rectangle(const struct attention *a) {
  const int64_t around = a->place == DENSE ? 0 : 3;
  return (struct rectangle){.shape = {a->batch + around, item_pages(a) + around},
                            .offset = {a->place == DENSE ? 0 : 1, a->place == DENSE ? 0 : 2},
                            .extent = {a->batch, item_pages(a)}};
}

static inline int32_t *page_entry(const struct attention *a, int64_t batch, int64_t page) {
  struct rectangle r = pages_rectangle(a);
  return &a->pages_memory[(batch + r.offset[0]) * r.shape[1] + page + r.offset[1]];
}

/* Of the first number of a KV row; -1 for one of a page that does not exist. */
static inline int64_t kv_index(const struct attention *a, const struct rectangle *kv, int64_t batch, int64_t head,
                               int64_t position) {
  if (!a->page_rows) return row_index(a, kv, batch, head, position);
  const int64_t page = *page_entry(a, batch, position / a->page_rows);
  if (page < 0 || page >= pool_pages(a)) return -1;
  return row_index(a, kv, page, head, position % a->page_rows);
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

static inline rondo_tensor rectangle_add(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                         struct rectangle r, rondo_tensor *whole) {
  rondo_tensor view;
  REQUIRE_OK(rondo_state(graph, name, dtype, rank, r.shape, whole));
  REQUIRE_OK(rondo_view(graph, *whole, r.offset, r.extent, &view));
  return view;
}

/* A temporary that an earlier task of the graph makes. */
static inline rondo_tensor copy_add(rondo_graph *graph, rondo_tensor from, uint32_t rank, const int64_t *shape) {
  rondo_tensor made;
  REQUIRE_OK(rondo_temporary(graph, "made", RONDO_I32, rank, shape, &made));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = made}));
  return made;
}

/* All but the lengths are states: what o and lse hold before and around the result can be seen, and the planner has
 * nothing to place. */
static inline rondo_attention_desc attention_describe(struct attention *a, struct trial *trial) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  rondo_attention_desc desc = {.layout = a->layout,
                               .scale = a->scale,
                               .causal = a->causal,
                               .splits = a->splits,
                               .window = a->window,
                               .soft_cap = a->soft_cap,
                               .q_scale = a->q_scale,
                               .k_scale = a->k_scale,
                               .v_scale = a->v_scale};
  a->device = trial->backend != RONDO_BACKEND_HOST;
  desc.q = rectangle_add(trial->graph, "q", q_dtype(a), 4, query, &a->q);
  desc.k = rectangle_add(trial->graph, "k", kv_dtype(a), 4, kv, &a->k);
  desc.v = rectangle_add(trial->graph, "v", kv_dtype(a), 4, kv, &a->v);
  desc.o = rectangle_add(trial->graph, "o", a->dtype, 4, query, &a->o);
  if (a->page_rows)
    desc.kv_pages = rectangle_add(trial->graph, "kv_pages", RONDO_I32, 2, pages_rectangle(a), &a->kv_pages);
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
  if (a->made) {
    if (a->page_rows) desc.kv_pages = copy_add(trial->graph, desc.kv_pages, 2, (int64_t[]){a->batch, item_pages(a)});
    if (a->lengths) desc.kv_lengths = copy_add(trial->graph, desc.kv_lengths, 1, (int64_t[]){a->batch});
  }
  return desc;
}

static inline void attention_add(struct attention *a, struct trial *trial) {
  const rondo_attention_desc desc = attention_describe(a, trial);
  REQUIRE_OK(rondo_add_attention(trial->graph, &desc));
}

enum { NAN_BITS = 0x7fff, TWO_NAN_BITS = 0x7f7f, GUARD_BITS = 0x5a5a };
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
  case IMMENSE:
    if (a->e4m3_q) return 448.0; /* where e4m3 ends: the scale does the rest */
    return key ? 24320.0 : 24320.0 + 16.0 * (double)position;
  default:
    return normal;
  }
}

static inline void pages_fill(struct attention *a, struct random *random) {
  const int32_t none[] = {-1, INT32_MAX, INT32_MIN, (int32_t)pool_pages(a)};
  struct rectangle r = pages_rectangle(a);
  const int64_t elements = a->page_rows ? r.shape[0] * r.shape[1] : 0, pool = pool_pages(a);
  a->pages_memory = attention_memory(elements, sizeof(int32_t));
  if (!a->page_rows) return;
  int32_t *order = attention_memory(pool, sizeof(int32_t));
  for (int64_t i = 0; i < pool; i++) {
    int64_t other = random_between(random, 0, i);
    order[i] = order[other];
    order[other] = (int32_t)i;
  }
  for (int64_t i = 0; i < elements; i++) a->pages_memory[i] = order[pool - 1]; /* a page that nobody has */
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t i = 0; i < item_pages(a); i++) {
      const bool shared = a->table == SHARED && i < item_pages(a) / 2,
                 missing = a->table == MISSING && (b + i) % 3 == 1;
      const bool behind = i * a->page_rows >= attention_length(a, b);
      *page_entry(a, b, i) = missing || behind ? none[(b + i / 3) % 4] : order[shared ? i : b * item_pages(a) + i];
    }
  free(order);
}

/* A row of a query or KV rectangle. */
static inline void row_fill(const struct attention *a, struct random *random, rondo_dtype dtype, uint16_t *memory,
                            int64_t index, bool key, int64_t position) {
  for (int64_t d = 0; d < a->dimension; d++)
    oracle_write(dtype, memory, index + d, number_of(a, random, key, position, d));
}

/* Rectangles get numbers; all around them, all KV rows behind the length and pages that no table names, NaN. */
static inline void attention_fill(struct attention *a, struct random *random) {
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  int64_t query_elements = rectangle_elements(&query), kv_elements = rectangle_elements(&kv);
  a->q_memory = attention_memory(query_elements, 2);
  a->o_memory = attention_memory(query_elements, 2);
  a->k_memory = attention_memory(kv_elements, 2);
  a->v_memory = attention_memory(kv_elements, 2);
  a->lse_memory = attention_memory(lse_elements(a), sizeof(float));
  pages_fill(a, random);
  for (int64_t i = 0; i < query_elements; i++)
    a->q_memory[i] = a->e4m3_q ? TWO_NAN_BITS : NAN_BITS, a->o_memory[i] = GUARD_BITS;
  for (int64_t i = 0; i < kv_elements; i++)
    a->k_memory[i] = a->v_memory[i] = kv_dtype(a) == RONDO_E4M3 ? TWO_NAN_BITS : NAN_BITS;
  for (int64_t i = 0; i < lse_elements(a); i++) a->lse_memory[i] = lse_guard;
  for (int64_t b = 0; b < a->batch; b++) {
    for (int64_t h = 0; h < a->query_heads; h++)
      for (int64_t i = 0; i < a->query_length; i++)
        row_fill(a, random, q_dtype(a), a->q_memory, row_index(a, &query, b, h, i), false, i);
    for (int64_t h = 0; h < a->kv_heads; h++)
      for (int64_t j = 0; j < attention_length(a, b); j++) {
        int64_t index = kv_index(a, &kv, b, h, j);
        if (index < 0) continue;
        row_fill(a, random, kv_dtype(a), a->k_memory, index, true, j);
        for (int64_t d = 0; d < a->dimension; d++)
          oracle_write(kv_dtype(a), a->v_memory, index + d, roughly_normal(random));
      }
  }
}

static inline void attention_set(const struct attention *a, struct trial *trial) {
  trial_set(trial, a->q, a->q_memory);
  trial_set(trial, a->k, a->k_memory);
  trial_set(trial, a->v, a->v_memory);
  trial_set(trial, a->o, a->o_memory);
  if (a->lengths) trial_set(trial, a->kv_lengths, a->lengths);
  if (a->page_rows) trial_set(trial, a->kv_pages, a->pages_memory);
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
  free(a->pages_memory);
}

/* "bf16 BSHD 2 x 6/2 heads x 65 on 200 x 64, causal, 3 splits". */
static inline const char *attention_text(const struct attention *a, char *text, size_t bytes) {
  snprintf(text, bytes,
           "%s (q %s, kv %s) %s %ld x %ld/%ld heads x %ld on %ld x %ld%s%s, %d splits, data %d, place %d, window %d, "
           "cap %g, %ld rows a page, table %d",
           rondo_dtype_name(a->dtype), rondo_dtype_name(q_dtype(a)), rondo_dtype_name(kv_dtype(a)),
           a->layout == RONDO_BHSD ? "BHSD" : "BSHD", (long)a->batch, (long)a->query_heads, (long)a->kv_heads,
           (long)a->query_length, (long)a->capacity, (long)a->dimension, a->causal ? ", causal" : "",
           a->lengths ? ", lengths" : "", a->splits, a->data, a->place, a->window, (double)a->soft_cap,
           (long)a->page_rows, a->table);
  return text;
}

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

static inline double rounded(rondo_dtype dtype, double value) {
  return dtype == RONDO_F16 ? oracle_f16(oracle_to_f16(value)) : oracle_bf16(oracle_to_bf16(value));
}

static inline double *numbers_of(rondo_dtype dtype, const uint16_t *memory, int64_t count) {
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

static inline double scale_or_one(float scale) { return scale != 0.0f ? (double)scale : 1.0; }

/* Of products of q and k. */
static inline double scale_of(const struct attention *a) {
  double scale = a->scale != 0.0f ? (double)a->scale : 1.0 / sqrt((double)a->dimension);
  return scale * scale_or_one(a->q_scale) * scale_or_one(a->k_scale);
}

static inline double capped(const struct attention *a, double score) {
  const double cap = (double)a->soft_cap;
  return cap > 0.0 ? cap * tanh(score / cap) : score;
}

/* Where all is e4m3, the device may round weights to it as well, and products of e4m3 keep 14 bits of a term
 * (attention_e4m3.cu). */
static inline bool weights_e4m3(const struct attention *a) { return a->device && a->e4m3_q && a->dimension == 128; }

/* Beside an e4m3 cache it may round them to f16, whatever q and o are. */
static inline bool weights_f16(const struct attention *a) { return a->device && kv_dtype(a) == RONDO_E4M3; }

/* As 16-bit arithmetic has it or, before it is divided, e4m3. */
static inline double low_weight_of(const struct attention *a, double weight, double sum) {
  if (!weights_e4m3(a) || isnan(weight)) return rounded(a->dtype, weight / sum);
  return oracle_e4m3(oracle_to_e4m3(64.0 * weight)) / 64.0 / sum;
}

enum { LANES = 16 }; /* dimensions are multiples of it: sums side by side, which the compiler makes vectors of */

/* q k, and what it is without signs. */
ORACLE_LOOP static inline double product_of(const double *q, const double *k, int64_t dimension, double *magnitude) {
  double products[LANES] = {0}, magnitudes[LANES] = {0}, product = 0.0;
  for (int64_t d = 0; d < dimension; d += LANES)
    for (int i = 0; i < LANES; i++) {
      products[i] += q[d + i] * k[d + i];
      magnitudes[i] += fabs(q[d + i] * k[d + i]);
    }
  *magnitude = 0.0;
  for (int i = 0; i < LANES; i++) product += products[i], *magnitude += magnitudes[i];
  return product;
}

ORACLE_LOOP static inline void row_add(struct oracle_row *restrict row, const double *restrict v, int64_t dimension,
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
static inline void oracle_row(const struct attention *a, const double *q, const double *k, const double *v,
                              const int64_t *rows, int64_t count, double *scores, double *low_scores,
                              struct oracle_row *row) {
  const double scale = scale_of(a), v_scale = scale_or_one(a->v_scale);
  double max = -INFINITY, low_max = -INFINITY, sum = 0.0, low_sum = 0.0, most = 0.0;
  memset(row, 0, sizeof *row);
  for (int64_t j = 0; j < count; j++) {
    double magnitude, product = product_of(q, k + rows[j], a->dimension, &magnitude);
    scores[j] = capped(a, product * scale);
    low_scores[j] = rounded(a->dtype, scores[j]);
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
  for (int64_t d = 0; d < a->dimension; d++) row->low[d] = rounded(a->dtype, row->low[d]);
  row->lse = count ? max + log(sum) : -INFINITY;
  row->score_error = most * 0x1p-20;
  if (a->soft_cap > 0.0f) row->score_error += fabs(capped(a, most)) * 0x1p-18;
  if (weights_e4m3(a)) row->score_error += most * 0x1p-9;
  if (a->soft_cap > 0.0f && a->device) row->score_error += fabs(capped(a, most)) * 0x1p-10; /* of tanh.approx */
}

/* The KV rows that a query row sees, as oracle_row wants them: how many. */
static inline int64_t rows_seen(const struct attention *a, const struct rectangle *kv, int64_t batch, int64_t head,
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

/* What is known of a task's results. */
struct verdict {
  double error, low_error, store_error; /* the largest; low_error: of 16-bit arithmetic, store_error: of storing */
  int64_t wrong;                        /* numbers beyond their bound */
};

/* One number against its own bound: its own rounding and that of the weights to 16 bits, what fp32 does to scores and
 * sums, and weights too small for f16 or, where they are all of a number, for fp32. NaN and infinity must be the very
 * same. */
static inline void number_check(const struct attention *a, const struct oracle_row *row, int64_t d, double got,
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
    verdict->wrong += !(fabs(got - row->lse) <= row->score_error + (weights_e4m3(a) ? 0x1.4p-4 : 0.0) +
                                                    1e-6 * (fabs(row->lse) + log((double)count) + 1.0));
}

/* Every number of the rectangle against the oracle, and nothing around it touched. */
static inline struct verdict attention_verdict(const struct attention *a) {
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

/* To the host's one kernel many items and heads are only more of the same: those that are there to fill a GPU, or to be
 * given its kernels of many rows, become two. */
static inline void attention_trim(struct attention *a, rondo_backend backend) {
  enum { MANY = 4, SOME = 2 };
  if (backend != RONDO_BACKEND_HOST) return;
  if (!a->lengths && a->batch > MANY) a->batch = SOME;
  if (a->kv_heads <= MANY) return;
  a->query_heads = a->query_heads / a->kv_heads * SOME;
  a->kv_heads = SOME;
}

static inline void attentions_begin(rondo_backend backend, struct attention *tasks, size_t count, struct trial *trial) {
  trial_describe(trial, backend);
  for (size_t i = 0; i < count; i++) {
    attention_trim(&tasks[i], backend);
    attention_add(&tasks[i], trial);
  }
  trial_instantiate(trial);
}

static inline void attentions_run(rondo_backend backend, struct attention *tasks, size_t count) {
  struct trial trial;
  struct random random = {7};
  attentions_begin(backend, tasks, count, &trial);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) attention_get(&tasks[i], &trial);
  trial_end(&trial);
}

/* For tasks whose operands hold numbers that are none, or other than drawn ones: `plant` puts them there, by the task's
 * place, and all that comes out of a replay is what double precision says of each row. */
static inline void attentions_planted(rondo_backend backend, struct attention *tasks, size_t count, uint64_t seed,
                                      void (*plant)(struct attention *a, size_t i)) {
  struct trial trial;
  struct random random = {seed};
  attentions_begin(backend, tasks, count, &trial);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    plant(&tasks[i], i);
    attention_set(&tasks[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    char text[256];
    attention_get(&tasks[i], &trial);
    struct verdict verdict = attention_verdict(&tasks[i]);
    cr_expect(verdict.wrong == 0, "%s: %ld numbers are wrong", attention_text(&tasks[i], text, sizeof text),
              (long)verdict.wrong);
    attention_free(&tasks[i]);
  }
  trial_end(&trial);
}

/* Tasks of immense scores: what they must be within says nothing, but as they are equal, results are means. */
static inline void attentions_immense(rondo_backend backend, struct attention *tasks, size_t count) {
  for (size_t i = 0; i < count; i++) tasks[i].data = IMMENSE;
  attentions_run(backend, tasks, count);
  for (size_t i = 0; i < count; i++) {
    char text[256];
    struct verdict verdict = attention_verdict(&tasks[i]);
    cr_expect(!verdict.wrong && verdict.error < 0.005, "%s: %ld numbers are wrong, the largest error is %g",
              attention_text(&tasks[i], text, sizeof text), (long)verdict.wrong, verdict.error);
    attention_free(&tasks[i]);
  }
}

/* In graphs of so many tasks that their tensors are not too many. */
static inline void attentions_check(rondo_backend backend, struct attention *tasks, size_t count) {
  enum { MOST = 75 };
  for (size_t first = 0; first < count; first += MOST) {
    const size_t these = count - first < MOST ? count - first : MOST;
    attentions_run(backend, tasks + first, these);
    for (size_t i = first; i < first + these; i++) {
      attention_check(&tasks[i]);
      attention_free(&tasks[i]);
    }
  }
}

#endif
