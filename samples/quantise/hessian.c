/* hessian.c - see hessian.h. The Cholesky factorisation takes blocks of columns from the last to the first. A product
 * of what is known subtracts the later columns from a block, and bounds the time; the rest is substitution row by row.
 */
#include "hessian.h"

#include <math.h>
#include <stdlib.h>

#include "../sample.h"
#include "parallel.h"

enum { BLOCK = 64, BAND = 48 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- The order --------------------------------------------------------------------------------------------------- */

struct part {
  int64_t first; /* column */
  double squares;
};

/* Largest squares first; of equal ones the first columns. */
static int compare_parts(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  if (x->squares != y->squares) return x->squares < y->squares ? 1 : -1;
  return (x->first > y->first) - (x->first < y->first);
}

void hessian_order(struct grid inputs, int64_t *columns) {
  const int64_t count = inputs.columns / HESSIAN_BLOCK;
  struct part *parts = calloc((size_t)count, sizeof *parts);
  if (!parts) give_up("no memory for an order of columns");
  for (int64_t i = 0; i < count; i++) parts[i].first = i * HESSIAN_BLOCK;
  for (int64_t row = 0; row < inputs.rows; row++)
    for (int64_t i = 0; i < inputs.columns; i++) {
      double x = (double)inputs.data[row * inputs.stride + i];
      parts[i / HESSIAN_BLOCK].squares += x * x;
    }
  qsort(parts, (size_t)count, sizeof *parts, compare_parts);
  for (int64_t i = 0; i < inputs.columns; i++) columns[i] = parts[i / HESSIAN_BLOCK].first + i % HESSIAN_BLOCK;
  free(parts);
}

/* ---- H ----------------------------------------------------------------------------------------------------------- */

struct transposition {
  struct grid from, to;
  const int64_t *columns; /* of the inputs, in the order of H */
};

static void transpose_band(void *context, int64_t index) {
  const struct transposition *both = context;
  int64_t first = index * BAND, end = smaller(first + BAND, both->to.rows);
  for (int64_t column = 0; column < both->to.columns; column++)
    for (int64_t row = first; row < end; row++)
      both->to.data[row * both->to.stride + column] = both->from.data[column * both->from.stride + both->columns[row]];
}

/* Rows of the upper triangle, of a[0] a[0]^T. */
static void square_band(void *context, int64_t index) {
  const struct transposition *both = context;
  const struct grid a = both->from, c = both->to;
  int64_t row = index * BAND, rows = smaller(BAND, a.rows - row), rest = a.rows - row;
  product(grid_part(a, row, 0, rows, a.columns), grid_part(a, row, 0, rest, a.columns),
          grid_part(c, row, row, rows, rest), PRODUCT_SET);
}

void hessian_of(struct grid inputs, const int64_t *columns, float damping, struct grid hessian) {
  const int64_t n = inputs.columns, bands = (n + BAND - 1) / BAND;
  struct grid turned = {new_floats(n * inputs.rows), n, inputs.rows, inputs.rows};
  in_parallel(bands, transpose_band, &(struct transposition){inputs, turned, columns});
  in_parallel(bands, square_band, &(struct transposition){turned, hessian, NULL});
  free(turned.data);
  double trace = 0;
  for (int64_t i = 0; i < n; i++) trace += (double)hessian.data[i * hessian.stride + i];
  float added = trace > 0 ? (float)(trace / (double)n) * damping : 1;
  for (int64_t i = 0; i < n; i++) hessian.data[i * hessian.stride + i] += added;
}

/* ---- R ----------------------------------------------------------------------------------------------------------- */

struct block {
  struct grid r;
  int64_t begin, end; /* its columns */
};

/* The elements of a row in a block of columns, from the last to the first, from which the later columns are subtracted
 * already. Those of row j of R must be known for each j of these columns after `row`. */
static void substitute(const struct block *block, int64_t row) {
  float *own = block->r.data + row * block->r.stride;
  for (int64_t j = block->end - 1; j >= block->begin && j >= row; j--) {
    const float *other = block->r.data + j * block->r.stride;
    float sum = own[j];
    for (int64_t k = j + 1; k < block->end; k++) sum -= own[k] * other[k];
    own[j] = j == row ? sqrtf(sum) : sum / other[j];
  }
}

static void substitute_band(void *context, int64_t index) {
  const struct block *block = context;
  int64_t first = index * BAND, end = smaller(first + BAND, block->begin);
  for (int64_t row = first; row < end; row++) substitute(block, row);
}

bool hessian_factor(struct grid hessian) {
  const int64_t n = hessian.rows;
  for (int64_t end = n; end > 0; end -= BLOCK) {
    struct block block = {hessian, end > BLOCK ? end - BLOCK : 0, end};
    const int64_t columns = end - block.begin;
    product_in_parallel(grid_part(hessian, 0, end, end, n - end),
                        grid_part(hessian, block.begin, end, columns, n - end),
                        grid_part(hessian, 0, block.begin, end, columns), PRODUCT_SUBTRACT);
    for (int64_t row = end - 1; row >= block.begin; row--) {
      substitute(&block, row);
      float pivot = hessian.data[row * hessian.stride + row]; /* NaN is the root of a negative number */
      if (!(pivot > 0 && isfinite(pivot))) return false;
    }
    in_parallel((block.begin + BAND - 1) / BAND, substitute_band, &block);
  }
  return true;
}

void hessian_mirror(struct grid factor) {
  for (int64_t row = 0; row < factor.rows; row++)
    for (int64_t column = 0; column < row; column++)
      factor.data[row * factor.stride + column] = factor.data[column * factor.stride + row];
}
