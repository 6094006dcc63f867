/* gemm_host.c - products of many vectors on the host. An item is 32 rows of W for one group of vectors. W and X are
 * decoded to fp32 for 128 of k at a time, W to panels in which rows are neighbours, and each is used for all of the
 * other (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). Up to sixteen vectors are
 * gemv's, unless a row must have the same bits in any number. */
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/rows.h"
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
  return shape->count <= GEMV_COUNT && !attributes->one_order && !gemm_has_norms(task) &&
         task->operands[GEMV_VECTORS].dtype != RONDO_E4M3;
}

static int64_t groups_of(const struct gemv_shape *shape) { return divide_up(shape->count, BLOCK_VECTORS); }

/* Of an item. A sum of squares has one item's results. */
static int64_t panels_each(const struct op_task *task) {
  return task->operands[GEMM_SQUARES].present ? GEMM_GROUP / BLOCK_ROWS : 1;
}

int64_t gemm_host_items(const struct op_task *task) {
  const struct gemv_shape shape = gemv_shape_of(task);
  if (is_gemv(task, &shape)) return gemv_host_items(task);
  return shape.batch * groups_of(&shape) * divide_up(shape.m, BLOCK_ROWS * panels_each(task));
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

/* Of a vector: its scale, or by its squares in the order of their groups. */
static float factor_of(const struct work *work, int64_t vector) {
  const struct op_task *task = work->call->task;
  const struct op_operand *operand = &task->operands[GEMM_VECTOR_SQUARES],
                          *scales = &task->operands[GEMV_VECTOR_SCALES];
  const struct gemv_attributes *attributes = op_attributes(task);
  const float unit = panel_unit(task->operands[GEMV_WEIGHTS].dtype) * panel_unit(task->operands[GEMV_VECTORS].dtype);
  if (scales->present) {
    const int64_t begin = scales->rank == 2 ? work->batch * scales->stride[0] : 0;
    return attributes->scale * ((const float *)work->call->data[GEMV_VECTOR_SCALES])[begin + vector] * unit;
  }
  if (!operand->present) return attributes->scale * unit;
  const float *squares = work->call->data[GEMM_VECTOR_SQUARES];
  const int64_t begin = work->batch * gemv_batch_stride(operand) + vector;
  float sum = 0;
  for (int64_t i = 0; i < gemm_groups(work->shape.k); i++)
    sum += squares[begin + i * operand->stride[operand->rank - 2]];
  return attributes->scale / sqrtf(sum / (float)work->shape.k + attributes->norm_epsilon);
}

/* The second result of `count` finished results of a vector, one group, and their sum of squares. */
static void group_store(const struct work *work, int64_t vector, int64_t column, int64_t count, const float *results) {
  const struct op_operand *operands = work->call->task->operands, *normed = &operands[GEMM_NORMED];
  const struct op_operand *squares = &operands[GEMM_SQUARES];
  float values[GEMM_GROUP], sums[GEMM_GROUP / 8] = {0};
  rows_load(operands[GEMV_NORM].dtype, work->call->data[GEMV_NORM], column, count, values);
  for (int64_t i = 0; i < count; i++) {
    sums[i % (GEMM_GROUP / 8)] += results[i] * results[i];
    values[i] *= results[i];
  }
  for (int64_t half = GEMM_GROUP / 16; half; half /= 2)
    for (int64_t i = 0; i < half; i++) sums[i] += sums[half + i];
  rows_store(normed->dtype, work->call->data[GEMM_NORMED],
             work->batch * gemv_batch_stride(normed) + vector * normed->stride[normed->rank - 2] + column, count,
             values);
  ((float *)work->call->data[GEMM_SQUARES])[work->batch * gemv_batch_stride(squares) +
                                            column / GEMM_GROUP * squares->stride[squares->rank - 2] + vector] = *sums;
}

static void panels_run(struct work *work, int64_t first_panel, int64_t panels) {
  const bool has_second = work->call->task->operands[GEMM_NORMED].present;
  const int64_t first_row = first_panel * BLOCK_ROWS, end = smaller(work->shape.m, first_row + panels * BLOCK_ROWS);
  sums_make(work, first_panel, panels);
  for (int64_t v = 0; v < work->vectors; v++) {
    const int64_t vector = work->first_vector + v;
    const float factor = factor_of(work, vector);
    for (int64_t row = first_row; row < end; row += BLOCK_ROWS)
      gemv_host_finish(work->call, work->batch, vector, row, smaller(end - row, BLOCK_ROWS), factor,
                       work->sums[v] + row - first_row);
    for (int64_t row = first_row; row < end && has_second; row += GEMM_GROUP)
      group_store(work, vector, row, smaller(end - row, GEMM_GROUP), work->sums[v] + row - first_row);
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
  const int64_t each = panels_each(call->task), groups = groups_of(&work.shape);
  const int64_t items = divide_up(work.shape.m, BLOCK_ROWS * each), panels = divide_up(work.shape.m, BLOCK_ROWS);
  const int64_t most = divide_up(work.shape.count, groups);
  for (int64_t item = first; item < last;) {
    const int64_t in = item % items, count = smaller(smaller(items - in, last - item), BLOCK_PANELS / each);
    work.batch = item / items / groups;
    work.first_vector = item / items % groups * most;
    work.vectors = smaller(work.shape.count - work.first_vector, most);
    panels_run(&work, in * each, smaller(count * each, panels - in * each));
    item += count;
  }
}
