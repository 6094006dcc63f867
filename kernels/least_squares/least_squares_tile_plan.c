/* least_squares_tile_plan.c - the smallest tile that holds the matrix, as often as its right-hand sides need. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "least_squares_choose.h"

static const struct qr_tile tiles[] = {LEAST_SQUARES_F32_KERNELS(QR_TILE_ENTRY)
                                           LEAST_SQUARES_F64_KERNELS(QR_TILE_ENTRY)};
static const struct qr_tile_list list = {tiles, sizeof tiles / sizeof *tiles, qr_tile_shared_bytes};

bool least_squares_tile_plan_of(const struct op_task *task, const struct chip *chip,
                                struct least_squares_tile_plan *plan) {
  struct qr_problem problem = qr_problem_nowhere(task);
  const int64_t rhs_count = least_squares_rhs_count(task);
  const struct qr_tile *best = NULL;
  for (const struct qr_tile *tile = tiles; tile < tiles + list.count; tile++)
    if (qr_tile_holds(&list, tile, problem.element_bytes, problem.m, problem.n, chip->shared_bytes) &&
        (!best || qr_tile_size(tile) < qr_tile_size(best)))
      best = tile;
  enum {
    /* Tiles of this many numbers factor a matrix fewer times than this: else two launches are faster. */
    LARGE_TILE = 2048,
    MANY_PASSES = 4,
  };
  if (!best || rhs_count > INT32_MAX) return false;
  const int64_t passes = divide_up(rhs_count, least_squares_tile_rhs(best->row_lanes, best->column_lanes));
  if (passes >= MANY_PASSES && qr_tile_size(best) >= LARGE_TILE) return false;

  *plan = (struct least_squares_tile_plan){
      .kernel = best->kernel,
      .grid = divide_up(problem.batch * passes, qr_tile_matrices(best)),
      .threads = best->kernel.threads,
      .shared_bytes = qr_tile_block_bytes(&list, best),
      .offset = qr_tile_offset_of(best, problem.m, problem.n),
      .passes = (int32_t)passes,
  };
  return true;
}
