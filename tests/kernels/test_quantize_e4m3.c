/* test_quantize_e4m3.c - rows to e4m3: the bytes are those of the oracle on every backend. Their products:
 * test_quantized_products.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"
#include "../oracles/quantize_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- One tensor to quantise -------------------------------------------------------------------------------------- */

struct problem {
  rondo_dtype dtype;
  uint32_t rank;
  int64_t shape[RONDO_MAX_RANK];
  int64_t room, unit;                                                         /* of frame_add */
  void (*fill)(struct random *random, double *row, int64_t k, int64_t index); /* NULL: normal numbers of many sizes */
  /* Set by problem_add. */
  struct frame x, codes, scales;
};

static void normal_row(struct random *random, double *row, int64_t k) {
  const double size = exp2((double)random_between(random, -9, 9));
  for (int64_t i = 0; i < k; i++) row[i] = size * random_normal(random);
}

static void problem_add(struct trial *trial, struct problem *p, struct random *random) {
  const int64_t k = p->shape[p->rank - 1];
  p->x = frame_add(trial, "x", p->dtype, p->rank, p->shape, p->room, p->unit);
  p->codes = frame_add(trial, "codes", RONDO_E4M3, p->rank, p->shape, p->room, p->unit);
  p->scales = frame_add(trial, "scales", RONDO_F32, p->rank - 1, p->shape, p->room, 1);
  REQUIRE_OK(rondo_add_quantize_e4m3(
      trial->graph, &(rondo_quantize_e4m3_desc){.x = p->x.view, .codes = p->codes.view, .scales = p->scales.view}));
  double *row = malloc((size_t)(k + 1) * sizeof *row);
  for (int64_t r = 0; r < frame_count(&p->scales); r++) {
    normal_row(random, row, k);
    if (p->fill) p->fill(random, row, k, r);
    for (int64_t i = 0; i < k; i++) frame_write(&p->x, r * k + i, row[i]);
  }
  free(row);
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static void problem_check(struct trial *trial, struct problem *p, size_t index) {
  const int64_t k = p->shape[p->rank - 1];
  struct frame codes = frame_get(trial, &p->codes, "codes"), scales = frame_get(trial, &p->scales, "scales");
  double *row = malloc((size_t)(k + 1) * sizeof *row);
  uint8_t *expected = malloc((size_t)k + 1);
  for (int64_t r = 0; r < frame_count(&p->scales); r++) {
    float scale, got;
    for (int64_t i = 0; i < k; i++) row[i] = frame_read(&p->x, r * k + i);
    oracle_row(row, k, expected, &scale);
    memcpy(&got, scales.bytes + (size_t)frame_place(&scales, r) * sizeof got, sizeof got);
    cr_assert_eq(bits_of(got), bits_of(scale), "problem %zu: row %lld: scale %a, expected %a", index, (long long)r,
                 (double)got, (double)scale);
    for (int64_t i = 0; i < k; i++) {
      const uint8_t code = codes.bytes[frame_place(&codes, r * k + i)];
      cr_assert_eq(code, expected[i], "problem %zu: row %lld, element %lld, %a: %#x, expected %#x", index, (long long)r,
                   (long long)i, row[i], code, expected[i]);
    }
  }
  free(row), free(expected), free(codes.bytes), free(scales.bytes);
  free(p->x.bytes), free(p->codes.bytes), free(p->scales.bytes);
}

static void check_problems(rondo_backend backend, struct problem *problems, size_t count) {
  struct trial trial;
  struct random random = {.state = 7};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) problem_add(&trial, &problems[i], &random);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    frame_set(&trial, &problems[i].x);
    frame_set(&trial, &problems[i].codes), frame_set(&trial, &problems[i].scales);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) problem_check(&trial, &problems[i], i);
  trial_end(&trial);
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* Around the numbers that a warp, a block and its loads take, in whole vectors and not. */
static void check_shapes(rondo_backend backend) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const struct problem some[] = {
      {.rank = 2, .shape = {1, 1}},
      {.rank = 2, .shape = {7, 48}},
      {.rank = 2, .shape = {300, 1040}},
      {.rank = 2, .shape = {70, 1037}},
      {.rank = 2, .shape = {17, 2048}},
      {.rank = 2, .shape = {3, 8200}, .room = 1, .unit = 16},
      {.rank = 2, .shape = {2, 16384}},
      {.rank = 2, .shape = {3, 40008}},
      {.rank = 2, .shape = {2, 20001}},
      {.rank = 3, .shape = {3, 5, 32}, .room = 1, .unit = 1},
      {.rank = 4, .shape = {2, 3, 5, 64}, .room = 1, .unit = 16},
      {.rank = 4, .shape = {2, 3, 9, 1024}, .room = 2, .unit = 4},
      {.rank = 4, .shape = {1, 4, 1, 83}, .room = 1, .unit = 3},
  };
  for (size_t d = 0; d < COUNT(dtypes); d++) {
    struct problem problems[COUNT(some)];
    memcpy(problems, some, sizeof some);
    for (size_t i = 0; i < COUNT(some); i++) problems[i].dtype = dtypes[d];
    check_problems(backend, problems, COUNT(some));
  }
}
BOTH_BACKENDS(quantize_e4m3, rows_of_every_type_and_rank_match_the_oracle, check_shapes)

