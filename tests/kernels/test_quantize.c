/* test_quantize.c - NVFP4 quantisation against a search for the nearest code: the bytes are exact, on every backend. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/common/number.h"
#include "../../kernels/gemv/e2m1_round.h"
#include "../oracles/quantize_oracle.h"

/* ---- One tensor to quantise -------------------------------------------------------------------------------------- */

enum { MOST_PROBLEMS = 24 };

struct problem {
  rondo_dtype dtype;
  uint32_t rank;
  int64_t shape[RONDO_MAX_RANK];
  int64_t offset, padding; /* in the last dimension, of x and codes: what lies around the view */
  float global_scale;
  /* NULL: normal numbers of many sizes. */
  void (*fill)(struct random *random, double *block, int64_t index, float global_scale);
  /* Set by problem_add and problem_set. */
  rondo_tensor x, codes, scales; /* the whole tensors; codes and scales are states where there is padding */
  int64_t rows, k, whole_k, scale_k;
  void *data;
};

static void problem_add(struct trial *trial, struct problem *problem) {
  int64_t whole[RONDO_MAX_RANK], scale_whole[RONDO_MAX_RANK], offset[RONDO_MAX_RANK] = {0}, extent[RONDO_MAX_RANK];
  uint32_t last = problem->rank - 1;
  memcpy(whole, problem->shape, sizeof whole);
  memcpy(scale_whole, problem->shape, sizeof whole);
  memcpy(extent, problem->shape, sizeof extent);
  problem->k = problem->shape[last];
  problem->whole_k = whole[last] = problem->k + problem->offset + problem->padding;
  problem->scale_k = scale_whole[last] = problem->k / 16 + (problem->padding > 0);
  problem->rows = 1;
  for (uint32_t i = 0; i < last; i++) problem->rows *= problem->shape[i];
  rondo_tensor x, codes, scales;
  REQUIRE_OK(rondo_input(trial->graph, "x", problem->dtype, problem->rank, whole, &problem->x));
  REQUIRE_OK(rondo_state(trial->graph, "codes", RONDO_NVFP4, problem->rank, whole, &problem->codes));
  REQUIRE_OK(rondo_state(trial->graph, "scales", RONDO_E4M3, problem->rank, scale_whole, &problem->scales));
  offset[last] = problem->offset;
  REQUIRE_OK(rondo_view(trial->graph, problem->x, offset, extent, &x));
  REQUIRE_OK(rondo_view(trial->graph, problem->codes, offset, extent, &codes));
  offset[last] = 0;
  extent[last] /= 16;
  REQUIRE_OK(rondo_view(trial->graph, problem->scales, offset, extent, &scales));
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      trial->graph,
      &(rondo_quantize_nvfp4_desc){.x = x, .codes = codes, .scales = scales, .global_scale = problem->global_scale}));
}

static void normal_block(struct random *random, double *block) {
  double size = exp2((double)random_between(random, -9, 9));
  for (int i = 0; i < 16; i++) block[i] = size * random_normal(random);
}

static void problem_set(struct trial *trial, struct problem *problem, struct random *random) {
  int64_t element_bytes = rondo_dtype_bits(problem->dtype) / 8;
  size_t bytes = (size_t)(problem->rows * problem->whole_k * element_bytes);
  problem->data = malloc(bytes ? bytes : 1);
  memset(problem->data, 0xff, bytes); /* NaN around the view */
  for (int64_t row = 0; row < problem->rows; row++)
    for (int64_t b = 0; b < problem->k / 16; b++) {
      double block[16];
      normal_block(random, block);
      if (problem->fill) problem->fill(random, block, row * (problem->k / 16) + b, problem->global_scale);
      for (int64_t i = 0; i < 16; i++)
        oracle_write(problem->dtype, problem->data, row * problem->whole_k + problem->offset + b * 16 + i, block[i]);
    }
  trial_set(trial, problem->x, problem->data);
}

