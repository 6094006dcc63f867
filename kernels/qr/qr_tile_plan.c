/* qr_tile_plan.c - see qr_tile_plan.h: the smallest tile that holds the matrix and can take its layout. */
#include "qr_tile_plan.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

enum {
  /* From there on panels are staged: what one matrix loads hides behind the steps of others. */
  MANY_MATRICES = 4096,
};

static const struct qr_tile tiles[] = {QR_TILE_F32_KERNELS(QR_TILE_ENTRY) QR_TILE_F64_KERNELS(QR_TILE_ENTRY)};

enum qr_tile_access qr_tile_access_of(const struct op_operand *operand, int32_t layout, int64_t m) {
  enum { VECTOR_BYTES = 16 };
  struct qr_matrix matrix = qr_matrix_of(operand, NULL, layout);
  if (matrix.row_stride != 1) return QR_TILE_ANY;
  uint64_t column_bytes = (uint64_t)m * rondo_dtype_bits(operand->dtype) / 8;
  if (!op_rows_aligned(operand, VECTOR_BYTES) || column_bytes % VECTOR_BYTES) return QR_TILE_CONTIGUOUS;
  return matrix.column_stride == m ? QR_TILE_DENSE : QR_TILE_VECTORS;
}

static int64_t columns_of(const struct qr_tile *tile) {
  return tile->columns * (tile->options & QR_TILE_HALVES ? INT64_C(2) : INT64_C(1));
}

static int64_t size_of(const struct qr_tile *tile) { return tile->rows * columns_of(tile); }

static int64_t shared_bytes_of(const struct qr_tile *tile) {
  return qr_tile_shared_bytes(tile->element_bytes, tile->rows, tile->columns, tile->row_lanes, tile->column_lanes,
                              tile->options);
}

/* Lanes that share a column read and write it directly only where it is contiguous. */
static bool takes(const struct qr_tile *tile, const struct qr_tile_problem *problem) {
  bool writes_directly = tile->row_lanes > 1 && !(tile->options & QR_TILE_STAGED);
  bool reads_directly = writes_directly && !(tile->options & (QR_TILE_PERSISTENT | QR_TILE_HALVES));
  return tile->element_bytes == (int32_t)problem->element_bytes && problem->m <= tile->rows &&
         problem->n <= columns_of(tile) && shared_bytes_of(tile) <= problem->shared_bytes &&
         !(writes_directly && problem->h_access == QR_TILE_ANY) &&
         !(reads_directly && problem->a_access == QR_TILE_ANY);
}

/* Of two of one size, the staged one behind the direct one: for panels of many matrices, and where a lane cannot read
 * whole columns of the tile by vectors. */
static bool is_better(const struct qr_tile *tile, const struct qr_tile *best, const struct qr_tile_problem *problem) {
  if (!best) return true;
  if (size_of(tile) != size_of(best)) return size_of(tile) < size_of(best);
  if (tile->row_lanes == 1)
    return problem->m < tile->rows || problem->n < tile->columns || problem->a_access > QR_TILE_VECTORS ||
           problem->h_access > QR_TILE_VECTORS;
  return tile->element_bytes == 4 && tile->columns == 16 && problem->batch >= MANY_MATRICES;
}

struct qr_tile_plan qr_tile_plan_of(const struct qr_tile_problem *problem) {
  const struct qr_tile *best = NULL;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
    if (takes(&tiles[i], problem) && is_better(&tiles[i], best, problem)) best = &tiles[i];
  if (!best) return (struct qr_tile_plan){0};

  struct qr_tile_plan plan = {.tile = best, .shared_bytes = shared_bytes_of(best)};
  int64_t unit = qr_tile_offset_unit(best->columns);
  if (!(best->options & QR_TILE_HALVES))
    plan.offset = (int32_t)(smaller(best->rows - problem->m, best->columns - problem->n) / unit * unit);
  int64_t lanes = (int64_t)best->row_lanes * best->column_lanes;
  plan.grid = lanes < 32 ? divide_up(problem->batch, 32 / lanes) : problem->batch;
  if (best->options & (QR_TILE_PERSISTENT | QR_TILE_HALVES))
    plan.grid = smaller(plan.grid, problem->multiprocessors * best->blocks);
  return plan;
}
