/* attention.c - describing attention: rondo_add_attention, its check, and how rows and KV sequence are cut. */
#include "attention.h"

#include <inttypes.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "attention_decode.h"

rondo_status rondo_add_attention(rondo_graph *graph, const rondo_attention_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_attention: the description is NULL");
  struct op_argument arguments[] = {
      [ATTENTION_Q] = {"q", desc->q, RONDO_READ, 0},
      [ATTENTION_K] = {"k", desc->k, RONDO_READ, 0},
      [ATTENTION_V] = {"v", desc->v, RONDO_READ, 0},
      [ATTENTION_KV_LENGTHS] = {"kv_lengths", desc->kv_lengths, RONDO_READ, 0},
      [ATTENTION_O] = {"o", desc->o, RONDO_WRITE, 0},
      [ATTENTION_LSE] = {"lse", desc->lse, RONDO_WRITE, 0},
  };
  struct attention_attributes attributes = {
      .layout = (int32_t)desc->layout, .causal = desc->causal != 0, .splits = desc->splits, .scale = desc->scale};
  return graph_add(graph, &op_attention, desc->name, arguments, sizeof arguments / sizeof arguments[0], &attributes,
                   sizeof attributes);
}

/* ---- Check ----------------------------------------------------------------------------------------------------- */

static int head_axis(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  return attributes->layout == RONDO_BHSD ? 1 : 2;
}
static int position_axis(const struct op_task *task) { return 3 - head_axis(task); }

static rondo_status attributes_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  if (attributes->layout != RONDO_BHSD && attributes->layout != RONDO_BSHD)
    return status_set(RONDO_INVALID_ARGUMENT, "layout %" PRId32 " does not exist", attributes->layout);
  if (attributes->splits < 0 || attributes->splits > ATTENTION_MAX_SPLITS)
    return status_set(RONDO_INVALID_ARGUMENT, "splits is %" PRId32 ", expected 0 (Rondo chooses) to %d",
                      attributes->splits, ATTENTION_MAX_SPLITS);
  if (!isfinite(attributes->scale))
    return status_set(RONDO_INVALID_ARGUMENT, "scale is %f, expected a finite number", (double)attributes->scale);
  return RONDO_OK;
}

/* q, k, v and o: present, of rank 4, of q's type and head dimension. */
static rondo_status heads_check(const struct op_task *task, uint32_t index, const char *name) {
  const struct op_operand *operand = &task->operands[index], *q = &task->operands[ATTENTION_Q];
  if (!operand->present) return status_set(RONDO_INVALID_ARGUMENT, "%s is absent, expected a tensor", name);
  if (operand->rank != 4)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "%s has rank %" PRIu32 ", expected 4: batch, heads, sequence, head dimension", name,
                      operand->rank);
  if (operand->dtype != RONDO_F16 && operand->dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT, "%s is %s, expected f16 or bf16", name, rondo_dtype_name(operand->dtype));
  if (operand->dtype != q->dtype)
    return status_set(RONDO_INVALID_ARGUMENT, "%s is %s, expected q's type, %s", name, rondo_dtype_name(operand->dtype),
                      rondo_dtype_name(q->dtype));
  int64_t dimension = operand->shape[3];
  if (dimension != 32 && dimension != 64 && dimension != 128 && dimension != 256)
    return status_set(RONDO_INVALID_ARGUMENT, "%s has head dimension %" PRId64 ", expected 32, 64, 128 or 256", name,
                      dimension);
  if (dimension != q->shape[3])
    return status_set(RONDO_INVALID_ARGUMENT, "%s has head dimension %" PRId64 ", q has %" PRId64, name, dimension,
                      q->shape[3]);
  if (operand->shape[0] != q->shape[0])
    return status_set(RONDO_INVALID_ARGUMENT, "%s has batch %" PRId64 ", q has %" PRId64, name, operand->shape[0],
                      q->shape[0]);
  return RONDO_OK;
}

