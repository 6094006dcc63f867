/* test_gemv.c - products with vectors of every pair of types and many shapes, which kernels are chosen for them, and
 * bad descriptions. */
#include "test_gemv_oracle.h"

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
      {.m = 5, .k = 9248, .count = 2}, /* the last slice is shorter */
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
BOTH_BACKENDS(gemv, few_long_rows_cut_into_slices_match_fp64, check_split)

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

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

static void check_replays(rondo_backend backend) {
  static const struct problem shapes[] = {{.m = 37, .k = 4096, .count = 1}, {.m = 37, .k = 4096, .count = 7}};
  struct problem problems[MOST_PROBLEMS];
  struct trial trial;
  int count = for_every_pair(shapes, 2, 0, problems);
  problems_begin(&trial, backend, problems, count);
  problems_run(&trial, problems, count);
  for (int replay = 0; replay < 20; replay++) {
    for (int i = 0; i < count; i++) {
      void *noise = malloc(bytes_of(&problems[i].out));
      memset(noise, 0xff, bytes_of(&problems[i].out));
      trial_set(&trial, problems[i].out.whole, noise);
      free(noise);
    }
    trial_replay(&trial);
    for (int i = 0; i < count; i++) {
      void *again = malloc(bytes_of(&problems[i].out));
      trial_get(&trial, problems[i].out.whole, again);
      cr_assert(!memcmp(again, problems[i].out.data, bytes_of(&problems[i].out)), "problem %d, replay %d", i, replay);
      free(again);
    }
  }
  problems_end(&trial, problems, count);
}
BOTH_BACKENDS(gemv, every_replay_gives_the_same_bits, check_replays)

/* One, two and nine vectors of the same data: those they share have the same bits. */
static void check_company(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 45, .k = 4096, .count = 9}, {.m = 45, .k = 4096, .count = 1}, {.m = 45, .k = 4096, .count = 2}};
  struct problem problems[MOST_PROBLEMS];
  struct trial trial;
  int count = for_every_pair(shapes, 3, 0, problems);
  for (int i = 0; i < count; i++) problems[i].out_dtype = RONDO_F32, problems[i].row_scales = false;
  problems_begin(&trial, backend, problems, count);
  for (int i = 0; i < count; i++) {
    struct problem *p = &problems[i], *all = &problems[i - i % 3];
    memcpy(p->weights.data, all->weights.data, bytes_of(&p->weights));
    memcpy(p->vectors.data, all->vectors.data, bytes_of(&p->vectors));
    if (p->weight_scales.data && all->weight_scales.data)
      memcpy(p->weight_scales.data, all->weight_scales.data, bytes_of(&p->weight_scales));
    if (p->vector_scales.data && all->vector_scales.data)
      memcpy(p->vector_scales.data, all->vector_scales.data, bytes_of(&p->vector_scales));
  }
  problems_run(&trial, problems, count);
  for (int i = 0; i < count; i++)
    cr_assert(!memcmp(problems[i].out.data, problems[i - i % 3].out.data, bytes_of(&problems[i].out)), "problem %d", i);
  problems_end(&trial, problems, count);
}
BOTH_BACKENDS(gemv, a_vector_has_the_same_bits_in_any_company, check_company)

/* ---- The choice of kernels --------------------------------------------------------------------------------------- */

/* What rondo_explain says of one problem on sm_90. */
static void explain(struct problem problem, char *text, size_t bytes) {
  struct trial trial;
  char path[] = "/tmp/rondo-gemv-XXXXXX";
  int file = mkstemp(path);
  cr_assert(file >= 0);
  problems_begin(&trial, RONDO_BACKEND_HOST, &problem, 1);
  REQUIRE_OK(rondo_explain(trial.graph, 90, path));
  ssize_t got = read(file, text, bytes - 1);
  cr_assert(got > 0);
  text[got] = 0;
  close(file);
  unlink(path);
  problems_end(&trial, &problem, 1);
}

static void check_choice(struct problem problem, const char *kernel, bool cut) {
  char text[4096];
  explain(problem, text, sizeof text);
  cr_assert(strstr(text, kernel), "expected %s in: %s", kernel, text);
  cr_assert((strstr(text, "rondo_gemv_reduce") != NULL) == cut, "expected %s cut in: %s", cut ? "a" : "no", text);
}

Test(gemv, kernels_are_chosen_by_type_alignment_and_shape) {
  struct problem nvfp4 = {.weights_dtype = RONDO_NVFP4, .vectors_dtype = RONDO_F16, .out_dtype = RONDO_F16};
  struct problem half = {.weights_dtype = RONDO_F16, .vectors_dtype = RONDO_F16, .out_dtype = RONDO_F16};
  struct problem p = nvfp4;
  p.m = 4096, p.k = 1024, p.count = 1;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", false);
  p.count = 2;
  check_choice(p, "rondo_gemv_nvfp4_f16_x4", false);
  p.m = 3, p.count = 1;
  check_choice(p, "rondo_gemv_nvfp4_f16_x4", false);
  p.m = 64, p.k = 8192;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", true);
  p.k = 8208;
  check_choice(p, "rondo_gemv_scalar", true);
  p.k = 64, p.padded = true, p.margin = 32;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", false);
  p.margin = 2;
  check_choice(p, "rondo_gemv_scalar", false);
  p = half;
  p.m = 4096, p.k = 40, p.count = 1;
  check_choice(p, "rondo_gemv_f16_x1", false);
  p.k = 44;
  check_choice(p, "rondo_gemv_scalar", false);
}

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
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is e4m3, expected f16, bf16 or f32");
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

/* A pair whose kernel is missing from the list would be multiplied by the scalar one: right, and many times slower. */
Test(gemv, every_pair_of_types_has_kernels_with_wide_loads) {
  static const struct problem shapes[] = {{.m = 4096, .k = 1024, .count = 1}, {.m = 4096, .k = 1024, .count = 2}};
  struct problem problems[MOST_PROBLEMS];
  int count = for_every_pair(shapes, 2, 0, problems);
  for (int i = 0; i < count; i++) check_choice(problems[i], problems[i].count == 1 ? "_x1 " : "_x4 ", false);
}
