/* elementwise_host.c - silu(gate) * up and a + b on the host. An item is several whole rows, or a part of
 * one. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "elementwise.h"

enum { PIECE = 1024, ITEM_ELEMENTS = 16 * PIECE };

/* Either an item has several rows, or a row has several items (pieces). */
struct partition {
  int64_t rows_per_item, pieces;
};

static struct partition partition_of(const struct elementwise_shape *shape) {
  if (shape->row >= ITEM_ELEMENTS) return (struct partition){1, divide_up(shape->row, ITEM_ELEMENTS)};
  return (struct partition){ITEM_ELEMENTS / shape->row, 1};
}

int64_t elementwise_host_items(const struct op_task *task) {
  struct elementwise_shape shape = elementwise_shape_of(task);
  if (!shape.rows) return 0;
  struct partition partition = partition_of(&shape);
  return divide_up(shape.rows, partition.rows_per_item) * partition.pieces;
}

/* At most PIECE elements of a row: the index of the first one in each operand, and their number. */
struct piece {
  int64_t at[ELEMENTWISE_OPERANDS], length;
};
typedef void (*compute)(const struct op_call *call, const struct piece *piece);

static void row_run(const struct op_call *call, const struct elementwise_shape *shape, int64_t row, int64_t begin,
                    int64_t end, compute compute) {
  struct piece piece = {{begin, begin, begin}, 0};
  for (int i = ELEMENTWISE_OUTER; i-- > 0; row /= shape->extent[i])
    for (int o = 0; o < ELEMENTWISE_OPERANDS; o++) piece.at[o] += row % shape->extent[i] * shape->stride[o][i];
  for (; begin < end; begin += piece.length) {
    piece.length = smaller(end - begin, PIECE);
    compute(call, &piece);
    for (int o = 0; o < ELEMENTWISE_OPERANDS; o++) piece.at[o] += piece.length;
  }
}

static void items_run(const struct op_call *call, int64_t first, int64_t last, compute compute) {
  struct elementwise_shape shape = elementwise_shape_of(call->task);
  struct partition partition = partition_of(&shape);
  for (int64_t item = first; item < last; item++) {
    int64_t row = item / partition.pieces * partition.rows_per_item;
    int64_t row_end = smaller(row + partition.rows_per_item, shape.rows);
    int64_t begin = item % partition.pieces * ITEM_ELEMENTS, end = smaller(begin + ITEM_ELEMENTS, shape.row);
    for (; row < row_end; row++) row_run(call, &shape, row, begin, end, compute);
  }
}

static void load_both(const struct op_call *call, const struct piece *piece, float *a, float *b) {
  rondo_dtype dtype = call->task->operands[ELEMENTWISE_OUT].dtype;
  rows_load(dtype, call->data[ELEMENTWISE_A], piece->at[ELEMENTWISE_A], piece->length, a);
  rows_load(dtype, call->data[ELEMENTWISE_B], piece->at[ELEMENTWISE_B], piece->length, b);
}

static void store(const struct op_call *call, const struct piece *piece, const float *values) {
  rows_store(call->task->operands[ELEMENTWISE_OUT].dtype, call->data[ELEMENTWISE_OUT], piece->at[ELEMENTWISE_OUT],
             piece->length, values);
}

static void silu_mul(const struct op_call *call, const struct piece *piece) {
  float gate[PIECE], up[PIECE];
  load_both(call, piece, gate, up);
  for (int64_t i = 0; i < piece->length; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
  store(call, piece, gate);
}

static void add(const struct op_call *call, const struct piece *piece) {
  if (call->task->operands[ELEMENTWISE_OUT].dtype == RONDO_I32) {
    const uint32_t *a = (const uint32_t *)call->data[ELEMENTWISE_A] + piece->at[ELEMENTWISE_A];
    const uint32_t *b = (const uint32_t *)call->data[ELEMENTWISE_B] + piece->at[ELEMENTWISE_B];
    uint32_t *out = (uint32_t *)call->data[ELEMENTWISE_OUT] + piece->at[ELEMENTWISE_OUT];
    for (int64_t i = 0; i < piece->length; i++) out[i] = a[i] + b[i];
    return;
  }
  float a[PIECE], b[PIECE];
  load_both(call, piece, a, b);
  for (int64_t i = 0; i < piece->length; i++) a[i] += b[i];
  store(call, piece, a);
}

void silu_mul_host_run(const struct op_call *call, int64_t first, int64_t last) {
  items_run(call, first, last, silu_mul);
}

void add_host_run(const struct op_call *call, int64_t first, int64_t last) { items_run(call, first, last, add); }
