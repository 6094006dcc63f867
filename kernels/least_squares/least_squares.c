/* least_squares.c - rondo_add_least_squares: the description of a task, and the checks of its operands. */
#include "least_squares.h"

rondo_status rondo_add_least_squares(rondo_graph *graph, const rondo_least_squares_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_least_squares: the description is NULL");
  struct op_argument arguments[] = {
      [LEAST_SQUARES_A] = {"a", desc->a, RONDO_READ, 0},
      [LEAST_SQUARES_B] = {"b", desc->b, RONDO_READ, 0},
      [LEAST_SQUARES_X] = {"x", desc->x, RONDO_WRITE, 0},
      [LEAST_SQUARES_RESIDUAL] = {"residual", desc->residual, RONDO_WRITE, 0},
      [LEAST_SQUARES_INFO] = {"info", desc->info, RONDO_WRITE, 0},
  };
  struct qr_attributes attributes = {.layout = (int32_t)desc->layout};
  return graph_add(graph, &op_least_squares, desc->name, arguments, 5, &attributes, sizeof attributes);
}

/* [batch, count], or [count] where there is no batch. */
static rondo_status vector_check(const char *name, const struct op_operand *operand, const struct op_operand *a,
                                 int64_t count) {
  if (!operand->present) return RONDO_OK;
  return op_expect(name, operand, a->dtype, a->rank - 1, (int64_t[]){a->rank == 3 ? a->shape[0] : count, count});
}

rondo_status least_squares_check(const struct op_task *task) {
  const struct op_operand *operands = task->operands;
  const struct op_operand *a = &operands[LEAST_SQUARES_A], *b = &operands[LEAST_SQUARES_B];
  int32_t layout = qr_layout_of(task);
  rondo_status status = layout_check(layout);
  if (status == RONDO_OK) status = matrix_check("a", a);
  if (status != RONDO_OK) return status;
  struct qr_problem problem = qr_problem_nowhere(task);
  if (problem.n < 1 || problem.m < problem.n)
    return op_unexpected("a", a,
                         layout == RONDO_ROW_MAJOR ? "matrices of at least one column and as many rows as columns"
                                                   : "matrices of at least one column and as many rows as columns, "
                                                     "[columns, rows] where they are column-major");
  if (!b->present || b->rank != a->rank)
    return op_unexpected("b", b, a->rank == 2 ? "one matrix, as a is" : "a batch of matrices, as a is");
  int64_t rhs_count = least_squares_rhs_count(task);
  status = matrix_like_check("b", b, a, layout, problem.m, rhs_count);
  if (status == RONDO_OK && rhs_count < 1) status = op_unexpected("b", b, "at least one right-hand side");
  if (status == RONDO_OK) status = matrix_like_check("x", &operands[LEAST_SQUARES_X], a, layout, problem.n, rhs_count);
  if (status == RONDO_OK) status = vector_check("residual", &operands[LEAST_SQUARES_RESIDUAL], a, rhs_count);
  if (status == RONDO_OK && operands[LEAST_SQUARES_INFO].present)
    status = op_expect("info", &operands[LEAST_SQUARES_INFO], RONDO_I32, 1, &problem.batch);
  return status;
}
