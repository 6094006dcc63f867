/* attention_shape.c - the sizes of an attention task, how its rows and its KV sequence are divided, and its scratch
 * memory. A pure function of the description: the bits of a result do not depend on the chip. */
#include <math.h>

#include "../../runtime/integer.h"
#include "attention_decode.h"

int attention_head_axis(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  return attributes->layout == RONDO_BHSD ? 1 : 2;
}
int attention_position_axis(const struct op_task *task) { return 3 - attention_head_axis(task); }

int64_t attention_items(const struct op_task *task) {
  const struct op_operand *offsets = &task->operands[ATTENTION_ROW_OFFSETS];
  return offsets->present ? offsets->shape[0] - 1 : task->operands[ATTENTION_Q].shape[0];
}

static float or_one(float scale) { return scale != 0.0f ? scale : 1.0f; }

float attention_score_scale(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const int64_t dimension = task->operands[ATTENTION_Q].shape[3];
  const float scale = attributes->scale != 0.0f ? attributes->scale : (float)(1.0 / sqrt((double)dimension));
  return scale * or_one(attributes->q_scale) * or_one(attributes->k_scale);
}

struct attention_stride attention_stride_of(const struct op_task *task, uint32_t index) {
  const int64_t *stride = task->operands[index].stride;
  return (struct attention_stride){stride[0], stride[attention_head_axis(task)], stride[attention_position_axis(task)]};
}

/* The number of splits that the task asks for, or as many as make about 256 blocks (two on each multiprocessor of an
 * H200, but the same on every chip) of no fewer than 256 KV rows. Then whole units to a split, and no split without
 * any. */
static void cut(struct attention_shape *shape, int64_t splits) {
  int64_t tiles = shape->row_tiles * shape->batch * shape->kv_heads;
  if (shape->packed) splits = 1; /* where an item's rows end, and so how many there are, only the device knows */
  if (!splits) {
    splits = tiles ? 256 / tiles : 1;
    if (splits > 32) splits = 32;
    if (splits > shape->capacity / 256) splits = shape->capacity / 256;
  }
  /* Items that share pages may be so many that splits of each are too many for a grid. */
  if (tiles && splits > INT32_MAX / tiles) splits = INT32_MAX / tiles;
  if (splits < 1) splits = 1;
  int64_t units = divide_up(shape->capacity, ATTENTION_SPLIT_UNIT);
  int64_t units_per_split = units ? divide_up(units, splits) : 1;
  shape->split_rows = units_per_split * ATTENTION_SPLIT_UNIT;
  shape->splits = units ? divide_up(units, units_per_split) : 1;
}

static void rows_to_blocks(struct attention_shape *shape, int64_t block_rows) {
  shape->block_rows = block_rows;
  shape->row_tiles = divide_up(shape->rows, block_rows);
  if (shape->packed && shape->rows)
    shape->row_tiles = shape->rows / block_rows + shape->items; /* attention_items.cuh */
}

/* Blocks of 128 rows use each byte that they read twice as often; blocks of 64 rows are twice as many. On an H200 both
 * take equally long at about 192 blocks of 128 rows. A head dimension of 256 leaves registers for only 16 rows of a
 * warp, and 32 has no kernel. Blocks of 128 rows may have tiles of 128 KV rows, and a split is whole tiles. */
static void widen(struct attention_shape *shape) {
  int64_t blocks = divide_up(shape->rows, 128) * shape->batch * shape->kv_heads * shape->splits;
  bool whole = shape->splits == 1 || shape->split_rows % 128 == 0;
  const bool has_kernel = shape->head_dimension == 64 || shape->head_dimension == 128;
  if (has_kernel && shape->rows > 64 && blocks >= 192 && whole) rows_to_blocks(shape, 128);
}

bool attention_rows_aligned(const struct op_task *task) {
  static const uint32_t indices[] = {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_O};
  for (int i = 0; i < 4; i++)
    if (!op_rows_aligned(&task->operands[indices[i]], 16)) return false;
  if (!task->operands[ATTENTION_NEW_K].present) return true;
  return op_rows_aligned(&task->operands[ATTENTION_NEW_K], 16) && op_rows_aligned(&task->operands[ATTENTION_NEW_V], 16);
}

