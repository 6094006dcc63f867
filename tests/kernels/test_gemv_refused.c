/* test_gemv_refused.c - the descriptions of norm, bias, gates, residual, NVFP4 results and blocked scales that gemv
 * refuses, each with its sentence. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support.h"

static rondo_tensor tensor_of(struct trial *trial, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(trial->graph, "tensor", dtype, rank, (int64_t[]){a, b, c}, &tensor));
  return tensor;
}

#define REFUSED(fragment) REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), RONDO_INVALID_ARGUMENT, (fragment))

/* 64 rows of 32 for two vectors. */
static rondo_gemv_desc good_desc(struct trial *t, rondo_dtype out) {
  return (rondo_gemv_desc){.weights = tensor_of(t, RONDO_NVFP4, 2, 64, 32, 0),
                           .weight_scales = tensor_of(t, RONDO_E4M3, 2, 64, 2, 0),
                           .vectors = tensor_of(t, RONDO_BF16, 2, 2, 32, 0),
                           .out = tensor_of(t, out, 2, 2, 64, 0)};
}

Test(gemv_refused, a_norm_that_does_not_fit_is_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_gemv_desc good = good_desc(t, RONDO_F32);
  rondo_gemv_desc bad = good;
  bad.norm_epsilon = -1;
  REFUSED("norm_epsilon is -1, expected a finite number that is not negative");
  bad.norm_epsilon = NAN;
  REFUSED("expected a finite number that is not negative");
  bad.norm_epsilon = INFINITY;
  REFUSED("norm_epsilon is inf, expected a finite number that is not negative");
  bad.norm_epsilon = 0, bad.norm = tensor_of(t, RONDO_BF16, 1, 32, 0, 0);
  REFUSED("norm is present, expected none where norm_epsilon is 0 (norm: state 'tensor')");
  bad.norm_epsilon = 1e-5f, bad.norm = tensor_of(t, RONDO_F16, 1, 32, 0, 0);
  REFUSED("norm is [32] f16, expected [32] bf16");
  bad.norm = tensor_of(t, RONDO_BF16, 1, 64, 0, 0);
  REFUSED("norm is [64] bf16, expected [32] bf16");
  bad = good, bad.norm_epsilon = 1e-5f, bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 32, 0);
  bad.vector_scales = tensor_of(t, RONDO_E4M3, 2, 2, 2, 0);
  REFUSED("norm_epsilon is 1e-05, expected 0 with vectors in nvfp4");
  bad = good, bad.norm_epsilon = 1e-5f, bad.norm = tensor_of(t, RONDO_BF16, 1, 32, 0, 0);
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));
  trial_end(t);
}

Test(gemv_refused, bias_residual_and_gates_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_gemv_desc good = good_desc(t, RONDO_F16);
  rondo_gemv_desc bad = good;
  bad.bias = tensor_of(t, RONDO_NVFP4, 1, 64, 0, 0);
  REFUSED("bias is nvfp4, expected f16, bf16 or f32");
  bad.bias = tensor_of(t, RONDO_F32, 1, 32, 0, 0);
  REFUSED("bias is [32] f32, expected [64] f32");
  bad.bias = tensor_of(t, RONDO_F32, 2, 1, 64, 0);
  REFUSED("bias is [1, 64] f32, expected [64] f32");
  bad = good, bad.residual = tensor_of(t, RONDO_E4M3, 2, 2, 64, 0);
  REFUSED("residual is e4m3, expected f16, bf16 or f32");
  bad.residual = tensor_of(t, RONDO_F16, 2, 2, 32, 0);
  REFUSED("residual is [2, 32] f16, expected [2, 64] f16");
  bad = good, bad.silu_mul = 1;
  REFUSED("out is [2, 64] f16, expected [2, 32] f16");
  bad = good, bad.silu_mul = 1, bad.weights = tensor_of(t, RONDO_NVFP4, 2, 63, 32, 0);
  bad.weight_scales = tensor_of(t, RONDO_E4M3, 2, 63, 2, 0);
  REFUSED("weights have 63 rows, expected an even number with silu_mul");
  bad = good;
  REQUIRE_OK(rondo_view(t->graph, good.out, (int64_t[]){0, 0}, (int64_t[]){2, 32}, &bad.residual));
  REQUIRE_OK(rondo_view(t->graph, good.out, (int64_t[]){0, 1}, (int64_t[]){2, 32}, &bad.out));
  bad.silu_mul = 1;
  REFUSED("out and residual overlap"); /* but are not the same */
  bad = good, bad.residual = good.out;
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));
  trial_end(t);
}

Test(gemv_refused, a_bias_of_matrices_is_for_all_or_for_each) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  rondo_gemv_desc bad = {.weights = tensor_of(t, RONDO_F16, 3, 3, 64, 8),
                         .vectors = tensor_of(t, RONDO_F16, 3, 3, 1, 8),
                         .out = tensor_of(t, RONDO_F16, 3, 3, 1, 64),
                         .bias = tensor_of(t, RONDO_F32, 2, 2, 64, 0)};
  REFUSED("bias is [2, 64] f32, expected [3, 64] f32");
  bad.bias = tensor_of(t, RONDO_F32, 1, 3, 0, 0);
  REFUSED("bias is [3] f32, expected [64] f32");
  bad.bias = tensor_of(t, RONDO_F32, 1, 64, 0, 0);
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));
  bad.bias = tensor_of(t, RONDO_F32, 2, 3, 64, 0);
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));
  trial_end(t);
}

