/* test_weights.c - the chat sample's weights are the nearest of their type, and in NVFP4 no further from the file's
 * than those of Rondo's own quantisation. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/weights.h"
#include "../support.h"

#define ROWS    INT64_C(48)
#define COLUMNS INT64_C(96)

/* Values of all sizes, with a row of zeros, one of tiny numbers, one of zeros and a number that no factor of its own is
 * left for, and ties between two codes. */
static float *some_values(void) {
  struct random random = {13};
  float *values = malloc((size_t)(ROWS * COLUMNS) * sizeof *values);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    int row = (int)(i / COLUMNS);
    double size = row == 0 ? 0 : row == 1 ? 0x1p-120 : row == 2 ? 0x1p60 : ldexp(1, row % 20 - 10);
    double value = row == 3 ? (double)random_between(&random, -24, 24) / 4 : random_normal(&random) * size;
    values[i] = (float)value;
  }
  memset(values + 4 * COLUMNS, 0, COLUMNS * sizeof *values);
  values[4 * COLUMNS + 5] = 1e-43f;
  return values;
}

static struct gguf_tensor tensor_over(const float *values, int64_t rows) {
  return (struct gguf_tensor){.type = GGUF_TYPE_F32,
                              .rank = 2,
                              .shape = {COLUMNS, rows, 1, 1},
                              .row_bytes = COLUMNS * sizeof *values,
                              .bytes = (uint64_t)rows * COLUMNS * sizeof *values,
                              .data = (const uint8_t *)values};
}

static struct packed pack(const struct matrix *matrix, rondo_dtype dtype, float global_scale) {
  struct packed packed;
  struct weight_fault fault;
  cr_assert(matrix_pack(matrix, dtype, global_scale, &packed, &fault));
  return packed;
}

static void expect_nearest(const float *values, rondo_dtype dtype, uint16_t (*nearest)(double value)) {
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  struct packed packed = pack(&matrix, dtype, 1);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++)
    cr_assert_eq(((const uint16_t *)packed.data)[i], nearest((double)values[i]), "%s of %a", rondo_dtype_name(dtype),
                 (double)values[i]);
  packed_free(&packed);
}

/* f16 has nothing as large as one of the rows. */
Test(weights, in_16_bits_are_the_nearest) {
  float *values = some_values();
  expect_nearest(values, RONDO_BF16, oracle_to_bf16);
  for (int64_t i = 2 * COLUMNS; i < 3 * COLUMNS; i++) values[i] *= 0x1p-48f;
  expect_nearest(values, RONDO_F16, oracle_to_f16);
  free(values);
}

Test(weights, in_e4m3_have_a_factor_for_each_row) {
  float *values = some_values();
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  struct packed packed = pack(&matrix, RONDO_E4M3, 1);
  for (int64_t row = 0; row < ROWS; row++) {
    float scale = ((const float *)packed.scales)[row], largest = 0;
    for (int64_t i = 0; i < COLUMNS; i++) largest = fmaxf(largest, fabsf(values[row * COLUMNS + i]));
    cr_assert_eq(scale, largest > 0 ? fmaxf(largest / 448, FLT_MIN) : 1);
    for (int64_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++) {
      cr_assert_neq(((const uint8_t *)packed.data)[i] & 0x7f, 0x7f, "NaN of %a", (double)values[i]);
      cr_assert_eq(((const uint8_t *)packed.data)[i], oracle_to_e4m3((double)(values[i] / scale)), "e4m3 of %a / %a",
                   (double)values[i], (double)scale);
    }
  }
  packed_free(&packed);
  free(values);
}

/* rondo_add_quantize_nvfp4 on the host. */
static struct packed quantize(const float *values, float global_scale) {
  static const int64_t shape[] = {ROWS, COLUMNS}, scale_shape[] = {ROWS, COLUMNS / 16};
  struct trial trial;
  rondo_tensor x, codes, scales;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F32, 2, shape, &x));
  REQUIRE_OK(rondo_output(trial.graph, "codes", RONDO_NVFP4, 2, shape, &codes));
  REQUIRE_OK(rondo_output(trial.graph, "scales", RONDO_E4M3, 2, scale_shape, &scales));
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      trial.graph,
      &(rondo_quantize_nvfp4_desc){.x = x, .codes = codes, .scales = scales, .global_scale = global_scale}));
  trial_instantiate(&trial);
  trial_set(&trial, x, values);
  trial_replay(&trial);
  struct packed packed = {malloc(ROWS * COLUMNS / 2), malloc(ROWS * COLUMNS / 16), ROWS * COLUMNS / 2,
                          ROWS * COLUMNS / 16};
  cr_assert(packed.data && packed.scales);
  memcpy(packed.scales, trial_output(&trial, scales), packed.scale_bytes);
  memcpy(packed.data, trial_output(&trial, codes), packed.data_bytes);
  trial_end(&trial);
  return packed;
}