static void problem_check(struct trial *trial, struct problem *problem, int index) {
  size_t code_bytes = (size_t)(problem->rows * problem->whole_k / 2),
         scale_bytes = (size_t)(problem->rows * problem->scale_k);
  uint8_t *codes = malloc(code_bytes ? code_bytes : 1), *scales = malloc(scale_bytes ? scale_bytes : 1);
  uint8_t *expected_codes = calloc(code_bytes ? code_bytes : 1, 1),
          *expected_scales = calloc(scale_bytes ? scale_bytes : 1, 1);
  trial_get(trial, problem->codes, codes);
  trial_get(trial, problem->scales, scales);
  float global_scale = problem->global_scale == 0 ? 1 : problem->global_scale;
  for (int64_t row = 0; row < problem->rows; row++)
    for (int64_t b = 0; b < problem->k / 16; b++) {
      double block[16];
      int64_t first = row * problem->whole_k + problem->offset + b * 16;
      for (int64_t i = 0; i < 16; i++) block[i] = oracle_read(problem->dtype, problem->data, first + i);
      oracle_block(block, global_scale, expected_codes + first / 2, expected_scales + row * problem->scale_k + b);
      cr_assert_eq(scales[row * problem->scale_k + b], expected_scales[row * problem->scale_k + b],
                   "problem %d: row %d block %d: scale %#x, expected %#x", index, (int)row, (int)b,
                   scales[row * problem->scale_k + b], expected_scales[row * problem->scale_k + b]);
      for (int64_t i = first / 2; i < first / 2 + 8; i++)
        cr_assert_eq(codes[i], expected_codes[i], "problem %d: row %d block %d byte %d: %#x, expected %#x", index,
                     (int)row, (int)b, (int)(i - first / 2), codes[i], expected_codes[i]);
    }
  /* States are zero at first: what lies around the views must still be. */
  cr_assert(!memcmp(codes, expected_codes, code_bytes), "problem %d: codes outside of the view were written", index);
  cr_assert(!memcmp(scales, expected_scales, scale_bytes), "problem %d: scales outside of the view were written",
            index);
  free(codes);
  free(scales);
  free(expected_codes);
  free(expected_scales);
  free(problem->data);
}

static void check_problems(rondo_backend backend, struct problem *problems, int count) {
  struct trial trial;
  struct random random = {.state = 7};
  trial_describe(&trial, backend);
  for (int i = 0; i < count; i++) problem_add(&trial, &problems[i]);
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) problem_set(&trial, &problems[i], &random);
  trial_replay(&trial);
  for (int i = 0; i < count; i++) problem_check(&trial, &problems[i], i);
  trial_end(&trial);
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static void check_shapes(rondo_backend backend) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  for (int d = 0; d < 3; d++) {
    const struct problem some[] = {
        {.rank = 1, .shape = {16}},
        {.rank = 2, .shape = {7, 48}, .global_scale = 0.037f},
        {.rank = 2, .shape = {300, 1040}, .global_scale = 3.5f},
        {.rank = 3, .shape = {3, 5, 32}, .offset = 2, .padding = 2},
        {.rank = 4, .shape = {2, 3, 5, 64}, .offset = 16, .padding = 32, .global_scale = 0x1p-20f},
        {.rank = 4, .shape = {1, 4, 1, 80}, .offset = 0, .padding = 6},
    };
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
      problems[count] = some[i];
      problems[count++].dtype = dtypes[d];
    }
  }
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(quantize, rows_of_every_type_and_rank_match_the_oracle, check_shapes)

static void check_empty(rondo_backend backend) {
  struct problem problems[] = {
      {.dtype = RONDO_F16, .rank = 2, .shape = {0, 32}},
      {.dtype = RONDO_F32, .rank = 2, .shape = {3, 0}},
      {.dtype = RONDO_BF16, .rank = 3, .shape = {2, 0, 16}},
      {.dtype = RONDO_F32, .rank = 1, .shape = {0}},
  };
  check_problems(backend, problems, 4);
}
BOTH_BACKENDS(quantize, empty_tensors_are_no_work, check_empty)

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* One kind of hard block after the other. */
static void hard_block(struct random *random, double *block, int64_t index, float global_scale) {
  (void)global_scale;
  int where = (int)random_between(random, 0, 15);
  switch (index % 12) {
  case 0: /* zeros of both signs */
    for (int i = 0; i < 16; i++) block[i] = i % 3 ? 0.0 : -0.0;
    break;
  case 1:
    block[where] = NAN;
    break;
  case 2:
    block[where] = -INFINITY;
    break;
  case 3: /* the scale rounds to zero */
    for (int i = 0; i < 16; i++) block[i] = (i % 2 ? -1 : 1) * 0x1p-11;
    break;
  case 4: /* the smallest scales, where e4m3 is subnormal */
    for (int i = 0; i < 16; i++) block[i] = 6 * 0x1p-9 * (double)random_between(random, -7, 7) / 4;
    break;
  case 5: /* the scale saturates, and so do codes */
    for (int i = 0; i < 16; i++) block[i] = 40000 * random_normal(random) / 4;
    block[where] = 60000;
    break;
  case 6: /* scale 1: every code and every halfway point */
    for (int i = 0; i < 16; i++) block[i] = 0.25 * (double)random_between(random, -24, 24);
    block[where] = where % 2 ? 6 : -6;
    break;
  case 7: /* amax / 6 halfway between two scales */
    block[where] = 6 * (1.0 + (double)(2 * (index % 8) + 1) / 16);
    for (int i = 0; i < 16; i++) block[i] = fmin(fmax(block[i], -block[where]), block[where]);
    break;
  case 8: /* infinity beside NaN */
    block[where] = INFINITY;
    block[(where + 5) % 16] = NAN;
    break;
  case 9: /* one outlier, the rest vanishes */
    for (int i = 0; i < 16; i++) block[i] *= 1e-4;
    block[where] = -300;
    break;
  case 10: /* subnormal in f16 and in e4m3 alike */
    for (int i = 0; i < 16; i++) block[i] = 0x1p-24 * (double)random_between(random, -1023, 1023);
    break;
  default: /* amax exactly 6 * 448 */
    for (int i = 0; i < 16; i++) block[i] = 448 * 0.25 * (double)random_between(random, -24, 24);
    block[where] = 2688;
    break;
  }
}

