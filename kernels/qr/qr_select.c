/* qr_select.c - which QR kernel, with how many threads and how much shared memory: pure functions of shape and chip.
 *
 * Nothing here depends on the batch but the size of the grid, the columns of a block for qr_apply and the shared memory
 * of the triangular inverse. None of that changes a result: a matrix has the same bits wherever it stands. */
#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr.h"
#include "qr_panels_plan.h"
#include "qr_tile_apply_plan.h"
#include "qr_tile_plan.h"

QR_SHARED_KERNELS(KERNEL_CONSTANT)
QR_BLOCKED_KERNELS(KERNEL_CONSTANT)
QR_APPLY_KERNELS(KERNEL_CONSTANT)
TRIANGULAR_INVERSE_KERNELS(KERNEL_CONSTANT)

/* 8 modulo 16: the four column lanes of a warp read different banks (f64: the two of each half). */
int64_t qr_leading(int64_t m) { return (m + 7) / 16 * 16 + 8; }

uint64_t qr_shared_bytes(uint32_t element_bytes, int64_t m, int64_t n) {
  return (uint64_t)(qr_leading(m) * n + smaller(m, n)) * element_bytes;
}

bool qr_fits_every_chip(uint32_t element_bytes, int64_t m, int64_t n) {
  return qr_shared_bytes(element_bytes, m, n) <= EVERY_CHIP_SHARED_BYTES;
}

