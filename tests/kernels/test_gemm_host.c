/* test_gemm_host.c - products of many vectors on the host: more than a group of vectors and a block of rows, the same
 * bits for any number of threads, over AVX2 and over AVX-512 registers, and with one_order in any number. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemm/gemm_block.h"
#include "../../kernels/gemv/gemv_panel.h"
#include "../oracles/gemm_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

Test(gemm_host, agrees_with_fp64_around_groups_and_blocks) {
  static const int64_t sizes[][3] = {{384, 33, 127}, {385, 128, 129}, {801, 130, 255}, {17, 300, 256},
                                     {31, 64, 511},  {400, 66, 1040}, {18, 2, 16},     {390, 520, 48}};
  static const rondo_dtype types[] = {RONDO_BF16, RONDO_F32, RONDO_F16};
  struct gemm_problem_case problems[4 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 4];
    const bool packed = i % 2;
    problems[i] = (struct gemm_problem_case){.dtype = i / 2 % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = types[i % 3],
                                             .packed = packed,
                                             .blocked = i % 4 == 3,
                                             .batch = i % 5 == 4 ? 2 : 0,
                                             .rows = size[0],
                                             .columns = size[1] - (i % 4 == 2 ? size[1] % 2 : 0),
                                             .k = packed ? (size[2] + 15) / 16 * 16 : size[2],
                                             .scale = 0.125f,
                                             .silu_mul = i % 4 == 2,
                                             .bias_dtype = i % 3 == 1 ? RONDO_F16 : 0,
                                             .residual_dtype = i % 3 == 2 ? RONDO_F32 : 0,
                                             .in_place = i % 3 == 0};
  }
  gemm_problems_check(RONDO_BACKEND_HOST, problems, COUNT(problems));
}

/* Out of a problem's numbers, which `seed` and its sizes give, by so many threads. */
static struct frame out_of(const struct gemm_problem_case *of, uint32_t threads, struct gemm_trial *t) {
  struct trial trial;
  struct random random = {9};
  trial_describe(&trial, RONDO_BACKEND_HOST);
  trial.host_threads = threads;
  gemm_trial_add(t, &trial, of, &random);
  trial_instantiate(&trial);
  gemm_trial_set(t, &trial);
  trial_replay(&trial);
  struct frame out = frame_get(&trial, &t->out, "out");
  trial_end(&trial);
  return out;
}

Test(gemm_host, any_number_of_threads_gives_the_same_bits) {
  for (int packed = 0; packed < 2; packed++) {
    const struct gemm_problem_case of = {.dtype = RONDO_BF16,
                                         .out_dtype = RONDO_F32,
                                         .packed = packed,
                                         .rows = 500,
                                         .columns = 390,
                                         .k = 208,
                                         .silu_mul = packed};
    struct frame first = {0};
    for (uint32_t threads = 1; threads <= 5; threads++) {
      struct gemm_trial t;
      struct frame out = out_of(&of, threads, &t);
      if (threads == 1)
        first = out;
      else
        cr_assert(memcmp(out.bytes, first.bytes, out.size) == 0, "%u threads give other bits than one", threads);
      if (threads > 1) free(out.bytes);
      gemm_trial_end(&t);
    }
    free(first.bytes);
  }
}

/* The first rows of 800, for numbers on both sides of sixteen and of a group. */
Test(gemm_host, one_order_gives_a_row_the_same_bits_in_any_number) {
  static const int64_t counts[] = {800, 1, 3, 16, 17, 29, 384, 385, 799};
  for (int packed = 0; packed < 2; packed++) {
    struct frame most = {0};
    for (size_t i = 0; i < COUNT(counts); i++) {
      const struct gemm_problem_case of = {.dtype = packed ? RONDO_F16 : RONDO_BF16,
                                           .out_dtype = RONDO_F32,
                                           .packed = packed,
                                           .rows = counts[i],
                                           .columns = 72,
                                           .k = 272,
                                           .one_order = 1};
      struct gemm_trial t;
      struct frame out = out_of(&of, 2, &t);
      const size_t bytes = (size_t)(of.rows * of.columns) * sizeof(float);
      if (i == 0) most = out;
      cr_assert(memcmp(out.bytes, most.bytes, bytes) == 0, "%lld rows", (long long)of.rows);
      if (i) free(out.bytes);
      gemm_trial_end(&t);
    }
    free(most.bytes);
  }
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* NaN may be any NaN. */
static bool same(float a, float b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

static void fill(struct random *random, float *numbers, size_t count) {
  static const float specials[] = {NAN, INFINITY, -INFINITY, 0x1p-140f, -0.0f};
  for (size_t i = 0; i < count; i++)
    numbers[i] =
        random_between(random, 0, 2000) ? (float)random_normal(random) : specials[random_between(random, 0, 4)];
}

Test(gemm_host, blocks_over_avx2_and_avx512_have_the_same_bits) {
  enum { VECTORS = 52, RUNS = 4 };
  _Alignas(BLOCK_ALIGNMENT) static float vectors[VECTORS][BLOCK_DEPTH], weights[BLOCK_DEPTH][BLOCK_ROWS];
  _Alignas(BLOCK_ALIGNMENT) static float sums[2][VECTORS][BLOCK_PITCH];
  static const int64_t runs[RUNS] = {16, 32, 64, 128};
  if (!gemv_panel_has_512()) cr_skip_test("the processor has no AVX-512");
  struct random random = {31};
  for (int64_t count = BLOCK_STEP; count <= VECTORS; count += BLOCK_STEP)
    for (int r = 0; r < RUNS; r++)
      for (int64_t depth = 32; depth <= BLOCK_DEPTH; depth += 32) {
        fill(&random, vectors[0], sizeof vectors / sizeof(float));
        fill(&random, weights[0], sizeof weights / sizeof(float));
        fill(&random, sums[0][0], sizeof sums[0] / sizeof(float));
        memcpy(sums[1], sums[0], sizeof sums[0]);
        struct gemm_block block = {vectors[0], weights[0], count, depth, runs[r], sums[0][0]};
        gemm_block_256(&block);
        block.sums = sums[1][0];
        gemm_block_512(&block);
        for (int v = 0; v < VECTORS; v++)
          for (int i = 0; i < BLOCK_PITCH; i++)
            cr_assert(same(sums[0][v][i], sums[1][v][i]), "%d vectors, depth %d, sum %d of %d: %a and %a", (int)count,
                      (int)depth, i, v, (double)sums[0][v][i], (double)sums[1][v][i]);
      }
}
