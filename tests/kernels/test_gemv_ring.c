/* test_gemv_ring.c - products large enough for the ring (gemv_ring_plan.c), one for each of its kernels and most of its
 * shapes: every result matches fp64, and has the same bits in every replay. */
#include <criterion/criterion.h>

#include "../../kernels/gemv/gemv_ring.h"
#include "../oracles/gemv_large.h"

/* Just large enough. Not all rows divide by blocks or tiles, and not all k by parts. */
static const struct large larges[] = {
    {RONDO_F16, 0, 25003, 2048, 1, "rondo_gemv_ring_16bit_blocks_s4", 0},
    {RONDO_BF16, 4, 2001, 7168, 1, "rondo_gemv_ring_16bit_blocks_s4", 0},
    {RONDO_BF16, 0, 51301, 4096, 1, "rondo_gemv_ring_16bit_blocks_s4", 0},
    {RONDO_BF16, 0, 12305, 4096, 1, "rondo_gemv_ring_16bit_blocks_s4", NORMALISED},
    {RONDO_F16, 0, 6203, 4096, 1, "rondo_gemv_ring_16bit_blocks_s4", NORMALISED},
    {RONDO_F16, 3, 3203, 5632, 1, "rondo_gemv_ring_16bit_blocks_s4", NORMALISED},
    {RONDO_BF16, 0, 25003, 2560, 1, "rondo_gemv_ring_16bit_blocks_s4", NORMALISED},
    {RONDO_F16, 0, 3101, 16384, 1, "rondo_gemv_ring_16bit_q8_s2", 0},
    {RONDO_BF16, 0, 3199, 15872, 1, "rondo_gemv_ring_16bit_q8_s2", 0},
    {RONDO_NVFP4, 8, 3901, 6912, 1, "rondo_gemv_ring_nvfp4_s7", 0},
    {RONDO_NVFP4, 0, 51301, 4096, 1, "rondo_gemv_ring_nvfp4_s4", 0},
    {RONDO_F16, 0, 4003, 14336, 1, "rondo_gemv_ring_16bit_pairs_s8", 0},
    {RONDO_BF16, 0, 4103, 13824, 1, "rondo_gemv_ring_16bit_pairs_s8", 0},
    {RONDO_F16, 0, 4103, 11008, 1, "rondo_gemv_ring_16bit_pairs_s8", 0},
    {RONDO_BF16, 2, 1403, 9216, 1, "rondo_gemv_ring_16bit_pairs_s8", 0},
    {RONDO_BF16, 0, 6203, 8192, 1, "rondo_gemv_ring_16bit_q8_s2", 0},
    {RONDO_BF16, 0, 4097, 11008, 1, "rondo_gemv_ring_16bit_pairs_s8", NORMALISED},
    {RONDO_F16, 0, 4009, 16384, 1, "rondo_gemv_ring_16bit_pairs_s8", NORMALISED},
    {RONDO_BF16, 0, 4103, 13312, 4, "rondo_gemv_ring_16bit_q2_s4", 0},
    {RONDO_F16, 2, 2003, 14336, 2, "rondo_gemv_ring_16bit_q2_s4", 0},
    {RONDO_BF16, 0, 4096, 14336, 3, "rondo_gemv_ring_16bit_q2_s4", 0},
};
enum { LARGES = sizeof larges / sizeof larges[0] };

static void check_values(rondo_backend backend) {
  for (int i = 0; i < LARGES; i++) check_large(backend, &larges[i], i);
}
BOTH_BACKENDS(gemv_ring, large_products_match_fp64_with_the_same_bits_in_every_replay, check_values)

/* The largest bf16, which meets zeros only: what is left of a row is as small as ever. */
static void check_largest(rondo_backend backend) {
  static const int cases[] = {1, 2, 8, 12};
  struct random random = {.state = 25};
  for (int i = 0; i < 4; i++) {
    struct trial trial;
    struct problem p = problem_of(backend, &larges[cases[i]], RONDO_F32);
    trial_describe(&trial, backend);
    problem_add(&trial, &p);
    fill_weights(&p, &random);
    fill_vectors(&p, &random);
    for (int64_t row = 0; row < batch_of(&p) * p.m; row++) write_code(p.weights.data, row * p.k + 5, 0);
    for (int64_t b = 0; b < batch_of(&p); b++)
      oracle_write(RONDO_BF16, p.vectors.data, b * p.k + 5, largest_of(RONDO_BF16));
    trial_instantiate(&trial);
    problem_set(&trial, &p);
    trial_replay(&trial);
    trial_get(&trial, p.out.whole, p.out.data);
    check_samples(&p, i);
    problem_end(&p);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(gemv_ring, the_largest_element_makes_no_other_infinite, check_largest)

/* Without a GPU too: the sizes above are those of the kernels that they are to test. */
Test(gemv_ring, each_kernel_has_a_size_here_that_it_is_chosen_for) {
  for (int i = 0; i < LARGES; i++) check_chosen(&larges[i]);
  GEMV_RING_KERNELS(REQUIRE_SIZE_FOR)
}

static void check_all_written(rondo_backend backend) {
  check_written(backend, &larges[0]);
  check_written(backend, &larges[7]);
  check_written(backend, &larges[11]);
  check_written(backend, &larges[20]);
}
BOTH_BACKENDS(gemv_ring, weights_follow_the_task_that_writes_them, check_all_written)

/* So many rows that blocks of 32 fill their waves, or the ring would not be taken for the gated result in NVFP4. */
static void check_all_finished(rondo_backend backend) {
  static const struct {
    int large;
    int64_t m;
  } cases[] = {{0, 25003}, {7, 264 * 32 - 1}, {11, 264 * 32 - 1}, {18, 264 * 32 - 1}, {20, 132 * 32 - 1}};
  for (int i = 0; i < 5; i++) {
    struct large large = larges[cases[i].large];
    large.m = cases[i].m;
    check_finished(backend, large, large.kernel, large.kernel);
  }
  /* Smaller ones take the ring only if they are finished. */
  const struct large wave = {RONDO_BF16, 0, 4096, 4096, 1, "rondo_gemv_nvfp4_16bit_q8_r8_s1_half", 0};
  check_finished(backend, wave, "rondo_gemv_ring_16bit_blocks_s4", "rondo_gemv_ring_16bit_blocks_s4");
}
BOTH_BACKENDS(gemv_ring, what_is_done_to_results_is_done_to_all_of_them, check_all_finished)
