/* attention_host.c - attention on the host: an item is 16 rows (position and head of a group) of one batch item and KV
 * head. KV rows are taken 64 at a time through the online softmax (Milakov and Gimelshein 2018), all in fp32. The
 * splits are the device's affair: here a row is one sum from its first KV row to its last. If new rows are written, an
 * item is all rows of its KV head, and it writes them first. */
#include <immintrin.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "attention.h"

enum { ITEM_ROWS = 16, BLOCK = 64, MOST_DIMENSION = 256 };

/* K or V of one KV head. `first` is the head's row 0 of the batch item or, with pages, of page 0. */
struct rows {
  rondo_dtype dtype;
  const unsigned char *first;
  int64_t page_stride, position_stride; /* in elements, as `first` is of bytes */
};

/* Numbers that are taken together, in the sanitizers' build too. Head dimensions are multiples. */
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
enum { LANES = sizeof(lanes) / sizeof(float), HELD = 8, HELD_WIDTH = HELD * LANES };

/* An item under way. */
struct item {
  const struct attention_shape *shape;
  const int32_t *pages; /* of the batch item, or NULL */
  int64_t row_begin, row_count;
  int64_t begin[ITEM_ROWS], limit[ITEM_ROWS]; /* the KV rows that each row sees, but for missing pages */
  float q[ITEM_ROWS][MOST_DIMENSION];
  float o[ITEM_ROWS][MOST_DIMENSION];
  float max[ITEM_ROWS], sum[ITEM_ROWS]; /* exponents to base 2 */
  bool present[BLOCK];
  float keys[MOST_DIMENSION][BLOCK]; /* transposed: a row's scores then are whole vectors */
  float values[BLOCK][MOST_DIMENSION];
  const float *frequencies; /* radians a position of each pair, or NULL: nothing is rotated */
  int64_t rotated;          /* the position of these sines and cosines; INT64_MIN: none */
  float cosine[ATTENTION_MOST_PAIRS], sine[ATTENTION_MOST_PAIRS];
};

static int64_t items_per_head(const struct attention_shape *shape) { return divide_up(shape->rows, ITEM_ROWS); }

int64_t attention_host_items(const struct op_task *task) {
  struct attention_shape shape = attention_shape_of(task);
  return shape.batch * shape.kv_heads * (shape.appends ? 1 : items_per_head(&shape));
}

static int64_t bytes_of(rondo_dtype dtype, int64_t elements) { return dtype == RONDO_E4M3 ? elements : 2 * elements; }

static void row_read(rondo_dtype dtype, const unsigned char *from, int64_t count, float *to) {
  if (dtype != RONDO_E4M3)
    rows_load(dtype, from, 0, count, to);
  else
    for (int64_t i = 0; i < count; i++) to[i] = f32_of_e4m3(from[i]);
}

/* The sines and cosines of a position serve its rows of all heads. */
static void turns_make(struct item *item, int64_t position) {
  if (item->rotated == position) return;
  item->rotated = position;
  for (int64_t i = 0; i < item->shape->head_dimension / 2; i++) {
    const float angle = (float)position * item->frequencies[i];
    item->cosine[i] = (float)cos((double)angle);
    item->sine[i] = (float)sin((double)angle);
  }
}

/* The rotary embedding (Su et al., RoFormer, 2021) of a row at a position, rounded to its type. */
static void rotate_row(struct item *item, rondo_dtype dtype, int64_t position, float *row) {
  const int64_t dimension = item->shape->head_dimension, pairs = dimension / 2;
  uint16_t rounded[MOST_DIMENSION];
  if (!item->frequencies) return;
  turns_make(item, position);
  for (int64_t i = 0; i < pairs; i++) {
    const float cosine = item->cosine[i], sine = item->sine[i];
    float *low = &row[item->shape->by_halves ? i : 2 * i], *high = low + (item->shape->by_halves ? pairs : 1);
    const float rotated = *low * cosine - *high * sine;
    *high = *high * cosine + *low * sine;
    *low = rotated;
  }
  rows_store(dtype, rounded, 0, dimension, row);
  row_read(dtype, (const unsigned char *)rounded, dimension, row);
}

