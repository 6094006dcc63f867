/* qr_launches.c - the launches of the designs in qr_choose.c, and those of qr_extract. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr_choose.h"
#include "qr_tile_apply.h"

QR_EXTRACT_KERNELS(KERNEL_CONSTANT)

void qr_launch_add(struct op_launches *launches, const struct qr_plan *plan, const void *parameters,
                   size_t parameter_bytes) {
  launch_add(launches, plan->kernel, plan->grid, plan->threads, (uint64_t)plan->shared_bytes, parameters,
             parameter_bytes);
}

static int32_t leading_of(const struct qr_problem *problem) {
  return (int32_t)smaller(qr_leading(problem->m), INT32_MAX);
}

/* ---- Designs that factor ---------------------------------------------------------------------------------------- */

void qr_launch_tile(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                    struct op_launches *launches) {
  (void)call;
  const struct qr_tile_task parameters = {
      .tile = {.a = problem->a.matrix,
               .h = problem->h.matrix,
               .tau = problem->tau,
               .batch = problem->batch,
               .m = (int32_t)problem->m,
               .n = (int32_t)problem->n,
               .offset = plan->offset,
               .a_access = (int32_t)problem->a.access,
               .h_access = (int32_t)problem->h.access,
               .a_number = problem->dtype == RONDO_F16    ? QR_F16
                           : problem->dtype == RONDO_BF16 ? QR_BF16
                                                          : QR_OWN},
      .r = problem->r.matrix,
      .q = problem->q.matrix,
      .r_access = (int32_t)problem->r.access,
      .q_access = (int32_t)problem->q.access,
  };
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
}

/* Reflectors stand in h, in q until that is formed, or in a workspace of each block. */
static struct qr_panels_parameters panels_parameters_of(const struct op_call *call, const struct qr_problem *problem) {
  const bool is_thin = !problem->h.is_present;
  const struct qr_operand *work = is_thin ? &problem->q : &problem->h, *upper = is_thin ? &problem->r : &problem->h;
  struct qr_panels_parameters parameters = {
      .a = problem->a.matrix,
      .work = work->matrix,
      .upper = upper->matrix,
      .tau = problem->tau,
      .batch = problem->batch,
      .m = (int32_t)problem->m,
      .n = (int32_t)(is_thin && !problem->r.is_present ? problem->k : problem->n),
      .work_columns = (int32_t)(is_thin ? problem->k : problem->n),
      .upper_rows = (int32_t)(is_thin ? problem->k : problem->m),
      .a_access = (int32_t)problem->a.access,
      .work_access = (int32_t)work->access,
      .upper_access = (int32_t)upper->access,
      .thin = is_thin,
  };
  if (problem->q.is_present)
    parameters.triangles =
        (struct qr_vector){call->scratch, (int64_t)(qr_triangle_bytes(problem) / problem->element_bytes)};
  if (!work->is_present) {
    const int64_t step = (int64_t)(qr_workspace_of(problem).worker_bytes / problem->element_bytes);
    parameters.work = (struct qr_matrix){call->scratch, 1, qr_workspace_leading(problem->m), step};
    parameters.work_access = QR_TILE_VECTORS;
    parameters.workers = 1;
  }
  return parameters;
}

void qr_launch_panels(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                      struct op_launches *launches) {
  struct qr_panels_parameters parameters = panels_parameters_of(call, problem);
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
  if (!plan->thin_q) return;
  parameters.n = (int32_t)problem->k;
  launch_add(launches, &plan->thin_q->kernel, plan->grid, plan->threads, (uint64_t)plan->shared_bytes, &parameters,
             sizeof parameters);
}

/* blocked and global: the matrix and tau stand in an output or in the workspace. */
void qr_launch_blocked(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                       struct op_launches *launches) {
  const struct qr_workspace workspace = qr_workspace_of(problem);
  const int64_t step = (int64_t)(workspace.worker_bytes / problem->element_bytes);
  struct qr_parameters parameters = {
      .a = problem->a.matrix,
      .h = problem->h.matrix,
      .r = problem->r.matrix,
      .q = problem->q.matrix,
      .tau = problem->tau,
      .m = problem->m,
      .n = problem->n,
      .batch = problem->batch,
      .leading = leading_of(problem),
      .panel = plan->panel,
      .work_columns = problem->n,
  };
  switch (qr_place_of(problem)) {
  case QR_IN_H:
    parameters.work = parameters.h;
    break;
  case QR_IN_R:
    parameters.work = parameters.r;
    break;
  case QR_IN_Q:
    parameters.work = parameters.q;
    parameters.work_columns = problem->k;
    break;
  case QR_IN_WORKSPACE:
    parameters.work = (struct qr_matrix){call->scratch, 1, problem->m, step};
    parameters.workers = 1;
    break;
  }
  parameters.work_tau = parameters.tau;
  if (!problem->h.is_present) {
    parameters.work_tau = (struct qr_vector){op_after(call->scratch, workspace.work_bytes), step};
    parameters.work_tau_workers = 1;
  }
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
}

