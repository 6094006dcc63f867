/* elementwise_host.c - silu(gate) * up and a + b on the host. The rows form one sequence of elements; an item is 16384
 * of them. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "elementwise.h"

enum { PIECE = 1024, ITEM_ELEMENTS = 16 * PIECE };

int64_t elementwise_host_items(const struct op_task *task) {
  const struct dense_rows rows = elementwise_rows_of(task);
  return divide_up(rows.rows * rows.row, ITEM_ELEMENTS);
}

/* At most PIECE elements of a row: the index of the first one in each operand, and their number. */
struct piece {
  int64_t at[ELEMENTWISE_OPERANDS], length;
};
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
    const struct add_attributes *attributes = op_attributes(call->task);
    const uint32_t *b = call->data[ELEMENTWISE_B], more = (uint32_t)attributes->more;
    uint32_t *out = (uint32_t *)call->data[ELEMENTWISE_OUT] + piece->at[ELEMENTWISE_OUT];
    if (b) b += piece->at[ELEMENTWISE_B];
    for (int64_t i = 0; i < piece->length; i++) out[i] = a[i] + (b ? b[i] : more);
    return;
  }
  float a[PIECE], b[PIECE];
  load_both(call, piece, a, b);
  for (int64_t i = 0; i < piece->length; i++) a[i] += b[i];
  store(call, piece, a);
}

static void row_run(const struct op_call *call, const struct dense_rows *rows, int64_t row, int64_t begin,
                    int64_t end) {
  struct piece piece = {.length = 0};
  for (uint32_t o = 0; o < ELEMENTWISE_OPERANDS; o++) piece.at[o] = begin + dense_rows_begin(rows, o, row);
  for (; begin < end; begin += piece.length) {
    piece.length = smaller(end - begin, PIECE);
    if (call->task->op == &op_add)
      add(call, &piece);
    else
      silu_mul(call, &piece);
    for (int o = 0; o < ELEMENTWISE_OPERANDS; o++) piece.at[o] += piece.length;
  }
}

void elementwise_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct dense_rows rows = elementwise_rows_of(call->task);
  int64_t at = first * ITEM_ELEMENTS, end = smaller(last * ITEM_ELEMENTS, rows.rows * rows.row);
  while (at < end) {
    int64_t begin = at % rows.row, count = smaller(rows.row - begin, end - at);
    row_run(call, &rows, at / rows.row, begin, begin + count);
    at += count;
  }
}
