/* attention_trial.c - see attention_trial.h. */
#include "attention_trial.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

rondo_dtype q_dtype(const struct attention *a) { return a->e4m3_q ? RONDO_E4M3 : a->dtype; }

rondo_dtype kv_dtype(const struct attention *a) { return a->e4m3_q || a->e4m3_kv ? RONDO_E4M3 : a->dtype; }

void *attention_memory(int64_t count, size_t bytes) {
  void *memory = calloc((size_t)(count > 0 ? count : 1), bytes);
  cr_assert_not_null(memory);
  return memory;
}

int64_t attention_length(const struct attention *a, int64_t batch) {
  int64_t length = a->lengths ? a->lengths[batch] : a->capacity;
  return length < 0 ? 0 : length > a->capacity ? a->capacity : length;
}

struct rectangle rectangle_of(const struct attention *a, int64_t batch, int64_t heads, int64_t length) {
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

int64_t rectangle_elements(const struct rectangle *r) { return r->shape[0] * r->shape[1] * r->shape[2] * r->shape[3]; }

int64_t row_index(const struct attention *a, const struct rectangle *r, int64_t batch, int64_t head, int64_t position) {
  bool heads_first = a->layout == RONDO_BHSD;
  int64_t second = heads_first ? head : position, third = heads_first ? position : head;
  return (((batch + r->offset[0]) * r->shape[1] + second + r->offset[1]) * r->shape[2] + third + r->offset[2]) *
             r->shape[3] +
         r->offset[3];
}

int64_t item_pages(const struct attention *a) { return a->page_rows ? a->capacity / a->page_rows : 0; }

int64_t pool_pages(const struct attention *a) { return a->batch * item_pages(a) + 3; }

struct rectangle query_rectangle(const struct attention *a) {
  return rectangle_of(a, a->batch, a->query_heads, a->query_length);
}

struct rectangle kv_rectangle(const struct attention *a) {
  if (a->page_rows) return rectangle_of(a, pool_pages(a), a->kv_heads, a->page_rows);
  return rectangle_of(a, a->batch, a->kv_heads, a->capacity);
}

/* The table of pages, [batch, pages of an item], likewise. */
static struct rectangle pages_rectangle(const struct attention *a) {
  const int64_t around = a->place == DENSE ? 0 : 3;
  return (struct rectangle){.shape = {a->batch + around, item_pages(a) + around},
                            .offset = {a->place == DENSE ? 0 : 1, a->place == DENSE ? 0 : 2},
                            .extent = {a->batch, item_pages(a)}};
}

int32_t *page_entry(const struct attention *a, int64_t batch, int64_t page) {
  struct rectangle r = pages_rectangle(a);
  return &a->pages_memory[(batch + r.offset[0]) * r.shape[1] + page + r.offset[1]];
}

int64_t kv_index(const struct attention *a, const struct rectangle *kv, int64_t batch, int64_t head, int64_t position) {
  if (!a->page_rows) return row_index(a, kv, batch, head, position);
  const int64_t page = *page_entry(a, batch, position / a->page_rows);
  if (page < 0 || page >= pool_pages(a)) return -1;
  return row_index(a, kv, page, head, position % a->page_rows);
}

/* The lse, [batch, heads, positions], likewise. */
static void lse_rectangle(const struct attention *a, int64_t *shape, int64_t *offset, int64_t *extent) {
  const int64_t extents[3] = {a->batch, a->query_heads, a->query_length};
  for (int i = 0; i < 3; i++) {
    offset[i] = a->place == DENSE ? 0 : 3 - i;
    extent[i] = extents[i];
    shape[i] = extent[i] + (a->place == DENSE ? 0 : 4);
  }
}

int64_t lse_elements(const struct attention *a) {
  int64_t shape[3], offset[3], extent[3];
  lse_rectangle(a, shape, offset, extent);
  return shape[0] * shape[1] * shape[2];
}

int64_t lse_index(const struct attention *a, int64_t batch, int64_t head, int64_t position) {
  int64_t shape[3], offset[3], extent[3];
  lse_rectangle(a, shape, offset, extent);
  return ((batch + offset[0]) * shape[1] + head + offset[1]) * shape[2] + position + offset[2];
}

/* ---- One task ---------------------------------------------------------------------------------------------------- */

rondo_tensor rectangle_add(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank, struct rectangle r,
                           rondo_tensor *whole) {
  rondo_tensor view;
  REQUIRE_OK(rondo_state(graph, name, dtype, rank, r.shape, whole));
  REQUIRE_OK(rondo_view(graph, *whole, r.offset, r.extent, &view));
  return view;
}

/* A temporary that an earlier task of the graph makes. */
static rondo_tensor copy_add(rondo_graph *graph, rondo_tensor from, uint32_t rank, const int64_t *shape) {
  rondo_tensor made;
  REQUIRE_OK(rondo_temporary(graph, "made", RONDO_I32, rank, shape, &made));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = made}));
  return made;
}

