/* attention_host.c - attention on the host: an item is 96 rows (position and head of a group) of one batch item and KV
 * head. KV rows are taken 64 at a time through the online softmax (Milakov and Gimelshein 2018), all in fp32; both
 * products are those of gemm's blocks. The splits are the device's affair: here a row is one sum from its first KV row
 * to its last. */
#include <assert.h>
#include <immintrin.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/exponential.h"
#include "../common/rows.h"
#include "../common/transpose.h"
#include "../gemm/gemm_block.h"
#include "attention.h"

enum { BLOCK = 64, MOST_DIMENSION = 256, ITEM_ROWS = ATTENTION_ITEM_ROWS, NEW_POSITIONS = ATTENTION_NEW_POSITIONS };

/* K or V of one KV head. `first` is the head's row 0 of the batch item or, with pages, of page 0. */
struct rows {
  rondo_dtype dtype;
  const unsigned char *first;
  int64_t page_stride, position_stride; /* in elements, as `first` is of bytes */
};

enum { LANES = 8, DEPTHS = MOST_DIMENSION / BLOCK_DEPTH };

/* An item under way: 380 KB, of which little is used. */
struct item {
  const struct attention_shape *shape;
  const int32_t *pages; /* of the batch item, or NULL */
  int64_t row_begin, row_count;
  int64_t begin[ITEM_ROWS], limit[ITEM_ROWS]; /* the KV rows that each row sees, but for missing pages */
  gemm_block_loops *multiply;
  float max[ITEM_ROWS], sum[ITEM_ROWS]; /* exponents to base 2 */
  int32_t present[BLOCK];               /* -1 or 0 */
  const float *frequencies;             /* radians a position of each pair, or NULL: nothing is rotated */
  int64_t rotated;                      /* the position of these sines and cosines; INT64_MIN: none */
  float cosine[ATTENTION_MOST_PAIRS], sine[ATTENTION_MOST_PAIRS];
  /* As gemm_block.h wants them: vectors, their sums, and rows of matrices in panels. */
  _Alignas(BLOCK_ALIGNMENT) float q[DEPTHS][ITEM_ROWS][BLOCK_DEPTH];
  _Alignas(BLOCK_ALIGNMENT) float o[DEPTHS][ITEM_ROWS][BLOCK_PITCH];
  _Alignas(BLOCK_ALIGNMENT) float scores[ITEM_ROWS][BLOCK_PITCH]; /* and then weights */
  _Alignas(BLOCK_ALIGNMENT) float keys[BLOCK / BLOCK_ROWS][MOST_DIMENSION][BLOCK_ROWS];
  _Alignas(BLOCK_ALIGNMENT) float values[MOST_DIMENSION / BLOCK_ROWS][BLOCK][BLOCK_ROWS];
};
static_assert((int)BLOCK_PITCH == (int)BLOCK_DEPTH, "scores are sums, and then vectors");

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

/* Keys and values [begin, begin + count) of one KV head, in panels. Rows after them, and rows without a page, are
 * zeros, whatever memory holds there. */
static void block_read(struct item *item, const struct rows *k, const struct rows *v, int64_t begin, int64_t count) {
  const int64_t dimension = item->shape->head_dimension;
  float keys[LANES][MOST_DIMENSION];
  for (int64_t j = 0; j < BLOCK; j++) {
    const unsigned char *key_row = j < count ? row_of(item, k, begin + j) : NULL;
    const unsigned char *value_row = key_row ? row_of(item, v, begin + j) : NULL;
    item->present[j] = key_row ? -1 : 0;
    if (key_row)
      row_read(k->dtype, key_row, dimension, keys[j % LANES]);
    else
      memset(keys[j % LANES], 0, (size_t)dimension * sizeof(float));
    for (int64_t d = 0; d < dimension; d += BLOCK_ROWS)
      if (value_row)
        row_read(v->dtype, value_row + bytes_of(v->dtype, d), BLOCK_ROWS, item->values[d / BLOCK_ROWS][j]);
      else
        memset(item->values[d / BLOCK_ROWS][j], 0, sizeof item->values[0][j]);
    if (j % LANES < LANES - 1) continue;
    for (int64_t d = 0; d < dimension; d += LANES)
      transpose_eight(&keys[0][d], MOST_DIMENSION, &item->keys[j / BLOCK_ROWS][d][j % BLOCK_ROWS - LANES + 1],
                      BLOCK_ROWS);
  }
}

