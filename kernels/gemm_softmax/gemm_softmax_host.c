/* gemm_softmax_host.c - row maxima and softmax of S = scale A B^T on the host.
 *
 * An item is a tile of rows of one matrix. S is made in blocks of columns, never as a whole: the maxima and the sums of
 * exponentials of a row are kept while the blocks pass (Milakov, Gimelshein, Online normalizer calculation for softmax,
 * 2018), and for P the blocks are made a second time, unless there is only one. Every element of S is a sum over k in
 * ascending order, whatever the block it is in. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "gemm_softmax.h"

enum { ROWS = 32, COLUMNS = 64, DEPTH = 64 };

/* The state of an item: some 32 KB on the stack of its thread. */
struct tile {
  struct gemm_softmax_shape shape;
  const uint16_t *a, *b; /* of this matrix */
  rondo_dtype dtype;     /* theirs */
  int64_t first_row, row_count;
  int64_t column_end;         /* no row of the tile counts this column */
  int64_t column_limit[ROWS]; /* no column from here on counts */
  float max[ROWS], sum[ROWS];
  float a_block[ROWS][DEPTH], b_block[DEPTH][COLUMNS], s[ROWS][COLUMNS];
};

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/* s += a_block b_block, one row at a time: its 64 sums stay in vector registers. */
static void multiply(struct tile *tile, int64_t depth) {
  typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
  enum { VECTORS = COLUMNS * sizeof(float) / sizeof(lanes) };
  for (int64_t row = 0; row < tile->row_count; row++) {
    lanes *s = (lanes *)tile->s[row];
    lanes sums[VECTORS];
    for (int i = 0; i < VECTORS; i++) sums[i] = s[i];
    for (int64_t k = 0; k < depth; k++) {
      const lanes *b = (const lanes *)tile->b_block[k];
      float a = tile->a_block[row][k];
      for (int i = 0; i < VECTORS; i++) sums[i] += a * b[i];
    }
    for (int i = 0; i < VECTORS; i++) s[i] = sums[i];
  }
}

/* s := scale A B^T in the block of columns from `first` on. Columns from column_end on are not read. */
static void block_make(struct tile *tile, int64_t first) {
  const struct gemm_softmax_shape *shape = &tile->shape;
  const int64_t count = clamp(tile->column_end - first, 0, COLUMNS);
  float line[DEPTH];
  memset(tile->s, 0, sizeof tile->s);
  memset(tile->b_block, 0, sizeof tile->b_block);
  for (int64_t k = 0; k < shape->k; k += DEPTH) {
    int64_t depth = clamp(shape->k - k, 0, DEPTH);
    for (int64_t row = 0; row < tile->row_count; row++)
      rows_load(tile->dtype, tile->a, (tile->first_row + row) * shape->a_row_stride + k, depth, tile->a_block[row]);
    for (int64_t column = 0; column < count; column++) {
      rows_load(tile->dtype, tile->b, (first + column) * shape->b_row_stride + k, depth, line);
      for (int64_t i = 0; i < depth; i++) tile->b_block[i][column] = line[i];
    }
    multiply(tile, depth);
  }
  for (int64_t row = 0; row < tile->row_count; row++)
    for (int64_t column = 0; column < COLUMNS; column++) tile->s[row][column] *= shape->scale;
}

/* Columns of row `row` that count, of the block that starts at `first`. */
static int64_t counted(const struct tile *tile, int64_t row, int64_t first) {
  return clamp(tile->column_limit[row] - first, 0, COLUMNS);
}

/* The maximum of a row, the block taken in. A NaN stays. */
static float row_max(const struct tile *tile, int64_t row, int64_t first) {
  float max = tile->max[row];
  int64_t count = counted(tile, row, first);
  for (int64_t i = 0; i < count; i++) max = tile->s[row][i] > max || isnan(tile->s[row][i]) ? tile->s[row][i] : max;
  return max;
}

/* From what exponents are counted: the maximum, but not -infinity, so that exp(-infinity - base) is 0. */
static float base_of(float max) { return max == -INFINITY ? 0.0f : max; }