/* The one launch of a task. kernels: for f32, then for f64. */
static rondo_status launch(struct op_launches *launches, const struct op_kernel *const kernels[2],
                           const struct op_task *task, int64_t grid, int64_t threads, uint64_t shared_bytes,
                           const void *parameters, size_t parameter_bytes) {
  if (grid > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a needs %" PRId64 " blocks, expected at most %" PRId32, grid, INT32_MAX);
  launch_add(launches, kernels[task->operands[0].dtype == RONDO_F64], grid, threads, shared_bytes, parameters,
             parameter_bytes);
  return RONDO_OK;
}

/* ---- qr, qr_panel ----------------------------------------------------------------------------------------------- */

static struct qr_parameters qr_parameters_of(const struct qr_problem *problem, const struct op_call *call) {
  int32_t layout = qr_layout_of(call->task);
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

/* As many column lanes as have a whole tile of columns, in whole warps. */
static rondo_status shared_select(const struct qr_problem *problem, const struct op_task *task,
                                  const struct qr_parameters *parameters, struct op_launches *launches) {
  static const struct op_kernel *const names[] = {&rondo_qr_shared_f32, &rondo_qr_shared_f64};
  static const struct op_kernel *const few[] = {&rondo_qr_few_rows_f32, &rondo_qr_shared_f64};
  const bool is_few = problem->element_bytes == 4 && problem->m <= QR_FEW_ROWS;
  uint64_t bytes = qr_shared_bytes(problem->element_bytes, problem->m, problem->n);
  int64_t lanes = is_few ? QR_FEW_LANES : QR_SHARED_LANES;
  int64_t threads = round_up(lanes * divide_up(problem->n, QR_TILE_COLUMNS), 32);
  threads = larger(64, smaller(threads, QR_SHARED_THREADS));
  return launch(launches, is_few ? few : names, task, problem->batch, threads, bytes, parameters, sizeof *parameters);
}

/* H and tau, or thin Q and R, in registers, if there is a tile for them. */
static bool tile_select(const struct qr_problem *problem, const struct op_task *task, const struct chip *chip,
                        const struct qr_parameters *parameters, struct op_launches *launches) {
  int32_t layout = qr_layout_of(task);
  const struct qr_tile_problem tile_problem = {
      .result = problem->h ? QR_TILE_REFLECTORS : QR_TILE_THIN,
      .element_bytes = problem->element_bytes,
      .m = problem->m,
      .n = problem->n,
      .batch = problem->batch,
      .a_access = qr_tile_access_of(problem->a, layout, problem->m),
      .h_access = problem->h ? qr_tile_access_of(problem->h, layout, problem->m) : QR_TILE_DENSE,
      .a_number = qr_tile_number_of(problem->a->dtype),
      .multiprocessors = chip->multiprocessors,
      .shared_bytes = chip->shared_bytes};
  const struct qr_tile_plan plan = qr_tile_plan_of(&tile_problem);
  if (!plan.tile || plan.grid > INT32_MAX) return false;
  const struct qr_tile_task_parameters tile_parameters = {
      .tile = {.a = parameters->a,
               .h = parameters->h,
               .tau = parameters->tau,
               .batch = problem->batch,
               .m = (int32_t)problem->m,
               .n = (int32_t)problem->n,
               .offset = plan.offset,
               .a_access = (int32_t)tile_problem.a_access,
               .h_access = (int32_t)tile_problem.h_access,
               .a_number = (int32_t)tile_problem.a_number},
      .r = parameters->r,
      .q = parameters->q,
      .r_access = (int32_t)qr_tile_access_of(problem->r, layout, problem->k),
      .q_access = (int32_t)qr_tile_access_of(problem->q, layout, problem->m)};
  launch_add(launches, &plan.tile->kernel, plan.grid, plan.tile->kernel.threads, (uint64_t)plan.shared_bytes,
             &tile_parameters, sizeof tile_parameters);
  return true;
}

/* By block columns, if there are kernels for as many rows. Of Q alone the columns of A behind the first m are not
 * needed. */
static bool block_select(const struct qr_problem *problem, const struct op_call *call, const struct chip *chip,
                         const struct qr_parameters *parameters, struct op_launches *launches) {
  const bool is_thin = !problem->h;
  const struct qr_panels_problem block_problem = {.element_bytes = problem->element_bytes,
                                                  .m = problem->m,
                                                  .n = is_thin && !problem->r ? problem->k : problem->n,
                                                  .batch = problem->batch,
                                                  .shared_bytes = chip->shared_bytes};
  const struct qr_panels_plan plan = qr_panels_plan_of(&block_problem);
  if (!plan.block) return false;
  const int32_t layout = qr_layout_of(call->task);
  const struct op_operand *work = is_thin ? problem->q : problem->h, *upper = is_thin ? problem->r : problem->h;
  const int64_t upper_rows = is_thin ? problem->k : problem->m;
  struct qr_panels_parameters block_parameters = {
      .a = parameters->a,
      .work = is_thin ? parameters->q : parameters->h,
      .upper = is_thin ? parameters->r : parameters->h,
      .tau = parameters->tau,
      .batch = problem->batch,
      .m = (int32_t)problem->m,
      .n = (int32_t)block_problem.n,
      .work_columns = (int32_t)(is_thin ? problem->k : problem->n),
      .upper_rows = (int32_t)upper_rows,
      .a_access = (int32_t)qr_tile_access_of(problem->a, layout, problem->m),
      .work_access = work ? (int32_t)qr_tile_access_of(work, layout, problem->m) : QR_TILE_VECTORS,
      .upper_access = upper ? (int32_t)qr_tile_access_of(upper, layout, upper_rows) : QR_TILE_ANY,
      .thin = is_thin};
  int64_t grid = problem->batch;
  const struct qr_workspace workspace = qr_workspace_of(problem);
  const int64_t triangle_numbers = (int64_t)(qr_triangle_bytes(problem) / problem->element_bytes);
  if (is_thin && !triangle_numbers && !workspace.work_bytes) return false; /* no scratch was planned for it */
  if (problem->q) block_parameters.triangles = (struct qr_vector){call->scratch, triangle_numbers};
  if (!work) {
    block_parameters.work = (struct qr_matrix){call->scratch, 1, qr_workspace_leading(problem->m),
                                               (int64_t)(workspace.worker_bytes / problem->element_bytes)};
    block_parameters.workers = 1;
    /* No more than run at once: the others would begin when these have done all their matrices. */
    grid = smaller(workspace.workers, INT64_C(1) * plan.block->blocks * chip->multiprocessors);
  }
  launch_add(launches, &plan.block->kernel, grid, plan.block->kernel.threads, (uint64_t)plan.shared_bytes,
             &block_parameters, sizeof block_parameters);
  if (!problem->q) return true;
  block_parameters.n = (int32_t)problem->k;
  launch_add(launches, &plan.form->kernel, grid, plan.form->kernel.threads, (uint64_t)plan.shared_bytes,
             &block_parameters, sizeof block_parameters);
  return true;
}

rondo_status qr_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  static const struct op_kernel *const blocked[] = {&rondo_qr_blocked_f32, &rondo_qr_blocked_f64};
  static const struct op_kernel *const global[] = {&rondo_qr_global_f32, &rondo_qr_global_f64};
  struct qr_problem problem = qr_problem_of(call);
  launches->count = 0;
  if (!problem.k || !problem.batch) return RONDO_OK;
  struct qr_parameters parameters = qr_parameters_of(&problem, call);
  if (tile_select(&problem, call->task, chip, &parameters, launches)) return RONDO_OK;
  if (problem.a_is_narrow)
    return status_set(RONDO_UNSUPPORTED, "a is %s: this GPU has too little shared memory for it, expected f32",
                      rondo_dtype_name(problem.a->dtype));
  if (block_select(&problem, call, chip, &parameters, launches)) return RONDO_OK;
  uint64_t limit = (uint64_t)chip->shared_bytes;
  if (qr_shared_bytes(problem.element_bytes, problem.m, problem.n) <= limit)
    return shared_select(&problem, call->task, &parameters, launches);

  place_work(&problem, call->scratch, &parameters);
  int64_t grid = problem.h ? smaller(problem.batch, INT32_MAX) : qr_workspace_of(&problem).workers;
  for (parameters.panel = QR_PANEL_COLUMNS; parameters.panel >= 4; parameters.panel /= 2) {
    uint64_t bytes = (uint64_t)(parameters.panel * (2 * qr_leading(problem.m) + 1)) * problem.element_bytes;
    if (bytes <= limit)
      return launch(launches, blocked, call->task, grid, QR_BLOCKED_THREADS, bytes, &parameters, sizeof parameters);
  }
  return launch(launches, global, call->task, grid, QR_GLOBAL_THREADS, 0, &parameters, sizeof parameters);
}

/* ---- qr_update, qr_apply ---------------------------------------------------------------------------------------- */

/* Shrinks chunk and then columns, not below the floors given, until a block fits; false if it does not. */
static bool apply_fit(uint64_t limit, uint32_t element_bytes, int64_t leading, int32_t chunk_floor,
                      int32_t column_floor, struct qr_apply_parameters *parameters, uint64_t *bytes) {
  for (;;) {
    int32_t columns = parameters->block_columns, chunk = parameters->chunk;
    *bytes = (uint64_t)(leading * (columns + chunk) + chunk) * element_bytes;
    if (*bytes <= limit) return true;
    if (chunk > chunk_floor)
      parameters->chunk = (chunk + 1) / 2;
    else if (columns > column_floor)
      parameters->block_columns = columns / 2;
    else
      return false;
  }
}

/* In registers, if there is a tile that pays. */
static bool apply_tile_select(const struct op_task *task, const struct chip *chip,
                              const struct qr_apply_parameters *parameters, int64_t batch,
                              struct op_launches *launches) {
  const struct op_operand *v = &task->operands[QR_APPLY_V], *c = &task->operands[QR_APPLY_C];
  const struct qr_tile_apply_problem problem = {.element_bytes = rondo_dtype_bits(v->dtype) / 8,
                                                .m = parameters->m,
                                                .reflectors = parameters->reflectors,
                                                .columns = parameters->columns,
                                                .batch = batch,
                                                .shared_bytes = chip->shared_bytes};
  const struct qr_tile_apply_plan plan = qr_tile_apply_plan_of(&problem);
  if (!plan.tile || plan.grid > INT32_MAX) return false;
  int32_t layout = qr_layout_of(task);
  const struct qr_tile_apply_parameters tile_parameters = {
      .v = parameters->v,
      .c = parameters->c,
      .tau = parameters->tau,
      .batch = batch,
      .columns = parameters->columns,
      .groups = plan.groups,
      .group_columns = plan.group_columns,
      .m = (int32_t)parameters->m,
      .reflectors = (int32_t)parameters->reflectors,
      .offset = plan.offset,
      .v_access = (int32_t)qr_tile_access_of(v, layout, parameters->m),
      .c_access = (int32_t)qr_tile_access_of(c, layout, parameters->m),
      .backward = parameters->backward,
  };
  launch_add(launches, &plan.tile->kernel, plan.grid, plan.tile->kernel.threads, (uint64_t)plan.shared_bytes,
             &tile_parameters, sizeof tile_parameters);
  return true;
}

rondo_status qr_apply_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  static const struct op_kernel *const shared[] = {&rondo_qr_apply_f32, &rondo_qr_apply_f64};
  static const struct op_kernel *const global[] = {&rondo_qr_apply_global_f32, &rondo_qr_apply_global_f64};
  const struct op_operand *operands = call->task->operands;
  struct qr_problem problem = qr_problem_of(call);
  const struct qr_attributes *attributes = op_attributes(call->task);
  int32_t layout = attributes->layout;
  const struct op_operand *c = &operands[QR_APPLY_C];
  struct qr_apply_parameters parameters = {
      .v = qr_matrix_of(&operands[QR_APPLY_V], call->data[QR_APPLY_V], layout),
      .c = qr_matrix_of(c, call->data[QR_APPLY_C], layout),
      .tau = qr_vector_of(&operands[QR_APPLY_TAU], call->data[QR_APPLY_TAU]),
      .m = problem.m,
      .reflectors = problem.k,
      .columns = c->shape[c->rank - (layout == RONDO_ROW_MAJOR ? 1 : 2)],
      .backward = !attributes->transpose,
      .leading = (int32_t)smaller(qr_leading(problem.m), INT32_MAX),
      .block_columns = 16,
      .chunk = (int32_t)smaller(problem.k, 32),
  };
  launches->count = 0;
  if (!problem.k || !problem.batch || !parameters.columns) return RONDO_OK;
  if (apply_tile_select(call->task, chip, &parameters, problem.batch, launches)) return RONDO_OK;
  /* Few columns in all: narrower blocks, for more multiprocessors. */
  while (parameters.block_columns > 4 &&
         problem.batch * divide_up(parameters.columns, parameters.block_columns) < INT64_C(2) * chip->multiprocessors)
    parameters.block_columns /= 2;
  uint64_t bytes = 0, limit = (uint64_t)chip->shared_bytes;
  int64_t leading = qr_leading(problem.m);
  bool fits = apply_fit(limit / 2, problem.element_bytes, leading, 8, 4, &parameters, &bytes) || /* two on an SM */
              apply_fit(limit, problem.element_bytes, leading, 1, 1, &parameters, &bytes);
  if (!fits) {
    parameters.block_columns = 4;
    bytes = 0;
  }
  parameters.blocks = divide_up(parameters.columns, parameters.block_columns);
  int64_t warps = larger(2, smaller(QR_APPLY_THREADS / 32, parameters.block_columns / 2));
  return launch(launches, fits ? shared : global, call->task, problem.batch * parameters.blocks, 32 * warps, bytes,
                &parameters, sizeof parameters);
}