/* Products of all rows of q with all keys. */
static void scores_make(struct item *item) {
  const int64_t dimension = item->shape->head_dimension, count = round_up(item->row_count, BLOCK_STEP);
  for (int64_t r = 0; r < count; r++) memset(item->scores[r], 0, BLOCK * sizeof(float));
  for (int64_t panel = 0; panel < BLOCK / BLOCK_ROWS; panel++)
    for (int64_t d = 0; d < dimension; d += BLOCK_DEPTH)
      item->multiply(&(struct gemm_block){.vectors = item->q[d / BLOCK_DEPTH][0],
                                          .weights = item->keys[panel][d],
                                          .count = count,
                                          .depth = smaller(dimension - d, BLOCK_DEPTH),
                                          .run = BLOCK_ROWS,
                                          .sums = item->scores[0] + panel * BLOCK_ROWS});
}

/* A row's scores as exponents to base 2; of keys that it does not see, or that are not there, -infinity. */
static void scores_finish(const struct item *item, float *scores, int64_t first, int64_t last) {
  const float log2_e = 1.44269504f, cap = item->shape->soft_cap, factor = item->shape->scale * log2_e;
  if (cap == 0.0f)
    for (int64_t j = 0; j < BLOCK; j++) scores[j] *= factor;
  else
    for (int64_t j = 0; j < BLOCK; j++) scores[j] = cap * log2_e * tanhf(scores[j] * (item->shape->scale / cap));
  for (int32_t j = 0; j < BLOCK; j++)
    scores[j] = item->present[j] && j >= (int32_t)first && j < (int32_t)last ? scores[j] : -INFINITY;
}

/* Of a row: scores become weights, and o is scaled to their maximum. While all is -infinity, exponents are taken
 * against 0: they give 0, and a NaN stays one. */
static void row_weigh(struct item *item, int64_t r, int64_t first, int64_t last) {
  float *scores = item->scores[r], parts[LANES], all = item->max[r], sum = 0;
  scores_finish(item, scores, first, last);
  __m256 max = _mm256_set1_ps(all), sums = _mm256_setzero_ps();
  for (int64_t j = 0; j < BLOCK; j += LANES) max = _mm256_max_ps(_mm256_loadu_ps(scores + j), max); /* not of NaN */
  _mm256_storeu_ps(parts, max);
  for (int i = 0; i < LANES; i++) all = parts[i] > all ? parts[i] : all;
  const __m256 against = _mm256_set1_ps(all == -INFINITY ? 0.0f : all);
  const __m256 keep = exponential_2(_mm256_sub_ps(_mm256_set1_ps(item->max[r]), against));
  for (int64_t j = 0; j < BLOCK; j += LANES) {
    const __m256 weights = exponential_2(_mm256_sub_ps(_mm256_loadu_ps(scores + j), against));
    _mm256_storeu_ps(scores + j, weights);
    sums = _mm256_add_ps(sums, weights);
  }
  _mm256_storeu_ps(parts, sums);
  for (int i = 0; i < LANES; i++) sum += parts[i];
  item->max[r] = all;
  item->sum[r] = item->sum[r] * _mm256_cvtss_f32(keep) + sum;
  for (int64_t d = 0; d < item->shape->head_dimension; d += LANES) {
    float *o = &item->o[d / BLOCK_DEPTH][r][d % BLOCK_DEPTH];
    _mm256_storeu_ps(o, _mm256_mul_ps(_mm256_loadu_ps(o), keep));
  }
}

/* Adds the values with their weights to all rows. Those that a row does not see have the weight 0. */
static void values_add(struct item *item) {
  for (int64_t d = 0; d < item->shape->head_dimension; d += BLOCK_ROWS)
    item->multiply(&(struct gemm_block){.vectors = item->scores[0],
                                        .weights = item->values[d / BLOCK_ROWS][0],
                                        .count = round_up(item->row_count, BLOCK_STEP),
                                        .depth = BLOCK,
                                        .run = BLOCK,
                                        .sums = item->o[d / BLOCK_DEPTH][0] + d % BLOCK_DEPTH});
}

/* The same of one row, in the same order, and only what it sees: where others are NaN or infinite, 0 times those is
 * NaN. */
