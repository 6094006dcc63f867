/* least_squares_choose.c - which design solves least squares: the family's table of choices, its planners and launches.
 * README.md has the same names and reasons, and tests/unit/test_choices.c compares the two.
 *
 * The batch changes the grid and no result: a matrix has the same bits in every batch. */
#include "least_squares_choose.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

LEAST_SQUARES_BLOCK_KERNELS(KERNEL_CONSTANT)
LEAST_SQUARES_AFTER_KERNELS(KERNEL_CONSTANT)

/* ---- Planners --------------------------------------------------------------------------------------------------- */

static const struct qr_tile tiles[] = {LEAST_SQUARES_F32_KERNELS(QR_TILE_ENTRY)
                                           LEAST_SQUARES_F64_KERNELS(QR_TILE_ENTRY)};

bool least_squares_plan_tile(const struct qr_problem *problem, int64_t rhs_count, const struct chip *chip,
                             struct qr_plan *plan) {
  /* Tiles of this many numbers factor a matrix fewer times than this: else two launches are faster. */
  enum { LARGE_TILE = 2048, MANY_PASSES = 4 };
  const struct qr_tile *tile =
      qr_tile_smallest(tiles, sizeof tiles / sizeof *tiles, problem, problem->n, chip->shared_bytes, NULL);
  if (!tile || rhs_count > INT32_MAX) return false;
  const int64_t passes = divide_up(rhs_count, least_squares_tile_rhs(tile->row_lanes, tile->column_lanes));
  if (passes >= MANY_PASSES && qr_tile_numbers(tile) >= LARGE_TILE) return false;
  plan->kernel = &tile->kernel;
  plan->grid = divide_up(problem->batch * passes, qr_tile_matrices(tile));
  plan->threads = tile->kernel.threads;
  plan->shared_bytes = qr_tile_block_bytes(tile);
  plan->offset = qr_tile_offset_of(tile, problem->m, problem->n);
  plan->passes = (int32_t)passes;
  return true;
}

/* The threads of a block have all rows, four each, and its ring fits. */
static bool plan_block(const struct qr_problem *problem, int64_t rhs_count, const struct chip *chip,
                       struct qr_plan *plan) {
  enum { ROWS = 4 };
  static const struct op_kernel *const one[] = {&rondo_least_squares_block_f32, &rondo_least_squares_block_f64};
  static const struct op_kernel *const more[] = {&rondo_least_squares_block_f32_4, &rondo_least_squares_block_f64_4};
  const int64_t threads = divide_up(problem->m, INT64_C(32) * ROWS) * 32;
  plan->kernel = (rhs_count == 1 ? one : more)[problem->element_bytes == 8];
  plan->group_columns = rhs_count == 1 ? 1 : LEAST_SQUARES_BLOCK_RHS;
  plan->grid = smaller(problem->batch * divide_up(rhs_count, plan->group_columns), INT32_MAX);
  plan->threads = threads;
  plan->shared_bytes = least_squares_block_shared_bytes(problem->element_bytes, threads, problem->n, rhs_count);
  return threads <= plan->kernel->threads && plan->shared_bytes <= chip->shared_bytes;
}

/* A warp has as many right-hand sides as fit in shared memory. If none fits, they are in the scratch. */
static bool plan_warp(const struct qr_problem *problem, int64_t rhs_count, const struct chip *chip,
                      struct qr_plan *plan) {
  enum { BLOCKS = 32 }; /* of a multiprocessor */
  static const struct op_kernel *const kernels[] = {&rondo_least_squares_after_f32, &rondo_least_squares_after_f64};
  plan->kernel = kernels[problem->element_bytes == 8];
  plan->is_in_scratch = !least_squares_fits_shared(problem->element_bytes, problem->m, 1);
  plan->group_columns = (int32_t)smaller(rhs_count, LEAST_SQUARES_GROUP);
  if (!plan->is_in_scratch) {
    while (plan->group_columns > 1 &&
           !least_squares_fits_shared(problem->element_bytes, problem->m, plan->group_columns))
      plan->group_columns /= 2;
    plan->shared_bytes = qr_leading(problem->m) * plan->group_columns * problem->element_bytes;
  }
  plan->threads = LEAST_SQUARES_AFTER_THREADS;
  plan->grid =
      smaller(problem->batch * divide_up(rhs_count, plan->group_columns), (int64_t)BLOCKS * chip->multiprocessors);
  return true;
}

/* ---- Launches --------------------------------------------------------------------------------------------------- */

static struct qr_matrix matrix_of(const struct op_call *call, int place) {
  return qr_matrix_of(&call->task->operands[place], call->data[place], qr_layout_of(call->task));
}