static rondo_status same_size(const struct op_task *task, uint32_t index, const char *name, uint32_t other,
                              const char *other_name, int axis, const char *what) {
  int64_t size = task->operands[index].shape[axis], expected = task->operands[other].shape[axis];
  if (size == expected) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "%s has %" PRId64 " %s, %s has %" PRId64, name, size, what, other_name,
                    expected);
}

static rondo_status optional_check(const struct op_task *task) {
  const struct op_operand *q = &task->operands[ATTENTION_Q], *lengths = &task->operands[ATTENTION_KV_LENGTHS],
                          *lse = &task->operands[ATTENTION_LSE];
  if (lengths->present) {
    if (lengths->dtype != RONDO_I32)
      return status_set(RONDO_INVALID_ARGUMENT, "kv_lengths is %s, expected i32", rondo_dtype_name(lengths->dtype));
    if (lengths->rank != 1 || lengths->shape[0] != q->shape[0])
      return status_set(RONDO_INVALID_ARGUMENT,
                        "kv_lengths has rank %" PRIu32 " and %" PRId64
                        " numbers, expected rank 1 and one for each of %" PRId64 " batch items",
                        lengths->rank, op_elements(lengths), q->shape[0]);
  }
  if (lse->present) {
    int64_t heads = q->shape[head_axis(task)], length = q->shape[position_axis(task)];
    if (lse->dtype != RONDO_F32)
      return status_set(RONDO_INVALID_ARGUMENT, "lse is %s, expected f32", rondo_dtype_name(lse->dtype));
    if (lse->rank != 3 || lse->shape[0] != q->shape[0] || lse->shape[1] != heads || lse->shape[2] != length)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "lse is not of shape [%" PRId64 ", %" PRId64 ", %" PRId64
                        "]: batch, query heads and query length",
                        q->shape[0], heads, length);
  }
  return RONDO_OK;
}

static rondo_status attention_check(const struct op_task *task) {
  static const struct {
    uint32_t index;
    const char *name;
  } heads[] = {{ATTENTION_Q, "q"}, {ATTENTION_K, "k"}, {ATTENTION_V, "v"}, {ATTENTION_O, "o"}};
  rondo_status status = attributes_check(task);
  for (uint32_t i = 0; i < 4 && status == RONDO_OK; i++) status = heads_check(task, heads[i].index, heads[i].name);
  if (status != RONDO_OK) return status;
  int64_t query_heads = task->operands[ATTENTION_Q].shape[head_axis(task)];
  int64_t kv_heads = task->operands[ATTENTION_K].shape[head_axis(task)];
  if (kv_heads ? query_heads % kv_heads : query_heads)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "k has %" PRId64 " heads, q has %" PRId64 ": query heads must be a multiple", kv_heads,
                      query_heads);
  status = same_size(task, ATTENTION_V, "v", ATTENTION_K, "k", head_axis(task), "heads");
  if (status == RONDO_OK)
    status = same_size(task, ATTENTION_V, "v", ATTENTION_K, "k", position_axis(task), "positions");
  if (status == RONDO_OK) status = same_size(task, ATTENTION_O, "o", ATTENTION_Q, "q", head_axis(task), "heads");
  if (status == RONDO_OK)
    status = same_size(task, ATTENTION_O, "o", ATTENTION_Q, "q", position_axis(task), "positions");
  return status == RONDO_OK ? optional_check(task) : status;
}

/* ---- Shape ------------------------------------------------------------------------------------------------------- */

static struct attention_stride stride_of(const struct op_task *task, uint32_t index) {
  const int64_t *stride = task->operands[index].stride;
  return (struct attention_stride){stride[0], stride[head_axis(task)], stride[position_axis(task)]};
}

/* The number of splits asked for, or as many as make about 256 blocks (two on each multiprocessor of an H200, but the
 * same on every chip) of no fewer than 256 KV rows. Then whole units to a split, and no split without any. */
