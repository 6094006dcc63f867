/* qr_launches.c - the launches of QR: what each design of qr_choose.c launches, and the designs of qr_extract. */
#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr_choose.h"

QR_SHARED_KERNELS(KERNEL_CONSTANT)
QR_BLOCKED_KERNELS(KERNEL_CONSTANT)
QR_APPLY_KERNELS(KERNEL_CONSTANT)

/* The one launch of a task. kernels: for f32, then for f64. */
static rondo_status launch(struct op_launches *launches, const struct op_kernel *const kernels[2],
                           const struct op_task *task, int64_t grid, int64_t threads, int64_t shared_bytes,
                           const void *parameters, size_t parameter_bytes) {
  if (grid > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a needs %" PRId64 " blocks, expected at most %" PRId32, grid, INT32_MAX);
  launch_add(launches, kernels[task->operands[0].dtype == RONDO_F64], grid, threads, (uint64_t)shared_bytes, parameters,
             parameter_bytes);
  return RONDO_OK;
}

/* ---- Designs that factor ---------------------------------------------------------------------------------------- */

static int32_t access_of(const struct op_operand *operand, const struct qr_problem *problem, int64_t rows) {
  return operand ? (int32_t)qr_tile_access_of(operand, problem->layout, rows) : QR_TILE_ANY;
}

/* H and tau, or thin Q and R. */
rondo_status qr_launch_tile(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                            struct op_launches *launches) {
  (void)call;
  const int32_t layout = problem->layout;
  const struct qr_tile *tile = plan->tile.tile;
  const struct qr_tile_task parameters = {
      .tile = {.a = qr_matrix_of(problem->a, problem->a_data, layout),
               .h = qr_matrix_of(problem->h, problem->h_data, layout),
               .tau = qr_vector_of(problem->tau, problem->tau_data),
               .batch = problem->batch,
               .m = (int32_t)problem->m,
               .n = (int32_t)problem->n,
               .offset = plan->tile.offset,
               .a_access = access_of(problem->a, problem, problem->m),
               .h_access = access_of(problem->h, problem, problem->m),
               .a_number = (int32_t)qr_tile_number_of(problem->a->dtype)},
      .r = qr_matrix_of(problem->r, problem->r_data, layout),
      .q = qr_matrix_of(problem->q, problem->q_data, layout),
      .r_access = access_of(problem->r, problem, problem->k),
      .q_access = access_of(problem->q, problem, problem->m),
  };
  launch_add(launches, &tile->kernel, plan->tile.grid, tile->kernel.threads, (uint64_t)plan->tile.shared_bytes,
             &parameters, sizeof parameters);
  return RONDO_OK;
}

/* Reflectors stand in h, in q until that is formed, or in a workspace of each block. */
static struct qr_panels_parameters panels_parameters_of(const struct op_call *call, const struct qr_problem *problem) {
  const int32_t layout = problem->layout;
  const bool is_thin = !problem->h;
  const struct op_operand *work = is_thin ? problem->q : problem->h, *upper = is_thin ? problem->r : problem->h;
  const int64_t upper_rows = is_thin ? problem->k : problem->m;
  struct qr_panels_parameters parameters = {
      .a = qr_matrix_of(problem->a, problem->a_data, layout),
      .work = qr_matrix_of(work, is_thin ? problem->q_data : problem->h_data, layout),
      .upper = qr_matrix_of(upper, is_thin ? problem->r_data : problem->h_data, layout),
      .tau = qr_vector_of(problem->tau, problem->tau_data),
      .batch = problem->batch,
      .m = (int32_t)problem->m,
      .n = (int32_t)(is_thin && !problem->r ? problem->k : problem->n),
      .work_columns = (int32_t)(is_thin ? problem->k : problem->n),
      .upper_rows = (int32_t)upper_rows,
      .a_access = access_of(problem->a, problem, problem->m),
      .work_access = work ? access_of(work, problem, problem->m) : QR_TILE_VECTORS,
      .upper_access = access_of(upper, problem, upper_rows),
      .thin = is_thin,
  };
  if (problem->q)
    parameters.triangles =
        (struct qr_vector){call->scratch, (int64_t)(qr_triangle_bytes(problem) / problem->element_bytes)};
  if (!work) {
    const int64_t step = (int64_t)(qr_workspace_of(problem).worker_bytes / problem->element_bytes);
    parameters.work = (struct qr_matrix){call->scratch, 1, qr_workspace_leading(problem->m), step};
    parameters.workers = 1;
  }
  return parameters;
}

/* One kernel, and for Q a second one. */
rondo_status qr_launch_panels(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches) {
  const struct op_kernel *factors = &plan->panels.panels->kernel, *forms = &plan->panels.thin_q->kernel;
  const uint64_t shared_bytes = (uint64_t)plan->panels.shared_bytes;
  struct qr_panels_parameters parameters = panels_parameters_of(call, problem);
  launch_add(launches, factors, plan->grid, factors->threads, shared_bytes, &parameters, sizeof parameters);
  if (!problem->q) return RONDO_OK;
  parameters.n = (int32_t)problem->k;
  launch_add(launches, forms, plan->grid, forms->threads, shared_bytes, &parameters, sizeof parameters);
  return RONDO_OK;
}

static struct qr_parameters parameters_of(const struct qr_problem *problem) {
  const int32_t layout = problem->layout;
  return (struct qr_parameters){
      .a = qr_matrix_of(problem->a, problem->a_data, layout),
      .h = qr_matrix_of(problem->h, problem->h_data, layout),
      .r = qr_matrix_of(problem->r, problem->r_data, layout),
      .q = qr_matrix_of(problem->q, problem->q_data, layout),
      .tau = qr_vector_of(problem->tau, problem->tau_data),
      .m = problem->m,
      .n = problem->n,
      .batch = problem->batch,
      .leading = (int32_t)smaller(qr_leading(problem->m), INT32_MAX),
  };
}

static rondo_status launch_in_shared(const struct op_call *call, const struct qr_problem *problem,
                                     const struct qr_plan *plan, const struct op_kernel *const kernels[2],
                                     struct op_launches *launches) {
  const struct qr_parameters parameters = parameters_of(problem);
  return launch(launches, kernels, call->task, plan->grid, plan->threads, plan->shared_bytes, &parameters,
                sizeof parameters);
}

rondo_status qr_launch_few_rows(const struct op_call *call, const struct qr_problem *problem,
                                const struct qr_plan *plan, struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_few_rows_f32, NULL};
  return launch_in_shared(call, problem, plan, kernels, launches);
}

