/* gemm_host.c - products of many vectors on the host. An item is 32 rows of W for one group of vectors. W and X are
 * decoded to fp32 for 128 of k at a time, W to panels in which rows are neighbours, and each is used for all of the
 * other (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). Up to sixteen vectors are
 * gemv's, unless a row must have the same bits in any number. */
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/transpose.h"
#include "../gemv/gemv_panel.h"
#include "gemm.h"
#include "gemm_block_loops.h"

enum { TRANSPOSED = 8 };

/* What a call has at hand: some 410 KB on the stack of its thread. */
struct work {
  const struct op_call *call;
  struct gemv_shape shape;
  int64_t batch, first_vector, vectors; /* of one group */
  gemm_block_loops *multiply;
  _Alignas(BLOCK_ALIGNMENT) float x[BLOCK_VECTORS][BLOCK_DEPTH];
  _Alignas(BLOCK_ALIGNMENT) float rows[TRANSPOSED][BLOCK_DEPTH];
  _Alignas(BLOCK_ALIGNMENT) float panel[BLOCK_DEPTH][BLOCK_ROWS];
  _Alignas(BLOCK_ALIGNMENT) float sums[BLOCK_VECTORS][BLOCK_PITCH];
};

void gemm_block_256(const struct gemm_block *block) { multiply(block); }

gemm_block_loops *gemm_block_loops_here(void) { return gemv_panel_has_512() ? gemm_block_512 : gemm_block_256; }

static bool is_gemv(const struct op_task *task, const struct gemv_shape *shape) {
  const struct gemv_attributes *attributes = op_attributes(task);
  return shape->count <= GEMV_COUNT && !attributes->one_order;
}

static int64_t groups_of(const struct gemv_shape *shape) { return divide_up(shape->count, BLOCK_VECTORS); }

int64_t gemm_host_items(const struct op_task *task) {
  const struct gemv_shape shape = gemv_shape_of(task);
  if (is_gemv(task, &shape)) return gemv_host_items(task);
  return shape.batch * groups_of(&shape) * divide_up(shape.m, BLOCK_ROWS);
}

/* Rows of W as columns of the panel, and zeros for rows that are not there. */
static void panel_make(struct work *work, int64_t first_row, int64_t column, int64_t columns) {
  const int64_t padded = round_up(columns, PANEL_STEP);
  for (int64_t r = 0; r < BLOCK_ROWS; r += TRANSPOSED) {
    const int64_t present = smaller(larger(work->shape.m - first_row - r, 0), TRANSPOSED);
    gemv_host_decode(work->call, GEMV_WEIGHTS, work->batch, first_row + r, present, column, columns, work->rows[0],
                     BLOCK_DEPTH);
    for (int64_t i = present; i < TRANSPOSED; i++) memset(work->rows[i], 0, sizeof work->rows[i]);
    for (int64_t i = 0; i < padded; i += TRANSPOSED)
      transpose_eight(&work->rows[0][i], BLOCK_DEPTH, &work->panel[i][r], BLOCK_ROWS);
  }
}

static void sums_make(struct work *work, int64_t first_panel, int64_t panels) {
  const int64_t count = round_up(work->vectors, BLOCK_STEP);
  memset(work->sums, 0, (size_t)count * sizeof *work->sums);
  for (int64_t v = work->vectors; v < count; v++) memset(work->x[v], 0, sizeof work->x[v]);
  for (int64_t column = 0; column < work->shape.k; column += BLOCK_DEPTH) {
    const int64_t columns = smaller(work->shape.k - column, BLOCK_DEPTH);
    gemv_host_decode(work->call, GEMV_VECTORS, work->batch, work->first_vector, work->vectors, column, columns,
                     work->x[0], BLOCK_DEPTH);
    for (int64_t p = 0; p < panels; p++) {
      panel_make(work, (first_panel + p) * BLOCK_ROWS, column, columns);
      work->multiply(&(struct gemm_block){.vectors = work->x[0],
                                          .weights = work->panel[0],
                                          .count = count,
                                          .depth = round_up(columns, PANEL_STEP),
                                          .run = gemm_block_run(work->shape.k),
                                          .sums = work->sums[0] + p * BLOCK_ROWS});
    }
  }
}

static void panels_run(struct work *work, int64_t first_panel, int64_t panels) {
  const struct gemv_attributes *attributes = op_attributes(work->call->task);
  sums_make(work, first_panel, panels);
  for (int64_t v = 0; v < work->vectors; v++)
    for (int64_t p = 0; p < panels; p++) {
      const int64_t row = (first_panel + p) * BLOCK_ROWS;
      gemv_host_finish(work->call, work->batch, work->first_vector + v, row, smaller(work->shape.m - row, BLOCK_ROWS),
                       attributes->scale, work->sums[v] + p * BLOCK_ROWS);
    }
}

void gemm_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct work work; /* what is read was written */
  work.call = call;
  work.shape = gemv_shape_of(call->task);
  if (is_gemv(call->task, &work.shape)) {
    gemv_host_run(call, first, last);
    return;
  }
  work.multiply = gemm_block_loops_here();
  const int64_t panels = divide_up(work.shape.m, BLOCK_ROWS), groups = groups_of(&work.shape);
  const int64_t most = divide_up(work.shape.count, groups);
  for (int64_t item = first; item < last;) {
    const int64_t panel = item % panels, count = smaller(smaller(panels - panel, last - item), BLOCK_PANELS);
    work.batch = item / panels / groups;
    work.first_vector = item / panels % groups * most;
    work.vectors = smaller(work.shape.count - work.first_vector, most);
    panels_run(&work, panel, count);
    item += count;
  }
}
