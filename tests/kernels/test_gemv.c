/* test_gemv.c - products with vectors against fp64: every pair of types, many shapes, the kernels that are chosen for
 * them, and the descriptions that are refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../oracles/gemv_oracle.h"

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static void check_pairs(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 1, .k = 32, .count = 1},
      {.m = 2, .k = 1024, .count = 3, .batch = 1},
      {.m = 7, .k = 2080, .count = 1, .scale = 0.125f},
      {.m = 3, .k = 1056, .count = 1},
      {.m = 130, .k = 256, .count = 5, .batch = 2, .scale = -3},
      {.m = 33, .k = 1088, .count = 16},
  };
  struct problem problems[MOST_PROBLEMS];
  check_problems(backend, problems, for_every_pair(shapes, 6, 0, problems));
}
BOTH_BACKENDS(gemv, every_pair_of_types_matches_fp64, check_pairs)

static void check_odd_sizes(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 1, .k = 16, .count = 2},
      {.m = 5, .k = 48, .count = 1, .batch = 3},
      {.m = 127, .k = 1008, .count = 4},
  };
  struct problem problems[MOST_PROBLEMS];
  int count = for_every_pair(shapes, 3, 3, problems);
  static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3};
  for (int64_t k = 1; k <= 9; k += 4)
    for (int i = 0; i < 3; i++)
      problems[count++] = (struct problem){.weights_dtype = dtypes[i],
                                           .vectors_dtype = dtypes[i] == RONDO_E4M3 ? RONDO_BF16 : dtypes[i],
                                           .out_dtype = RONDO_F32,
                                           .m = 4,
                                           .k = k,
                                           .count = 2};
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(gemv, k_that_no_vector_width_divides_matches_fp64, check_odd_sizes)

static void check_split(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 3, .k = 16384, .count = 1},
      {.m = 33, .k = 4096, .count = 6, .batch = 2, .scale = 0.25f},
      {.m = 5, .k = 9248, .count = 2}, /* the last part is shorter */
  };
  struct problem problems[MOST_PROBLEMS];
  int count = for_every_pair(shapes, 3, 0, problems);
  count += for_every_pair(&(struct problem){.m = 4, .k = 8208, .count = 2}, 1, 1, problems + count);
  problems[count++] = (struct problem){.weights_dtype = RONDO_NVFP4,
                                       .vectors_dtype = RONDO_NVFP4,
                                       .out_dtype = RONDO_F32,
                                       .m = 1,
                                       .k = 131072 + 32,
                                       .count = 1};
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(gemv, few_long_rows_match_fp64, check_split)

/* Margins of 32 elements keep 16-byte loads possible, of 2 they do not. The padding is NaN. */
static void check_views(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 9, .k = 96, .count = 3, .batch = 2, .padded = true, .margin = 32},
      {.m = 6, .k = 2048, .count = 1, .padded = true, .margin = 64},
      {.m = 9, .k = 96, .count = 3, .batch = 2, .padded = true, .margin = 2},
      {.m = 6, .k = 2048, .count = 1, .padded = true, .margin = 6},
  };
  struct problem problems[MOST_PROBLEMS];
  check_problems(backend, problems, for_every_pair(shapes, 4, 0, problems));
}
BOTH_BACKENDS(gemv, views_with_padding_read_and_write_only_themselves, check_views)