static struct qr_vector residual_of(const struct op_call *call) {
  return qr_vector_of(&call->task->operands[LEAST_SQUARES_RESIDUAL], call->data[LEAST_SQUARES_RESIDUAL]);
}

static struct qr_vector info_of(const struct op_call *call) {
  return (struct qr_vector){call->data[LEAST_SQUARES_INFO], call->task->operands[LEAST_SQUARES_INFO].stride[0]};
}

static rondo_status launch_tile(const struct op_call *call, const struct qr_problem *problem, const struct chip *chip,
                                const struct qr_plan *plan, struct op_launches *launches) {
  (void)chip;
  const struct least_squares_parameters parameters = {
      .tile = {.a = problem->a.matrix,
               .batch = problem->batch,
               .m = (int32_t)problem->m,
               .n = (int32_t)problem->n,
               .offset = plan->offset,
               .a_access = (int32_t)problem->a.access},
      .b = matrix_of(call, LEAST_SQUARES_B),
      .x = matrix_of(call, LEAST_SQUARES_X),
      .residual = residual_of(call),
      .info = info_of(call),
      .rhs_count = (int32_t)least_squares_rhs_count(call->task),
      .passes = plan->passes,
  };
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
  return RONDO_OK;
}

/* H and tau, to the scratch. */
static rondo_status launch_factoring(const struct op_call *call, const struct chip *chip,
                                     const struct least_squares_scratch *scratch, struct op_launches *launches) {
  struct op_step factoring;
  least_squares_factoring_of(call->task, &factoring);
  factoring.data[QR_A] = call->data[LEAST_SQUARES_A], factoring.data[QR_H] = call->scratch;
  factoring.data[QR_TAU] = op_after(call->scratch, scratch->tau);
  factoring.call.scratch = op_after(call->scratch, scratch->qr);
  return op_qr.select(&factoring.call, chip, launches);
}

static rondo_status launch_two(const struct op_call *call, const struct qr_problem *problem, const struct chip *chip,
                               const struct qr_plan *plan, struct op_launches *launches) {
  const struct least_squares_scratch scratch = least_squares_scratch_of(call->task);
  const int64_t m = problem->m, n = problem->n, rhs_count = least_squares_rhs_count(call->task);
  struct least_squares_after_parameters parameters = {
      .h = {call->scratch, 1, qr_workspace_leading(m), qr_workspace_leading(m) * n},
      .b = matrix_of(call, LEAST_SQUARES_B),
      .x = matrix_of(call, LEAST_SQUARES_X),
      .tau = {op_after(call->scratch, scratch.tau), n},
      .residual = residual_of(call),
      .info = info_of(call),
      .m = m,
      .n = n,
      .batch = problem->batch,
      .rhs_count = rhs_count,
      .groups = divide_up(rhs_count, plan->group_columns),
      .group = plan->group_columns,
      .leading = (int32_t)smaller(qr_leading(m), INT32_MAX),
  };
  if (plan->is_in_scratch)
    parameters.work = (struct qr_matrix){op_after(call->scratch, scratch.work), 1, m, m * rhs_count};
  OP_TRY(launch_factoring(call, chip, &scratch, launches));
  qr_launch_add(launches, plan, &parameters, sizeof parameters);
  return RONDO_OK;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static const struct least_squares_choice choices[] = {
    {DESIGN(tile, least_squares_plan_tile, launch_tile),
     .why = "right-hand sides become Q'b while A is factored; neither Q nor R is written"},
    {DESIGN(block_after_qr, plan_block, launch_two),
     .why = "no tile holds A, or would factor it too often; a block's threads hold all rows of the right-hand sides"},
    {DESIGN(warp_after_qr, plan_warp, launch_two), .why = "more rows than the threads of a block hold"},
};

const struct least_squares_choice *least_squares_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

rondo_status least_squares_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct qr_problem problem = qr_problem_of(call);
  const int64_t rhs_count = least_squares_rhs_count(call->task);
  const struct least_squares_choice *choice = choices;
  struct qr_plan plan = {0};
  launches->count = 0;
  if (!problem.batch) return RONDO_OK;
  for (; !choice->plan(&problem, rhs_count, chip, &plan); choice++) plan = (struct qr_plan){0}; /* the last takes all */
  OP_TRY(launch_check_blocks("a", plan.grid));
  OP_TRY(choice->launch(call, &problem, chip, &plan, launches));
  launches->choice = choice->name; /* after qr's */
  launches->why = choice->why;
  return RONDO_OK;
}