/* Starts an item; returns its matrix. */
static int64_t tile_begin(struct tile *tile, const struct op_call *call, int64_t item) {
  struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  int64_t tiles = divide_up(shape.m, ROWS), matrix = item / tiles;
  tile->shape = shape;
  tile->a = (const uint16_t *)call->data[GEMM_A] + matrix * shape.a_batch_stride;
  tile->b = (const uint16_t *)call->data[GEMM_B] + matrix * shape.b_batch_stride;
  tile->dtype = call->task->operands[GEMM_A].dtype;
  tile->first_row = item % tiles * ROWS;
  tile->row_count = clamp(shape.m - tile->first_row, 1, ROWS);
  for (int64_t row = 0; row < tile->row_count; row++) {
    int64_t limit = shape.causal ? tile->first_row + row + shape.n - shape.m + 1 : shape.n;
    tile->column_limit[row] = clamp(limit, 0, shape.n);
    tile->max[row] = -INFINITY;
    tile->sum[row] = 0;
  }
  tile->column_end = tile->column_limit[tile->row_count - 1];
  return matrix;
}

int64_t gemm_softmax_host_items(const struct op_task *task) {
  if (op_elements(&task->operands[GEMM_OUT]) == 0) return 0;
  struct gemm_softmax_shape shape = gemm_softmax_shape_of(task);
  return shape.batch * divide_up(shape.m, ROWS);
}

/* Takes all columns into the maxima and, for the softmax, into the sums. */
static void tile_reduce(struct tile *tile, bool is_softmax) {
  for (int64_t first = 0; first < tile->column_end; first += COLUMNS) {
    block_make(tile, first);
    for (int64_t row = 0; row < tile->row_count; row++) {
      float max = row_max(tile, row, first), base = base_of(max), sum = tile->sum[row];
      int64_t count = is_softmax ? counted(tile, row, first) : 0;
      if (is_softmax) sum *= expf(tile->max[row] - base);
      for (int64_t i = 0; i < count; i++) sum += expf(tile->s[row][i] - base);
      tile->max[row] = max;
      tile->sum[row] = sum;
    }
  }
}

void gemm_rowmax_host_run(const struct op_call *call, int64_t first, int64_t last) {
  for (int64_t item = first; item < last; item++) {
    struct tile tile;
    int64_t matrix = tile_begin(&tile, call, item);
    tile_reduce(&tile, false);
    float *max = (float *)call->data[GEMM_OUT] + matrix * tile.shape.out_batch_stride;
    for (int64_t row = 0; row < tile.row_count; row++)
      max[(tile.first_row + row) * tile.shape.out_row_stride] = tile.max[row];
  }
}

/* P in the block's columns. Those that do not count are zero even in a row of NaN. */
static void block_write(const struct tile *tile, int64_t first, void *p, int64_t begin, rondo_dtype dtype) {
  int64_t columns = clamp(tile->shape.n - first, 0, COLUMNS);
  for (int64_t row = 0; row < tile->row_count; row++) {
    int64_t count = counted(tile, row, first),
            index = begin + (tile->first_row + row) * tile->shape.out_row_stride + first;
    float base = base_of(tile->max[row]);
    float line[COLUMNS];
    for (int64_t i = 0; i < columns; i++) line[i] = i < count ? expf(tile->s[row][i] - base) / tile->sum[row] : 0.0f;
    rows_store(dtype, p, index, columns, line);
  }
}

void gemm_softmax_host_run(const struct op_call *call, int64_t first, int64_t last) {
  rondo_dtype dtype = call->task->operands[GEMM_OUT].dtype;
  for (int64_t item = first; item < last; item++) {
    struct tile tile;
    int64_t matrix = tile_begin(&tile, call, item);
    tile_reduce(&tile, true);
    int64_t begin = matrix * tile.shape.out_batch_stride;
    for (int64_t column = 0; column < tile.shape.n; column += COLUMNS) {
      if (tile.column_end > COLUMNS && column < tile.column_end) block_make(&tile, column);
      block_write(&tile, column, call->data[GEMM_OUT], begin, dtype);
    }
  }
}