rondo_status qr_launch_shared(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_shared_f32, &rondo_qr_shared_f64};
  return launch_in_shared(call, problem, plan, kernels, launches);
}

/* Where the blocked and the global kernel keep the matrix and tau. */
static void place_work(const struct qr_problem *problem, void *scratch, struct qr_parameters *parameters) {
  struct qr_workspace workspace = qr_workspace_of(problem);
  int64_t step = (int64_t)(workspace.worker_bytes / problem->element_bytes);
  parameters->work_columns = problem->n;
  switch (qr_place_of(problem)) {
  case QR_IN_H:
    parameters->work = parameters->h;
    break;
  case QR_IN_R:
    parameters->work = parameters->r;
    break;
  case QR_IN_Q:
    parameters->work = parameters->q;
    parameters->work_columns = problem->k;
    break;
  case QR_IN_WORKSPACE:
    parameters->work = (struct qr_matrix){scratch, 1, problem->m, step};
    parameters->workers = 1;
    break;
  }
  parameters->work_tau = parameters->tau;
  if (problem->h) return;
  void *tau = scratch ? (unsigned char *)scratch + workspace.work_bytes : NULL;
  parameters->work_tau = (struct qr_vector){tau, step};
  parameters->work_tau_workers = 1;
}

static rondo_status launch_in_memory(const struct op_call *call, const struct qr_problem *problem,
                                     const struct qr_plan *plan, const struct op_kernel *const kernels[2],
                                     int64_t threads, struct op_launches *launches) {
  struct qr_parameters parameters = parameters_of(problem);
  place_work(problem, call->scratch, &parameters);
  parameters.panel = plan->panel;
  return launch(launches, kernels, call->task, plan->grid, threads, plan->shared_bytes, &parameters, sizeof parameters);
}

rondo_status qr_launch_blocked(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                               struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_blocked_f32, &rondo_qr_blocked_f64};
  return launch_in_memory(call, problem, plan, kernels, QR_BLOCKED_THREADS, launches);
}

rondo_status qr_launch_global(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_global_f32, &rondo_qr_global_f64};
  return launch_in_memory(call, problem, plan, kernels, QR_GLOBAL_THREADS, launches);
}

/* ---- Designs that apply Q --------------------------------------------------------------------------------------- */

static bool is_backward(const struct op_task *task) {
  const struct qr_attributes *attributes = op_attributes(task);
  return !attributes->transpose;
}

