/* qr_tile_plan.c - see qr_tile_plan.h: the smallest tile that holds the matrix, and of its kernels the first that takes
 * it. */
#include "qr_tile_plan.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

static const struct qr_tile tiles[] = {QR_TILE_F32_KERNELS(QR_TILE_ENTRY) QR_TILE_F64_KERNELS(QR_TILE_ENTRY)};

static const struct qr_tile_list lists[] = {
    [QR_TILE_REFLECTORS] = {tiles, sizeof tiles / sizeof *tiles, qr_tile_shared_bytes},
    [QR_TILE_THIN] = {tiles, sizeof tiles / sizeof *tiles, qr_tile_thin_q_shared_bytes},
};

enum qr_tile_access qr_tile_access_of(const struct op_operand *operand, int32_t layout, int64_t m) {
  struct qr_matrix matrix = qr_matrix_of(operand, NULL, layout);
  if (matrix.row_stride != 1) return QR_TILE_ANY;
  const int64_t vector = operand->dtype == RONDO_F64 ? 2 : 4;
  if (!op_rows_aligned(operand, (uint64_t)vector * rondo_dtype_bits(operand->dtype) / 8) || m % vector)
    return QR_TILE_CONTIGUOUS;
  return matrix.column_stride == m ? QR_TILE_DENSE : QR_TILE_VECTORS;
}

static int64_t columns_of(const struct qr_tile *tile) {
  return tile->columns * (tile->options & TILE_HALVES ? INT64_C(2) : INT64_C(1));
}

int64_t qr_tile_size(const struct qr_tile *tile) { return tile->rows * columns_of(tile); }

int64_t qr_tile_matrices(const struct qr_tile *tile) {
  return tile->kernel.threads / ((int64_t)tile->row_lanes * tile->column_lanes);
}

int64_t qr_tile_block_bytes(const struct qr_tile_list *list, const struct qr_tile *tile) {
  const int64_t threads = larger(32, (int64_t)tile->row_lanes * tile->column_lanes);
  return tile->kernel.threads / threads *
         list->shared_bytes(tile->element_bytes, tile->rows, tile->columns, tile->row_lanes, tile->column_lanes,
                            tile->options);
}

bool qr_tile_holds(const struct qr_tile_list *list, const struct qr_tile *tile, uint32_t element_bytes, int64_t m,
                   int64_t n, int64_t shared_bytes) {
  return tile->element_bytes == (int32_t)element_bytes && m <= tile->rows && n <= columns_of(tile) &&
         qr_tile_block_bytes(list, tile) <= shared_bytes;
}

/* Kernels that are not staged write H from their registers, the persistent ones of whole dense matrices alone. All
 * others take any layout. */
static bool takes(const struct qr_tile *tile, const struct qr_tile_problem *problem) {
  const bool is_thin = problem->result == QR_TILE_THIN, is_narrow = 2 * problem->n < problem->m;
  const bool is_whole = problem->m == tile->rows && problem->n == tile->columns && problem->a_access == QR_TILE_DENSE &&
                        problem->a_number == QR_TILE_OWN;
  return qr_tile_holds(&lists[problem->result], tile, problem->element_bytes, problem->m, problem->n,
                       problem->shared_bytes) &&
         !(is_thin && tile->options & TILES_OF_H) && !(is_narrow && tile->options & TILE_WIDE) &&
         (is_whole || !(tile->options & TILE_PERSISTENT)) &&
         (!(tile->options & (TILE_PERSISTENT | TILE_HALVES)) || problem->h_access != QR_TILE_ANY);
}

int32_t qr_tile_offset_of(const struct qr_tile *tile, int64_t m, int64_t n) {
  if (tile->options & TILE_HALVES) return 0;
  const int64_t unit = qr_tile_offset_unit(tile->row_lanes, tile->column_lanes, tile->options);
  const int64_t most = qr_tile_offset_most(tile->columns);
  return (int32_t)(smaller(most, smaller(tile->rows - m, tile->columns - n)) / unit * unit);
}

struct qr_tile_plan qr_tile_plan_of(const struct qr_tile_problem *problem) {
  const struct qr_tile_list *list = &lists[problem->result];
  const struct qr_tile *best = NULL;
  for (const struct qr_tile *tile = list->tiles; tile < list->tiles + list->count; tile++)
    if (takes(tile, problem) && (!best || qr_tile_size(tile) < qr_tile_size(best))) best = tile;
  if (!best) return (struct qr_tile_plan){0};

  struct qr_tile_plan plan = {.tile = best, .shared_bytes = qr_tile_block_bytes(list, best)};
  plan.offset = qr_tile_offset_of(best, problem->m, problem->n);
  plan.grid = divide_up(problem->batch, qr_tile_matrices(best));
  if (best->options & (TILE_PERSISTENT | TILE_HALVES))
    plan.grid = smaller(plan.grid, problem->multiprocessors * best->blocks);
  return plan;
}

bool qr_tile_on_every_chip(enum qr_tile_result result, uint32_t element_bytes, int64_t m, int64_t n) {
  const struct qr_tile_problem problem = {.result = result,
                                          .element_bytes = element_bytes,
                                          .m = m,
                                          .n = n,
                                          .batch = 1,
                                          .multiprocessors = 1,
                                          .shared_bytes = EVERY_CHIP_SHARED_BYTES};
  return qr_tile_plan_of(&problem).tile != NULL;
}