/* NULL for a row of a page that does not exist. */
static const unsigned char *row_of(const struct item *item, const struct rows *rows, int64_t position) {
  int64_t page = 0;
  if (item->pages) {
    page = item->pages[position / item->shape->page_rows];
    position %= item->shape->page_rows;
    if (page < 0 || page >= item->shape->pool_pages) return NULL;
  }
  return rows->first + bytes_of(rows->dtype, page * rows->page_stride + position * rows->position_stride);
}

/* Eight rows of keys become eight columns of a block's: pairs of rows, then fours, then eights. */
static void transpose(const float *from, float *to) {
  __m256 rows[LANES], twos[LANES], fours[LANES];
  for (int64_t i = 0; i < LANES; i++) rows[i] = _mm256_loadu_ps(from + i * MOST_DIMENSION);
  for (int i = 0; i < LANES; i += 2) {
    twos[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    twos[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < LANES; i += 4)
    for (int half = 0; half < 2; half++) {
      fours[i + 2 * half] = _mm256_shuffle_ps(twos[i + half], twos[i + 2 + half], 0x44);
      fours[i + 2 * half + 1] = _mm256_shuffle_ps(twos[i + half], twos[i + 2 + half], 0xee);
    }
  for (int64_t i = 0; i < LANES / 2; i++) {
    _mm256_storeu_ps(to + i * BLOCK, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * BLOCK, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
  }
}

/* Keys and values [begin, begin + count) of one KV head, eight rows at a time. Rows after them, and rows without a
 * page, are zeros, whatever memory holds there. */
static void block_read(struct item *item, const struct rows *k, const struct rows *v, int64_t begin, int64_t count) {
  const int64_t dimension = item->shape->head_dimension;
  float keys[LANES][MOST_DIMENSION];
  for (int64_t j = 0; j < BLOCK; j++) {
    const unsigned char *key_row = j < count ? row_of(item, k, begin + j) : NULL;
    item->present[j] = key_row != NULL;
    if (key_row) {
      row_read(k->dtype, key_row, dimension, keys[j % LANES]);
      row_read(v->dtype, row_of(item, v, begin + j), dimension, item->values[j]);
    } else {
      memset(keys[j % LANES], 0, (size_t)dimension * sizeof(float));
    }
    if (j % LANES < LANES - 1) continue;
    for (int64_t d = 0; d < dimension; d += LANES) transpose(&keys[0][d], &item->keys[d][j - j % LANES]);
  }
}

/* Scores as exponents to base 2. */
static void scores_finish(const struct attention_shape *shape, float *scores) {
  const float log2_e = 1.44269504f, cap = shape->soft_cap;
  if (cap == 0.0f)
    for (int64_t j = 0; j < BLOCK; j++) scores[j] *= shape->scale * log2_e;
  else
    for (int64_t j = 0; j < BLOCK; j++) scores[j] = cap * log2_e * tanhf(scores[j] * (shape->scale / cap));
}

/* Of one row of q: its sums stay in vector registers. */
static void scores_make(const struct item *item, const float *q, float *scores) {
  enum { VECTORS = BLOCK / LANES };
  lanes sums[VECTORS] = {0};
  for (int64_t d = 0; d < item->shape->head_dimension; d++) {
    const lanes *keys = (const lanes *)item->keys[d];
    for (int i = 0; i < VECTORS; i++) sums[i] += q[d] * keys[i];
  }
  memcpy(scores, sums, sizeof sums);
}

/* Adds KV rows [first, last) of the block, with weights, to a row of o times `keep`: of all of them as many elements,
 * from d on, as stay in registers. */
static inline __attribute__((always_inline)) void values_add(const struct item *item, float *o, float keep,
                                                             const float *weights, int64_t first, int64_t last,
                                                             int64_t d, int count) {
  lanes held[HELD];
  for (int i = 0; i < count; i++) held[i] = ((const lanes *)(o + d))[i] * keep;
  for (int64_t j = first; j < last; j++) {
    const lanes *value = (const lanes *)(item->values[j] + d);
    if (item->present[j])
      for (int i = 0; i < count; i++) held[i] += weights[j] * value[i];
  }
  for (int i = 0; i < count; i++) ((lanes *)(o + d))[i] = held[i];
}

/* Takes KV rows [first, last) of the block into row r, those that are there. */
static void block_attend(struct item *item, int64_t r, int64_t first, int64_t last) {
  float scores[BLOCK];
  scores_make(item, item->q[r], scores);
  scores_finish(item->shape, scores);
  float max = item->max[r];
  for (int64_t j = first; j < last; j++)
    if (item->present[j] && scores[j] > max) max = scores[j];
  /* While all is -infinity, exponents are taken against 0: they give 0, and a NaN stays one. */
  float against = max == -INFINITY ? 0.0f : max, keep = exp2f(item->max[r] - against), sum = item->sum[r] * keep;
  item->max[r] = max;
  for (int64_t j = first; j < last; j++) {
    if (!item->present[j]) continue;
    scores[j] = exp2f(scores[j] - against);
    sum += scores[j];
  }
  int64_t dimension = item->shape->head_dimension, d = 0;
  for (; d + HELD_WIDTH <= dimension; d += HELD_WIDTH) values_add(item, item->o[r], keep, scores, first, last, d, HELD);
  for (; d < dimension; d += LANES) values_add(item, item->o[r], keep, scores, first, last, d, 1);
  item->sum[r] = sum;
}

/* `end` is how many KV rows there are or, where new rows do not all fit, would be. */
static void item_begin(struct item *item, rondo_dtype dtype, const unsigned char *q, int64_t end, int64_t at) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    row_read(dtype, q + bytes_of(dtype, position * shape->q_stride.position + head * shape->q_stride.head),
             shape->head_dimension, item->q[r]);
    rotate_row(item, dtype, at + position, item->q[r]);
    const int64_t limit = smaller(shape->causal ? position + end - shape->query_length + 1 : end, shape->capacity);
    item->limit[r] = larger(limit, 0);
    item->begin[r] = shape->window ? larger(limit - shape->window, 0) : 0;
    item->max[r] = -INFINITY;
    item->sum[r] = 0.0f;
    memset(item->o[r], 0, (size_t)shape->head_dimension * sizeof(float));
  }
}

/* Neither do rows' first KV rows fall from row to row, nor their limits. */
static void item_attend(struct item *item, const struct rows *k, const struct rows *v) {
  const int64_t end = item->limit[item->row_count - 1];
  for (int64_t begin = item->begin[0]; begin < end; begin += BLOCK) {
    block_read(item, k, v, begin, smaller(end - begin, BLOCK));
    for (int64_t r = 0; r < item->row_count; r++) {
      const int64_t first = larger(item->begin[r] - begin, 0), last = smaller(item->limit[r] - begin, BLOCK);
      if (first < last) block_attend(item, r, first, last);
    }
  }
}

static void item_end(struct item *item, rondo_dtype dtype, uint16_t *o, float *lse, int64_t lse_head_stride) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    float sum = item->sum[r];
    bool nothing = sum == 0.0f; /* a row that sees something has a weight of 1, or NaN; or scores of -infinity only */
    for (int64_t d = 0; d < shape->head_dimension; d++)
      item->o[r][d] = nothing ? 0.0f : item->o[r][d] / sum * shape->v_scale;
    rows_store(dtype, o, position * shape->o_stride.position + head * shape->o_stride.head, shape->head_dimension,
               item->o[r]);
    if (lse) lse[head * lse_head_stride + position] = nothing ? -INFINITY : (item->max[r] + log2f(sum)) * 0.693147181f;
  }
}