/* ---- Designs that apply Q --------------------------------------------------------------------------------------- */

static bool is_backward(const struct op_task *task) {
  const struct qr_attributes *attributes = op_attributes(task);
  return !attributes->transpose;
}

void qr_launch_apply_tile(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                          struct op_launches *launches) {
  const struct qr_tile_apply_parameters parameters = {
      .v = problem->a.matrix,
      .c = problem->c.matrix,
      .tau = problem->tau,
      .batch = problem->batch,
      .columns = problem->columns,
      .groups = plan->groups,
      .group_columns = plan->group_columns,
      .m = (int32_t)problem->m,
      .reflectors = (int32_t)problem->k,
      .offset = plan->offset,
      .v_access = (int32_t)problem->a.access,
      .c_access = (int32_t)problem->c.access,
      .backward = is_backward(call->task),
  };
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
}

/* apply_shared and apply_global. */
void qr_launch_apply(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                     struct op_launches *launches) {
  const struct qr_apply_parameters parameters = {
      .v = problem->a.matrix,
      .c = problem->c.matrix,
      .tau = problem->tau,
      .m = problem->m,
      .reflectors = problem->k,
      .columns = problem->columns,
      .blocks = plan->groups,
      .backward = is_backward(call->task),
      .leading = leading_of(problem),
      .block_columns = plan->group_columns,
      .chunk = plan->chunk,
  };
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
}

/* ---- qr_extract: one design ------------------------------------------------------------------------------------- */

rondo_status qr_extract_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct qr_problem problem = qr_problem_of(call);
  const struct qr_extract_parameters parameters = {
      .h = problem.a.matrix,
      .r = problem.r.matrix,
      .q = problem.q.matrix,
      .m = problem.m,
      .n = problem.n,
      .k = problem.k,
      .batch = problem.batch,
  };
  const struct op_operand *operands = call->task->operands;
  const int64_t elements = op_elements(&operands[QR_EXTRACT_R]) + op_elements(&operands[QR_EXTRACT_Q]);
  launches->count = 0;
  if (elements)
    launch_add(launches, problem.element_bytes == 4 ? &rondo_qr_extract_f32 : &rondo_qr_extract_f64,
               smaller(divide_up(elements, QR_EXTRACT_THREADS), 65536), QR_EXTRACT_THREADS, 0, &parameters,
               sizeof parameters);
  return RONDO_OK;
}

/* ---- triangular_inverse: one design ------------------------------------------------------------------------------ */

TRIANGULAR_INVERSE_KERNELS(KERNEL_CONSTANT)

rondo_status triangular_inverse_select(const struct op_call *call, const struct chip *chip,
                                       struct op_launches *launches) {
  (void)chip;
  static const struct op_kernel *const names[] = {&rondo_triangular_inverse_f32, &rondo_triangular_inverse_f64};
  const struct op_operand *a = &call->task->operands[TRIANGULAR_INVERSE_A];
  const struct op_operand *out = &call->task->operands[TRIANGULAR_INVERSE_OUT];
  int64_t n = a->shape[a->rank - 1], batch = a->rank == 3 ? a->shape[0] : 1;
  int32_t element_bytes = (int32_t)rondo_dtype_bits(a->dtype) / 8, threads = triangular_inverse_threads((int32_t)n);
  int32_t matrices = (int32_t)larger(1, TRIANGULAR_INVERSE_LEAST_THREADS / threads);
  struct triangular_inverse_parameters parameters = {
      .a = qr_matrix_of(a, call->data[TRIANGULAR_INVERSE_A], RONDO_ROW_MAJOR),
      .out = qr_matrix_of(out, call->data[TRIANGULAR_INVERSE_OUT], RONDO_ROW_MAJOR),
      .batch = batch,
      .n = (int32_t)n,
      .matrices = matrices,
      .vectors = op_rows_aligned(a, 16) && n * element_bytes % 16 == 0,
  };
  launches->count = 0;
  if (!batch) return RONDO_OK;
  const int64_t grid = divide_up(batch, matrices);
  const int64_t bytes = INT64_C(1) * matrices * triangular_inverse_bytes((int32_t)n, element_bytes); /* 77 KB at most */
  OP_TRY(launch_check_blocks("a", grid));
  launch_add(launches, names[element_bytes == 8], grid, INT64_C(1) * matrices * threads, (uint64_t)bytes, &parameters,
             sizeof parameters);
  return RONDO_OK;
}