static void extras(struct attention_shape *shape, const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const struct op_operand *pages = &task->operands[ATTENTION_KV_PAGES], *k = &task->operands[ATTENTION_K];
  if (pages->present) {
    shape->paged = true;
    shape->pool_pages = k->shape[0];
    shape->page_rows = shape->capacity;
    shape->item_pages = pages->shape[1];
    shape->pages_stride = pages->stride[0];
    shape->capacity = shape->item_pages * shape->page_rows;
  }
  shape->window = attributes->window < shape->capacity ? attributes->window : 0;
  shape->soft_cap = attributes->soft_cap;
  shape->v_scale = or_one(attributes->v_scale);
  shape->packed = task->operands[ATTENTION_ROW_OFFSETS].present;
  shape->plain = !shape->paged && !shape->window && shape->soft_cap == 0.0f && k->dtype != RONDO_E4M3 && !shape->packed;
}

struct attention_shape attention_shape_of(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const int64_t *q = task->operands[ATTENTION_Q].shape, *k = task->operands[ATTENTION_K].shape;
  int head = attention_head_axis(task), position = attention_position_axis(task);
  struct attention_shape shape = {
      .batch = q[0],
      .items = attention_items(task),
      .query_heads = q[head],
      .kv_heads = k[head],
      .group = k[head] ? q[head] / k[head] : 0,
      .query_length = q[position],
      .capacity = k[position],
      .head_dimension = q[3],
      .scale = attention_score_scale(task),
      .causal = attributes->causal,
      .q_stride = attention_stride_of(task, ATTENTION_Q),
      .k_stride = attention_stride_of(task, ATTENTION_K),
      .v_stride = attention_stride_of(task, ATTENTION_V),
      .o_stride = attention_stride_of(task, ATTENTION_O),
      .appends = task->operands[ATTENTION_NEW_K].present,
      .rotates = attributes->rope_base > 0 || task->operands[ATTENTION_ROPE_FREQUENCIES].present,
      .by_halves = attributes->rope_pairing == RONDO_ROPE_HALVES,
      .has_ends = attributes->has_ends || task->operands[ATTENTION_NEW_K].present,
  };
  extras(&shape, task);
  shape.most_length = shape.capacity;
  if (shape.causal && shape.has_ends && shape.query_length) shape.most_length += shape.query_length - 1;
  shape.rows = shape.query_length * shape.group;
  shape.total_rows = shape.batch * shape.kv_heads * shape.rows;
  rows_to_blocks(&shape, 64);
  cut(&shape, attributes->splits);
  if (shape.plain) widen(&shape);
  return shape;
}

/* Of K and V: the rows that some query may see, and of a pool at most the rows that the tables name; new rows are
 * written. Lengths and positions may make it less, but only the device knows them. */
int64_t attention_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  const struct op_operand *touched = &task->operands[operand];
  if (operand != ATTENTION_K && operand != ATTENTION_V) return op_elements(touched);
  if (access == RONDO_WRITE) return op_elements(&task->operands[ATTENTION_NEW_K]);
  const struct attention_shape shape = attention_shape_of(task);
  int64_t seen = shape.window ? smaller(shape.capacity, shape.window + shape.query_length - 1) : shape.capacity;
  if (shape.rows == 0) seen = 0;
  return smaller(op_elements(touched), shape.items * seen * shape.kv_heads * shape.head_dimension);
}

/* ---- Scratch memory ---------------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

uint64_t attention_partial_o_bytes(const struct attention_shape *shape) {
  return (uint64_t)(shape->splits * shape->total_rows * shape->head_dimension) * sizeof(float);
}

/* Enough for the kernels of every chip. */
static uint64_t partial_bytes(const struct op_task *task, struct attention_shape shape) {
  const struct attention_attributes *attributes = op_attributes(task);
  if (shape.rows <= DECODE_MOST_ROWS && !shape.packed)
    shape.splits = larger(shape.splits, attention_decode_splits(shape.kv_heads, shape.capacity, attributes->splits));
  if (shape.splits == 1) return 0;
  return attention_partial_o_bytes(&shape) + (uint64_t)(shape.splits * shape.total_rows) * sizeof(float);
}

struct attention_scratch attention_scratch_of(const struct op_task *task) {
  const struct attention_shape shape = attention_shape_of(task);
  struct attention_scratch scratch = {.bytes = partial_bytes(task, shape)};
  if (!shape.rotates && !shape.appends) return scratch;
  scratch.rotated = aligned(scratch.bytes);
  scratch.lengths = scratch.rotated;
  if (shape.rotates) scratch.lengths += aligned((uint64_t)(shape.total_rows * shape.head_dimension) * 2);
  scratch.starts = scratch.lengths + (uint64_t)shape.items * sizeof(int32_t);
  scratch.bytes = scratch.starts + (shape.packed ? (uint64_t)(shape.items + 1) * sizeof(int32_t) : 0);
  return scratch;
}

uint64_t attention_scratch_bytes(const struct op_task *task) { return attention_scratch_of(task).bytes; }
