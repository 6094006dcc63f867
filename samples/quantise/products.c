/* products.c - see products.h. A tile of 3 x 4 results is 12 sums of 8 lanes, which fill the registers of AVX2; the
 * multiplications bound it. Columns are taken in chunks, and rows in bands, which stay in the caches. */
#include "products.h"

#include <stdlib.h>

#include "../sample.h"
#include "parallel.h"

enum { TILE_ROWS = 3, TILE_COLUMNS = 4, LANES = 8, CHUNK = 1024, BAND = 48 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct grid grid_part(struct grid grid, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  return (struct grid){grid.data + row * grid.stride + column, rows, columns, grid.stride};
}

struct tile {
  const float *a[TILE_ROWS], *b[TILE_COLUMNS];
  float sums[TILE_ROWS][TILE_COLUMNS];
};

/* Rows after the last one are the last one again. */
static void find_rows(const struct grid *grid, int64_t row, int64_t column, int count, const float **rows) {
  for (int i = 0; i < count; i++) rows[i] = grid->data + smaller(row + i, grid->rows - 1) * grid->stride + column;
}

static void multiply_tile(struct tile *tile, int64_t columns) {
  lanes sums[TILE_ROWS][TILE_COLUMNS] = {0};
  int64_t k = 0;
  for (; k + LANES <= columns; k += LANES)
    for (int i = 0; i < TILE_ROWS; i++)
      for (int j = 0; j < TILE_COLUMNS; j++)
        sums[i][j] += *(const lanes *)(tile->a[i] + k) * *(const lanes *)(tile->b[j] + k);
  for (int i = 0; i < TILE_ROWS; i++)
    for (int j = 0; j < TILE_COLUMNS; j++) {
      float sum = 0;
      for (int lane = 0; lane < LANES; lane++) sum += sums[i][j][lane];
      for (int64_t rest = k; rest < columns; rest++) sum += tile->a[i][rest] * tile->b[j][rest];
      tile->sums[i][j] = sum;
    }
}

static void use_tile(const struct tile *tile, const struct grid *c, int64_t row, int64_t column, enum product_use use) {
  for (int64_t i = 0; i < smaller(TILE_ROWS, c->rows - row); i++)
    for (int64_t j = 0; j < smaller(TILE_COLUMNS, c->columns - column); j++) {
      float *to = c->data + (row + i) * c->stride + column + j, sum = tile->sums[i][j];
      *to = use == PRODUCT_SET ? sum : use == PRODUCT_ADD ? *to + sum : *to - sum;
    }
}

void product(struct grid a, struct grid b, struct grid c, enum product_use use) {
  if (a.columns == 0 && use == PRODUCT_SET)
    for (int64_t row = 0; row < c.rows; row++)
      for (int64_t column = 0; column < c.columns; column++) c.data[row * c.stride + column] = 0;
  for (int64_t k = 0; k < a.columns; k += CHUNK) {
    for (int64_t column = 0; column < c.columns; column += TILE_COLUMNS)
      for (int64_t row = 0; row < c.rows; row += TILE_ROWS) {
        struct tile tile;
        find_rows(&a, row, k, TILE_ROWS, tile.a);
        find_rows(&b, column, k, TILE_COLUMNS, tile.b);
        multiply_tile(&tile, smaller(CHUNK, a.columns - k));
        use_tile(&tile, &c, row, column, use);
      }
    if (use == PRODUCT_SET) use = PRODUCT_ADD;
  }
}

struct bands {
  struct grid a, b, c;
  enum product_use use;
};

static void multiply_band(void *context, int64_t index) {
  const struct bands *bands = context;
  int64_t row = index * BAND, rows = smaller(BAND, bands->a.rows - row);
  product(grid_part(bands->a, row, 0, rows, bands->a.columns), bands->b,
          grid_part(bands->c, row, 0, rows, bands->c.columns), bands->use);
}

void product_in_parallel(struct grid a, struct grid b, struct grid c, enum product_use use) {
  struct bands bands = {a, b, c, use};
  in_parallel((a.rows + BAND - 1) / BAND, multiply_band, &bands);
}

float *new_floats(int64_t count) {
  float *floats = malloc((size_t)count * sizeof *floats);
  if (!floats) give_up("no memory for %lld numbers", (long long)count);
  return floats;
}