static void check_empty(rondo_backend backend) {
  struct problem problems[] = {
      {.dtype = RONDO_F16, .rank = 2, .shape = {0, 32}},
      {.dtype = RONDO_F32, .rank = 2, .shape = {30, 0}},
      {.dtype = RONDO_BF16, .rank = 3, .shape = {2, 0, 16}},
      {.dtype = RONDO_BF16, .rank = 4, .shape = {2, 3, 4, 0}},
  };
  check_problems(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(quantize_e4m3, rows_without_elements_have_a_scale, check_empty)

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* One kind of hard row after the other. What is too large or too small for x's type becomes infinity or zero there. */
static void hard_row(struct random *random, double *row, int64_t k, int64_t index) {
  const int64_t where = random_between(random, 0, k - 1);
  switch (index % 12) {
  case 0: /* zeros of both signs */
    for (int64_t i = 0; i < k; i++) row[i] = i % 3 ? 0.0 : -0.0;
    break;
  case 1:
    row[where] = index % 24 < 12 ? NAN : -NAN;
    break;
  case 2:
    row[where] = index % 24 < 12 ? INFINITY : -INFINITY;
    break;
  case 3: /* NaN beside an infinity */
    row[where] = INFINITY, row[(where + k / 2) % k] = NAN;
    break;
  case 4: /* scale 1: codes, and the middles between two */
    for (int64_t i = 0; i < k; i++) {
      const uint8_t code = (uint8_t)random_between(random, 0, 0x7d);
      row[i] = (i % 2 ? 1 : 0.5) * oracle_e4m3(code) + (i % 2 ? 0 : 0.5) * oracle_e4m3((uint8_t)(code + 1));
      row[i] *= i % 3 ? 1 : -1;
    }
    row[where] = -448;
    break;
  case 5: /* one outlier, and the rest becomes subnormal or zero */
    for (int64_t i = 0; i < k; i++) row[i] = exp2((double)random_between(random, -14, -4)) * random_normal(random);
    row[where] = 448;
    break;
  case 6: /* the largest numbers */
    for (int64_t i = 0; i < k; i++) row[i] *= 0x1p100;
    row[where] = -0x1.fffffep127;
    break;
  case 7:
    for (int64_t i = 0; i < k; i++) row[i] = (double)random_between(random, -65504, 65504);
    row[where] = 65504;
    break;
  case 8: /* the smallest numbers: the scale is the least */
    for (int64_t i = 0; i < k; i++) row[i] = 0x1p-149 * (double)random_between(random, -99, 99);
    break;
  case 9: /* a scale just above and below the least */
    for (int64_t i = 0; i < k; i++) row[i] = 448 * 0x1p-126 * (2 * random_uniform(random) - 1);
    row[where] = 448 * 0x1p-126 * (index % 24 < 12 ? 1.01 : 0.99);
    break;
  case 10: /* subnormal in f16 */
    for (int64_t i = 0; i < k; i++) row[i] = 0x1p-24 * (double)random_between(random, -1023, 1023);
    break;
  default: /* all equal: products just above or below 448 */
    for (int64_t i = 0; i < k; i++) row[i] = (i % 2 ? -1 : 1) * (1 + (double)index / 1024);
    break;
  }
}

static void check_values(rondo_backend backend) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t sizes[] = {64, 83, 1024, 9000};
  for (size_t d = 0; d < COUNT(dtypes); d++) {
    struct problem problems[COUNT(sizes)];
    for (size_t i = 0; i < COUNT(sizes); i++)
      problems[i] = (struct problem){
          .dtype = dtypes[d], .rank = 2, .shape = {sizes[i] > 100 ? 48 : 480, sizes[i]}, .fill = hard_row};
    check_problems(backend, problems, COUNT(sizes));
  }
}
BOTH_BACKENDS(quantize_e4m3, hard_values_give_the_documented_bytes_in_their_row_alone, check_values)

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

Test(quantize_e4m3, what_does_not_fit_is_refused_with_a_reason) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  rondo_tensor x, row, ids, codes, bytes, other_codes, scales, other_scales, halves;
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_BF16, 2, (int64_t[]){4, 30}, &x));
  REQUIRE_OK(rondo_input(trial.graph, "row", RONDO_F32, 1, (int64_t[]){30}, &row));
  REQUIRE_OK(rondo_input(trial.graph, "ids", RONDO_I32, 2, (int64_t[]){4, 30}, &ids));
  REQUIRE_OK(rondo_output(trial.graph, "codes", RONDO_E4M3, 2, (int64_t[]){4, 30}, &codes));
  REQUIRE_OK(rondo_output(trial.graph, "bytes", RONDO_U8, 2, (int64_t[]){4, 30}, &bytes));
  REQUIRE_OK(rondo_output(trial.graph, "other codes", RONDO_E4M3, 2, (int64_t[]){4, 31}, &other_codes));
  REQUIRE_OK(rondo_output(trial.graph, "scales", RONDO_F32, 1, (int64_t[]){4}, &scales));
  REQUIRE_OK(rondo_output(trial.graph, "other scales", RONDO_F32, 2, (int64_t[]){4, 1}, &other_scales));
  REQUIRE_OK(rondo_output(trial.graph, "halves", RONDO_F16, 1, (int64_t[]){4}, &halves));
