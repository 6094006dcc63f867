/* test_gptq.c - the quantise sample's rounding on random matrices: the products, the factor of H, and GPTQ itself. The
 * oracle is GPTQ in its usual form, in fp64: the inverse of H by elimination, and later weights that make up for each
 * error. The sample does neither. */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/quantise/gptq.h"
#include "../../samples/quantise/hessian.h"
#include "../support.h"

#define TOKENS  INT64_C(150)
#define ROWS    INT64_C(40)
#define COLUMNS INT64_C(112)
#define BLOCKS  (COLUMNS / GPTQ_BLOCK)
#define SQUARE  ((size_t)(COLUMNS * COLUMNS))
static const float global_scale = 0x1p-9f, damping = 0.03f;

static struct grid new_grid(int64_t rows, int64_t columns) {
  return (struct grid){new_floats(rows * columns), rows, columns, columns};
}

static struct grid random_grid(struct random *random, int64_t rows, int64_t columns) {
  struct grid grid = new_grid(rows, columns);
  for (int64_t i = 0; i < rows * columns; i++) grid.data[i] = (float)random_normal(random);
  return grid;
}

static double at(struct grid grid, int64_t row, int64_t column) {
  return (double)grid.data[row * grid.stride + column];
}

/* Inputs that resemble each other, with one column a hundred times as large as the others. */
static struct grid some_inputs(void) {
  struct random random = {5};
  struct grid inputs = random_grid(&random, TOKENS, COLUMNS);
  for (int64_t i = 0; i < TOKENS; i++) {
    float *row = inputs.data + i * COLUMNS;
    for (int64_t j = 1; j < COLUMNS; j++) row[j] += 0.9f * row[j - 1];
    row[40] *= 100;
  }
  return inputs;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static double dot(struct grid a, int64_t row, struct grid b, int64_t column, double *size) {
  double sum = *size = 0;
  for (int64_t k = 0; k < a.columns; k++) {
    sum += at(a, row, k) * at(b, column, k);
    *size += fabs(at(a, row, k) * at(b, column, k));
  }
  return sum;
}

static void check_product(struct random *random, int64_t m, int64_t n, int64_t k, enum product_use use) {
  struct grid a = random_grid(random, m, k + 3), b = random_grid(random, n, k + 1), c = random_grid(random, m, n + 2);
  struct grid before = new_grid(m, n + 2);
  memcpy(before.data, c.data, (size_t)(m * (n + 2)) * sizeof(float));
  a.columns = b.columns = k;
  product_in_parallel(a, b, grid_part(c, 0, 0, m, n), use);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      double size, sum = dot(a, i, b, j, &size), old = at(before, i, j);
      double expected = use == PRODUCT_SET ? sum : use == PRODUCT_ADD ? old + sum : old - sum;
      cr_assert_leq(fabs(at(c, i, j) - expected), 1e-6 * (size + fabs(old)), "%d x %d x %d, row %d, column %d", (int)m,
                    (int)n, (int)k, (int)i, (int)j);
    }
    cr_assert(at(c, i, n) == at(before, i, n) && at(c, i, n + 1) == at(before, i, n + 1));
  }
  free(a.data);
  free(b.data);
  free(c.data);
  free(before.data);
}

Test(gptq, products_are_those_of_the_definition_and_write_nothing_else) {
  struct random random = {1};
  static const int64_t sizes[][3] = {{1, 1, 1},  {3, 4, 8},   {7, 5, 13},    {49, 17, 64},
                                     {50, 3, 0}, {2, 9, 100}, {97, 6, 1031}, {4, 4, 2050}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int use = PRODUCT_SET; use <= PRODUCT_SUBTRACT; use++)
      check_product(&random, sizes[i][0], sizes[i][1], sizes[i][2], (enum product_use)use);
}

/* ---- H ----------------------------------------------------------------------------------------------------------- */

/* H with damping, in fp64. */
static double *hessian_oracle(struct grid inputs) {
  const int64_t n = inputs.columns;
  double *hessian = calloc((size_t)(n * n), sizeof *hessian), mean = 0;
  cr_assert_not_null(hessian);
  for (int64_t token = 0; token < inputs.rows; token++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) hessian[i * n + j] += at(inputs, token, i) * at(inputs, token, j);
  for (int64_t i = 0; i < n; i++) mean += hessian[i * n + i] / (double)n;
  for (int64_t i = 0; i < n; i++) hessian[i * n + i] += mean > 0 ? mean * (double)damping : 1;
  return hessian;
}

static const int64_t *in_order(void) {
  static int64_t columns[COLUMNS];
  for (int64_t i = 0; i < COLUMNS; i++) columns[i] = i;
  return columns;
}

