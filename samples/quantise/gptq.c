/* gptq.c - see gptq.h. Columns are rounded one after the other. E = D R has the changes of results by the errors
 * D = weights - rounded, and element j of a row of E depends on the errors of columns 0 to j only: so column j is
 * rounded to the number that makes this element least, after the errors of the columns before it. GPTQ in its usual
 * form changes the later weights instead, by the inverse of H; the rounded weights are the same ("The Geometry of LLM
 * Quantization: GPTQ as Babai's Nearest Plane Algorithm", arXiv 2507.18553).
 *
 * The 16 columns of a block are rounded with each e4m3 scale factor near the usual one. The block keeps the factor
 * whose elements of E have the least squares. */
#include "gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../chat/rounding.h"
#include "parallel.h"

enum { BLOCK = GPTQ_BLOCK, BAND = 32 };

/* The factors that are tried: the largest magnitude divided by numbers from 4 to 8.6. */
#define LEAST_FACTOR    (0.7f / 6)
#define GREATEST_FACTOR (1.5f / 6)

/* A block of columns, for all rows. */
struct columns {
  float factor[BLOCK][BLOCK]; /* the block's part of R, with zeros below its diagonal */
  float inverse[BLOCK];       /* of the diagonal */
};

/* A block of one row: the weights, and what the columns before the block add to E. */
struct block {
  const float *weights;
  float sums[BLOCK];
};

struct choice {
  uint8_t scale, codes[BLOCK];
  float errors[BLOCK]; /* of the weights */
  float square;        /* of the block's elements of E */
};

static struct columns columns_of(const struct grid *factor, int64_t first) {
  struct columns columns = {0};
  for (int64_t i = 0; i < BLOCK; i++) {
    const float *row = factor->data + (first + i) * factor->stride + first;
    for (int64_t j = i; j < BLOCK; j++) columns.factor[i][j] = row[j];
    columns.inverse[i] = 1 / row[i];
  }
  return columns;
}

/* An error of column j, in all elements of E. */
static void add_error(const struct columns *columns, int j, float error, float sums[BLOCK]) {
  for (int i = 0; i < BLOCK; i++) sums[i] += error * columns->factor[j][i];
}

/* The largest magnitude among the block's weights that would make all its elements of E zero. */
static float largest_wanted(const struct columns *columns, const struct block *block) {
  float sums[BLOCK], largest = 0;
  memcpy(sums, block->sums, sizeof sums);
  for (int j = 0; j < BLOCK; j++) {
    float error = -sums[j] * columns->inverse[j];
    largest = fmaxf(largest, fabsf(block->weights[j] - error));
    add_error(columns, j, error, sums);
  }
  return largest;
}

/* Rounds the block with one scale factor. Gives up, with a square that is no less, where it exceeds `most`. */
static struct choice round_with(const struct columns *columns, const struct block *block, uint8_t scale,
                                float global_scale, float most) {
  struct choice choice = {.scale = scale};
  float sums[BLOCK], step = of_e4m3(scale) * global_scale;
  memcpy(sums, block->sums, sizeof sums);
  for (int j = 0; j < BLOCK && choice.square < most; j++) {
    float wanted = block->weights[j] + sums[j] * columns->inverse[j];
    choice.codes[j] = to_e2m1(wanted / step);
    choice.errors[j] = block->weights[j] - of_e2m1(choice.codes[j]) * step;
    add_error(columns, j, choice.errors[j], sums);
    choice.square += sums[j] * sums[j];
  }
  return choice;
}

static struct choice round_block(const struct columns *columns, const struct block *block, float global_scale) {
  float largest = largest_wanted(columns, block) / global_scale;
  uint8_t scale = to_e4m3(largest * LEAST_FACTOR), last = to_e4m3(largest * GREATEST_FACTOR);
  if (scale == 0) scale = 1; /* the smallest factor that is not zero */
  struct choice best = round_with(columns, block, scale, global_scale, INFINITY);
  while (scale++ < last) {
    struct choice choice = round_with(columns, block, scale, global_scale, best.square);
    if (choice.square < best.square) best = choice;
  }
  return best;
}

struct round {
  const struct gptq *gptq;
  const struct columns *columns; /* of each block */
  double *squares;               /* of each band */
};

static void keep(const struct gptq *gptq, const struct choice *choice, int64_t row, int64_t first) {
  const int64_t columns = gptq->weights.columns;
  gptq->scales[(row * columns + first) / BLOCK] = choice->scale;
  memcpy(gptq->codes + row * columns + first, choice->codes, BLOCK);
  float step = of_e4m3(choice->scale) * gptq->global_scale;
  float *rounded = gptq->rounded.data + row * gptq->rounded.stride + first;
  for (int j = 0; j < BLOCK; j++) rounded[j] = of_e2m1(choice->codes[j]) * step;
}

/* Rounds a band of rows. */
static void round_band(void *context, int64_t index) {
  const struct round *round = context;
  const struct gptq *gptq = round->gptq;
  const int64_t columns = gptq->weights.columns, row = index * BAND, left = gptq->weights.rows - row;
  struct grid errors = {new_floats(BAND * columns), left < BAND ? left : BAND, columns, columns};
  float sums[BAND][BLOCK];
  for (int64_t first = 0; first < columns; first += BLOCK) {
    product(grid_part(errors, 0, 0, errors.rows, first), grid_part(gptq->factor, first, 0, BLOCK, first),
            (struct grid){sums[0], errors.rows, BLOCK, BLOCK}, PRODUCT_SET);
    for (int64_t i = 0; i < errors.rows; i++) {
      struct block block = {.weights = gptq->weights.data + (row + i) * gptq->weights.stride + gptq->columns[first]};
      memcpy(block.sums, sums[i], sizeof block.sums);
      struct choice choice = round_block(&round->columns[first / BLOCK], &block, gptq->global_scale);
      memcpy(errors.data + i * columns + first, choice.errors, sizeof choice.errors);
      keep(gptq, &choice, row + i, gptq->columns[first]);
      round->squares[index] += (double)choice.square;
    }
  }
  free(errors.data);
}

double gptq_round(const struct gptq *gptq) {
  const int64_t blocks = gptq->weights.columns / BLOCK, bands = (gptq->weights.rows + BAND - 1) / BAND;
  struct columns *columns = (struct columns *)(void *)new_floats(blocks * (int64_t)(sizeof *columns / sizeof(float)));
  double *squares = (double *)(void *)new_floats(bands * 2), sum = 0;
  for (int64_t i = 0; i < blocks; i++) columns[i] = columns_of(&gptq->factor, i * BLOCK);
  memset(squares, 0, (size_t)bands * sizeof *squares);
  in_parallel(bands, round_band, &(struct round){gptq, columns, squares});
  for (int64_t i = 0; i < bands; i++) sum += squares[i];
  free(columns);
  free(squares);
  return sum;
}
