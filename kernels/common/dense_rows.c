/* dense_rows.c - see dense_rows.h. */
#include "dense_rows.h"

static int64_t stride_of(const struct op_operand *operand, const struct op_operand *like, uint32_t dimension) {
  return operand->present ? operand->stride[operand->rank - like->rank + dimension] : 0;
}

struct dense_rows dense_rows_of(const struct op_operand *like, const struct op_operand *operands, uint32_t count) {
  struct dense_rows rows = {.extent = {1, 1, 1}, .rows = op_elements(like) > 0};
  uint32_t outer = DENSE_ROWS_OUTER;
  if (!rows.rows) return rows;
  rows.row = like->shape[like->rank - 1];
  for (uint32_t d = like->rank - 1; d-- > 0;) {
    if (like->shape[d] == 1) continue;
    bool is_dense = outer == DENSE_ROWS_OUTER;
    for (uint32_t o = 0; o < count; o++)
      is_dense = is_dense && (!operands[o].present || stride_of(&operands[o], like, d) == rows.row);
    if (is_dense) {
      rows.row *= like->shape[d];
      continue;
    }
    rows.extent[--outer] = like->shape[d];
    for (uint32_t o = 0; o < count; o++) rows.stride[o][outer] = stride_of(&operands[o], like, d);
    rows.rows *= like->shape[d];
  }
  return rows;
}

int64_t dense_rows_begin(const struct dense_rows *rows, uint32_t operand, int64_t row) {
  int64_t begin = 0;
  for (int i = DENSE_ROWS_OUTER; i-- > 0; row /= rows->extent[i])
    begin += row % rows->extent[i] * rows->stride[operand][i];
  return begin;
}