static struct grid factor_of(struct grid inputs) {
  struct grid factor = new_grid(inputs.columns, inputs.columns);
  hessian_of(inputs, in_order(), damping, factor);
  cr_assert(hessian_factor(factor));
  hessian_mirror(factor);
  return factor;
}

Test(gptq, factor_times_its_transpose_is_the_square_of_the_inputs) {
  static const int64_t widths[] = {16, 64, 80, COLUMNS};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    struct grid inputs = some_inputs();
    inputs.columns = widths[w];
    const int64_t n = inputs.columns;
    double *hessian = hessian_oracle(inputs);
    struct grid factor = factor_of(inputs);
    for (int64_t i = 0; i < n; i++) {
      cr_assert_gt(at(factor, i, i), 0);
      for (int64_t j = i; j < n; j++) {
        double sum = 0, size = sqrt(hessian[i * n + i] * hessian[j * n + j]);
        for (int64_t k = j; k < n; k++) sum += at(factor, i, k) * at(factor, j, k);
        cr_assert_leq(fabs(sum - hessian[i * n + j]), 1e-5 * size, "%d columns: %d, %d", (int)n, (int)i, (int)j);
        cr_assert_eq(at(factor, j, i), at(factor, i, j));
      }
    }
    free(hessian);
    free(inputs.data);
    free(factor.data);
  }
}

Test(gptq, factor_of_inputs_that_are_no_numbers_is_refused) {
  static const float wrong[] = {NAN, INFINITY, 1e30f};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct grid inputs = some_inputs(), factor = new_grid(COLUMNS, COLUMNS);
    inputs.data[7 * COLUMNS + 70] = wrong[i];
    hessian_of(inputs, in_order(), damping, factor);
    cr_assert_not(hessian_factor(factor), "%g", (double)wrong[i]);
    free(inputs.data);
    free(factor.data);
  }
}

/* ---- GPTQ -------------------------------------------------------------------------------------------------------- */

struct result {
  uint8_t codes[ROWS * COLUMNS], scales[ROWS * BLOCKS];
  float rounded[ROWS * COLUMNS];
  double square;
};

static struct result *round_in(const int64_t *columns, struct grid weights, struct grid factor) {
  struct result *result = malloc(sizeof *result);
  cr_assert_not_null(result);
  result->square = gptq_round(&(struct gptq){.weights = weights,
                                             .columns = columns,
                                             .factor = factor,
                                             .global_scale = global_scale,
                                             .codes = result->codes,
                                             .scales = result->scales,
                                             .rounded = {result->rounded, ROWS, COLUMNS, COLUMNS}});
  return result;
}

static struct result *round_all(struct grid weights, struct grid factor) {
  return round_in(in_order(), weights, factor);
}

static void require_valid(const struct result *result) {
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    uint8_t scale = result->scales[i / GPTQ_BLOCK];
    cr_assert(result->codes[i] < 16 && scale > 0 && scale < 0x7f);
    double expected = oracle_e2m1(result->codes[i]) * oracle_e4m3(scale) * (double)global_scale;
    cr_assert_eq(result->rounded[i], (float)expected);
  }
}

/* d^T H d, d the errors of a row. */
static double square_of(const double *hessian, const double errors[COLUMNS]) {
  double sum = 0;
  for (int64_t i = 0; i < COLUMNS; i++)
    for (int64_t j = 0; j < COLUMNS; j++) sum += errors[i] * hessian[i * COLUMNS + j] * errors[j];
  return sum;
}

static uint8_t nearest_e2m1(double value) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < 16; code++)
    if (fabs(oracle_e2m1(code) - value) < fabs(oracle_e2m1(best) - value)) best = code;
  return best;
}

/* The inverse by Gauss and Jordan, of a matrix that needs no pivots. */
static void invert(double *matrix, double *inverse) {
  for (int64_t i = 0; i < COLUMNS * COLUMNS; i++) inverse[i] = i % COLUMNS == i / COLUMNS;
  for (int64_t pivot = 0; pivot < COLUMNS; pivot++) {
    double divisor = matrix[pivot * COLUMNS + pivot];
    for (int64_t j = 0; j < COLUMNS; j++) {
      matrix[pivot * COLUMNS + j] /= divisor;
      inverse[pivot * COLUMNS + j] /= divisor;
    }
    for (int64_t i = 0; i < COLUMNS; i++) {
      double factor = matrix[i * COLUMNS + pivot];
      if (i == pivot) continue;
      for (int64_t j = 0; j < COLUMNS; j++) {
        matrix[i * COLUMNS + j] -= factor * matrix[pivot * COLUMNS + j];
        inverse[i * COLUMNS + j] -= factor * inverse[pivot * COLUMNS + j];
      }
    }
  }
}

