/* qr_tile_apply_plan.c - see qr_tile_apply_plan.h: the tile of the fewest rows that takes V. */
#include "qr_tile_apply_plan.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

static const struct qr_tile tiles[] = {QR_TILE_APPLY_KERNELS(QR_TILE_ENTRY)};
static const struct qr_tile_list list = {tiles, sizeof tiles / sizeof *tiles, qr_tile_shared_bytes};

/* A tile that is lowered takes any number of reflectors, as many at a time as it has columns. */
static bool takes(const struct qr_tile *tile, const struct qr_tile_apply_problem *problem) {
  return tile->element_bytes == (int32_t)problem->element_bytes && problem->m <= tile->rows &&
         (tile->options & TILE_LOWERED || problem->reflectors <= tile->columns) &&
         qr_tile_block_bytes(&list, tile) <= problem->shared_bytes;
}

struct qr_tile_apply_plan qr_tile_apply_plan_of(const struct qr_tile_apply_problem *problem) {
  const struct qr_tile *best = NULL;
  for (size_t i = 0; i < list.count; i++)
    if (takes(&tiles[i], problem) && (!best || tiles[i].rows < best->rows)) best = &tiles[i];
  if (!best) return (struct qr_tile_apply_plan){0};

  struct qr_tile_apply_plan plan = {.tile = best, .shared_bytes = qr_tile_block_bytes(&list, best)};
  int64_t unit = qr_tile_offset_unit(best->row_lanes, best->column_lanes, best->options);
  bool is_lowered = best->options & TILE_LOWERED;
  int64_t down = best->rows - problem->m, across = best->columns - problem->reflectors;
  plan.offset = (int32_t)((is_lowered ? down : smaller(down, across)) / unit * unit);
  plan.group_columns = best->columns - (is_lowered ? 0 : plan.offset);
  plan.groups = divide_up(problem->columns, plan.group_columns);
  plan.grid = divide_up(problem->batch * plan.groups, qr_tile_matrices(best));
  return plan;
}
