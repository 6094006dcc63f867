/* test_gemv_head.c - products of 1 to 16 vectors with many short rows (gemv_head_plan.c), for each of their kernels,
 * with one group a warp and several, rows that groups do not divide, and every place in a chunk where k may end: every
 * result matches fp64, and has the same bits in every replay, and whatever the count of vectors is. */
#include <criterion/criterion.h>

#include "../../kernels/gemv/gemv_head.h"
#include "../oracles/gemv_large.h"

#define NAME(name) "rondo_gemv_head_" #name

static const struct large larges[] = {
    {RONDO_NVFP4, 0, 49152, 576, 1, NAME(nvfp4_q1), 0},     {RONDO_NVFP4, 0, 49152, 576, 8, NAME(nvfp4_q1), 0},
    {RONDO_NVFP4, 0, 49153, 960, 2, NAME(nvfp4_q1), 0},     {RONDO_NVFP4, 2, 16816, 416, 5, NAME(nvfp4_q1), 0},
    {RONDO_NVFP4, 0, 33793, 512, 3, NAME(nvfp4_q1), 0}, /* 17 warps, which three does not divide */
    {RONDO_NVFP4, 0, 50257, 768, 16, NAME(nvfp4_q1x2), 0},  {RONDO_NVFP4, 0, 33333, 1024, 9, NAME(nvfp4_q1x2), 0},
    {RONDO_F16, 0, 50257, 768, 1, NAME(nvfp4_q1), 0},       {RONDO_F16, 0, 49152, 576, 2, NAME(nvfp4_q1), 0},
    {RONDO_F16, 0, 70001, 992, 7, NAME(nvfp4_q1), 0},       {RONDO_F16, 0, 33333, 384, 13, NAME(nvfp4_q1x2), 0},
    {RONDO_BF16, 0, 49153, 960, 1, NAME(nvfp4_q1), 0},      {RONDO_BF16, 0, 49152, 576, 4, NAME(nvfp4_q1), 0},
    {RONDO_BF16, 0, 32001, 736, 8, NAME(nvfp4_q1), 0},      {RONDO_BF16, 0, 151936, 896, 16, NAME(nvfp4_q1x2), 0},
    {RONDO_F16, 0, 49152, 576, 8, NAME(e4m3_q1), IN_E4M3},  {RONDO_F16, 0, 33331, 400, 16, NAME(e4m3_q1x2), IN_E4M3},
    {RONDO_BF16, 0, 49152, 576, 1, NAME(e4m3_q1), IN_E4M3}, {RONDO_BF16, 0, 49151, 576, 3, NAME(e4m3_q1), IN_E4M3},
    {RONDO_BF16, 2, 16411, 752, 6, NAME(e4m3_q1), IN_E4M3}, {RONDO_BF16, 0, 49152, 576, 11, NAME(e4m3_q1x2), IN_E4M3},
};
enum { LARGES = sizeof larges / sizeof larges[0] };

static void check_values_of(rondo_backend backend, int in_e4m3, rondo_dtype vectors) {
  for (int i = 0; i < LARGES; i++)
    if ((larges[i].with & IN_E4M3) == in_e4m3 && larges[i].vectors == vectors) check_large(backend, &larges[i], i);
}
static void check_nvfp4(rondo_backend backend) { check_values_of(backend, 0, RONDO_NVFP4); }
static void check_16_bits(rondo_backend backend) {
  check_values_of(backend, 0, RONDO_F16);
  check_values_of(backend, 0, RONDO_BF16);
}
static void check_e4m3(rondo_backend backend) {
  check_values_of(backend, IN_E4M3, RONDO_F16);
  check_values_of(backend, IN_E4M3, RONDO_BF16);
}
BOTH_BACKENDS(gemv_head, many_short_rows_with_nvfp4_match_fp64_with_the_same_bits_in_every_replay, check_nvfp4)
BOTH_BACKENDS(gemv_head, many_short_rows_with_16_bits_match_fp64_with_the_same_bits_in_every_replay, check_16_bits)
BOTH_BACKENDS(gemv_head, many_short_rows_of_e4m3_match_fp64_with_the_same_bits_in_every_replay, check_e4m3)

Test(gemv_head, each_kernel_has_a_size_here_that_it_is_chosen_for) {
  for (int i = 0; i < LARGES; i++) check_chosen(&larges[i]);
#define REQUIRE_TYPES(chips, parameters, name, threads, blocks, W, operands)                                           \
  require_size(larges, LARGES, #name, RONDO_F16);                                                                      \
  require_size(larges, LARGES, #name, RONDO_BF16);                                                                     \
  if ((W) == RONDO_NVFP4) require_size(larges, LARGES, #name, RONDO_NVFP4);
  GEMV_HEAD_KERNELS(REQUIRE_TYPES)
}

/* Copied after the wait for predecessors, and so after the vectors are asked for. */
static void check_all_written(rondo_backend backend) {
  static const int written[] = {1, 9, 14};
  for (int i = 0; i < 3; i++) check_written(backend, &larges[written[i]]);
}
BOTH_BACKENDS(gemv_head, weights_follow_the_task_that_writes_them, check_all_written)