/* The codes of a row with these scales: each error is divided among the later weights, and its column leaves H. */
static void usual_form(double *inverse, const float *weights, const uint8_t *scales, uint8_t *codes) {
  double left[COLUMNS];
  for (int64_t j = 0; j < COLUMNS; j++) left[j] = (double)weights[j];
  for (int64_t j = 0; j < COLUMNS; j++) {
    double step = oracle_e4m3(scales[j / GPTQ_BLOCK]) * (double)global_scale, diagonal = inverse[j * COLUMNS + j];
    codes[j] = nearest_e2m1(left[j] / step);
    double error = left[j] - oracle_e2m1(codes[j]) * step;
    for (int64_t i = j + 1; i < COLUMNS; i++) left[i] -= error * inverse[j * COLUMNS + i] / diagonal;
    for (int64_t i = j + 1; i < COLUMNS; i++) {
      double factor = inverse[i * COLUMNS + j] / diagonal;
      for (int64_t k = j; k < COLUMNS; k++) inverse[i * COLUMNS + k] -= factor * inverse[j * COLUMNS + k];
    }
  }
}

/* The values, as -0 and 0 are two codes. fp32 may decide a tie otherwise, and then all later codes of that row. */
Test(gptq, rounds_as_its_usual_form_does_with_the_same_scales) {
  struct random random = {7};
  struct grid inputs = some_inputs(), weights = random_grid(&random, ROWS, COLUMNS), factor = factor_of(inputs);
  struct result *result = round_all(weights, factor);
  double *hessian = hessian_oracle(inputs), *inverse = malloc(SQUARE * sizeof *inverse);
  double *copy = malloc(SQUARE * sizeof *copy);
  cr_assert(inverse && copy);
  invert(hessian, inverse);
  int different = 0;
  for (int64_t row = 0; row < ROWS; row++) {
    uint8_t codes[COLUMNS];
    bool same = true;
    memcpy(copy, inverse, SQUARE * sizeof *copy);
    usual_form(copy, weights.data + row * COLUMNS, result->scales + row * BLOCKS, codes);
    for (int64_t j = 0; j < COLUMNS; j++)
      same = same && oracle_e2m1(codes[j]) == oracle_e2m1(result->codes[row * COLUMNS + j]);
    different += !same;
  }
  cr_assert_leq(different, 1, "%d of %d rows", different, (int)ROWS);
  free(result);
  free(hessian);
  free(inverse);
  free(copy);
  free(inputs.data);
  free(weights.data);
  free(factor.data);
}

/* Rounding to nearest, with the largest magnitude of a block as 6. */
static void round_to_nearest(const float *weights, double errors[COLUMNS]) {
  for (int64_t first = 0; first < COLUMNS; first += GPTQ_BLOCK) {
    double largest = 0;
    for (int j = 0; j < GPTQ_BLOCK; j++) largest = fmax(largest, fabs((double)weights[first + j]));
    double step = oracle_e4m3(oracle_to_e4m3(largest / 6 / (double)global_scale)) * (double)global_scale;
    for (int64_t j = first; j < first + GPTQ_BLOCK; j++)
      errors[j] = (double)weights[j] - oracle_e2m1(nearest_e2m1((double)weights[j] / step)) * step;
  }
}

/* Half of it, on these inputs; and what it returns is what it costs. */
Test(gptq, changes_results_less_than_rounding_to_nearest) {
  struct random random = {9};
  struct grid inputs = some_inputs(), weights = random_grid(&random, ROWS, COLUMNS), factor = factor_of(inputs);
  struct result *result = round_all(weights, factor);
  double *hessian = hessian_oracle(inputs), square = 0, nearest = 0;
  require_valid(result);
  for (int64_t row = 0; row < ROWS; row++) {
    double errors[COLUMNS], nearest_errors[COLUMNS];
    for (int64_t j = 0; j < COLUMNS; j++) errors[j] = at(weights, row, j) - (double)result->rounded[row * COLUMNS + j];
    round_to_nearest(weights.data + row * COLUMNS, nearest_errors);
    cr_assert_lt(square_of(hessian, errors), square_of(hessian, nearest_errors), "row %d", (int)row);
    square += square_of(hessian, errors);
    nearest += square_of(hessian, nearest_errors);
  }
  cr_log_info("squares: %g, of rounding to nearest %g", square, nearest);
  cr_assert_lt(square, nearest / 2);
  cr_assert_leq(fabs(result->square / square - 1), 1e-3);
  free(result);
  free(hessian);
  free(inputs.data);
  free(weights.data);
  free(factor.data);
}