static void values_add_seen(struct item *item, int64_t r, int64_t first, int64_t last) {
  for (int64_t d = 0; d < item->shape->head_dimension; d++) {
    float sum = 0;
    for (int64_t j = first; j < last; j++)
      sum = fmaf(item->scores[r][j], item->values[d / BLOCK_ROWS][j][d % BLOCK_ROWS], sum);
    item->o[d / BLOCK_DEPTH][r][d % BLOCK_DEPTH] += sum;
  }
}

static bool values_are_finite(const struct item *item) {
  uint32_t most = 0;
  for (int64_t panel = 0; panel < item->shape->head_dimension / BLOCK_ROWS; panel++)
    for (int64_t j = 0; j < BLOCK; j++)
      for (int64_t i = 0; i < BLOCK_ROWS; i++) {
        const uint32_t size = bits_of_f32(item->values[panel][j][i]) & 0x7fffffffu;
        most = size > most ? size : most;
      }
  return most < 0x7f800000u;
}

/* `end` is how many KV rows there are or, where new rows do not all fit, would be. */
static void item_begin(struct item *item, rondo_dtype dtype, const unsigned char *q, int64_t end, int64_t at) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    float row[MOST_DIMENSION];
    row_read(dtype, q + bytes_of(dtype, position * shape->q_stride.position + head * shape->q_stride.head),
             shape->head_dimension, row);
    rotate_row(item, dtype, at + position, row);
    for (int64_t d = 0; d < shape->head_dimension; d += BLOCK_ROWS)
      memcpy(&item->q[d / BLOCK_DEPTH][r][d % BLOCK_DEPTH], row + d, BLOCK_ROWS * sizeof *row);
    const int64_t limit = smaller(shape->causal ? position + end - shape->query_length + 1 : end, shape->capacity);
    item->limit[r] = larger(limit, 0);
    item->begin[r] = shape->window ? larger(limit - shape->window, 0) : 0;
    item->max[r] = -INFINITY;
    item->sum[r] = 0.0f;
  }
  for (int64_t depth = 0; depth * BLOCK_DEPTH < shape->head_dimension; depth++)
    for (int64_t r = 0; r < round_up(item->row_count, BLOCK_STEP); r++) {
      memset(item->o[depth][r], 0, sizeof item->o[depth][r]);
      if (r >= item->row_count) memset(item->q[depth][r], 0, sizeof item->q[depth][r]);
    }
}

/* A later row never begins at an earlier KV row, nor ends at one. */
static void item_attend(struct item *item, const struct rows *k, const struct rows *v) {
  const int64_t end = item->limit[item->row_count - 1];
  for (int64_t begin = item->begin[0]; begin < end; begin += BLOCK) {
    int64_t first[ITEM_ROWS], last[ITEM_ROWS];
    bool all = true;
    block_read(item, k, v, begin, smaller(end - begin, BLOCK));
    scores_make(item);
    for (int64_t r = 0; r < item->row_count; r++) {
      first[r] = larger(item->begin[r] - begin, 0), last[r] = smaller(item->limit[r] - begin, BLOCK);
      all = all && first[r] == 0 && last[r] == BLOCK;
      row_weigh(item, r, first[r], last[r]);
    }
    if (all || values_are_finite(item))
      values_add(item);
    else
      for (int64_t r = 0; r < item->row_count; r++) values_add_seen(item, r, first[r], last[r]);
  }
}

static void item_end(struct item *item, rondo_dtype dtype, uint16_t *o, float *lse, int64_t lse_head_stride) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    float sum = item->sum[r];
    bool nothing = sum == 0.0f; /* a row that sees something has a weight of 1, or NaN; or scores of -infinity only */
    for (int64_t d = 0; d < shape->head_dimension; d += BLOCK_ROWS) {
      float *row = &item->o[d / BLOCK_DEPTH][r][d % BLOCK_DEPTH];
      for (int64_t i = 0; i < BLOCK_ROWS; i++) row[i] = nothing ? 0.0f : row[i] / sum * shape->v_scale;
      rows_store(dtype, o, position * shape->o_stride.position + head * shape->o_stride.head + d, BLOCK_ROWS, row);
    }
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