rondo_status qr_launch_apply_tile(const struct op_call *call, const struct qr_problem *problem,
                                  const struct qr_plan *plan, struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands, *v = &operands[QR_APPLY_V], *c = &operands[QR_APPLY_C];
  const int32_t layout = problem->layout;
  const struct qr_tile_apply_plan *tile_plan = &plan->apply_tile;
  const struct qr_tile_apply_parameters parameters = {
      .v = qr_matrix_of(v, call->data[QR_APPLY_V], layout),
      .c = qr_matrix_of(c, call->data[QR_APPLY_C], layout),
      .tau = qr_vector_of(&operands[QR_APPLY_TAU], call->data[QR_APPLY_TAU]),
      .batch = problem->batch,
      .columns = problem->columns,
      .groups = tile_plan->groups,
      .group_columns = tile_plan->group_columns,
      .m = (int32_t)problem->m,
      .reflectors = (int32_t)problem->k,
      .offset = tile_plan->offset,
      .v_access = access_of(v, problem, problem->m),
      .c_access = access_of(c, problem, problem->m),
      .backward = is_backward(call->task),
  };
  const struct op_kernel *kernel = &tile_plan->tile->kernel;
  launch_add(launches, kernel, tile_plan->grid, kernel->threads, (uint64_t)tile_plan->shared_bytes, &parameters,
             sizeof parameters);
  return RONDO_OK;
}

static rondo_status launch_apply(const struct op_call *call, const struct qr_problem *problem,
                                 const struct qr_plan *plan, const struct op_kernel *const kernels[2],
                                 struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands;
  const struct qr_apply_parameters parameters = {
      .v = qr_matrix_of(&operands[QR_APPLY_V], call->data[QR_APPLY_V], problem->layout),
      .c = qr_matrix_of(&operands[QR_APPLY_C], call->data[QR_APPLY_C], problem->layout),
      .tau = qr_vector_of(&operands[QR_APPLY_TAU], call->data[QR_APPLY_TAU]),
      .m = problem->m,
      .reflectors = problem->k,
      .columns = problem->columns,
      .blocks = divide_up(problem->columns, plan->block_columns),
      .backward = is_backward(call->task),
      .leading = (int32_t)smaller(qr_leading(problem->m), INT32_MAX),
      .block_columns = plan->block_columns,
      .chunk = plan->chunk,
  };
  return launch(launches, kernels, call->task, plan->grid, plan->threads, plan->shared_bytes, &parameters,
                sizeof parameters);
}

rondo_status qr_launch_apply_shared(const struct op_call *call, const struct qr_problem *problem,
                                    const struct qr_plan *plan, struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_apply_f32, &rondo_qr_apply_f64};
  return launch_apply(call, problem, plan, kernels, launches);
}

rondo_status qr_launch_apply_global(const struct op_call *call, const struct qr_problem *problem,
                                    const struct qr_plan *plan, struct op_launches *launches) {
  static const struct op_kernel *const kernels[] = {&rondo_qr_apply_global_f32, &rondo_qr_apply_global_f64};
  return launch_apply(call, problem, plan, kernels, launches);
}

/* ---- qr_extract: one design ------------------------------------------------------------------------------------- */

rondo_status qr_extract_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  static const struct op_kernel *const names[] = {&rondo_qr_extract_f32, &rondo_qr_extract_f64};
  (void)chip;
  const struct op_operand *operands = call->task->operands;
  struct qr_problem problem = qr_problem_of(call);
  int32_t layout = qr_layout_of(call->task);
  struct qr_extract_parameters parameters = {
      .h = qr_matrix_of(&operands[QR_EXTRACT_H], call->data[QR_EXTRACT_H], layout),
      .r = qr_matrix_of(&operands[QR_EXTRACT_R], call->data[QR_EXTRACT_R], layout),
      .q = qr_matrix_of(&operands[QR_EXTRACT_Q], call->data[QR_EXTRACT_Q], layout),
      .m = problem.m,
      .n = problem.n,
      .k = problem.k,
      .batch = problem.batch,
  };
  launches->count = 0;
  int64_t elements = op_elements(&operands[QR_EXTRACT_R]) + op_elements(&operands[QR_EXTRACT_Q]);
  if (!elements) return RONDO_OK;
  return launch(launches, names, call->task, smaller(divide_up(elements, QR_EXTRACT_THREADS), 65536),
                QR_EXTRACT_THREADS, 0, &parameters, sizeof parameters);
}
