/* least_squares.c - rondo_add_least_squares: the description of a task, the checks of its operands, its scratch on the
 * device and on the host, and the task of qr that comes before the second launch. */
#include <string.h>

#include "../../runtime/integer.h"
#include "least_squares_choose.h"

rondo_status rondo_add_least_squares(rondo_graph *graph, const rondo_least_squares_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_least_squares: the description is NULL");
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
  OP_TRY(matrix_check("a", a, layout));
  struct qr_problem problem = qr_problem_nowhere(task);
  if (problem.n < 1 || problem.m < problem.n)
    return op_unexpected("a", a,
                         layout == RONDO_ROW_MAJOR ? "matrices of at least one column and as many rows as columns"
                                                   : "matrices of at least one column and as many rows as columns, "
                                                     "[columns, rows] where they are column-major");
  if (!b->present || b->rank != a->rank)
    return op_unexpected("b", b, a->rank == 2 ? "one matrix, as a is" : "a batch of matrices, as a is");
  int64_t rhs_count = least_squares_rhs_count(task);
  OP_TRY(matrix_like_check("b", b, a, layout, problem.m, rhs_count));
  if (rhs_count < 1) return op_unexpected("b", b, "at least one right-hand side");
  OP_TRY(matrix_like_check("x", &operands[LEAST_SQUARES_X], a, layout, problem.n, rhs_count));
  OP_TRY(vector_check("residual", &operands[LEAST_SQUARES_RESIDUAL], a, rhs_count));
  if (operands[LEAST_SQUARES_INFO].present)
    OP_TRY(op_expect("info", &operands[LEAST_SQUARES_INFO], RONDO_I32, 1, &problem.batch));
  return RONDO_OK;
}

/* ---- Scratch ----------------------------------------------------------------------------------------------------- */

int64_t least_squares_rhs_count(const struct op_task *task) {
  const struct op_operand *b = &task->operands[LEAST_SQUARES_B];
  return b->shape[b->rank - (qr_layout_of(task) == RONDO_ROW_MAJOR ? 1 : 2)];
}

enum {
  /* A block has no more on chips of compute capability 8.6, 8.9 and 12.0, which run sm_80's code. */
  LEAST_SHARED_BYTES = 99 * 1024,
};

/* H is column-major, whatever a's layout is. */
void least_squares_factoring_of(const struct op_task *task, struct op_step *factoring) {
  const struct op_operand *a = &task->operands[LEAST_SQUARES_A];
  struct qr_problem problem = qr_problem_nowhere(task);
  struct op_operand h = *a;
  h.access = RONDO_WRITE;
  h.offset_bytes = 0;
  const bool by_rows = qr_layout_of(task) == RONDO_ROW_MAJOR;
  const int64_t leading = qr_workspace_leading(problem.m);
  h.stride[h.rank - 2] = by_rows ? 1 : leading;
  h.stride[h.rank - 1] = by_rows ? leading : 1;
  if (h.rank == 3) h.stride[0] = leading * problem.n;
  op_step_begin(&(struct op_call){.task = task}, &op_qr, QR_Q + 1, factoring);
  memcpy(factoring->task.attributes, task->attributes, sizeof task->attributes);
  factoring->operands[QR_A] = *a, factoring->operands[QR_H] = h;
  factoring->operands[QR_TAU] = (struct op_operand){.present = true,
                                                    .access = RONDO_WRITE,
                                                    .dtype = a->dtype,
                                                    .rank = a->rank - 1,
                                                    .shape = {a->rank == 3 ? problem.batch : problem.n, problem.n},
                                                    .stride = {a->rank == 3 ? problem.n : 1, 1}};
}

bool least_squares_fits_shared(uint32_t element_bytes, int64_t m, int64_t rhs_count) {
  return (uint64_t)(qr_leading(m) * rhs_count) * element_bytes <= LEAST_SHARED_BYTES;
}

struct least_squares_scratch least_squares_scratch_of(const struct op_task *task) {
  struct qr_problem problem = qr_problem_nowhere(task);
  const int64_t bytes = problem.batch * problem.element_bytes; /* of a number of each matrix */
  struct op_step factoring;
  least_squares_factoring_of(task, &factoring);
  struct least_squares_scratch scratch = {.tau = qr_part_bytes(bytes * qr_workspace_leading(problem.m) * problem.n)};
  scratch.work = scratch.tau + qr_part_bytes(bytes * problem.n);
  scratch.qr = scratch.work;
  if (!least_squares_fits_shared(problem.element_bytes, problem.m, 1))
    scratch.qr += qr_part_bytes(bytes * problem.m * least_squares_rhs_count(task));
  scratch.end = scratch.qr + op_qr.scratch_bytes(&factoring.task);
  return scratch;
}

/* Of one matrix: A, tau and a right-hand side. */
uint64_t least_squares_host_bytes(const struct op_task *task) {
  struct qr_problem problem = qr_problem_nowhere(task);
  return qr_part_bytes((problem.m * problem.n + problem.n + problem.m) * problem.element_bytes);
}

int64_t least_squares_host_items(const struct op_task *task) {
  return smaller(qr_problem_nowhere(task).batch, QR_HOST_WORKERS);
}

/* On the chip with the least shared memory. False: some chip takes two launches. */
static bool plan_for_every_chip(const struct op_task *task, struct qr_plan *plan) {
  const struct qr_problem problem = qr_problem_nowhere(task);
  const struct chip least = {.version = 86, .multiprocessors = 1, .shared_bytes = LEAST_SHARED_BYTES};
  return least_squares_plan_tile(&problem, least_squares_rhs_count(task), &least, plan);
}

uint64_t least_squares_scratch_bytes(const struct op_task *task) {
  uint64_t host = (uint64_t)least_squares_host_items(task) * least_squares_host_bytes(task);
  struct qr_plan plan;
  if (!host || plan_for_every_chip(task, &plan)) return host;
  uint64_t device = least_squares_scratch_of(task).end;
  return host > device ? host : device;
}

/* False for two launches, and for a kernel that factors the matrix again for further right-hand sides. */
bool least_squares_touches_once(const struct op_task *task) {
  struct qr_plan plan;
  return plan_for_every_chip(task, &plan) && plan.passes == 1;
}
