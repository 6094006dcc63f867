/* qr_problem.c - the matrices of a task of QR or least squares, whichever operation it is: sizes, addresses and
 * strides.
 */
#include "../../runtime/integer.h"
#include "qr.h"

bool qr_is_narrow(rondo_dtype dtype) { return dtype == RONDO_F16 || dtype == RONDO_BF16; }

rondo_dtype qr_computed_in(rondo_dtype dtype) { return qr_is_narrow(dtype) ? RONDO_F32 : dtype; }

struct qr_sizes qr_sizes_of(const struct op_operand *operand, int32_t layout) {
  uint32_t rank = operand->rank;
  int64_t outer = operand->shape[rank - 2], inner = operand->shape[rank - 1];
  bool row_major = layout == RONDO_ROW_MAJOR;
  return (struct qr_sizes){rank == 3 ? operand->shape[0] : 1, row_major ? outer : inner, row_major ? inner : outer};
}

struct qr_matrix qr_matrix_of(const struct op_operand *operand, void *data, int32_t layout) {
  if (!operand->present) return (struct qr_matrix){0};
  uint32_t rank = operand->rank;
  int64_t outer = operand->stride[rank - 2], inner = operand->stride[rank - 1];
  bool row_major = layout == RONDO_ROW_MAJOR;
  return (struct qr_matrix){data, row_major ? outer : inner, row_major ? inner : outer,
                            rank == 3 ? operand->stride[0] : 0};
}

struct qr_vector qr_vector_of(const struct op_operand *operand, void *data) {
  if (!operand->present) return (struct qr_vector){0};
  return (struct qr_vector){data, operand->rank == 2 ? operand->stride[0] : 0};
}

static enum qr_tile_access access_of(const struct op_operand *operand, int32_t layout) {
  const struct qr_matrix matrix = qr_matrix_of(operand, NULL, layout);
  const int64_t rows = qr_sizes_of(operand, layout).rows, vector = operand->dtype == RONDO_F64 ? 2 : 4;
  if (matrix.row_stride != 1) return QR_TILE_ANY;
  if (!op_rows_aligned(operand, (uint64_t)vector * rondo_dtype_bits(operand->dtype) / 8) || rows % vector)
    return QR_TILE_CONTIGUOUS;
  return matrix.column_stride == rows ? QR_TILE_DENSE : QR_TILE_VECTORS;
}

/* Indices of an operation's operands; ABSENT: it has none. */
enum { ABSENT = -1 };
struct places {
  int a, h, tau, r, q, c;
};

static struct places places_of(const struct op *op) {
  if (op == &op_qr) return (struct places){QR_A, QR_H, QR_TAU, QR_R, QR_Q, ABSENT};
  if (op == &op_qr_panel) return (struct places){QR_PANEL_A, QR_PANEL_A, QR_PANEL_TAU, ABSENT, ABSENT, ABSENT};
  if (op == &op_qr_extract) return (struct places){QR_EXTRACT_H, ABSENT, ABSENT, QR_EXTRACT_R, QR_EXTRACT_Q, ABSENT};
  if (op == &op_qr_apply || op == &op_qr_update)
    return (struct places){QR_APPLY_V, ABSENT, QR_APPLY_TAU, ABSENT, ABSENT, QR_APPLY_C};
  return (struct places){0, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT}; /* least squares */
}

static struct qr_operand operand_of(const struct op_call *call, int place) {
  const int32_t layout = qr_layout_of(call->task);
  if (place == ABSENT || !call->task->operands[place].present) return (struct qr_operand){.access = QR_TILE_ANY};
  const struct op_operand *operand = &call->task->operands[place];
  return (struct qr_operand){true, access_of(operand, layout), qr_matrix_of(operand, call->data[place], layout)};
}

struct qr_problem qr_problem_of(const struct op_call *call) {
  const struct op_operand *operands = call->task->operands;
  const int32_t layout = qr_layout_of(call->task);
  const struct places places = places_of(call->task->op);
  const struct qr_sizes sizes = qr_sizes_of(&operands[places.a], layout);
  return (struct qr_problem){
      .batch = sizes.batch,
      .m = sizes.rows,
      .n = sizes.columns,
      .k = smaller(sizes.rows, sizes.columns),
      .columns = places.c == ABSENT ? 0 : qr_sizes_of(&operands[places.c], layout).columns,
      .dtype = operands[places.a].dtype,
      .element_bytes = rondo_dtype_bits(qr_computed_in(operands[places.a].dtype)) / 8,
      .a = operand_of(call, places.a),
      .h = operand_of(call, places.h),
      .r = operand_of(call, places.r),
      .q = operand_of(call, places.q),
      .c = operand_of(call, places.c),
      .tau = places.tau == ABSENT ? (struct qr_vector){0} : qr_vector_of(&operands[places.tau], call->data[places.tau]),
  };
}
