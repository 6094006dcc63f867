/* test_gemm_refusals.c - what rondo_add_gemm refuses, each with its sentence. Needs no GPU. */
#include <criterion/criterion.h>
#include <math.h>

#include "../oracles/gemm_oracle.h"

static rondo_tensor tensor_of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t d0, int64_t d1,
                              int64_t d2) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, "t", dtype, rank, (int64_t[]){d0, d1, d2}, &tensor));
  return tensor;
}

Test(gemm, gemm_refuses_what_does_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_gemm_desc right = {.weights = tensor_of(g, RONDO_BF16, 3, 2, 8, 16),
                                 .vectors = tensor_of(g, RONDO_BF16, 3, 2, 40, 16),
                                 .out = tensor_of(g, RONDO_F32, 3, 2, 40, 8)};
  rondo_gemm_desc desc;
#define REFUSES_OF(base, field, value, sentence)                                                                       \
  do {                                                                                                                 \
    desc = base;                                                                                                       \
    desc.field = value;                                                                                                \
    REQUIRE_ERROR(rondo_add_gemm(g, &desc), invalid, sentence);                                                        \
  } while (0)
#define REFUSES(field, value, sentence)        REFUSES_OF(right, field, value, sentence)
#define REFUSES_E4M3(field, value, sentence)   REFUSES_OF(in_e4m3, field, value, sentence)
#define REFUSES_PACKED(field, value, sentence) REFUSES_OF(packed, field, value, sentence)
  REQUIRE_ERROR(rondo_add_gemm(g, NULL), invalid, "rondo_add_gemm: the description is NULL");
  REFUSES(weights, (rondo_tensor){0}, "weights is absent, expected a tensor");
  REFUSES(vectors, (rondo_tensor){0}, "vectors is absent, expected a tensor");
  REFUSES(out, (rondo_tensor){0}, "out is absent, expected a tensor");
  REFUSES(weights, tensor_of(g, RONDO_F32, 3, 2, 8, 16), "weights are f32, expected f16, bf16, e4m3 or nvfp4");
  REFUSES(vectors, tensor_of(g, RONDO_F16, 3, 2, 40, 16), "vectors are f16, expected bf16 as weights are");
  REFUSES(out, tensor_of(g, RONDO_F64, 3, 2, 40, 8), "out is f64, expected f16, bf16 or f32");
  REFUSES(bias, tensor_of(g, RONDO_I32, 1, 8, 0, 0), "bias is i32, expected f16, bf16 or f32");
  REFUSES(residual, tensor_of(g, RONDO_E4M3, 3, 2, 40, 8), "residual is e4m3, expected f16, bf16 or f32");
  REFUSES(weights, tensor_of(g, RONDO_BF16, 1, 16, 0, 0), "weights have rank 1, expected 2 or 3");
  REFUSES(vectors, tensor_of(g, RONDO_BF16, 2, 40, 16, 0), "vectors have rank 2, expected 3 as weights have");
  REFUSES(vectors, tensor_of(g, RONDO_BF16, 3, 2, 0, 16), "vectors are 0, expected 1 to 65536");
  REFUSES(vectors, tensor_of(g, RONDO_BF16, 3, 2, 65537, 16), "vectors are 65537, expected 1 to 65536");
  REFUSES(vectors, tensor_of(g, RONDO_BF16, 3, 2, 40, 17), "vectors is [2, 40, 17] bf16, expected [2, 40, 16] bf16");
  REFUSES(vectors, tensor_of(g, RONDO_BF16, 3, 3, 40, 16), "vectors is [3, 40, 16] bf16, expected [2, 40, 16] bf16");
  REFUSES(out, tensor_of(g, RONDO_F32, 3, 2, 40, 9), "out is [2, 40, 9] f32, expected [2, 40, 8] f32");
  REFUSES(bias, tensor_of(g, RONDO_F32, 1, 9, 0, 0), "bias is [9] f32, expected [8] f32");
  REFUSES(bias, tensor_of(g, RONDO_F32, 2, 3, 8, 0), "bias is [3, 8] f32, expected [2, 8] f32");
  REFUSES(residual, tensor_of(g, RONDO_F16, 3, 2, 39, 8), "residual is [2, 39, 8] f16, expected [2, 40, 8] f16");
  REFUSES(scale, NAN, "scale is nan, expected a finite number");
  REFUSES(silu_mul, 1, "out is [2, 40, 8] f32, expected [2, 40, 4] f32");
  const rondo_gemm_desc in_e4m3 = {.weights = tensor_of(g, RONDO_E4M3, 3, 2, 8, 16),
                                   .weight_scales = tensor_of(g, RONDO_F32, 2, 2, 8, 0),
                                   .vectors = tensor_of(g, RONDO_E4M3, 3, 2, 40, 16),
                                   .vector_scales = tensor_of(g, RONDO_F32, 2, 2, 40, 0),
                                   .out = right.out};
  REQUIRE_OK(rondo_add_gemm(g, &in_e4m3));
  REFUSES(vector_scales, in_e4m3.vector_scales, "vector_scales is present, expected none with vectors in bf16");
  REFUSES_E4M3(vectors, right.vectors, "vectors are bf16, expected e4m3 as weights are");
  REFUSES_E4M3(vector_scales, tensor_of(g, RONDO_F32, 2, 2, 8, 0), "vector_scales is [2, 8] f32, expected [2, 40] f32");
  REFUSES_E4M3(weight_scales, tensor_of(g, RONDO_F32, 1, 8, 0, 0), "weight_scales is [8] f32, expected [2, 8] f32");
  REFUSES_E4M3(vector_squares, tensor_of(g, RONDO_F32, 3, 2, 1, 40),
               "vector_squares is present, expected none with vectors in e4m3");
  const rondo_gemm_desc packed = {.weights = tensor_of(g, RONDO_NVFP4, 3, 2, 8, 32),
                                  .weight_scales = tensor_of(g, RONDO_E4M3, 3, 2, 8, 2),
                                  .vectors = tensor_of(g, RONDO_BF16, 3, 2, 40, 32),
                                  .out = right.out};
  REQUIRE_OK(rondo_add_gemm(g, &packed));
  REFUSES(weight_scales, packed.weight_scales, "weight_scales is present, expected none with weights in bf16");
  REFUSES_PACKED(vectors, tensor_of(g, RONDO_NVFP4, 3, 2, 40, 32),
                 "vectors are nvfp4, expected f16 or bf16 with weights in nvfp4");
  REFUSES_PACKED(weights, tensor_of(g, RONDO_NVFP4, 3, 2, 8, 24), "weights have rows of 24, expected a multiple of 16");
  REFUSES_PACKED(weight_scales, (rondo_tensor){0}, "weight_scales is absent, expected [2, 8, 2] e4m3");
  REFUSES_PACKED(weight_scales, tensor_of(g, RONDO_E4M3, 3, 2, 8, 3),
                 "weight_scales is [2, 8, 3] e4m3, expected [2, 8, 2] e4m3");
  REFUSES_PACKED(weight_scale_layout, (rondo_scale_layout)7,
                 "weight_scale_layout is 7, expected RONDO_SCALES_BY_ROW or RONDO_SCALES_128X4");
  REFUSES_PACKED(weight_scale_layout, RONDO_SCALES_128X4, "weight_scales is [2, 8, 2] e4m3, expected [2, 128, 4] e4m3");
  desc = (rondo_gemm_desc){.weights = tensor_of(g, RONDO_BF16, 2, 7, 16, 0),
                           .vectors = tensor_of(g, RONDO_BF16, 2, 40, 16, 0),
                           .out = tensor_of(g, RONDO_F32, 2, 40, 3, 0),
                           .silu_mul = 1};
  REQUIRE_ERROR(rondo_add_gemm(g, &desc), invalid, "weights have 7 rows, expected an even number with silu_mul");
  desc = (rondo_gemm_desc){.weights = tensor_of(g, RONDO_BF16, 2, INT64_C(1) << 31, 1, 0),
                           .vectors = tensor_of(g, RONDO_BF16, 2, 1, 1, 0),
                           .out = tensor_of(g, RONDO_F32, 2, 1, INT64_C(1) << 31, 0)};
  REQUIRE_ERROR(rondo_add_gemm(g, &desc), invalid, "weights have 2147483648 rows, expected at most 2^31 - 1");
  REQUIRE_OK(rondo_add_gemm(g, &right));
  trial_end(&trial);
}