rondo_attention_desc attention_describe(struct attention *a, struct trial *trial) {
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

void attention_add(struct attention *a, struct trial *trial) {
  const rondo_attention_desc desc = attention_describe(a, trial);
  REQUIRE_OK(rondo_add_attention(trial->graph, &desc));
}

double roughly_normal(struct random *random) {
  uint64_t bits = random_bits(random);
  double sum = 0.0;
  for (int i = 0; i < 4; i++, bits >>= 16) sum += (double)(bits & 0xffff) * 0x1p-16;
  return (sum - 2.0) * 1.7320508;
}

double number_of(const struct attention *a, struct random *random, bool key, int64_t position, int64_t d) {
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

static void pages_fill(struct attention *a, struct random *random) {
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
static void row_fill(const struct attention *a, struct random *random, rondo_dtype dtype, uint16_t *memory,
                     int64_t index, bool key, int64_t position) {
  for (int64_t d = 0; d < a->dimension; d++)
    oracle_write(dtype, memory, index + d, number_of(a, random, key, position, d));
}

void attention_fill(struct attention *a, struct random *random) {
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

void attention_set(const struct attention *a, struct trial *trial) {
  trial_set(trial, a->q, a->q_memory);
  trial_set(trial, a->k, a->k_memory);
  trial_set(trial, a->v, a->v_memory);
  trial_set(trial, a->o, a->o_memory);
  if (a->lengths) trial_set(trial, a->kv_lengths, a->lengths);
  if (a->page_rows) trial_set(trial, a->kv_pages, a->pages_memory);
  if (a->lse_wanted) trial_set(trial, a->lse, a->lse_memory);
}

void attention_get(struct attention *a, struct trial *trial) {
  trial_get(trial, a->o, a->o_memory);
  if (a->lse_wanted) trial_get(trial, a->lse, a->lse_memory);
}

void attention_free(struct attention *a) {
  free(a->q_memory);
  free(a->k_memory);
  free(a->v_memory);
  free(a->o_memory);
  free(a->lse_memory);
  free(a->pages_memory);
}

const char *attention_text(const struct attention *a, char *text, size_t bytes) {
  snprintf(
      text, bytes,
      "%s%s%s (q %s, kv %s) %s %ld x %ld/%ld heads x %ld on %ld x %ld%s%s, %d splits, data %d, place %d, window %d, "
      "cap %g, %ld rows a page, table %d",
      a->name ? a->name : "", a->name ? ": " : "", rondo_dtype_name(a->dtype), rondo_dtype_name(q_dtype(a)),
      rondo_dtype_name(kv_dtype(a)), a->layout == RONDO_BHSD ? "BHSD" : "BSHD", (long)a->batch, (long)a->query_heads,
      (long)a->kv_heads, (long)a->query_length, (long)a->capacity, (long)a->dimension, a->causal ? ", causal" : "",
      a->lengths ? ", lengths" : "", a->splits, a->data, a->place, a->window, (double)a->soft_cap, (long)a->page_rows,
      a->table);
  return text;
}
