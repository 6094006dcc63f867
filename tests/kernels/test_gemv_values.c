/* test_gemv_values.c - products with vectors where the numbers are the difficulty: every code of the small formats, NaN
 * and infinity, all sizes. */
#include "test_gemv_oracle.h"

/* Row 256 s + c has scale s and one byte c, first in its block or last; the vector is 1 at even columns and 16 at odd
 * ones, so that every code shows. Nothing is rounded: results are exact. */
static void check_codes(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F32,
                      .m = 65536,
                      .k = k,
                      .count = count};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  memset(p.weights.data, 0, bytes_of(&p.weights));
  memset(p.weight_scales.data, 0x38, bytes_of(&p.weight_scales));
  uint8_t *codes = p.weights.data, *scales = p.weight_scales.data;
  bool packed = vectors_dtype == RONDO_NVFP4;
  for (int64_t row = 0; row < p.m; row++) {
    int64_t block = row % (k / 16), byte = (row >> 4) % 8;
    codes[row * k / 2 + block * 8 + byte] = (uint8_t)(row & 255);
    scales[row * k / 16 + block] = (uint8_t)(row >> 8);
  }
  for (int64_t v = 0; v < count; v++)
    for (int64_t i = 0; i < k; i += 2) {
      if (packed) {
        ((uint8_t *)p.vectors.data)[(v * k + i) / 2] = 0x72; /* 1 and 6 */
      } else {
        oracle_write(vectors_dtype, p.vectors.data, v * k + i, 1);
        oracle_write(vectors_dtype, p.vectors.data, v * k + i + 1, 16);
      }
    }
  if (packed) memset(p.vector_scales.data, 0x40, bytes_of(&p.vector_scales)); /* 2 */
  trial_instantiate(&trial);
  problem_set(&trial, &p);
  trial_replay(&trial);
  const float *out = p.out.data;
  trial_get(&trial, p.out.whole, p.out.data);
  for (int64_t row = 0; row < p.m; row++) {
    double low = oracle_e2m1(row & 15), high = oracle_e2m1(row >> 4 & 15), scale = oracle_e4m3((uint8_t)(row >> 8));
    double expected = scale * (packed ? 2 * low + 12 * high : low + 16 * high);
    for (int64_t v = 0; v < count; v++) {
      double got = (double)out[v * p.m + row];
      cr_assert(got == expected || (isnan(got) && isnan(expected)), "codes %#x scale %#x: %g, expected %g",
                (unsigned)row & 255, (unsigned)row >> 8, got, expected);
    }
  }
  problems_end(&trial, &p, 1);
}

static void check_every_code(rondo_backend backend) {
  check_codes(backend, RONDO_F16, 32, 1);
  check_codes(backend, RONDO_BF16, 64, 2);
  check_codes(backend, RONDO_NVFP4, 32, 1);
  check_codes(backend, RONDO_NVFP4, 64, 3);
  check_codes(backend, RONDO_F16, 16, 1);
  check_codes(backend, RONDO_NVFP4, 48, 1);
}
BOTH_BACKENDS(gemv, every_nvfp4_code_times_every_scale_is_exact, check_every_code)

/* Every e4m3 weight, as an element on its own. */
static void check_e4m3_codes(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k) {
  struct problem p = {.weights_dtype = RONDO_E4M3,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F32,
                      .m = 256,
                      .k = k,
                      .count = 1};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  memset(p.weights.data, 0, bytes_of(&p.weights));
  for (int64_t row = 0; row < p.m; row++) ((uint8_t *)p.weights.data)[row * k + row % k] = (uint8_t)row;
  for (int64_t i = 0; i < k; i++) oracle_write(vectors_dtype, p.vectors.data, i, 1 + (double)i);
  problems_run(&trial, &p, 1);
  const float *out = p.out.data;
  for (int64_t row = 0; row < p.m; row++) {
    double expected = oracle_e4m3((uint8_t)row) * (1 + (double)(row % k));
    cr_assert((double)out[row] == expected || (isnan(out[row]) && isnan(expected)), "code %#x", (unsigned)row);
  }
  problems_end(&trial, &p, 1);
}

static void check_every_e4m3_code(rondo_backend backend) {
  check_e4m3_codes(backend, RONDO_F16, 16);
  check_e4m3_codes(backend, RONDO_BF16, 64);
  check_e4m3_codes(backend, RONDO_F16, 17);
}
BOTH_BACKENDS(gemv, every_e4m3_code_is_exact, check_every_e4m3_code)

