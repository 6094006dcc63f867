/* test_gemm_nvfp4.c - rondo_add_gemm with weights in NVFP4 against fp64, on the host and on the GPU, and its bits. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/gemm_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const rondo_dtype types[] = {RONDO_BF16, RONDO_F32, RONDO_F16};

/* Around every edge of a tile, of a slot and of a block of codes; both layouts of scales. */
static void nvfp4_agrees_with_fp64_at_every_edge(rondo_backend backend) {
  static const int64_t edges[] = {1, 16, 17, 48, 63, 64, 65, 112, 127, 128, 130, 192, 257, 320};
  struct gemm_problem_case problems[2 * COUNT(edges)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const size_t e = i / 2;
    const int64_t other = edges[(4 * e + 3) % COUNT(edges)], third = edges[(9 * e + 2) % COUNT(edges)];
    problems[i] = (struct gemm_problem_case){.dtype = e % 2 ? RONDO_BF16 : RONDO_F16,
                                             .out_dtype = types[(e + i) % 3],
                                             .packed = true,
                                             .blocked = e / 2 % 2,
                                             .rows = edges[e],
                                             .columns = i % 2 ? 2 * other : other,
                                             .k = (i % 2 ? 64 : 16) * (1 + third % 11),
                                             .scale = e % 3 ? 0.5f : 0};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, nvfp4_agrees_with_fp64_at_every_edge, nvfp4_agrees_with_fp64_at_every_edge)

/* Each kernel of sm_90a, whole and ragged, with all that may follow the sums. */
static void nvfp4_agrees_with_fp64_in_every_kernel(rondo_backend backend) {
  skip_under_sanitizers();
  for (size_t i = 0; i < gemm_packed_size_count; i++) {
    const struct gemm_size *size = &gemm_packed_sizes[i];
    const struct gemm_problem_case whole = {.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                            .out_dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                            .packed = true,
                                            .rows = gemm_fewer(backend, size->rows),
                                            .columns = gemm_fewer(backend, size->columns),
                                            .k = size->k,
                                            .scale = 0.125f};
    struct gemm_problem_case problems[8];
    for (size_t j = 0; j < COUNT(problems); j++) problems[j] = whole;
    problems[1].rows -= 3, problems[1].columns -= 8, problems[1].in_place = true;
    problems[2].rows -= 1, problems[2].columns -= 6, problems[2].out_dtype = RONDO_F32, problems[2].blocked = true;
    problems[3].bias_dtype = types[i % 3], problems[3].residual_dtype = types[(i + 1) % 3];
    problems[4].silu_mul = true, problems[4].dtype = problems[4].out_dtype = RONDO_BF16;
    problems[5].silu_mul = true, problems[5].rows -= 5, problems[5].columns -= 16;
    problems[6].silu_mul = true, problems[6].bias_dtype = types[i % 3], problems[6].in_place = true;
    problems[6].out_dtype = types[(i + 1) % 3];
    problems[7].residual_dtype = problems[7].out_dtype, problems[7].k += 128, problems[7].blocked = true;
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm, nvfp4_agrees_with_fp64_in_every_kernel, nvfp4_agrees_with_fp64_in_every_kernel)

/* Several tiles a block, batches, views, and rows that begin at no multiple of 16, 8 or 4 bytes. */
static void nvfp4_takes_batches_and_views(rondo_backend backend) {
  static const int64_t sizes[][4] = {{2944, 1088, 384, 0}, {1100, 5000, 320, 0}, {70, 520, 128, 9},
                                     {300, 264, 192, 5},   {20, 72, 64, 200},    {130, 392, 2112, 2},
                                     {33, 64, 96, 2},      {200, 136, 176, 3},   {30, 2056, 1088, 20}};
  struct gemm_problem_case problems[4 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 4];
    problems[i] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .packed = true,
                                             .batch = size[3],
                                             .rows = size[0] > 500 ? gemm_fewer(backend, size[0]) : size[0],
                                             .columns = size[1] > 500 ? gemm_fewer(backend, size[1]) / 8 * 8 : size[1],
                                             .k = size[2],
                                             .scale = 0.25f,
                                             .residual_dtype = i % 4 == 3 ? RONDO_F16 : 0,
                                             .silu_mul = i % 4 == 2,
                                             .room = i % 4 ? 1 : 0,
                                             .unit = i % 4 == 1 ? 1 : 8};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, nvfp4_takes_batches_and_views, nvfp4_takes_batches_and_views)

static void nvfp4_keeps_its_bound_for_long_sums(rondo_backend backend) {
  static const struct gemm_problem_case problems[] = {
      {.dtype = RONDO_BF16,
       .out_dtype = RONDO_F32,
       .packed = true,
       .rows = 70,
       .columns = 136,
       .k = 16384,
       .positive = 1},
      {.dtype = RONDO_F16,
       .out_dtype = RONDO_F32,
       .packed = true,
       .rows = 40,
       .columns = 66,
       .k = 16384,
       .positive = 1},
      {.dtype = RONDO_BF16,
       .out_dtype = RONDO_F32,
       .packed = true,
       .rows = 33,
       .columns = 65,
       .k = 9008,
       .positive = 1},
      {.dtype = RONDO_BF16,
       .out_dtype = RONDO_F32,
       .packed = true,
       .rows = 30,
       .columns = 136,
       .k = 16384,
       .positive = 1},
  };
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, nvfp4_keeps_its_bound_for_long_sums, nvfp4_keeps_its_bound_for_long_sums)

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

static void nvfp4_one_order_gives_a_row_the_same_bits_in_any_number(rondo_backend backend) {
  skip_under_sanitizers();
  static const int64_t counts[] = {1000, 1, 16, 17, 64, 65, 128, 200, 512};
  static const int64_t shapes[][2] = {{2048, 2048}, {1032, 576}, {129, 48}};
  for (size_t s = 0; s < COUNT(shapes); s++) {
    const struct gemm_problem_case of = {.dtype = s % 2 ? RONDO_F16 : RONDO_BF16,
                                         .out_dtype = RONDO_F32,
                                         .packed = true,
                                         .columns = shapes[s][0],
                                         .k = shapes[s][1],
                                         .one_order = 1};
    gemm_rows_check(backend, of, counts, COUNT(counts));
  }
}
BOTH_BACKENDS(gemm, nvfp4_one_order_gives_a_row_the_same_bits_in_any_number,
              nvfp4_one_order_gives_a_row_the_same_bits_in_any_number)

/* A scale that is NaN makes its own column NaN, and no other; again and again. */
static void nvfp4_a_nan_scale_reaches_its_column_alone(rondo_backend backend) {
  for (size_t i = 0; i < gemm_packed_size_count; i++) {
    const struct gemm_size *size = &gemm_packed_sizes[i];
    const struct gemm_problem_case of = {.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                         .out_dtype = RONDO_F32,
                                         .packed = true,
                                         .rows = gemm_fewer(backend, size->rows),
                                         .columns = gemm_fewer(backend, size->columns),
                                         .k = size->k};
    struct gemm_trial t;
    struct trial trial;
    gemm_trial_begin(&t, &trial, backend, &of);
    struct frame before = gemm_trial_replayed(&t, &trial);
    const int64_t column = of.columns / 3;
    t.scales.bytes[gemm_trial_scale(&t, 0, column, of.k / 16 - 1)] = i % 2 ? 0xff : 0x7f;
    gemm_trial_set(&t, &trial);
    for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 2 : 200); replay++) trial_replay(&trial);
    struct frame after = frame_get(&trial, &t.out, "out");
    for (int64_t r = 0; r < frame_count(&after); r++)
      cr_assert(r % of.columns == column ? isnan(frame_read(&after, r))
                                         : frame_read(&after, r) == frame_read(&before, r),
                "%s, result %lld", size->choice, (long long)r);
    free(before.bytes), free(after.bytes);
    trial_end(&trial), gemm_trial_end(&t);
  }
}
BOTH_BACKENDS(gemm, nvfp4_a_nan_scale_reaches_its_column_alone, nvfp4_a_nan_scale_reaches_its_column_alone)