static void cut(struct attention_shape *shape, int64_t splits) {
  int64_t tiles = shape->row_tiles * shape->batch * shape->kv_heads;
  if (!splits) {
    splits = tiles ? 256 / tiles : 1;
    if (splits > 32) splits = 32;
    if (splits > shape->capacity / 256) splits = shape->capacity / 256;
  }
  if (splits < 1) splits = 1;
  int64_t units = divide_up(shape->capacity, ATTENTION_SPLIT_UNIT);
  int64_t units_per_split = units ? divide_up(units, splits) : 1;
  shape->split_rows = units_per_split * ATTENTION_SPLIT_UNIT;
  shape->splits = units ? divide_up(units, units_per_split) : 1;
}

static void rows_to_blocks(struct attention_shape *shape, int64_t block_rows) {
  shape->block_rows = block_rows;
  shape->row_tiles = divide_up(shape->rows, block_rows);
}

/* Blocks of 128 rows do more with what they read, those of 64 are twice as many. On an H200 they meet at about 192 of
 * the former. A head dimension of 256 leaves registers for 16 rows of a warp only. */
static void widen(struct attention_shape *shape) {
  int64_t blocks = divide_up(shape->rows, 128) * shape->batch * shape->kv_heads * shape->splits;
  if (shape->head_dimension < 256 && shape->rows > 64 && blocks >= 192) rows_to_blocks(shape, 128);
}

bool attention_rows_aligned(const struct op_task *task) {
  static const uint32_t indices[] = {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_O};
  for (int i = 0; i < 4; i++)
    if (!op_rows_aligned(&task->operands[indices[i]], 16)) return false;
  return true;
}

struct attention_shape attention_shape_of(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const int64_t *q = task->operands[ATTENTION_Q].shape, *k = task->operands[ATTENTION_K].shape;
  int head = head_axis(task), position = position_axis(task);
  struct attention_shape shape = {
      .batch = q[0],
      .query_heads = q[head],
      .kv_heads = k[head],
      .group = k[head] ? q[head] / k[head] : 0,
      .query_length = q[position],
      .capacity = k[position],
      .head_dimension = q[3],
      .scale = attributes->scale != 0.0f ? attributes->scale : (float)(1.0 / sqrt((double)q[3])),
      .causal = attributes->causal != 0,
      .q_stride = stride_of(task, ATTENTION_Q),
      .k_stride = stride_of(task, ATTENTION_K),
      .v_stride = stride_of(task, ATTENTION_V),
      .o_stride = stride_of(task, ATTENTION_O),
  };
  shape.rows = shape.query_length * shape.group;
  shape.total_rows = shape.batch * shape.kv_heads * shape.rows;
  rows_to_blocks(&shape, 64);
  cut(&shape, attributes->splits);
  widen(&shape);
  return shape;
}

uint64_t attention_partial_o_bytes(const struct attention_shape *shape) {
  return (uint64_t)(shape->splits * shape->total_rows * shape->head_dimension) * sizeof(float);
}

/* For whichever kernels the chip will have. */
uint64_t attention_scratch_bytes(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  struct attention_shape shape = attention_shape_of(task);
  if (shape.rows <= DECODE_MOST_ROWS)
    shape.splits = larger(shape.splits, attention_decode_splits(shape.kv_heads, shape.capacity, attributes->splits));
  if (shape.splits == 1) return 0;
  return attention_partial_o_bytes(&shape) + (uint64_t)(shape.splits * shape.total_rows) * sizeof(float);
}

const struct op op_attention = {
    .name = "attention",
    .once_operands = 1u << ATTENTION_O | 1u << ATTENTION_LSE,
    .launches_most = 2,
    .check = attention_check,
    .scratch_bytes = attention_scratch_bytes,
    .host_items = attention_host_items,
    .host_run = attention_host_run,
    .select = attention_select,
};
