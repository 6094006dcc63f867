/* qr_block_plan.c - see qr_block_plan.h. */
#include "qr_block_plan.h"

#include "../common/launch.h"

#define BLOCK(chips, parameters, name, threads, blocks, type, layers, tile_columns, row_lanes, column_lanes, chunk,    \
              together)                                                                                                \
  {KERNEL_ENTRY(chips, parameters, name, threads), sizeof(type),                                                       \
   (layers) * (row_lanes) * (int32_t)(16 / sizeof(type)), (tile_columns) * (column_lanes), chunk},
static const struct qr_block kernels[] = {QR_BLOCK_F32_KERNELS(BLOCK) QR_BLOCK_F64_KERNELS(BLOCK)};

struct qr_block_plan qr_block_plan_of(const struct qr_block_problem *problem) {
  enum {
    COLUMNS_MOST = INT32_MAX / 2, /* their number is an int, and so is the next after the last block column */
    /* So few rows are factored sooner in shared memory (H200, 1000 of f32: 8 x 200 in 69 us against 126, 20 x 129 in
     * 124 against 128). */
    FEW_ROWS = 16,
  };
  if (problem->n > COLUMNS_MOST || problem->batch > INT32_MAX) return (struct qr_block_plan){0};
  if (problem->m <= FEW_ROWS && problem->n <= problem->shared_bytes &&
      qr_shared_bytes(problem->element_bytes, problem->m, problem->n) <= (uint64_t)problem->shared_bytes)
    return (struct qr_block_plan){0};
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    const struct qr_block *block = &kernels[i];
    if (block->element_bytes != (int32_t)problem->element_bytes || problem->m > block->rows) continue;
    int64_t bytes = qr_block_shared_bytes(block->element_bytes, block->rows, block->columns, block->chunk);
    if (bytes > problem->shared_bytes) break;
    return (struct qr_block_plan){block, bytes};
  }
  return (struct qr_block_plan){0};
}