static void check_values(rondo_backend backend) {
  struct problem problems[] = {
      {.dtype = RONDO_F32, .rank = 2, .shape = {36, 64}, .fill = hard_block},
      {.dtype = RONDO_F16, .rank = 2, .shape = {36, 64}, .fill = hard_block},
      {.dtype = RONDO_BF16, .rank = 2, .shape = {36, 64}, .fill = hard_block},
      {.dtype = RONDO_F16, .rank = 2, .shape = {36, 64}, .padding = 2, .fill = hard_block},
      {.dtype = RONDO_F32, .rank = 2, .shape = {24, 64}, .fill = hard_block, .global_scale = 0x1p-30f},
      {.dtype = RONDO_F32, .rank = 2, .shape = {24, 64}, .fill = hard_block, .global_scale = 0x1p30f},
      {.dtype = RONDO_F32, .rank = 2, .shape = {24, 64}, .fill = hard_block, .global_scale = 0x1p-149f},
      {.dtype = RONDO_F32, .rank = 2, .shape = {24, 64}, .fill = hard_block, .global_scale = 0x1p119f},
      {.dtype = RONDO_F32, .rank = 2, .shape = {24, 64}, .fill = hard_block, .global_scale = 1e-7f},
      {.dtype = RONDO_F32, .rank = 2, .shape = {2000, 64}, .global_scale = 0.0123f},
  };
  check_problems(backend, problems, sizeof problems / sizeof problems[0]);
}
BOTH_BACKENDS(quantize, hard_values_give_the_documented_bytes, check_values)

/* ---- Ties -------------------------------------------------------------------------------------------------------- */

