/* test_gemm_e4m3.c - rondo_add_gemm with weights and vectors in e4m3 against fp64, on the host and on the GPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/gemm_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const rondo_dtype types[] = {RONDO_BF16, RONDO_F32, RONDO_F16};

/* Around every edge of a tile and of a stage. */
static void e4m3_agrees_with_fp64_at_every_edge(rondo_backend backend) {
  static const int64_t edges[] = {1, 2, 16, 17, 63, 64, 65, 112, 127, 128, 130, 192, 257, 320};
  struct gemm_problem_case problems[2 * COUNT(edges)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const size_t e = i / 2;
    const int64_t other = edges[(4 * e + 3) % COUNT(edges)], third = edges[(9 * e + 2) % COUNT(edges)];
    problems[i] = (struct gemm_problem_case){.dtype = RONDO_E4M3,
                                             .out_dtype = types[(e + i) % 3],
                                             .scaled = i % 2,
                                             .rows = edges[e],
                                             .columns = 2 * other,
                                             .k = 16 * (1 + third % 25),
                                             .scale = e % 3 ? 0.0625f : 0};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_e4m3, agrees_with_fp64_at_every_edge, e4m3_agrees_with_fp64_at_every_edge)

/* Whole and ragged tiles, several for each block, with all that may follow the sums. */
static void e4m3_takes_all_that_follows(rondo_backend backend) {
  static const int64_t sizes[][3] = {{2048, 4096, 512}, {128, 256, 384}, {520, 1040, 1152}};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    const struct gemm_problem_case whole = {.dtype = RONDO_E4M3,
                                            .out_dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                            .scaled = i != 1,
                                            .rows = gemm_fewer(backend, sizes[i][0]),
                                            .columns = gemm_fewer(backend, sizes[i][1]),
                                            .k = sizes[i][2],
                                            .scale = 0.03125f};
    struct gemm_problem_case problems[8];
    for (size_t j = 0; j < COUNT(problems); j++) problems[j] = whole;
    problems[1].rows -= 3, problems[1].columns -= 8, problems[1].in_place = true;
    problems[2].rows -= 1, problems[2].columns -= 6, problems[2].out_dtype = RONDO_F32, problems[2].k -= 16;
    problems[3].bias_dtype = types[i % 3], problems[3].residual_dtype = types[(i + 1) % 3];
    problems[4].silu_mul = true, problems[4].scale = 0x1p-8f;
    problems[5].silu_mul = true, problems[5].rows -= 5, problems[5].columns -= 16, problems[5].scale = 0x1p-8f;
    problems[6].silu_mul = true, problems[6].bias_dtype = types[i % 3], problems[6].in_place = true;
    problems[6].out_dtype = types[(i + 1) % 3], problems[6].scale = 0x1p-8f;
    problems[7].residual_dtype = problems[7].out_dtype, problems[7].k += 128;
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm_e4m3, takes_all_that_follows, e4m3_takes_all_that_follows)

static void e4m3_takes_batches_and_views(rondo_backend backend) {
  static const int64_t sizes[][4] = {{70, 520, 128, 9}, {300, 264, 192, 5}, {20, 72, 64, 40}, {130, 392, 2112, 2}};
  struct gemm_problem_case problems[2 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 2];
    problems[i] = (struct gemm_problem_case){.dtype = RONDO_E4M3,
                                             .out_dtype = types[i % 3],
                                             .scaled = true,
                                             .batch = size[3],
                                             .rows = size[0],
                                             .columns = size[1],
                                             .k = size[2],
                                             .scale = 0.25f,
                                             .room = i % 2,
                                             .unit = 16};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_e4m3, takes_batches_and_views, e4m3_takes_batches_and_views)

/* Terms of one sign, whose errors add up. */
static void e4m3_keeps_its_bound_for_long_sums(rondo_backend backend) {
  static const struct gemm_problem_case problems[] = {
      {.dtype = RONDO_E4M3, .out_dtype = RONDO_F32, .rows = 70, .columns = 136, .k = 16384, .positive = 1},
      {.dtype = RONDO_E4M3, .out_dtype = RONDO_F32, .rows = 3, .columns = 130, .k = 9008, .positive = 1},
  };
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_e4m3, keeps_its_bound_for_long_sums, e4m3_keeps_its_bound_for_long_sums)

/* NaN in a row of X makes that row NaN, and changes no bit of another, again and again. */
static void e4m3_a_nan_reaches_its_row_alone(rondo_backend backend) {
  const struct gemm_problem_case of = {.dtype = RONDO_E4M3,
                                       .out_dtype = RONDO_F32,
                                       .scaled = true,
                                       .rows = gemm_fewer(backend, 1024),
                                       .columns = gemm_fewer(backend, 2048),
                                       .k = 640};
  struct gemm_trial t;
  struct trial trial;
  gemm_trial_begin(&t, &trial, backend, &of);
  struct frame before = gemm_trial_replayed(&t, &trial);
  const int64_t row = of.rows / 3;
  t.vectors.bytes[frame_place(&t.vectors, row * of.k + 77)] = 0xff;
  gemm_trial_set(&t, &trial);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 2 : 1000); replay++) trial_replay(&trial);
  struct frame after = frame_get(&trial, &t.out, "out");
  for (int64_t i = 0; i < frame_count(&after); i++)
    cr_assert(i / of.columns == row ? isnan(frame_read(&after, i)) : frame_read(&after, i) == frame_read(&before, i),
              "result %lld", (long long)i);
  free(before.bytes), free(after.bytes);
  trial_end(&trial), gemm_trial_end(&t);
}
BOTH_BACKENDS(gemm_e4m3, a_nan_reaches_its_row_alone, e4m3_a_nan_reaches_its_row_alone)

static void e4m3_gives_a_row_the_same_bits_in_any_number(rondo_backend backend) {
  static const int64_t counts[] = {1000, 1, 16, 17, 64, 129, 512};
  const struct gemm_problem_case of = {.dtype = RONDO_E4M3, .out_dtype = RONDO_F32, .columns = 1032, .k = 576};
  gemm_rows_check(backend, of, counts, COUNT(counts));
}
BOTH_BACKENDS(gemm_e4m3, gives_a_row_the_same_bits_in_any_number, e4m3_gives_a_row_the_same_bits_in_any_number)