/* ---- qr_extract, triangular_inverse ----------------------------------------------------------------------------- */

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

/* A grid of several rounds should not end in a short one: blocks ask for so much shared memory that no more of them are
 * on a multiprocessor at a time than make the rounds equal. `most` is how many there could be. */
static int64_t even_rounds(int64_t grid, int64_t most, int64_t bytes, const struct chip *chip) {
  enum { RESERVED_BYTES = 1024 }; /* of each block, beside its own */
  most = larger(1, smaller(most, (chip->shared_bytes + RESERVED_BYTES) / (bytes + RESERVED_BYTES)));
  int64_t rounds = divide_up(grid, most * chip->multiprocessors),
          even = divide_up(grid, rounds * chip->multiprocessors);
  return rounds > 1 && even < most ? larger(bytes, chip->shared_bytes / (even + 1)) : bytes;
}

/* Blocks of all their threads on a multiprocessor, by their registers. */
#define BLOCKS(chips, parameters, name, threads, blocks, ...) blocks,

rondo_status triangular_inverse_select(const struct op_call *call, const struct chip *chip,
                                       struct op_launches *launches) {
  static const struct op_kernel *const names[] = {&rondo_triangular_inverse_f32, &rondo_triangular_inverse_f64};
  static const int64_t most[] = {TRIANGULAR_INVERSE_KERNELS(BLOCKS)};
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
  int64_t grid = divide_up(batch, matrices), block_threads = INT64_C(1) * matrices * threads;
  int64_t bytes = INT64_C(1) * matrices * triangular_inverse_bytes((int32_t)n, element_bytes); /* 77 KB at most */
  bytes = even_rounds(grid, most[element_bytes == 8] * TRIANGULAR_INVERSE_THREADS / block_threads, bytes, chip);
  return launch(launches, names, call->task, grid, block_threads, (uint64_t)bytes, &parameters, sizeof parameters);
}