/* New row i of K or V of one KV head, which it writes as KV row `at`. */
static void row_append(struct item *item, const struct op_call *call, uint32_t from, const struct rows *to,
                       int64_t batch, int64_t kv_head, int64_t at, int64_t i) {
  const struct attention_shape *shape = item->shape;
  const struct attention_stride stride = attention_stride_of(call->task, from);
  const uint16_t *one =
      (const uint16_t *)call->data[from] + batch * stride.batch + kv_head * stride.head + i * stride.position;
  float row[MOST_DIMENSION];
  if (at < 0 || at >= shape->capacity) return;
  unsigned char *place = (unsigned char *)row_of(item, to, at);
  if (!place) return;
  row_read(to->dtype, (const unsigned char *)one, shape->head_dimension, row);
  if (from == ATTENTION_NEW_K) rotate_row(item, to->dtype, at, row);
  rows_store(to->dtype, place, 0, shape->head_dimension, row);
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

/* Query rows of a batch item, from row `first` on, with the KV rows of `owner`. */
static void item_run(struct item *item, const struct op_call *call, int64_t batch, int64_t owner, int64_t kv_head,
                     int64_t first) {
  const struct attention_shape *shape = item->shape;
  const struct op_operand *operands = call->task->operands;
  const int64_t *lse_stride = operands[ATTENTION_LSE].stride, head = kv_head * shape->group;
  const rondo_dtype q_dtype = operands[ATTENTION_Q].dtype;
  const unsigned char *q = call->data[ATTENTION_Q];
  item_begin(item, q_dtype,
             q + bytes_of(q_dtype, batch * shape->q_stride.batch + head * shape->q_stride.head +
                                       first * shape->q_stride.position),
             end_of(call, shape, owner), position_of(call, owner));
  const struct rows k = rows_of(call, shape, ATTENTION_K, &shape->k_stride, owner, kv_head),
                    v = rows_of(call, shape, ATTENTION_V, &shape->v_stride, owner, kv_head);
  item_attend(item, &k, &v);
  float *lse = call->data[ATTENTION_LSE];
  item_end(item, operands[ATTENTION_O].dtype,
           (uint16_t *)call->data[ATTENTION_O] + batch * shape->o_stride.batch + head * shape->o_stride.head +
               first * shape->o_stride.position,
           lse ? lse + batch * lse_stride[0] + head * lse_stride[1] + first : NULL, lse_stride[1]);
}

/* New row `from` of a batch item becomes KV row `to` of `owner`, in some KV heads. */
static void heads_append(struct item *item, const struct op_call *call, int64_t batch, int64_t owner,
                         int64_t first_head, int64_t last_head, int64_t from, int64_t to) {
  const struct attention_shape *shape = item->shape;
  for (int64_t head = first_head; head < last_head; head++) {
    const struct rows k = rows_of(call, shape, ATTENTION_K, &shape->k_stride, owner, head),
                      v = rows_of(call, shape, ATTENTION_V, &shape->v_stride, owner, head);
    row_append(item, call, ATTENTION_NEW_K, &k, batch, head, to, from);
    row_append(item, call, ATTENTION_NEW_V, &v, batch, head, to, from);
  }
}

/* New rows [first, last) of some KV heads. */
static void rows_append(struct item *item, const struct op_call *call, int64_t batch, int64_t first_head,
                        int64_t last_head, int64_t first, int64_t last) {
  const int64_t at = position_of(call, batch);
  for (int64_t i = first; i < last; i++) heads_append(item, call, batch, batch, first_head, last_head, i, at + i);
}

/* What is read later was written. */
static void call_begin(struct item *item, const struct op_call *call, const struct attention_shape *shape,
                       float *frequencies) {
  item->shape = shape;
  item->multiply = gemm_block_loops_here();
  item->frequencies = shape->rotates ? attention_frequencies(call, frequencies) : NULL;
  item->rotated = INT64_MIN;
}

static const int32_t *pages_of(const struct op_call *call, const struct attention_shape *shape, int64_t batch) {
  const int32_t *kv_pages = call->data[ATTENTION_KV_PAGES];
  return shape->paged && shape->capacity ? kv_pages + batch * shape->pages_stride : NULL;
}

/* ---- Packed rows ------------------------------------------------------------------------------------------------- */

/* Where the rows of `item` begin: at its offset, or where the item before begins if that is later. */
static int64_t start_after(const struct op_call *call, const struct attention_shape *shape, int64_t before,
                           int64_t item) {
  const int32_t *offsets = call->data[ATTENTION_ROW_OFFSETS];
  return smaller(larger(before, offsets[item]), shape->query_length);
}

/* A row of no item. */
static void row_clear(const struct op_call *call, const struct attention_shape *shape, int64_t row) {
  float *lse = call->data[ATTENTION_LSE];
  const int64_t lse_head_stride = call->task->operands[ATTENTION_LSE].stride[1];
  for (int64_t head = 0; head < shape->query_heads; head++) {
    memset((uint16_t *)call->data[ATTENTION_O] + head * shape->o_stride.head + row * shape->o_stride.position, 0,
           (size_t)shape->head_dimension * sizeof(uint16_t));
    if (lse) lse[head * lse_head_stride + row] = -INFINITY;
  }
}

static void packed_rows_append(struct item *item, const struct op_call *call, int64_t first, int64_t last) {
  const struct attention_shape *shape = item->shape;
  int64_t owner = -1, start = 0, end = start_after(call, shape, 0, 0);
  for (int64_t row = first; row < last; row++) {
    while (owner < shape->items && row >= end) {
      start = end;
      end = ++owner < shape->items ? start_after(call, shape, start, owner + 1) : shape->query_length;
    }
    if (owner < 0 || owner >= shape->items) {
      row_clear(call, shape, row);
      continue;
    }
    item->pages = pages_of(call, shape, owner);
    heads_append(item, call, 0, owner, 0, shape->kv_heads, row, position_of(call, owner) + row - start);
  }
}

/* Part `part` of those of attention_items_per_head: item i has those from start / ITEM_ROWS + i on. */
static void packed_part_run(struct item *item, const struct op_call *call, int64_t kv_head, int64_t part) {
  const struct attention_shape *shape = item->shape;
  int64_t owner = 0, start = start_after(call, shape, 0, 0), end = start_after(call, shape, start, 1);
  while (owner + 1 < shape->items && end * shape->group / ITEM_ROWS + owner + 1 <= part) {
    start = end;
    end = start_after(call, shape, start, ++owner + 1);
  }
  struct attention_shape own = *shape;
  own.query_length = end - start;
  own.rows = own.query_length * own.group;
  own.most_length = own.capacity + larger(own.query_length - 1, 0);
  item->row_begin = (part - start * shape->group / ITEM_ROWS - owner) * ITEM_ROWS;
  item->row_count = smaller(own.rows - item->row_begin, ITEM_ROWS);
  if (item->row_begin < 0 || item->row_count <= 0) return;
  item->shape = &own;
  item->pages = pages_of(call, shape, owner);
  item_run(item, call, 0, owner, kv_head, start);
  item->shape = shape;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

void attention_new_rows_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct attention_shape shape = attention_shape_of(call->task);
  const int64_t items = divide_up(shape.query_length, NEW_POSITIONS);
  float frequencies[ATTENTION_MOST_PAIRS];
  struct item item;
  call_begin(&item, call, &shape, frequencies);
  for (int64_t index = first; index < last; index++) {
    const int64_t row = index % items * NEW_POSITIONS;
    if (shape.packed) {
      packed_rows_append(&item, call, row, smaller(row + NEW_POSITIONS, shape.query_length));
      continue;
    }
    item.pages = pages_of(call, &shape, index / items);
    rows_append(&item, call, index / items, 0, shape.kv_heads, row, smaller(row + NEW_POSITIONS, shape.query_length));
  }
}

void attention_rows_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct attention_shape shape = attention_shape_of(call->task);
  const int64_t per_head = attention_items_per_head(&shape), items = larger(per_head, 1);
  float frequencies[ATTENTION_MOST_PAIRS];
  struct item item;
  call_begin(&item, call, &shape, frequencies);
  for (int64_t index = first; index < last; index++) {
    const int64_t batch = index / (shape.kv_heads * items), kv_head = index / items % shape.kv_heads;
    if (shape.packed) {
      packed_part_run(&item, call, kv_head, index % items);
      continue;
    }
    item.pages = pages_of(call, &shape, batch);
    if (attention_item_appends(&shape)) rows_append(&item, call, batch, kv_head, kv_head + 1, 0, shape.query_length);
    item.row_begin = index % items * ITEM_ROWS;
    item.row_count = smaller(shape.rows - item.row_begin, ITEM_ROWS);
    if (item.row_count > 0) item_run(&item, call, batch, batch, kv_head, 0);
  }
}