static const float tied[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

/* A number at most `most` units in the last place away from a tie between two codes. */
static float near_tie(int tie, float divisor, int away) {
  return f32_of_bits(bits_of_f32(tied[tie] * divisor) + (uint32_t)away);
}

/* Each divisor between 1 and 2 stands for all with its 23 bits. Step 1 takes some seconds, and agrees, too. */
Test(quantize, a_shared_reciprocal_gives_the_codes_of_divisions) {
  enum { STEP = 61 };
  for (uint32_t bits = 0; bits < 1u << 23; bits += STEP)
    for (int tie = 0; tie < 7; tie++)
      for (int away = -3; away <= 3; away++) {
        const float divisor = f32_of_bits(0x3f800000u | bits), size = near_tie(tie, divisor, away);
        const float value = away % 2 ? -size : size;
        const uint32_t code = e2m1_put(0, e2m1_quotient(size, divisor, 1 / divisor), value);
        cr_assert_eq(code, e2m1_of_f32(value / divisor), "%a / %a: code %u", (double)value, (double)divisor, code);
      }
}

/* The largest number makes the scale, the others are near ties. */
static void tied_block(struct random *random, double *block, int64_t index, float global_scale) {
  const float divisor = (float)oracle_e4m3((uint8_t)random_between(random, 8, 0x7e)) * global_scale;
  for (int i = 0; i < 16; i++) {
    const float value = near_tie((int)random_between(random, 0, 6), divisor, (int)random_between(random, -2, 2));
    block[i] = random_between(random, 0, 1) ? value : -value;
  }
  block[index % 16] = 6 * (double)divisor;
}

static void check_ties(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  struct random random = {.state = 3};
  for (int i = 0; i < MOST_PROBLEMS; i++)
    problems[i] = (struct problem){.dtype = RONDO_F32,
                                   .rank = 2,
                                   .shape = {40, 256},
                                   .fill = tied_block,
                                   .global_scale = (float)exp2(90 * random_normal(&random) / 3)};
  problems[0].global_scale = 0x1.8p-126f, problems[1].global_scale = 0x1.6789p-91f;
  problems[2].global_scale = 0x1.fedcbap118f, problems[3].global_scale = 0x1.123456p83f;
  check_problems(backend, problems, MOST_PROBLEMS);
}
BOTH_BACKENDS(quantize, numbers_near_ties_have_the_codes_of_divisions, check_ties)

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

struct tensors {
  rondo_tensor x, codes, scales;
};

static struct tensors tensors_of(struct trial *trial, rondo_dtype x_dtype, int64_t x_k, rondo_dtype code_dtype,
                                 int64_t code_k, rondo_dtype scale_dtype, int64_t scale_k) {
  struct tensors t;
  REQUIRE_OK(rondo_input(trial->graph, "x", x_dtype, 2, (int64_t[]){4, x_k}, &t.x));
  REQUIRE_OK(rondo_output(trial->graph, "codes", code_dtype, 2, (int64_t[]){4, code_k}, &t.codes));
  REQUIRE_OK(rondo_output(trial->graph, "scales", scale_dtype, 2, (int64_t[]){4, scale_k}, &t.scales));
  return t;
}

static rondo_status add(struct trial *trial, struct tensors t, float global_scale) {
  return rondo_add_quantize_nvfp4(
      trial->graph,
      &(rondo_quantize_nvfp4_desc){.x = t.x, .codes = t.codes, .scales = t.scales, .global_scale = global_scale});
}

Test(quantize, what_does_not_fit_is_refused_with_a_reason) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  struct tensors good = tensors_of(&trial, RONDO_F32, 32, RONDO_NVFP4, 32, RONDO_E4M3, 2), bad;
  REQUIRE_ERROR(rondo_add_quantize_nvfp4(trial.graph, NULL), invalid, "description is NULL");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_E4M3, 32, RONDO_NVFP4, 32, RONDO_E4M3, 2), 0), invalid,
                "x is e4m3, expected f32, f16 or bf16");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_F32, 40, RONDO_NVFP4, 40, RONDO_E4M3, 2), 0), invalid,
                "x has rows of 40, expected a multiple of 16");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_F32, 32, RONDO_NVFP4, 48, RONDO_E4M3, 2), 0), invalid,
                "codes is [4, 48] nvfp4, expected [4, 32] nvfp4");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_F32, 32, RONDO_U8, 32, RONDO_E4M3, 2), 0), invalid,
                "codes is [4, 32] u8, expected [4, 32] nvfp4");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_F32, 32, RONDO_NVFP4, 32, RONDO_E4M3, 3), 0), invalid,
                "scales is [4, 3] e4m3, expected [4, 2] e4m3");
  REQUIRE_ERROR(add(&trial, tensors_of(&trial, RONDO_F32, 32, RONDO_NVFP4, 32, RONDO_F32, 2), 0), invalid,
                "scales is [4, 2] f32, expected [4, 2] e4m3");
  bad = good, bad.x = (rondo_tensor){0};
  REQUIRE_ERROR(add(&trial, bad, 0), invalid, "x is absent");
  bad = good, bad.codes = (rondo_tensor){0};
  REQUIRE_ERROR(add(&trial, bad, 0), invalid, "codes is absent, expected [4, 32] nvfp4");
  bad = good, bad.scales = (rondo_tensor){0};
  REQUIRE_ERROR(add(&trial, bad, 0), invalid, "scales is absent, expected [4, 2] e4m3");
  REQUIRE_ERROR(add(&trial, good, -1), invalid, "global_scale is -1, expected a positive number");
  REQUIRE_ERROR(add(&trial, good, NAN), invalid, "global_scale is ");
  REQUIRE_ERROR(add(&trial, good, 8e35f), invalid, "448 times which is finite");
  REQUIRE_OK(add(&trial, good, 0));
  trial_end(&trial);
}
