/* least_squares_select.c - which kernels solve least squares: pure functions of shape and chip.
 *
 * The smallest tile that holds the matrix, as often as its right-hand sides need; else, and where a large tile would
 * factor often, H and tau by qr's kernels, and behind them a kernel that applies the reflectors and substitutes.
 * Nothing here depends on the batch but the size of the grid: a matrix has the same bits wherever it stands. */
#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../qr/qr_tile_plan.h"
#include "least_squares.h"

LEAST_SQUARES_BLOCK_KERNELS(KERNEL_CONSTANT)
LEAST_SQUARES_AFTER_KERNELS(KERNEL_CONSTANT)

enum {
  BEHIND_BLOCKS = 32, /* of a multiprocessor */
  BLOCK_ROWS = 4,     /* of a thread */
  /* So often a tile of so many numbers factors at most: then two kernels are faster. */
  MANY_PASSES = 4,
  LARGE_TILE = 2048,
};

static const struct qr_tile tiles[] = {LEAST_SQUARES_F32_KERNELS(QR_TILE_ENTRY)
                                           LEAST_SQUARES_F64_KERNELS(QR_TILE_ENTRY)};
static const struct qr_tile_list list = {tiles, sizeof tiles / sizeof *tiles, least_squares_shared_bytes};

bool least_squares_plan(const struct op_task *task, const struct chip *chip, struct least_squares_plan *plan) {
  struct qr_problem problem = qr_problem_nowhere(task);
  const int64_t rhs_count = least_squares_rhs(task);
  const struct qr_tile *best = NULL;
  for (const struct qr_tile *tile = tiles; tile < tiles + list.count; tile++)
    if (qr_tile_holds(&list, tile, problem.element_bytes, problem.m, problem.n, chip->shared_bytes) &&
        (!best || qr_tile_size(tile) < qr_tile_size(best)))
      best = tile;
  if (!best || rhs_count > INT32_MAX) return false;
  const int64_t passes = divide_up(rhs_count, least_squares_tile_rhs(best->row_lanes, best->column_lanes));
  if (passes >= MANY_PASSES && qr_tile_size(best) >= LARGE_TILE) return false;

  *plan = (struct least_squares_plan){
      .kernel = best->kernel,
      .grid = divide_up(problem.batch * passes, qr_tile_matrices(best)),
      .threads = best->kernel.threads,
      .shared_bytes = qr_tile_block_bytes(&list, best),
      .offset = qr_tile_offset_of(best, problem.m, problem.n),
      .passes = (int32_t)passes,
  };
  if (best->options & QR_TILE_BULK) plan->grid = smaller(plan->grid, (int64_t)chip->multiprocessors * best->blocks);
  return true;
}

/* The one launch of a tile's kernel. */
static rondo_status tile_select(const struct op_call *call, const struct least_squares_plan *plan,
                                struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands;
  const int32_t layout = qr_layout_of(call->task);
  const struct qr_problem problem = qr_problem_of(call);
  if (plan->grid > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a needs %" PRId64 " blocks, expected at most %" PRId32, plan->grid,
                      INT32_MAX);
  const struct least_squares_parameters parameters = {
      .tile = {.a = qr_matrix_of(problem.a, problem.a_data, layout),
               .batch = problem.batch,
               .m = (int32_t)problem.m,
               .n = (int32_t)problem.n,
               .offset = plan->offset,
               .a_access = (int32_t)qr_tile_access_of(problem.a, layout, problem.m)},
      .b = qr_matrix_of(&operands[LEAST_SQUARES_B], call->data[LEAST_SQUARES_B], layout),
      .x = qr_matrix_of(&operands[LEAST_SQUARES_X], call->data[LEAST_SQUARES_X], layout),
      .residual = qr_vector_of(&operands[LEAST_SQUARES_RESIDUAL], call->data[LEAST_SQUARES_RESIDUAL]),
      .info = {call->data[LEAST_SQUARES_INFO], operands[LEAST_SQUARES_INFO].stride[0]},
      .rhs_count = (int32_t)least_squares_rhs(call->task),
      .passes = plan->passes,
  };
  launch_add(launches, &plan->kernel, plan->grid, plan->threads, (uint64_t)plan->shared_bytes, &parameters,
             sizeof parameters);
  return RONDO_OK;
}

