/* test_gemv_head_16.c - products of 1 to 16 vectors with many short rows in 16 bits (gemv_head_plan.c), for each of
 * their kernels, with slots for two tiles and for sixteen, rows that tiles do not divide, whole pieces of k and half
 * ones: every result matches fp64, and has the same bits in every replay. */
#include <criterion/criterion.h>
#include <math.h>

#include "../../kernels/gemv/gemv_head.h"
#include "../oracles/gemv_large.h"

#define NAME(name) "rondo_gemv_head_" #name

static const struct large larges[] = {
    {RONDO_BF16, 0, 49152, 576, 16, NAME(16bit_q1x2), IN_16_BITS},
    {RONDO_BF16, 0, 49153, 960, 9, NAME(16bit_q1x2), IN_16_BITS},
    {RONDO_BF16, 2, 16811, 352, 11, NAME(16bit_q1x2), IN_16_BITS},
    {RONDO_BF16, 0, 33815, 2048, 13, NAME(16bit_q1x2), IN_16_BITS | NORMALISED},
    {RONDO_BF16, 0, 151936, 896, 5, NAME(16bit_q1), IN_16_BITS},
    {RONDO_BF16, 0, 12345, 288, 1, NAME(16bit_q1), IN_16_BITS},
    {RONDO_BF16, 0, 25007, 1504, 8, NAME(16bit_q1), IN_16_BITS | NORMALISED},
    {RONDO_F16, 0, 50257, 768, 16, NAME(16bit_q1x2), IN_16_BITS | NORMALISED},
    {RONDO_F16, 0, 49152, 576, 8, NAME(16bit_q1), IN_16_BITS},
    {RONDO_F16, 0, 33333, 608, 12, NAME(16bit_q1x2), IN_16_BITS},
    {RONDO_F16, 3, 16400, 416, 10, NAME(16bit_q1x2), IN_16_BITS},
};
enum { LARGES = sizeof larges / sizeof larges[0] };

static void check_values_of(rondo_backend backend, rondo_dtype vectors) {
  for (int i = 0; i < LARGES; i++)
    if (larges[i].vectors == vectors) check_large(backend, &larges[i], i);
}
static void check_f16(rondo_backend backend) { check_values_of(backend, RONDO_F16); }
static void check_bf16(rondo_backend backend) { check_values_of(backend, RONDO_BF16); }
BOTH_BACKENDS(gemv_head_16, many_short_rows_of_f16_match_fp64_with_the_same_bits_in_every_replay, check_f16)
BOTH_BACKENDS(gemv_head_16, many_short_rows_of_bf16_match_fp64_with_the_same_bits_in_every_replay, check_bf16)

Test(gemv_head_16, each_kernel_has_a_size_here_that_it_is_chosen_for) {
  for (int i = 0; i < LARGES; i++) check_chosen(&larges[i]);
  GEMV_HEAD_16_KERNELS(REQUIRE_SIZE_FOR)
}

static void check_all_written(rondo_backend backend) {
  static const int written[] = {0, 8};
  for (int i = 0; i < 2; i++) {
    struct large large = larges[written[i]];
    large.m = 33333;
    check_written(backend, &large);
  }
}
BOTH_BACKENDS(gemv_head_16, weights_follow_the_task_that_writes_them, check_all_written)

/* NaN, infinities and large numbers in one place of a row, others with zeros of either sign or the smallest normal
 * numbers in all places; and each once in a vector. A row's neighbours in memory, and the vectors beside one, have
 * nothing of them. And a product that is 2^25 times as large as the others, which all count. */
static void check_special_of(rondo_backend backend, const struct large *large) {
  static const double f16[] = {NAN, INFINITY, -INFINITY, 65504, -65504, -0.0, 0.0, 0x1p-14};
  static const double bf16[] = {NAN, INFINITY, -INFINITY, 0x1p120, -0x1p120, -0.0, 0.0, 0x1p-126};
  enum { KINDS = 8, ALONE = 5, FIRST_ROW = 5 };
  const double *values = large->vectors == RONDO_F16 ? f16 : bf16;
  struct random random = {.state = 51};
  struct trial trial;
  struct problem p = problem_of(backend, large, RONDO_F32);
  trial_describe(&trial, backend);
  problem_add(&trial, &p);
  if (backend == RONDO_BACKEND_CUDA) require_kernel(&trial, 0, large->kernel);
  fill_weights(&p, &random);
  fill_vectors(&p, &random);
  for (int64_t kind = 0; kind < KINDS; kind++) {
    for (int64_t c = 0; c < p.k; c++)
      if (kind >= ALONE || c == p.k - 1 - kind)
        oracle_write(large->vectors, p.weights.data, index_of(&p.weights, 0, FIRST_ROW + 2 * kind, c), values[kind]);
    oracle_write(large->vectors, p.vectors.data, index_of(&p.vectors, 0, kind + 1, kind * 31), values[kind]);
  }
  for (int64_t c = 0; c < p.k; c++) {
    const int64_t row = FIRST_ROW + 2 * KINDS;
    oracle_write(large->vectors, p.weights.data, index_of(&p.weights, 0, row, c), c ? 0x1.fcp-14 : 1);
    oracle_write(large->vectors, p.vectors.data, index_of(&p.vectors, 0, 0, c), c ? 0x1p-12 : 1);
  }
  trial_instantiate(&trial);
  problem_set(&trial, &p);
  trial_replay(&trial);
  trial_get(&trial, p.out.whole, p.out.data);
  check_samples(&p, 0);
  problem_end(&p);
  trial_end(&trial);
}
static void check_special(rondo_backend backend) {
  check_special_of(backend, &larges[0]);
  check_special_of(backend, &larges[9]);
}
BOTH_BACKENDS(gemv_head_16, what_is_no_number_stays_in_its_row_and_in_its_vector, check_special)