/* Rows of one matrix, each with something special in it. */
static void check_special(rondo_backend backend, int64_t k, rondo_dtype vectors_dtype) {
  enum { NOTHING, NAN_SCALE, NEGATIVE_NAN_SCALE, NEGATIVE_ZEROS, CANCELLING, LARGEST, NEGATIVE_LARGEST, ROWS };
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F16,
                      .m = ROWS,
                      .k = k,
                      .count = 2,
                      .scale = 16};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  uint8_t *codes = p.weights.data, *scales = p.weight_scales.data;
  int64_t row_bytes = k / 2, row_blocks = k / 16;
  scales[NAN_SCALE * row_blocks + row_blocks - 1] = 0x7f;
  scales[NEGATIVE_NAN_SCALE * row_blocks] = 0xff;
  memset(codes + NEGATIVE_ZEROS * row_bytes, 0x88, (size_t)row_bytes);
  memset(codes + CANCELLING * row_bytes, 0xf7, (size_t)row_bytes); /* 6, -6, 6, .. */
  memset(codes + LARGEST * row_bytes, 0x77, (size_t)row_bytes);
  memset(codes + NEGATIVE_LARGEST * row_bytes, 0xff, (size_t)row_bytes);
  memset(scales + CANCELLING * row_blocks, 0x7e, (size_t)(3 * row_blocks));
  if (vectors_dtype == RONDO_NVFP4) {
    memset(p.vectors.data, 0x77, bytes_of(&p.vectors));
    memset(p.vector_scales.data, 0x7e, bytes_of(&p.vector_scales));
  } else {
    for (int64_t i = 0; i < 2 * k; i++) oracle_write(vectors_dtype, p.vectors.data, i, 60000);
  }
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < p.count; v++) {
    cr_assert(isnan(element_of(&p.out, 0, v, NAN_SCALE)));
    cr_assert(isnan(element_of(&p.out, 0, v, NEGATIVE_NAN_SCALE)));
    cr_assert(element_of(&p.out, 0, v, NEGATIVE_ZEROS) == 0);
    cr_assert(element_of(&p.out, 0, v, CANCELLING) == 0);
    cr_assert(element_of(&p.out, 0, v, LARGEST) == INFINITY);
    cr_assert(element_of(&p.out, 0, v, NEGATIVE_LARGEST) == -INFINITY);
    cr_assert(!isnan(element_of(&p.out, 0, v, NOTHING)), "a NaN left its row");
  }
  problems_end(&trial, &p, 1);
}

/* An infinity or NaN in one vector, or in one row, stays there. */
static void check_not_finite(rondo_backend backend, rondo_dtype dtype, int64_t k) {
  struct problem p = {.weights_dtype = dtype, .vectors_dtype = dtype, .out_dtype = dtype, .m = 5, .k = k, .count = 4};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  for (int64_t r = 0; r < p.m; r++) oracle_write(dtype, p.weights.data, r * k + 1, r == 2 ? -1 : 1);
  oracle_write(dtype, p.vectors.data, 1 * k + 1, INFINITY);
  oracle_write(dtype, p.vectors.data, 3 * k + k - 1, NAN);
  oracle_write(dtype, p.weights.data, 4 * k, -INFINITY);
  for (int64_t v = 0; v < p.count; v++) oracle_write(dtype, p.vectors.data, v * k, 2);
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < p.count; v++)
    for (int64_t r = 0; r < p.m; r++) {
      double got = element_of(&p.out, 0, v, r);
      if (v == 3 || (v == 1 && r == 4)) /* infinity less infinity */
        cr_assert(isnan(got), "vector %d row %d", (int)v, (int)r);
      else if (v == 1 || r == 4)
        cr_assert(got == (r == 2 || r == 4 ? -INFINITY : INFINITY), "vector %d row %d", (int)v, (int)r);
      else
        cr_assert(isfinite(got), "vector %d row %d", (int)v, (int)r);
    }
  problems_end(&trial, &p, 1);
}

static void check_special_values(rondo_backend backend) {
  check_special(backend, 2048, RONDO_NVFP4);
  check_special(backend, 48, RONDO_F16);
  check_special(backend, 64, RONDO_BF16);
  check_not_finite(backend, RONDO_F16, 40);
  check_not_finite(backend, RONDO_BF16, 41);
}
BOTH_BACKENDS(gemv, nan_and_infinity_stay_in_their_row_and_overflow_is_infinite, check_special_values)

/* Vectors far from 1, and factors of all sizes. */
static void check_sizes(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  static const double sizes[] = {15000, 1e-6};
  for (int i = 0; i < PAIRS; i++)
    for (int s = 0; s < 2; s++)
      problems[count++] = (struct problem){.weights_dtype = pairs[i].weights,
                                           .vectors_dtype = pairs[i].vectors,
                                           .out_dtype = outs[(i + s) % 3],
                                           .m = 10,
                                           .k = 320,
                                           .count = 1 + s,
                                           .scale = s ? 0x1p20f : 0x1p-20f,
                                           .vector_size = sizes[s],
                                           .row_scales = pairs[i].weights == RONDO_E4M3};
  problems[count++] = (struct problem){.weights_dtype = RONDO_BF16,
                                       .vectors_dtype = RONDO_BF16,
                                       .out_dtype = RONDO_BF16,
                                       .m = 4,
                                       .k = 64,
                                       .count = 1,
                                       .weight_size = 0x1p60,
                                       .vector_size = 0x1p64}; /* near the end of fp32 */
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(gemv, values_of_all_sizes_match_fp64, check_sizes)
