/* qr_tile_apply_plan.h - which register-tile kernel applies Q, if any does. */
#ifndef RONDO_QR_TILE_APPLY_PLAN_H
#define RONDO_QR_TILE_APPLY_PLAN_H

#include "qr_tile_apply.h"
#include "qr_tile_plan.h"

struct qr_tile_apply_problem {
  uint32_t element_bytes;
  int64_t m, reflectors, columns, batch; /* all at least 1 */
  int64_t shared_bytes;                  /* of the chip */
};

struct qr_tile_apply_plan {
  const struct qr_tile *tile; /* NULL: none has as many rows */
  int32_t offset, group_columns;
  int64_t groups, grid, shared_bytes;
};

/* Pure. Only the grid depends on the batch. */
struct qr_tile_apply_plan qr_tile_apply_plan_of(const struct qr_tile_apply_problem *problem);

#endif
