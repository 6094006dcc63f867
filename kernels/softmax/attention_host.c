/* attention_host.c - attention on the host: an item is 16 rows (position and head of a group) of one batch item and KV
 * head. KV rows are taken 64 at a time through the online softmax (Milakov and Gimelshein 2018), all in fp32. The
 * splits are the device's affair: here a row is one sum from its first KV row to its last. */
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/number.h"
#include "attention.h"

enum { ITEM_ROWS = 16, BLOCK = 64, MOST_DIMENSION = 256 };

/* An item under way. */
struct item {
  const struct attention_shape *shape;
  int64_t row_begin, row_count;
  int64_t limit[ITEM_ROWS]; /* KV rows that each row sees */
  float q[ITEM_ROWS][MOST_DIMENSION];
  float o[ITEM_ROWS][MOST_DIMENSION];
  float max[ITEM_ROWS], sum[ITEM_ROWS]; /* exponents to base 2 */
  float keys[MOST_DIMENSION][BLOCK];    /* transposed: a row's scores then are whole vectors */
  float values[BLOCK][MOST_DIMENSION];
};

static int64_t items_per_head(const struct attention_shape *shape) { return divide_up(shape->rows, ITEM_ROWS); }

int64_t attention_host_items(const struct op_task *task) {
  struct attention_shape shape = attention_shape_of(task);
  return shape.batch * shape.kv_heads * items_per_head(&shape);
}

static void row_read(rondo_dtype dtype, const uint16_t *from, int64_t count, float *to) {
  if (dtype == RONDO_F16)
    for (int64_t i = 0; i < count; i++) to[i] = f32_of_f16(from[i]);
  else
    for (int64_t i = 0; i < count; i++) to[i] = f32_of_bf16(from[i]);
}

static void row_write(rondo_dtype dtype, const float *from, int64_t count, uint16_t *to) {
  if (dtype == RONDO_F16)
    for (int64_t i = 0; i < count; i++) to[i] = f16_of_f32(from[i]);
  else
    for (int64_t i = 0; i < count; i++) to[i] = bf16_of_f32(from[i]);
}

/* Keys and values [begin, begin + count) of one KV head. What lies behind them is zero, whatever memory holds there. */
static void block_read(struct item *item, rondo_dtype dtype, const uint16_t *k, const uint16_t *v, int64_t begin,
                       int64_t count) {
  const struct attention_shape *shape = item->shape;
  float key[MOST_DIMENSION];
  if (count < BLOCK) memset(item->keys, 0, sizeof item->keys);
  for (int64_t j = 0; j < count; j++) {
    row_read(dtype, k + (begin + j) * shape->k_stride.position, shape->head_dimension, key);
    for (int64_t d = 0; d < shape->head_dimension; d++) item->keys[d][j] = key[d];
    row_read(dtype, v + (begin + j) * shape->v_stride.position, shape->head_dimension, item->values[j]);
  }
}

/* Takes the first `count` KV rows of the block into row r: at least one. */
static void block_attend(struct item *item, int64_t r, int64_t count) {
  int64_t dimension = item->shape->head_dimension;
  float scores[BLOCK] = {0};
  for (int64_t d = 0; d < dimension; d++)
    for (int64_t j = 0; j < BLOCK; j++) scores[j] += item->q[r][d] * item->keys[d][j];
  float scale_log2 = item->shape->scale * 1.44269504f, max = item->max[r];
  for (int64_t j = 0; j < count; j++) {
    scores[j] *= scale_log2;
    if (scores[j] > max) max = scores[j];
  }
  /* While all is -infinity, exponents are taken against 0: they give 0, and a NaN stays one. */
  float against = max == -INFINITY ? 0.0f : max, keep = exp2f(item->max[r] - against), sum = item->sum[r] * keep;
  item->max[r] = max;
  float *o = item->o[r];
  for (int64_t d = 0; d < dimension; d++) o[d] *= keep;
  for (int64_t j = 0; j < count; j++) {
    float weight = exp2f(scores[j] - against);
    sum += weight;
    for (int64_t d = 0; d < dimension; d++) o[d] += weight * item->values[j][d];
  }
  item->sum[r] = sum;
}

