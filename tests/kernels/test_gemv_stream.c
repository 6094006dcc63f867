/* test_gemv_stream.c - products of several vectors that the rings of warps take (gemv_stream_plan.c), for each of their
 * kernels, with two groups and one, several tiles and chunks, k that parts do not divide: every result matches fp64,
 * and has the same bits in every replay. */
#include <criterion/criterion.h>

#include "../../kernels/gemv/gemv_stream.h"
#include "../oracles/gemv_large.h"

#define NAME(name) "rondo_gemv_stream_" #name

static const struct large larges[] = {
    {RONDO_NVFP4, 0, 16411, 2048, 9, NAME(nvfp4_q1x2_s2), 0},
    {RONDO_NVFP4, 3, 3101, 3712, 13, NAME(nvfp4_q1x2_s2), 0},
    {RONDO_F16, 0, 18731, 1792, 10, NAME(16bit_q1x2_s2), 0},
    {RONDO_F16, 0, 8209, 4096, 16, NAME(16bit_q1x2_s2), PADDED | NORMALISED},
    {RONDO_BF16, 0, 8209, 4096, 16, NAME(16bit_q1x2_s2), NORMALISED},
    {RONDO_BF16, 0, 4201, 4096, 9, NAME(16bit_q1x2_s2), NORMALISED},
    {RONDO_NVFP4, 2, 1803, 7168, 16, NAME(nvfp4_q1x2_s2_c2), 0},
    {RONDO_NVFP4, 0, 3203, 16384, 11, NAME(nvfp4_q1x2_s2_c2), PADDED},
    {RONDO_NVFP4, 0, 17, 4224, 16, NAME(nvfp4_q1x2_s2_c2), 0},
    {RONDO_F16, 0, 3211, 8448, 9, NAME(16bit_q1x2_s2_c2), NORMALISED},
    {RONDO_BF16, 0, 3217, 5120, 16, NAME(16bit_q1x2_s2_c2), PADDED | NORMALISED},
    {RONDO_BF16, 0, 1409, 14336, 15, NAME(16bit_q1x2_s2_c2), NORMALISED},
    {RONDO_BF16, 0, 523, 32768, 10, NAME(16bit_q1x2_s2_c2), 0},
    {RONDO_NVFP4, 0, 14201, 3584, 3, NAME(nvfp4_q1_s4), 0},
    {RONDO_NVFP4, 2, 6203, 4096, 8, NAME(nvfp4_q1_s4), 0},
    {RONDO_NVFP4, 4, 2001, 7168, 2, NAME(nvfp4_q1_s4), 0},
    {RONDO_F16, 0, 6203, 8192, 2, NAME(16bit_q1_s4), NORMALISED},
    {RONDO_BF16, 0, 7043, 7168, 5, NAME(16bit_q1_s4), PADDED | NORMALISED},
    {RONDO_F16, 3, 2101, 4096, 8, NAME(16bit_q1_s2), 0},
    {RONDO_F16, 0, 6403, 3968, 6, NAME(16bit_q1_s2), PADDED},
    {RONDO_BF16, 0, 12301, 2048, 3, NAME(16bit_q1_s2), NORMALISED},
    {RONDO_BF16, 0, 12703, 3968, 1, NAME(16bit_q1_s2), NORMALISED},
    {RONDO_BF16, 0, 2051, 2048, 12, NAME(16bit_q1x2_s2), NORMALISED},
    {RONDO_BF16, 0, 3089, 2048, 11, NAME(16bit_q1x2_s2), NORMALISED},
    {RONDO_NVFP4, 0, 3203, 16384, 8, NAME(nvfp4_q1_s4_c2), 0},
    {RONDO_NVFP4, 0, 3203, 16128, 2, NAME(nvfp4_q1_s4_c2), 0},
    {RONDO_F16, 0, 3209, 20480, 6, NAME(16bit_q1_s4_c2), 0},
    {RONDO_BF16, 0, 3221, 14336, 7, NAME(16bit_q1_s4_c2), NORMALISED},
};
enum { LARGES = sizeof larges / sizeof larges[0] };

