/* test_weights.c - the chat sample's weights are what their types say: nearest, and in NVFP4 the bytes that Rondo's own
 * quantisation gives. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/weights.h"
#include "../support.h"

#define ROWS    INT64_C(48)
#define COLUMNS INT64_C(96)

/* Values of all sizes, with a row of zeros, one of tiny numbers, and ties between two codes. */
static float *some_values(void) {
  struct random random = {13};
  float *values = malloc((size_t)(ROWS * COLUMNS) * sizeof *values);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    int row = (int)(i / COLUMNS);
    double size = row == 0 ? 0 : row == 1 ? 0x1p-120 : row == 2 ? 0x1p60 : ldexp(1, row % 20 - 10);
    double value = row == 3 ? (double)random_between(&random, -24, 24) / 4 : random_normal(&random) * size;
    values[i] = (float)value;
  }
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
  cr_assert(matrix_pack(matrix, dtype, global_scale, &packed));
  return packed;
}

Test(weights, in_16_bits_are_the_nearest) {
  float *values = some_values();
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  struct packed bf16 = pack(&matrix, RONDO_BF16, 1), f16 = pack(&matrix, RONDO_F16, 1);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    cr_assert_eq(((const uint16_t *)bf16.data)[i], oracle_to_bf16((double)values[i]), "bf16 of %a", (double)values[i]);
    cr_assert_eq(((const uint16_t *)f16.data)[i], oracle_to_f16((double)values[i]), "f16 of %a", (double)values[i]);
  }
  packed_free(&bf16);
  packed_free(&f16);
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
    cr_assert_eq(scale, largest > 0 ? largest / 448 : 1);
    for (int64_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++)
      cr_assert_eq(((const uint8_t *)packed.data)[i], oracle_to_e4m3((double)(values[i] / scale)), "e4m3 of %a / %a",
                   (double)values[i], (double)scale);
  }
  packed_free(&packed);
  free(values);
}

Test(weights, in_nvfp4_are_the_bytes_of_rondo_add_quantize_nvfp4) {
  float *values = some_values();
  struct gguf_tensor tensor = tensor_over(values, ROWS);
  struct matrix matrix = {{&tensor}, 1, false};
  static const int64_t shape[] = {ROWS, COLUMNS}, scale_shape[] = {ROWS, COLUMNS / 16};
  float largest, global_scales[] = {1, 0.01f, 0};
  cr_assert(matrix_largest(&matrix, &largest));
  global_scales[2] = nvfp4_scale_of(largest);
  for (size_t i = 0; i < sizeof global_scales / sizeof *global_scales; i++) {
    struct trial trial;
    rondo_tensor x, codes, scales;
    trial_describe(&trial, RONDO_BACKEND_HOST);
    REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F32, 2, shape, &x));
    REQUIRE_OK(rondo_output(trial.graph, "codes", RONDO_NVFP4, 2, shape, &codes));
    REQUIRE_OK(rondo_output(trial.graph, "scales", RONDO_E4M3, 2, scale_shape, &scales));
    REQUIRE_OK(rondo_add_quantize_nvfp4(
        trial.graph,
        &(rondo_quantize_nvfp4_desc){.x = x, .codes = codes, .scales = scales, .global_scale = global_scales[i]}));
    trial_instantiate(&trial);
    trial_set(&trial, x, values);
    trial_replay(&trial);
    struct packed packed = pack(&matrix, RONDO_NVFP4, global_scales[i]);
    cr_assert_eq(memcmp(packed.scales, trial_output(&trial, scales), packed.scale_bytes), 0);
    cr_assert_eq(memcmp(packed.data, trial_output(&trial, codes), packed.data_bytes), 0);
    packed_free(&packed);
    trial_end(&trial);
  }
  free(values);
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