static double element(const struct packed *packed, int64_t i, float global_scale) {
  uint8_t byte = ((const uint8_t *)packed->data)[i / 2], code = i % 2 ? byte >> 4 : byte & 15;
  return oracle_e2m1(code) * oracle_e4m3(((const uint8_t *)packed->scales)[i / 16]) * (double)global_scale;
}

static double block_error(const struct packed *packed, const float *values, int64_t block, float global_scale) {
  double sum = 0;
  for (int64_t i = 16 * block; i < 16 * block + 16; i++) {
    double error = element(packed, i, global_scale) - (double)values[i];
    sum += error * error;
  }
  return sum;
}

/* A scale for which the largest magnitude is 6 or 4, and the nearest codes. */
static void require_scale(const struct packed *packed, const float *values, int64_t block, float global_scale) {
  uint8_t scale = ((const uint8_t *)packed->scales)[block];
  float largest = 0;
  for (int64_t i = 16 * block; i < 16 * block + 16; i++) largest = fmaxf(largest, fabsf(values[i]));
  cr_assert(scale == oracle_to_e4m3((double)(largest / (6 * global_scale))) ||
            scale == oracle_to_e4m3((double)(largest / (4 * global_scale))));
}

/* A block has the bytes of rondo_add_quantize_nvfp4, or others with a smaller error: some blocks of normal numbers. */
Test(weights, in_nvfp4_err_less_than_those_of_rondo_add_quantize_nvfp4) {
  float *values = some_values();
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  float largest, global_scales[] = {1, 0.01f, 0};
  cr_assert(matrix_largest(&matrix, &largest));
  global_scales[2] = nvfp4_scale_of(largest);
  int better = 0;
  for (size_t i = 0; i < sizeof global_scales / sizeof *global_scales; i++) {
    struct packed packed = pack(&matrix, RONDO_NVFP4, global_scales[i]), other = quantize(values, global_scales[i]);
    for (int64_t block = 0; block < ROWS * COLUMNS / 16; block++) {
      const uint8_t *codes = (const uint8_t *)packed.data + 8 * block, *scales = packed.scales;
      double error = block_error(&packed, values, block, global_scales[i]);
      bool same = scales[block] == ((const uint8_t *)other.scales)[block];
      require_scale(&packed, values, block, global_scales[i]);
      if (same)
        cr_assert_eq(memcmp(codes, (const uint8_t *)other.data + 8 * block, 8), 0);
      else
        cr_assert_lt(error, block_error(&other, values, block, global_scales[i]), "block %d", (int)block);
      better += !same;
    }
    packed_free(&packed);
    packed_free(&other);
  }
  cr_assert_gt(better, 50, "%d blocks", better);
  free(values);
}

/* Codes and scales of a file, -0 too, in Rondo's order. With another factor they are rounded. */
Test(weights, in_nvfp4_of_a_file_in_nvfp4_are_its_own) {
  struct random random = {40};
  static uint8_t blocks[ROWS][2 * GGUF_NVFP4_BYTES];
  for (int64_t row = 0; row < ROWS; row++)
    for (int i = 0; i < 2 * GGUF_NVFP4_BYTES; i++)
      blocks[row][i] = (uint8_t)(i % 36 < 4 ? random_between(&random, 0, 0x7e) : (int64_t)(random_bits(&random) & 255));
  struct gguf_tensor tensor = {.type = GGUF_TYPE_NVFP4,
                               .rank = 2,
                               .shape = {128, ROWS, 1, 1},
                               .row_bytes = sizeof *blocks,
                               .bytes = sizeof blocks,
                               .data = blocks[0],
                               .factor = 0.25f};
  struct matrix matrix = {{&tensor}, 1, false};
  struct packed packed = pack(&matrix, RONDO_NVFP4, 0.25f), other = pack(&matrix, RONDO_NVFP4, 0.5f);
  for (int64_t i = 0; i < ROWS * 128; i++) {
    const uint8_t *block = blocks[i / 128] + i % 128 / 64 * 36;
    uint8_t byte = block[4 + i % 64 / 16 * 8 + i % 8], own = ((const uint8_t *)packed.data)[i / 2];
    cr_assert_eq(i % 2 ? own >> 4 : own & 15, i % 16 < 8 ? byte & 15 : byte >> 4);
    cr_assert_eq(((const uint8_t *)packed.scales)[i / 16], block[i % 64 / 16]);
  }
  cr_assert_neq(memcmp(packed.scales, other.scales, packed.scale_bytes), 0);
  packed_free(&packed);
  packed_free(&other);
}