static struct rows rows_of(const struct op_call *call, const struct attention_shape *shape, uint32_t index,
                           const struct attention_stride *stride, int64_t batch, int64_t kv_head) {
  const rondo_dtype dtype = call->task->operands[index].dtype;
  const int64_t elements = (shape->paged ? 0 : batch * stride->batch) + kv_head * stride->head;
  const unsigned char *data = call->data[index];
  if (data) data += bytes_of(dtype, elements); /* there may be no memory where there are no rows */
  return (struct rows){dtype, data, stride->batch, stride->position};
}

/* New rows of K or V of one KV head, which it writes. */
static void rows_append(struct item *item, const struct op_call *call, uint32_t from, const struct rows *to,
                        int64_t batch, int64_t kv_head, int64_t at) {
  const struct attention_shape *shape = item->shape;
  const struct attention_stride stride = attention_stride_of(call->task, from);
  const uint16_t *rows = call->data[from];
  for (int64_t i = 0; i < shape->query_length; i++) {
    float row[MOST_DIMENSION];
    if (at + i < 0 || at + i >= shape->capacity) continue;
    unsigned char *place = (unsigned char *)row_of(item, to, at + i);
    if (!place) continue;
    const uint16_t *one = rows + batch * stride.batch + kv_head * stride.head + i * stride.position;
    row_read(to->dtype, (const unsigned char *)one, shape->head_dimension, row);
    if (from == ATTENTION_NEW_K) rotate_row(item, to->dtype, at + i, row);
    rows_store(to->dtype, place, 0, shape->head_dimension, row);
  }
}

