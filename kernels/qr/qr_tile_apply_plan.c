/* qr_tile_apply_plan.c - see qr_tile_apply_plan.h: the smallest tile that holds V, where it pays. */
#include "qr_tile_apply_plan.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

static const struct qr_tile tiles[] = {QR_TILE_APPLY_KERNELS(QR_TILE_ENTRY)};

static const struct qr_tile_list list = {tiles, sizeof tiles / sizeof *tiles, qr_tile_shared_bytes};

/* A tile takes its time whatever it holds, the other kernel as much as there are columns. Measured on an H200: tiles of
 * one warp always pay, square ones of several from half of their columns on (1000 of 128 x 128 in f32, us, the tile and
 * the other: one column 220 and 89, 32 columns 226 and 177, 64 columns 231 and 328), and panels that are half full. */
static bool pays(const struct qr_tile *tile, const struct qr_tile_apply_problem *problem) {
  if (tile->row_lanes * tile->column_lanes <= 32) return true;
  if (tile->rows > tile->columns) return 2 * problem->m > tile->rows;
  return 2 * problem->columns >= tile->columns;
}

struct qr_tile_apply_plan qr_tile_apply_plan_of(const struct qr_tile_apply_problem *problem) {
  const struct qr_tile *best =
      qr_tile_smallest(&list, problem->element_bytes, problem->m, problem->reflectors, problem->shared_bytes);
  if (!best || !pays(best, problem)) return (struct qr_tile_apply_plan){0};

  struct qr_tile_apply_plan plan = {.tile = best, .shared_bytes = qr_tile_block_bytes(&list, best)};
  int64_t unit = qr_tile_offset_unit(best->row_lanes, best->column_lanes, best->options);
  plan.offset = (int32_t)(smaller(best->rows - problem->m, best->columns - problem->reflectors) / unit * unit);
  plan.group_columns = best->columns - plan.offset;
  plan.groups = divide_up(problem->columns, plan.group_columns);
  plan.grid = divide_up(problem->batch * plan.groups, qr_tile_matrices(best));
  return plan;
}
