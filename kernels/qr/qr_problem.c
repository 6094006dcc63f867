/* qr_problem.c - what a task factors or applies, whatever its operation: sizes, operands and their addresses. */
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
  if (!operand || !operand->present) return (struct qr_matrix){0};
  uint32_t rank = operand->rank;
  int64_t outer = operand->stride[rank - 2], inner = operand->stride[rank - 1];
  bool row_major = layout == RONDO_ROW_MAJOR;
  return (struct qr_matrix){data, row_major ? outer : inner, row_major ? inner : outer,
                            rank == 3 ? operand->stride[0] : 0};
}

struct qr_vector qr_vector_of(const struct op_operand *operand, void *data) {
  if (!operand || !operand->present) return (struct qr_vector){0};
  return (struct qr_vector){data, operand->rank == 2 ? operand->stride[0] : 0};
}

struct qr_problem qr_problem_of(const struct op_call *call) {
  const struct op_task *task = call->task;
  struct qr_sizes sizes = qr_sizes_of(&task->operands[0], qr_layout_of(task));
  struct qr_problem problem = {
      .batch = sizes.batch,
      .m = sizes.rows,
      .n = sizes.columns,
      .k = smaller(sizes.rows, sizes.columns),
      .element_bytes = rondo_dtype_bits(qr_computed_in(task->operands[0].dtype)) / 8,
      .a_is_narrow = qr_is_narrow(task->operands[0].dtype),
      .a = &task->operands[0],
      .a_data = call->data[0],
      .layout = qr_layout_of(task),
  };
  if (task->op == &op_qr_panel) { /* h is a */
    problem.h = problem.a;
    problem.h_data = problem.a_data;
    problem.tau = &task->operands[QR_PANEL_TAU];
    problem.tau_data = call->data[QR_PANEL_TAU];
    return problem;
  }
  if (task->op == &op_qr_apply || task->op == &op_qr_update)
    problem.columns = qr_sizes_of(&task->operands[QR_APPLY_C], problem.layout).columns;
  if (task->op != &op_qr) return problem;
#define OPERAND(field, index)                                                                                          \
  if (task->operands[index].present) problem.field = &task->operands[index], problem.field##_data = call->data[index]
  OPERAND(h, QR_H);
  OPERAND(tau, QR_TAU);
  OPERAND(r, QR_R);
  OPERAND(q, QR_Q);
#undef OPERAND
  return problem;
}