/* Blocks of zeros beside a largest number whose factor would be none. */
Test(weights, in_nvfp4_have_a_factor_however_small_they_are) {
  static float values[ROWS * COLUMNS];
  static const float sizes[] = {1e-43f, FLT_MIN, 1e-30f, FLT_MAX};
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    float largest;
    values[7] = sizes[i];
    cr_assert(matrix_largest(&matrix, &largest));
    cr_assert(isnormal(nvfp4_scale_of(largest)));
    struct packed packed = pack(&matrix, RONDO_NVFP4, nvfp4_scale_of(largest));
    for (uint64_t block = 0; block < packed.scale_bytes; block++)
      cr_assert_neq(((const uint8_t *)packed.scales)[block] & 0x7f, 0x7f, "NaN of %g", (double)sizes[i]);
    packed_free(&packed);
  }
}

/* By the tensor's name, whichever part of the matrix it is. */
Test(weights, that_are_no_numbers_of_their_type_are_refused) {
  static const struct {
    float value;
    rondo_dtype dtype;
    bool fits;
  } cases[] = {
      {NAN, RONDO_BF16, false},        {INFINITY, RONDO_E4M3, false}, {-INFINITY, RONDO_NVFP4, false},
      {NAN, RONDO_F32, false},         {NAN, RONDO_E4M3, false},      {FLT_MAX, RONDO_BF16, false},
      {0x1.fep127f, RONDO_BF16, true}, {65519, RONDO_F16, true},      {-65520, RONDO_F16, false},
      {FLT_MAX, RONDO_F32, true},      {FLT_MAX, RONDO_E4M3, true},   {FLT_MAX, RONDO_NVFP4, true},
  };
  static float first[COLUMNS], second[2 * COLUMNS];
  struct gguf_tensor one = tensor_over(first, 1), two = tensor_over(second, 2);
  struct matrix stacked = {{&one, &two}, 2, false};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct packed packed;
    struct weight_fault fault;
    second[COLUMNS + 9] = cases[i].value;
    bool fits = matrix_pack(&stacked, cases[i].dtype, nvfp4_scale_of(FLT_MAX), &packed, &fault);
    cr_assert_eq(fits, cases[i].fits, "%g", (double)cases[i].value);
    if (!fits) cr_assert(fault.tensor == &two && fault.row == 1 && fault.column == 9 && !packed.data);
    packed_free(&packed);
  }
}

/* q, k and v of other heights stacked; gate and up a row of each in turn. */
Test(weights, stack_or_interleave_the_rows_of_several_tensors) {
  float *values = some_values();
  struct gguf_tensor first = tensor_over(values, 16), second = tensor_over(values + 16 * COLUMNS, 4),
                     third = tensor_over(values + 20 * COLUMNS, 28), half = tensor_over(values + 24 * COLUMNS, 24),
                     other = tensor_over(values, 24);
  struct matrix stacked = {{&first, &second, &third}, 3, false}, interleaved = {{&other, &half}, 2, true};
  cr_assert(matrix_rows(&stacked) == ROWS && matrix_rows(&interleaved) == ROWS);
  cr_assert_eq(matrix_columns(&stacked), COLUMNS);
  struct packed a = pack(&stacked, RONDO_F32, 1), b = pack(&interleaved, RONDO_F32, 1);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    int64_t row = i / COLUMNS, from = (row / 2 + row % 2 * 24) * COLUMNS + i % COLUMNS;
    cr_assert(((const float *)a.data)[i] == values[i] && ((const float *)b.data)[i] == values[from]);
  }
  packed_free(&a);
  packed_free(&b);
  free(values);
}

/* 0 would be taken for a matrix of zeros, and every weight be rounded with a factor of 1. */
Test(weights, without_memory_have_no_largest) {
#ifdef __SANITIZE_ADDRESS__
  cr_skip_test("AddressSanitizer ends a program that asks for so much");
#endif
  struct gguf_tensor tensor = {.type = GGUF_TYPE_F32, .rank = 2, .shape = {INT64_C(1) << 60, 1, 1, 1}};
  struct matrix matrix = {{&tensor}, 1, false};
  float largest = -1;
  cr_assert_not(matrix_largest(&matrix, &largest));
}