/* Nothing makes up for an error then: the nearest codes, of the best of the scales. */
Test(gptq, takes_the_nearest_codes_if_the_inputs_are_independent) {
  struct random random = {11};
  struct grid inputs = new_grid(COLUMNS, COLUMNS), weights = random_grid(&random, ROWS, COLUMNS);
  for (int64_t i = 0; i < COLUMNS * COLUMNS; i++) inputs.data[i] = i % COLUMNS == i / COLUMNS;
  struct grid factor = factor_of(inputs);
  struct result *result = round_all(weights, factor);
  require_valid(result);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    double step = oracle_e4m3(result->scales[i / GPTQ_BLOCK]) * (double)global_scale;
    double error = fabs((double)weights.data[i] - (double)result->rounded[i]), value = (double)weights.data[i];
    cr_assert_leq(error, fabs(value - oracle_e2m1(nearest_e2m1(value / step)) * step) + 1e-6);
  }
  free(result);
  free(inputs.data);
  free(weights.data);
  free(factor.data);
}

/* Weights of zero stay zero, and so do weights that no input reaches get codes that are nearest. */
Test(gptq, takes_zeros_as_weights_and_as_inputs) {
  struct random random = {13};
  struct grid inputs = new_grid(TOKENS, COLUMNS), weights = random_grid(&random, ROWS, COLUMNS);
  memset(inputs.data, 0, (size_t)(TOKENS * COLUMNS) * sizeof(float));
  memset(weights.data, 0, (size_t)(3 * COLUMNS) * sizeof(float));
  struct grid factor = factor_of(inputs);
  struct result *result = round_all(weights, factor);
  require_valid(result);
  for (int64_t i = 0; i < 3 * COLUMNS; i++) cr_assert_eq(result->rounded[i], 0);
  free(result);
  free(inputs.data);
  free(weights.data);
  free(factor.data);
}

/* As if weights and inputs came in this order. */
Test(gptq, rounds_the_columns_of_the_largest_inputs_first) {
  struct random random = {19};
  int64_t columns[COLUMNS];
  struct grid inputs = some_inputs(), weights = random_grid(&random, ROWS, COLUMNS);
  for (int64_t i = 0; i < TOKENS * COLUMNS; i++)
    if (i % COLUMNS >= 80 && i % COLUMNS < 96) inputs.data[i] *= 10;
  hessian_order(inputs, columns);
  cr_assert(columns[0] == 32 && columns[15] == 47 && columns[16] == 80);
  int seen[COLUMNS] = {0};
  for (int64_t i = 0; i < COLUMNS; i++) {
    cr_assert(columns[i] >= 0 && columns[i] < COLUMNS && columns[i] % GPTQ_BLOCK == i % GPTQ_BLOCK);
    seen[columns[i]]++;
  }
  for (int64_t i = 0; i < COLUMNS; i++) cr_assert_eq(seen[i], 1);
  struct grid sorted_inputs = new_grid(TOKENS, COLUMNS), sorted_weights = new_grid(ROWS, COLUMNS);
  for (int64_t i = 0; i < TOKENS * COLUMNS; i++)
    sorted_inputs.data[i] = inputs.data[i / COLUMNS * COLUMNS + columns[i % COLUMNS]];
  for (int64_t i = 0; i < ROWS * COLUMNS; i++)
    sorted_weights.data[i] = weights.data[i / COLUMNS * COLUMNS + columns[i % COLUMNS]];
  struct grid factor = new_grid(COLUMNS, COLUMNS), sorted_factor = factor_of(sorted_inputs);
  hessian_of(inputs, columns, damping, factor);
  cr_assert(hessian_factor(factor));
  hessian_mirror(factor);
  struct result *result = round_in(columns, weights, factor), *sorted = round_all(sorted_weights, sorted_factor);
  require_valid(result);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++)
    cr_assert_eq(result->rounded[i / COLUMNS * COLUMNS + columns[i % COLUMNS]], sorted->rounded[i]);
  cr_assert_eq(result->square, sorted->square);
  free(result);
  free(sorted);
  free(inputs.data);
  free(weights.data);
  free(sorted_inputs.data);
  free(sorted_weights.data);
  free(factor.data);
  free(sorted_factor.data);
}

Test(gptq, has_the_same_bytes_on_one_processor) {
  struct random random = {17};
  cpu_set_t all, one;
  struct grid inputs = some_inputs(), weights = random_grid(&random, ROWS, COLUMNS), factor = factor_of(inputs);
  struct result *result = round_all(weights, factor);
  cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
  size_t first = 0;
  while (!CPU_ISSET(first, &all)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
  struct grid alone_factor = factor_of(inputs);
  struct result *alone = round_all(weights, alone_factor);
  cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
  for (size_t i = 0; i < SQUARE; i++) cr_assert_eq(factor.data[i], alone_factor.data[i]);
  cr_assert_eq(memcmp(result->codes, alone->codes, sizeof alone->codes), 0);
  cr_assert_eq(memcmp(result->scales, alone->scales, sizeof alone->scales), 0);
  cr_assert_eq(result->square, alone->square);
  free(result);
  free(alone);
  free(inputs.data);
  free(weights.data);
  free(factor.data);
  free(alone_factor.data);
}