static void check_values_of(rondo_backend backend, rondo_dtype vectors) {
  for (int i = 0; i < LARGES; i++)
    if (larges[i].vectors == vectors) check_large(backend, &larges[i], i);
}
static void check_nvfp4(rondo_backend backend) { check_values_of(backend, RONDO_NVFP4); }
static void check_f16(rondo_backend backend) { check_values_of(backend, RONDO_F16); }
static void check_bf16(rondo_backend backend) { check_values_of(backend, RONDO_BF16); }
BOTH_BACKENDS(gemv_stream, large_products_with_nvfp4_match_fp64_with_the_same_bits_in_every_replay, check_nvfp4)
BOTH_BACKENDS(gemv_stream, large_products_with_f16_match_fp64_with_the_same_bits_in_every_replay, check_f16)
BOTH_BACKENDS(gemv_stream, large_products_with_bf16_match_fp64_with_the_same_bits_in_every_replay, check_bf16)

Test(gemv_stream, each_kernel_has_a_size_here_that_it_is_chosen_for) {
  for (int i = 0; i < LARGES; i++) check_chosen(&larges[i]);
  GEMV_STREAM_KERNELS(REQUIRE_SIZE_FOR)
}

/* Copied after the wait for predecessors, and so after the vectors are asked for. */
static void check_all_written(rondo_backend backend) {
  static const int written[] = {0, 7, 5, 23};
  for (int i = 0; i < 4; i++) {
    struct large large = larges[written[i]];
    large.batch = 0, large.with = 0;
    check_written(backend, &large);
  }
}
BOTH_BACKENDS(gemv_stream, weights_follow_the_task_that_writes_them, check_all_written)

static void check_all_finished(rondo_backend backend) {
  static const struct {
    struct large large;
    const char *gating, *quantising;
  } cases[] = {
      {{RONDO_NVFP4, 0, 8209, 4096, 16, NAME(nvfp4_q1x2_s2), 0}, NAME(nvfp4_q1x2_s2_c2), NAME(nvfp4_q1x2_s2_c2)},
      {{RONDO_F16, 0, 3203, 8192, 9, NAME(16bit_q1x2_s2_c2), 0}, NAME(16bit_q1x2_s2_c2), NAME(16bit_q1x2_s2_c2)},
      {{RONDO_BF16, 0, 1409, 14336, 11, NAME(16bit_q1x2_s2_c2), 0}, NAME(16bit_q1x2_s2_c2), NAME(16bit_q1x2_s2_c2)},
      {{RONDO_NVFP4, 0, 7043, 7168, 7, NAME(nvfp4_q1_s4), 0}, NAME(nvfp4_q1_s4_c2), NAME(nvfp4_q1_s4_c2)},
      {{RONDO_BF16, 0, 3203, 16384, 3, NAME(16bit_q1_s4_c2), 0}, NAME(16bit_q1_s4_c2), NAME(16bit_q1_s4_c2)},
      {{RONDO_BF16, 0, 12301, 2048, 4, NAME(16bit_q1_s2), 0}, NAME(16bit_q1_s2), NAME(16bit_q1_s4_c2)},
      {{RONDO_F16, 0, 3101, 2048, 16, NAME(16bit_q1x2_s2), 0}, NAME(16bit_q1x2_s2), NAME(16bit_q1x2_s2_c2)},
      {{RONDO_F16, 0, 7043, 7168, 7, NAME(16bit_q1_s4), 0}, NAME(16bit_q1_s4), NAME(16bit_q1_s4_c2)},
  };
  for (int i = 0; i < 8; i++) check_finished(backend, cases[i].large, cases[i].gating, cases[i].quantising);
}
BOTH_BACKENDS(gemv_stream, what_is_done_to_results_is_done_to_all_of_them, check_all_finished)