#define ADD(a, b, c)                                                                                                   \
  rondo_add_quantize_e4m3(trial.graph,                                                                                 \
                          &(rondo_quantize_e4m3_desc){.name = "to e4m3", .x = (a), .codes = (b), .scales = (c)})
  const rondo_tensor none = {0};
  REQUIRE_ERROR(rondo_add_quantize_e4m3(trial.graph, NULL), invalid, "description is NULL");
  REQUIRE_ERROR(ADD(none, codes, scales), invalid, "x is absent, expected f32, f16 or bf16 in at least two dimensions");
  REQUIRE_ERROR(ADD(none, codes, scales), invalid, "to e4m3");
  REQUIRE_ERROR(ADD(ids, codes, scales), invalid, "x is [4, 30] i32, expected f32, f16 or bf16 in at least two");
  REQUIRE_ERROR(ADD(row, codes, scales), invalid, "x is [30] f32, expected f32, f16 or bf16 in at least two");
  REQUIRE_ERROR(ADD(x, none, scales), invalid, "codes is absent, expected [4, 30] e4m3");
  REQUIRE_ERROR(ADD(x, bytes, scales), invalid, "codes is [4, 30] u8, expected [4, 30] e4m3");
  REQUIRE_ERROR(ADD(x, other_codes, scales), invalid, "codes is [4, 31] e4m3, expected [4, 30] e4m3");
  REQUIRE_ERROR(ADD(x, codes, none), invalid, "scales is absent, expected [4] f32");
  REQUIRE_ERROR(ADD(x, codes, other_scales), invalid, "scales is [4, 1] f32, expected [4] f32");
  REQUIRE_ERROR(ADD(x, codes, halves), invalid, "scales is [4] f16, expected [4] f32");
  REQUIRE_OK(ADD(x, codes, scales));
#undef ADD
  trial_end(&trial);
}