Test(gemv_refused, nvfp4_results_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  rondo_gemv_desc good = good_desc(t, RONDO_NVFP4), bad = good;
  REFUSED("out_scales is absent, expected [2, 4] e4m3");
  good.out_scales = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0);
  bad.out_scales = tensor_of(t, RONDO_E4M3, 2, 2, 2, 0);
  REFUSED("out_scales is [2, 2] e4m3, expected [2, 4] e4m3");
  bad = good, bad.out_global_scale = -1;
  REFUSED("out_global_scale is -1, expected 0 or a positive number, 448 times which is finite");
  bad.out_global_scale = 1e37f;
  REFUSED("expected 0 or a positive number, 448 times which is finite");
  bad.out_global_scale = NAN;
  REFUSED("expected 0 or a positive number, 448 times which is finite");
  bad = good, bad.out = tensor_of(t, RONDO_BF16, 2, 2, 64, 0);
  REFUSED("out_scales is present, expected none with out in bf16");
  bad.out_scales = (rondo_tensor){0}, bad.out_global_scale = 2;
  REFUSED("out_global_scale is 2, expected 0 with out in bf16");
  bad = good, bad.weights = tensor_of(t, RONDO_NVFP4, 2, 40, 32, 0);
  bad.weight_scales = tensor_of(t, RONDO_E4M3, 2, 40, 2, 0), bad.out = tensor_of(t, RONDO_NVFP4, 2, 2, 40, 0);
  REFUSED("out has rows of 40, expected a multiple of 16 in nvfp4");
  bad.silu_mul = 1, bad.out = tensor_of(t, RONDO_NVFP4, 2, 2, 20, 0);
  REFUSED("out has rows of 20, expected a multiple of 16 in nvfp4");
  bad = good, bad.residual = good.out;
  REFUSED("residual");
  REQUIRE_OK(rondo_add_gemv(t->graph, &good));
  trial_end(t);
}

Test(gemv_refused, blocked_scales_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  rondo_gemv_desc good = good_desc(t, RONDO_F32), bad = good;
  bad.weight_scale_layout = (rondo_scale_layout)2;
  REFUSED("weight_scale_layout is 2, expected RONDO_SCALES_BY_ROW or RONDO_SCALES_128X4");
  bad = good, bad.vector_scale_layout = (rondo_scale_layout)-1;
  REFUSED("vector_scale_layout is -1, expected RONDO_SCALES_BY_ROW or RONDO_SCALES_128X4");
  bad = good, bad.vector_scale_layout = RONDO_SCALES_128X4;
  REFUSED("vector_scale_layout is RONDO_SCALES_128X4, expected RONDO_SCALES_BY_ROW with vectors in bf16");
  bad = good, bad.weight_scale_layout = RONDO_SCALES_128X4;
  REFUSED("weight_scales is [64, 2] e4m3, expected [128, 4] e4m3");
  rondo_tensor wide = tensor_of(t, RONDO_E4M3, 2, 128, 8, 0);
  REQUIRE_OK(rondo_view(t->graph, wide, (int64_t[]){0, 0}, (int64_t[]){128, 4}, &bad.weight_scales));
  REFUSED("weight_scales has a stride of 8 in dimension 0, expected 4: RONDO_SCALES_128X4 is dense");
  bad.weight_scales = tensor_of(t, RONDO_E4M3, 2, 128, 4, 0);
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));

  bad = (rondo_gemv_desc){.weights = tensor_of(t, RONDO_NVFP4, 3, 2, 4, 32),
                          .weight_scales = tensor_of(t, RONDO_E4M3, 3, 2, 4, 2),
                          .vectors = tensor_of(t, RONDO_NVFP4, 3, 2, 1, 32),
                          .vector_scales = tensor_of(t, RONDO_E4M3, 3, 2, 1, 2),
                          .out = tensor_of(t, RONDO_F32, 3, 2, 1, 4),
                          .vector_scale_layout = RONDO_SCALES_128X4};
  REFUSED("vector_scales is [2, 1, 2] e4m3, expected [2, 128, 4] e4m3");
  rondo_tensor tall = tensor_of(t, RONDO_E4M3, 3, 2, 256, 4);
  REQUIRE_OK(rondo_view(t->graph, tall, (int64_t[]){0, 0, 0}, (int64_t[]){2, 128, 4}, &bad.vector_scales));
  REFUSED("vector_scales has a stride of 1024 in dimension 0, expected 512: RONDO_SCALES_128X4 is dense");
  bad.vector_scales = tensor_of(t, RONDO_E4M3, 3, 2, 128, 4);
  REQUIRE_OK(rondo_add_gemv(t->graph, &bad));
  trial_end(t);
}
