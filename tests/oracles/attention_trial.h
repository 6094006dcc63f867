/* attention_trial.h - one attention task of a test with its data: descriptor, tensors, numbers.
 *
 * A tensor may be a rectangle of a larger one. What lies around an input is NaN, so that a result shows if a kernel
 * reads it; what lies around a result must not change. */
#pragma once

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

/* What a table of pages holds. Entries of pages that begin after the length are no pages, in all three. */
enum table {
  SCATTERED, /* each item its own pages, in no order */
  SHARED,    /* items share the first half of their pages */
  MISSING    /* some entries are no pages */
};

struct attention {
  const char *name;  /* of the case, for messages; or NULL */
  rondo_dtype dtype; /* of o, and of what is not e4m3 */
  rondo_head_layout layout;
  int64_t batch, query_heads, kv_heads, query_length, capacity, dimension;
  float scale;
  float deviation; /* 0, or of the scores: attentions_check_cases makes the scale of it */
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
  bool made; /* lengths and pages are temporaries, which tasks before it copy */
  /* Filled by attention_add and attention_fill. */
  bool device;
  rondo_tensor q, k, v, o, lse, kv_lengths, kv_pages;  /* the whole tensors */
  uint16_t *q_memory, *k_memory, *v_memory, *o_memory; /* bytes where they are e4m3 */
  float *lse_memory;
  int32_t *pages_memory;
};

/* The type of q. */
rondo_dtype q_dtype(const struct attention *a);

/* The type of k and v. */
rondo_dtype kv_dtype(const struct attention *a);

/* Memory of zeros for `count` items of `bytes` bytes; the test ends if there is none. */
void *attention_memory(int64_t count, size_t bytes);

/* The KV rows of an item that count: its length, within 0 and the capacity. */
int64_t attention_length(const struct attention *a, int64_t batch);

struct rectangle {
  int64_t shape[4], offset[4], extent[4];
};

/* Where a tensor of this many items, heads and rows lies in its larger one. */
struct rectangle rectangle_of(const struct attention *a, int64_t batch, int64_t heads, int64_t length);

/* The elements of the larger tensor. */
int64_t rectangle_elements(const struct rectangle *r);

/* The index of the first number of a head's row. */
int64_t row_index(const struct attention *a, const struct rectangle *r, int64_t batch, int64_t head, int64_t position);

/* The pages of an item. */
int64_t item_pages(const struct attention *a);

/* The pages of the pool: three more than the items have. */
int64_t pool_pages(const struct attention *a);

/* The rectangle of q and o. */
struct rectangle query_rectangle(const struct attention *a);

/* The rectangle of k and v, or of their pages. */
struct rectangle kv_rectangle(const struct attention *a);

/* An entry of the table of pages. */
int32_t *page_entry(const struct attention *a, int64_t batch, int64_t page);

/* The index of the first number of a KV row; -1 if the row lies in a page that does not exist. */
int64_t kv_index(const struct attention *a, const struct rectangle *kv, int64_t batch, int64_t head, int64_t position);

/* The elements of the tensor that holds lse. */
int64_t lse_elements(const struct attention *a);

/* The index of a query row's lse. */
int64_t lse_index(const struct attention *a, int64_t batch, int64_t head, int64_t position);

/* Adds a state and the view of the rectangle in it. */
rondo_tensor rectangle_add(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank, struct rectangle r,
                           rondo_tensor *whole);

/* Adds the operands, all states but the lengths, so that the test sees what o and lse hold before and around the
 * result, and the planner has nothing to place. */
rondo_attention_desc attention_describe(struct attention *a, struct trial *trial);

/* attention_describe, and the task. */
void attention_add(struct attention *a, struct trial *trial);

enum { NAN_BITS = 0x7fff, TWO_NAN_BITS = 0x7f7f, GUARD_BITS = 0x5a5a };

static const float lse_guard = 12345.0f;

/* Nearly normal, of variance 1, from one random number: the sum of its four quarters. */
double roughly_normal(struct random *random);

/* One number of a row of q or k, by the task's kind of data. */
double number_of(const struct attention *a, struct random *random, bool key, int64_t position, int64_t d);

/* Allocates and fills the operands. NaN stands around all rectangles, in KV rows after an item's length, and in pages
 * that no table names. */
void attention_fill(struct attention *a, struct random *random);

/* Uploads the operands. */
void attention_set(const struct attention *a, struct trial *trial);

/* Fetches o and lse. */
void attention_get(struct attention *a, struct trial *trial);

/* Frees the operands. */
void attention_free(struct attention *a);

/* Writes the task in one line, such as "bf16 BSHD 2 x 6/2 heads x 65 on 200 x 64, causal, 3 splits", and returns text.
 */
const char *attention_text(const struct attention *a, char *text, size_t bytes);
