/* qr_tile_plan.c - plans of the register tiles: of the kernels that take a matrix, the first of the smallest tile. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr_choose.h"
#include "qr_tile_apply.h"

static const struct qr_tile tiles[] = {QR_TILE_WHOLE_F32_KERNELS(QR_TILE_ENTRY) QR_TILE_WHOLE_F64_KERNELS(QR_TILE_ENTRY)
                                           QR_TILE_F32_KERNELS(QR_TILE_ENTRY) QR_TILE_F64_KERNELS(QR_TILE_ENTRY)};
static const struct qr_tile applying_tiles[] = {QR_TILE_APPLY_KERNELS(QR_TILE_ENTRY)};

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

static int64_t columns_of(const struct qr_tile *tile) {
  return tile->columns * (tile->options & TILE_HALVES ? INT64_C(2) : INT64_C(1));
}

int64_t qr_tile_numbers(const struct qr_tile *tile) { return tile->rows * columns_of(tile); }

static int64_t lanes_of(const struct qr_tile *tile) { return (int64_t)tile->row_lanes * tile->column_lanes; }

int64_t qr_tile_matrices(const struct qr_tile *tile) { return tile->kernel.threads / lanes_of(tile); }

static int64_t block_bytes(const struct qr_tile *tile, bool is_thin) {
  return tile->kernel.threads / larger(32, lanes_of(tile)) *
         (is_thin ? qr_tile_thin_q_shared_bytes : qr_tile_shared_bytes)(
             tile->element_bytes, tile->rows, tile->columns, tile->row_lanes, tile->column_lanes, tile->options);
}

int64_t qr_tile_block_bytes(const struct qr_tile *tile) { return block_bytes(tile, false); }

const struct qr_tile *qr_tile_smallest(const struct qr_tile *list, size_t count, const struct qr_problem *problem,
                                       int64_t n, int64_t shared_bytes,
                                       bool (*takes)(const struct qr_tile *tile, const struct qr_problem *problem)) {
  const struct qr_tile *best = NULL;
  for (const struct qr_tile *tile = list; tile < list + count; tile++)
    if (tile->element_bytes == (int32_t)problem->element_bytes && problem->m <= tile->rows &&
        (n <= columns_of(tile) || tile->options & TILE_LOWERED) && qr_tile_block_bytes(tile) <= shared_bytes &&
        (!takes || takes(tile, problem)) && (!best || qr_tile_numbers(tile) < qr_tile_numbers(best)))
      best = tile;
  return best;
}

int32_t qr_tile_offset_of(const struct qr_tile *tile, int64_t m, int64_t n) {
  if (tile->options & TILE_HALVES) return 0;
  const int64_t unit = qr_tile_offset_unit(tile->row_lanes, tile->column_lanes, tile->options);
  const int64_t most = qr_tile_offset_most(tile->columns);
  return (int32_t)(smaller(most, smaller(tile->rows - m, tile->columns - n)) / unit * unit);
}

static void plan_launch(const struct qr_tile *tile, int64_t matrices, int64_t shared_bytes, struct qr_plan *plan) {
  plan->tile = tile;
  plan->kernel = &tile->kernel;
  plan->grid = divide_up(matrices, qr_tile_matrices(tile));
  plan->threads = tile->kernel.threads;
  plan->shared_bytes = shared_bytes;
}

/* ---- H and tau, or thin Q and R ---------------------------------------------------------------------------------- */

/* Some kernels take H alone: whole dense matrices, matrices in place, or H that leaves from the registers. All others
 * take any layout. */
static bool takes(const struct qr_tile *tile, const struct qr_problem *problem) {
  const bool is_whole = problem->m == tile->rows && problem->n == tile->columns && problem->a.access == QR_TILE_DENSE &&
                        !qr_is_narrow(problem->dtype);
  const bool is_in_place =
      problem->a.access <= QR_TILE_VECTORS && problem->h.access <= QR_TILE_VECTORS && !qr_is_narrow(problem->dtype);
  return !(tile->options & TILES_OF_H && !problem->h.is_present) &&
         !(tile->options & TILE_WIDE && 2 * problem->n < problem->m) &&
         !(tile->options & TILE_PERSISTENT && !is_whole) &&
         !(tile->options & (TILE_PERSISTENT | TILE_HALVES) && problem->h.access == QR_TILE_ANY) &&
         !(tile->options & TILE_IN_PLACE && !is_in_place);
}

bool qr_plan_tile(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const struct qr_tile *tile =
      qr_tile_smallest(tiles, sizeof tiles / sizeof *tiles, problem, problem->n, chip->shared_bytes, takes);
  const int64_t bytes = tile ? block_bytes(tile, !problem->h.is_present) : 0;
  if (!tile || bytes > chip->shared_bytes) return false;
  plan_launch(tile, problem->batch, bytes, plan);
  plan->offset = qr_tile_offset_of(tile, problem->m, problem->n);
  if (tile->options & (TILE_PERSISTENT | TILE_HALVES))
    plan->grid = smaller(plan->grid, (int64_t)chip->multiprocessors * tile->blocks);
  return plan->grid <= INT32_MAX;
}

bool qr_tile_on_every_chip(const struct qr_problem *problem) {
  const struct chip least = {.multiprocessors = 1, .shared_bytes = EVERY_CHIP_SHARED_BYTES};
  struct qr_problem dense = *problem;
  struct qr_plan plan;
  dense.batch = 1;
  dense.a.access = dense.h.access = QR_TILE_DENSE;
  return qr_plan_tile(&dense, &least, &plan);
}

/* ---- Q applied --------------------------------------------------------------------------------------------------- */

/* A lowered tile takes any number of reflectors, as many at a time as it has columns. */
bool qr_plan_apply_tile(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const struct qr_tile *tile = qr_tile_smallest(applying_tiles, sizeof applying_tiles / sizeof *applying_tiles, problem,
                                                problem->k, chip->shared_bytes, NULL);
  if (!tile) return false;
  const bool is_lowered = tile->options & TILE_LOWERED;
  const int64_t unit = qr_tile_offset_unit(tile->row_lanes, tile->column_lanes, tile->options),
                down = tile->rows - problem->m, across = tile->columns - problem->k;
  plan->offset = (int32_t)((is_lowered ? down : smaller(down, across)) / unit * unit);
  plan->group_columns = tile->columns - (is_lowered ? 0 : plan->offset);
  plan->groups = divide_up(problem->columns, plan->group_columns);
  plan_launch(tile, problem->batch * plan->groups, qr_tile_block_bytes(tile), plan);
  return plan->grid <= INT32_MAX;
}