/* The second launch of two, where a block's threads have all rows and its ring fits. */
static bool block_select(const struct chip *chip, uint32_t element_bytes,
                         const struct least_squares_after_parameters *common, struct op_launches *launches) {
  static const struct op_kernel *const one[] = {&rondo_least_squares_block_f32, &rondo_least_squares_block_f64};
  static const struct op_kernel *const more[] = {&rondo_least_squares_block_f32_4, &rondo_least_squares_block_f64_4};
  const struct op_kernel *kernel = (common->rhs_count == 1 ? one : more)[element_bytes == 8];
  const int64_t threads = divide_up(common->m, INT64_C(32) * BLOCK_ROWS) * 32;
  if (threads > kernel->threads) return false;
  const int64_t shared_bytes = least_squares_block_shared_bytes(element_bytes, threads, common->n, common->rhs_count);
  if (shared_bytes > chip->shared_bytes) return false;
  struct least_squares_after_parameters parameters = *common;
  parameters.group = common->rhs_count == 1 ? 1 : LEAST_SQUARES_BLOCK_RHS;
  parameters.groups = divide_up(parameters.rhs_count, parameters.group);
  launch_add(launches, kernel, smaller(parameters.batch * parameters.groups, INT32_MAX), threads,
             (uint64_t)shared_bytes, &parameters, sizeof parameters);
  return true;
}

/* The second launch of two. */
static void behind_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  static const struct op_kernel *const names[] = {&rondo_least_squares_after_f32, &rondo_least_squares_after_f64};
  const struct op_operand *operands = call->task->operands;
  const int32_t layout = qr_layout_of(call->task);
  const struct qr_problem problem = qr_problem_of(call);
  const struct least_squares_scratch scratch = least_squares_scratch_of(call->task);
  const int64_t m = problem.m, n = problem.n, rhs_count = least_squares_rhs(call->task);
  unsigned char *base = call->scratch;
  struct least_squares_after_parameters parameters = {
      .h = {base, 1, least_squares_h_leading(m), least_squares_h_leading(m) * n},
      .b = qr_matrix_of(&operands[LEAST_SQUARES_B], call->data[LEAST_SQUARES_B], layout),
      .x = qr_matrix_of(&operands[LEAST_SQUARES_X], call->data[LEAST_SQUARES_X], layout),
      .tau = {base ? base + scratch.tau : NULL, n},
      .residual = qr_vector_of(&operands[LEAST_SQUARES_RESIDUAL], call->data[LEAST_SQUARES_RESIDUAL]),
      .info = {call->data[LEAST_SQUARES_INFO], operands[LEAST_SQUARES_INFO].stride[0]},
      .m = m,
      .n = n,
      .batch = problem.batch,
      .rhs_count = rhs_count,
      .group = (int32_t)smaller(rhs_count, LEAST_SQUARES_GROUP),
      .leading = (int32_t)smaller(qr_leading(m), INT32_MAX),
  };
  if (block_select(chip, problem.element_bytes, &parameters, launches)) return;
  uint64_t shared_bytes = 0;
  if (least_squares_fits_shared(problem.element_bytes, m, 1)) {
    while (parameters.group > 1 && !least_squares_fits_shared(problem.element_bytes, m, parameters.group))
      parameters.group /= 2;
    shared_bytes = (uint64_t)parameters.leading * (uint64_t)parameters.group * problem.element_bytes;
  } else {
    parameters.work = (struct qr_matrix){base ? base + scratch.work : NULL, 1, m, m * rhs_count};
  }
  parameters.groups = divide_up(rhs_count, parameters.group);
  launch_add(launches, names[problem.element_bytes == 8],
             smaller(problem.batch * parameters.groups, (int64_t)BEHIND_BLOCKS * chip->multiprocessors),
             LEAST_SQUARES_AFTER_THREADS, shared_bytes, &parameters, sizeof parameters);
}

rondo_status least_squares_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  launches->count = 0;
  if (!least_squares_host_items(call->task)) return RONDO_OK; /* no matrices */
  struct least_squares_plan plan;
  if (least_squares_plan(call->task, chip, &plan)) return tile_select(call, &plan, launches);
  struct least_squares_factoring factoring;
  least_squares_factoring_of(call->task, &factoring);
  const struct least_squares_scratch scratch = least_squares_scratch_of(call->task);
  unsigned char *base = call->scratch;
  void *data[OP_MAX_OPERANDS] = {
      [QR_A] = call->data[LEAST_SQUARES_A], [QR_H] = base, [QR_TAU] = base ? base + scratch.tau : NULL};
  struct op_call first = {.task = &factoring.task, .data = data, .scratch = base ? base + scratch.qr : NULL};
  rondo_status status = op_qr.select(&first, chip, launches);
  if (status == RONDO_OK) behind_select(call, chip, launches);
  return status;
}