/* Of item `batch`: the position of query row 0, or 0 where none is asked for. */
static int64_t position_of(const struct op_call *call, int64_t batch) {
  const int32_t *positions = call->data[ATTENTION_POSITION];
  return positions ? positions[call->task->operands[ATTENTION_POSITION].shape[0] > 1 ? batch : 0] : 0;
}

/* How many KV rows it has, or where its new rows end. */
static int64_t end_of(const struct op_call *call, const struct attention_shape *shape, int64_t batch) {
  const int32_t *kv_lengths = call->data[ATTENTION_KV_LENGTHS];
  int64_t length = shape->capacity;
  if (kv_lengths) length = kv_lengths[batch];
  if (shape->appends) length = position_of(call, batch) + shape->query_length;
  return smaller(larger(length, 0), shape->most_length);
}

static void item_run(struct item *item, const struct op_call *call, int64_t batch, int64_t kv_head) {
  const struct attention_shape *shape = item->shape;
  const struct op_operand *operands = call->task->operands;
  const int64_t *lse_stride = operands[ATTENTION_LSE].stride, head = kv_head * shape->group;
  const rondo_dtype q_dtype = operands[ATTENTION_Q].dtype;
  const unsigned char *q = call->data[ATTENTION_Q];
  item_begin(item, q_dtype, q + bytes_of(q_dtype, batch * shape->q_stride.batch + head * shape->q_stride.head),
             end_of(call, shape, batch), position_of(call, batch));
  const struct rows k = rows_of(call, shape, ATTENTION_K, &shape->k_stride, batch, kv_head),
                    v = rows_of(call, shape, ATTENTION_V, &shape->v_stride, batch, kv_head);
  item_attend(item, &k, &v);
  float *lse = call->data[ATTENTION_LSE];
  item_end(item, operands[ATTENTION_O].dtype,
           (uint16_t *)call->data[ATTENTION_O] + batch * shape->o_stride.batch + head * shape->o_stride.head,
           lse ? lse + batch * lse_stride[0] + head * lse_stride[1] : NULL, lse_stride[1]);
}

/* All new rows of a KV head. */
static void head_append(struct item *item, const struct op_call *call, int64_t batch, int64_t kv_head) {
  const struct attention_shape *shape = item->shape;
  const int64_t at = position_of(call, batch);
  const struct rows k = rows_of(call, shape, ATTENTION_K, &shape->k_stride, batch, kv_head),
                    v = rows_of(call, shape, ATTENTION_V, &shape->v_stride, batch, kv_head);
  rows_append(item, call, ATTENTION_NEW_K, &k, batch, kv_head, at);
  rows_append(item, call, ATTENTION_NEW_V, &v, batch, kv_head, at);
}

void attention_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct attention_shape shape = attention_shape_of(call->task);
  const int64_t per_head = items_per_head(&shape), items = shape.appends ? 1 : per_head;
  const int32_t *kv_pages = call->data[ATTENTION_KV_PAGES];
  float frequencies[ATTENTION_MOST_PAIRS];
  struct item item; /* 160 KB, of which little is used: what is read was written */
  item.shape = &shape;
  item.frequencies = shape.rotates ? attention_frequencies(call, frequencies) : NULL;
  item.rotated = INT64_MIN;
  for (int64_t index = first; index < last; index++) {
    const int64_t batch = index / (shape.kv_heads * items), kv_head = index / items % shape.kv_heads;
    const int64_t begin = shape.appends ? 0 : index % items, end = shape.appends ? per_head : begin + 1;
    item.pages = shape.paged && shape.capacity ? kv_pages + batch * shape.pages_stride : NULL;
    if (shape.appends) head_append(&item, call, batch, kv_head);
    for (int64_t part = begin; part < end; part++) {
      item.row_begin = part * ITEM_ROWS;
      item.row_count = smaller(shape.rows - item.row_begin, ITEM_ROWS);
      item_run(&item, call, batch, kv_head);
    }
  }
}