static void item_begin(struct item *item, rondo_dtype dtype, const uint16_t *q, int64_t length) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    row_read(dtype, q + position * shape->q_stride.position + head * shape->q_stride.head, shape->head_dimension,
             item->q[r]);
    int64_t limit = shape->causal ? position + length - shape->query_length + 1 : length;
    item->limit[r] = limit < 0 ? 0 : limit;
    item->max[r] = -INFINITY;
    item->sum[r] = 0.0f;
    memset(item->o[r], 0, (size_t)shape->head_dimension * sizeof(float));
  }
}

static void item_end(struct item *item, rondo_dtype dtype, uint16_t *o, float *lse, int64_t lse_head_stride) {
  const struct attention_shape *shape = item->shape;
  for (int64_t r = 0; r < item->row_count; r++) {
    int64_t position = (item->row_begin + r) / shape->group, head = (item->row_begin + r) % shape->group;
    float sum = item->sum[r];
    bool nothing = sum == 0.0f; /* a row that sees something has a weight of 1, or NaN; or scores of -infinity only */
    for (int64_t d = 0; d < shape->head_dimension; d++) item->o[r][d] = nothing ? 0.0f : item->o[r][d] / sum;
    row_write(dtype, item->o[r], shape->head_dimension,
              o + position * shape->o_stride.position + head * shape->o_stride.head);
    if (lse) lse[head * lse_head_stride + position] = nothing ? -INFINITY : (item->max[r] + log2f(sum)) * 0.693147181f;
  }
}

void attention_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_task *task = call->task;
  struct attention_shape shape = attention_shape_of(task);
  rondo_dtype dtype = task->operands[ATTENTION_Q].dtype;
  const int64_t *lse_stride = task->operands[ATTENTION_LSE].stride;
  const int32_t *kv_lengths = call->data[ATTENTION_KV_LENGTHS];
  int64_t per_head = items_per_head(&shape);
  struct item item = {.shape = &shape};
  for (int64_t index = first; index < last; index++) {
    int64_t batch = index / (shape.kv_heads * per_head), kv_head = index / per_head % shape.kv_heads;
    int64_t head = kv_head * shape.group, length = kv_lengths ? kv_lengths[batch] : shape.capacity;
    length = length < 0 ? 0 : smaller(length, shape.capacity);
    item.row_begin = index % per_head * ITEM_ROWS;
    item.row_count = smaller(shape.rows - item.row_begin, ITEM_ROWS);
    item_begin(&item, dtype,
               (const uint16_t *)call->data[ATTENTION_Q] + batch * shape.q_stride.batch + head * shape.q_stride.head,
               length);
    const uint16_t *k = call->data[ATTENTION_K], *v = call->data[ATTENTION_V];
    if (length) { /* else there may be no memory behind k and v */
      k += batch * shape.k_stride.batch + kv_head * shape.k_stride.head;
      v += batch * shape.v_stride.batch + kv_head * shape.v_stride.head;
    }
    /* Limits do not fall from row to row. */
    for (int64_t begin = 0; begin < item.limit[item.row_count - 1]; begin += BLOCK) {
      block_read(&item, dtype, k, v, begin, smaller(item.limit[item.row_count - 1] - begin, BLOCK));
      for (int64_t r = 0; r < item.row_count; r++)
        if (item.limit[r] > begin) block_attend(&item, r, smaller(item.limit[r] - begin, BLOCK));
    }
    float *lse = call->data[ATTENTION_LSE];
    item_end(&item, dtype,
             (uint16_t *)call->data[ATTENTION_O] + batch * shape.o_stride.batch + head * shape.o_stride.head,
             lse ? lse + batch * lse_stride[0] + head * lse_stride[1] : NULL, lse_stride[1]);
  }
}