static void check_counts(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  for (int64_t vectors = 1; vectors <= 16; vectors++)
    for (int i = 0; i < 3; i++)
      problems[count++] = (struct problem){.weights_dtype = pairs[(size_t)i * 3].weights,
                                           .vectors_dtype = pairs[(size_t)i * 3].vectors,
                                           .out_dtype = outs[i],
                                           .m = 21,
                                           .k = 544,
                                           .count = vectors};
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(gemv, one_to_sixteen_vectors_match_fp64, check_counts)

/* More matrices than one dimension of a grid holds. */
static void check_many_matrices(rondo_backend backend) {
  struct problem problems[] = {{.weights_dtype = RONDO_F16,
                                .vectors_dtype = RONDO_F16,
                                .out_dtype = RONDO_F32,
                                .batch = 70001,
                                .m = 1,
                                .k = 8,
                                .count = 1},
                               {.weights_dtype = RONDO_NVFP4,
                                .vectors_dtype = RONDO_NVFP4,
                                .out_dtype = RONDO_F16,
                                .batch = 66001,
                                .m = 3,
                                .k = 16,
                                .count = 1}};
  check_problems(backend, problems, 2);
}
BOTH_BACKENDS(gemv, more_than_65535_matrices_match_fp64, check_many_matrices)

static void check_empty(rondo_backend backend) {
  struct trial trial;
  struct problem problems[MOST_PROBLEMS];
  static const struct problem shapes[] = {
      {.m = 0, .k = 32, .count = 2},
      {.m = 3, .k = 0, .count = 2, .batch = 2},
      {.m = 0, .k = 0, .count = 1},
  };
  int count = for_every_pair(shapes, 3, 0, problems);
  problems_begin(&trial, backend, problems, count);
  rondo_tensor weights, vectors, out; /* a batch of none */
  REQUIRE_OK(rondo_constant(trial.graph, "weights", RONDO_F16, 3, (int64_t[]){0, 4, 8}, &weights));
  REQUIRE_OK(rondo_input(trial.graph, "vectors", RONDO_F16, 3, (int64_t[]){0, 1, 8}, &vectors));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 3, (int64_t[]){0, 1, 4}, &out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &(rondo_gemv_desc){.weights = weights, .vectors = vectors, .out = out}));
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) {
    problem_set(&trial, &problems[i]);
    memset(problems[i].out.data, 0xff, bytes_of(&problems[i].out));
    trial_set(&trial, problems[i].out.whole, problems[i].out.data); /* NaN, unless zeros are written */
  }
  trial_replay(&trial);
  for (int i = 0; i < count; i++) problem_check(&trial, &problems[i], i);
  problems_end(&trial, problems, count);
}
BOTH_BACKENDS(gemv, no_rows_is_no_work_and_no_columns_gives_zeros, check_empty)

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static rondo_tensor tensor_of(struct trial *trial, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(trial->graph, "tensor", dtype, rank, (int64_t[]){a, b, c}, &tensor));
  return tensor;
}

Test(gemv, types_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_gemv_desc good = {.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 64, 0),
                                .weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 4, 0),
                                .vectors = tensor_of(t, RONDO_F16, 2, 2, 64, 0),
                                .out = tensor_of(t, RONDO_F32, 2, 2, 4, 0)};
  rondo_gemv_desc bad = good;
  REQUIRE_ERROR(rondo_add_gemv(t->graph, NULL), invalid, "description is NULL");
  bad.weights = tensor_of(t, RONDO_F32, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights are f32, expected f16, bf16, e4m3 or nvfp4");
  bad.weights = tensor_of(t, RONDO_F16, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is present, expected none with weights in f16");
  bad.weights = tensor_of(t, RONDO_BF16, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are f16, expected bf16 with weights in bf16");
  bad = good, bad.weights = tensor_of(t, RONDO_E4M3, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 4] e4m3, expected [4] f32");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are nvfp4, expected f16 or bf16");
  bad = good, bad.vectors = tensor_of(t, RONDO_F32, 2, 2, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are f32, expected f16, bf16 or nvfp4");
  bad = good, bad.out = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is e4m3, expected f16, bf16, f32 or nvfp4");
  bad = good, bad.vector_scales = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vector_scales is present, expected none");
  bad = good, bad.weight_scales = tensor_of(t, RONDO_F32, 2, 4, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 4] f32, expected [4, 4] e4m3");
  bad = good, bad.scale = INFINITY;
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "scale is inf, expected a finite number");
  REQUIRE_OK(rondo_add_gemv(t->graph, &good));
  trial_end(t);
}

Test(gemv, shapes_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_gemv_desc good = {.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 64, 0),
                                .weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 4, 0),
                                .vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 64, 0),
                                .vector_scales = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0),
                                .out = tensor_of(t, RONDO_F32, 2, 2, 4, 0)};
  rondo_gemv_desc bad = good;
  bad.weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 3, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 3] e4m3, expected [4, 4]");
  bad = good, bad.vector_scales = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vector_scales is absent, expected [2, 4] e4m3");
  bad = good, bad.weights = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights is absent");
  bad = good, bad.out = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is absent");
  bad = good, bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 17, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are 17, expected 1 to 16");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 0, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are 0, expected 1 to 16");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 48, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors is [2, 48] nvfp4, expected [2, 64] nvfp4");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 3, 1, 2, 64);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors have rank 3, expected 2");
  bad = good, bad.weights = tensor_of(t, RONDO_NVFP4, 1, 64, 0, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights have rank 1, expected 2 or 3");
  bad.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 40, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights have rows of 40, expected a multiple of 16");
  bad = good, bad.out = tensor_of(t, RONDO_F32, 2, 4, 2, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is [4, 2] f32, expected [2, 4] f32");
  REQUIRE_OK(rondo_add_gemv(t->graph, &good));
  trial_end(t);
}
