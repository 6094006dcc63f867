/* test_gemv_descriptions.c - the design that a description of gemv leads to, by its operands: gaps, alignment, layout
 * of scales, norm, order of sums; and which operands the kernel may fetch early. Needs no GPU. Faults that would show:
 * a copy that is not aligned, weights that are fetched before their writer has ended, a design that is missed. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_head.h"
#include "../oracles/gemv_launch.h"

/* ---- Ring -------------------------------------------------------------------------------------------------------- */

static bool is_ring(struct described what) { return strstr(launch_of(what).kernel, "_ring_") != NULL; }

Test(gemv_descriptions, the_ring_is_taken_where_the_operands_allow_it) {
  cr_expect(is_ring((struct described){.vectors = RONDO_F16}));
  cr_expect(is_ring((struct described){.vectors = RONDO_F16, .written = true}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .gap = 256}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .layout = RONDO_SCALES_128X4}));
  cr_expect(is_ring((struct described){.vectors = RONDO_F16, .norm_epsilon = 1e-6f}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .one_order = 1}));
}

Test(gemv_descriptions, the_ring_copies_weights_early_if_nobody_writes_them) {
  struct gemv_parameters parameters;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch = launch_of((struct described){.vectors = RONDO_F16, .written = written});
    memcpy(&parameters, launch.parameters, sizeof parameters);
    cr_expect_eq(parameters.early, !written);
  }
}

/* ---- Stream ------------------------------------------------------------------------------------------------------ */

static bool is_stream(struct described what) { return strstr(launch_of(what).kernel, "_stream_") != NULL; }

Test(gemv_descriptions, streams_are_taken_where_the_operands_allow_it) {
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 16}));
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .written = true}));
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .gap = 256}));
  cr_expect(is_stream((struct described){.vectors = RONDO_BF16, .count = 5, .norm_epsilon = 1e-6f}));
  cr_expect(is_stream((struct described){.vectors = RONDO_BF16, .count = 9, .silu_mul = 1}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .gap = 64}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 16, .layout = RONDO_SCALES_128X4}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 16, .one_order = 1}));
}

Test(gemv_descriptions, streams_copy_weights_early_if_nobody_writes_them) {
  struct gemv_parameters parameters;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch = launch_of((struct described){.vectors = RONDO_F16, .count = 16, .written = written});
    memcpy(&parameters, launch.parameters, sizeof parameters);
    cr_expect_eq(parameters.early, !written);
  }
}

/* ---- Head -------------------------------------------------------------------------------------------------------- */

struct one_product {
  int64_t batch; /* 0: no batch dimension */
  int64_t m, k;
  int64_t offset; /* elements before the scales */
  int64_t gap;    /* elements after each row of weights */
  bool written;
};

/* The launch of a product with one vector. */
static struct op_launch launch_of_one(struct one_product what) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_gemv_desc desc = {0};
  rondo_tensor whole;
  const int64_t batch = what.batch ? what.batch : 1, blocks = what.k / 16;
  const uint32_t rank = what.batch ? 3 : 2;
  int64_t weights[] = {batch, what.m, what.k}, scales[] = {batch, what.m, blocks}, x[] = {batch, 1, what.k},
          y[] = {batch, 1, what.m}, wide[] = {batch, what.m, what.k + what.gap}, zero[3] = {0};
  const int skipped = what.batch ? 0 : 1;
  REQUIRE_OK(
      (what.written ? rondo_input : rondo_constant)(trial.graph, "weights", RONDO_NVFP4, rank, wide + skipped, &whole));
  desc.weights = whole;
  if (what.gap) REQUIRE_OK(rondo_view(trial.graph, whole, zero, weights + skipped, &desc.weights));
  int64_t flat[] = {batch * what.m * blocks + what.offset}, first[] = {what.offset}, all[] = {batch * what.m * blocks};
  REQUIRE_OK(rondo_constant(trial.graph, "scales", RONDO_E4M3, 1, flat, &whole));
  REQUIRE_OK(rondo_view(trial.graph, whole, first, all, &whole));
  REQUIRE_OK(rondo_reshape(trial.graph, whole, rank, scales + skipped, &desc.weight_scales));
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, rank, x + skipped, &desc.vectors));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, rank, y + skipped, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  return selected_launch(&trial, what.written);
}

static bool is_head(struct one_product what) { return strstr(launch_of_one(what).kernel, "_head_nvfp4_") != NULL; }

Test(gemv_descriptions, scales_of_a_head_may_begin_where_a_copy_of_a_matrix_can) {
  cr_expect(is_head((struct one_product){.m = 49152, .k = 576}));
  cr_expect(is_head((struct one_product){.m = 49152, .k = 576, .written = true}));
  cr_expect(is_head((struct one_product){.m = 49151, .k = 576, .offset = 16}));
  cr_expect_not(is_head((struct one_product){.m = 49152, .k = 576, .offset = 8}));
  cr_expect_not(is_head((struct one_product){.m = 49152, .k = 576, .gap = 32}));
  cr_expect(is_head((struct one_product){.batch = 2, .m = 24576, .k = 576}));
  cr_expect_not(is_head((struct one_product){.batch = 2, .m = 24575, .k = 576}));
}

Test(gemv_descriptions, the_kernel_of_a_head_is_told_what_it_lays_out) {
  struct gemv_head_parameters told;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch = launch_of_one((struct one_product){.batch = 2, .m = 24576, .k = 576, .written = written});
    memcpy(&told, launch.parameters, sizeof told);
    cr_expect_eq(told.common.early, !written);
    cr_expect_eq(told.common.parts, 576 / 32);
    cr_expect_eq(told.block_rows, 24 * 16);
    cr_expect(launch.grid[0] == 64 && launch.grid[1] == 2 && launch.grid[2] == 1);
    for (uint32_t load = 0; load < 16 * 18; load++) /* of sixteen rows */
      cr_assert_eq(load * told.common.part_reciprocal >> 16, load / told.common.parts);
  }
}
