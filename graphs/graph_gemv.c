/* graph_gemv.c - the ready-made graph of a product with vectors: weights as constants, vectors in, results out, and
 * before the product a quantisation where it is asked for. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "../kernels/gemv/gemv.h"
#include <rondo_graphs.h>

struct builder {
  rondo_graph *graph;
  const rondo_graph_gemv_desc *desc;
  int64_t count;
};

typedef rondo_status (*tensor_function)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                        const int64_t *shape, rondo_tensor *tensor);

static const char *name_of(const struct builder *builder, char *text, size_t bytes, const char *part) {
  snprintf(text, bytes, "%s %s", builder->desc->name ? builder->desc->name : "gemv", part);
  return text;
}

/* [batch, rows, columns], or [rows, columns] if there is no batch dimension. */
static rondo_status matrix_add(const struct builder *builder, tensor_function add, const char *part, rondo_dtype dtype,
                               int64_t rows, int64_t columns, rondo_tensor *tensor) {
  char name[64];
  int64_t batch = builder->desc->batch, shape[] = {batch, rows, columns};
  return add(builder->graph, name_of(builder, name, sizeof name, part), dtype, batch ? 3 : 2, shape + (batch ? 0 : 1),
             tensor);
}

static rondo_status row_scales_add(const struct builder *builder, rondo_tensor *tensor) {
  char name[64];
  int64_t batch = builder->desc->batch, shape[] = {batch, builder->desc->m};
  return rondo_constant(builder->graph, name_of(builder, name, sizeof name, "row scales"), RONDO_F32, batch ? 2 : 1,
                        shape + (batch ? 0 : 1), tensor);
}

static rondo_status weights_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  rondo_status status =
      matrix_add(builder, rondo_constant, "weights", desc->weights, desc->m, desc->k, &tensors->weights);
  if (status == RONDO_OK && desc->weights == RONDO_NVFP4)
    status = matrix_add(builder, rondo_constant, "weight scales", RONDO_E4M3, desc->m, desc->k / GEMV_BLOCK,
                        &tensors->weight_scales);
  if (status == RONDO_OK && desc->row_scales) status = row_scales_add(builder, &tensors->weight_scales);
  return status;
}

/* The input, and what the product takes: `vectors` and `scales`. */
static rondo_status vectors_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors, rondo_tensor *vectors,
                                rondo_tensor *scales) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  bool packed = desc->vectors == RONDO_NVFP4, quantize = desc->quantize_from != 0;
  char name[64];
  rondo_status status = matrix_add(builder, rondo_input, "vectors", quantize ? desc->quantize_from : desc->vectors,
                                   builder->count, desc->k, &tensors->vectors);
  if (status == RONDO_OK && packed)
    status = matrix_add(builder, quantize ? rondo_temporary : rondo_input, "vector scales", RONDO_E4M3, builder->count,
                        desc->k / GEMV_BLOCK, scales);
  if (status != RONDO_OK) return status;
  *vectors = tensors->vectors;
  if (!quantize) {
    tensors->vector_scales = *scales;
    return RONDO_OK;
  }
  status = matrix_add(builder, rondo_temporary, "vector codes", RONDO_NVFP4, builder->count, desc->k, vectors);
  if (status != RONDO_OK) return status;
  return rondo_add_quantize_nvfp4(builder->graph,
                                  &(rondo_quantize_nvfp4_desc){.name = name_of(builder, name, sizeof name, "quantize"),
                                                               .x = tensors->vectors,
                                                               .codes = *vectors,
                                                               .scales = *scales,
                                                               .global_scale = desc->quantize_scale});
}

/* ---- Check: what the tasks' own checks would find too late, after tensors have been added --------------------------
 */

static rondo_status refuse_type(const char *field, rondo_dtype dtype, const char *expected) {
  return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: %s is %s, expected %s", field,
                    rondo_dtype_name(dtype), expected);
}

static bool is_half(rondo_dtype dtype) { return dtype == RONDO_F16 || dtype == RONDO_BF16; }

static rondo_status types_check(const rondo_graph_gemv_desc *desc) {
  if (!is_half(desc->weights) && desc->weights != RONDO_E4M3 && desc->weights != RONDO_NVFP4)
    return refuse_type("weights", desc->weights, "f16, bf16, e4m3 or nvfp4");
  if (is_half(desc->weights) && desc->vectors != desc->weights)
    return refuse_type("vectors", desc->vectors, "the type of weights");
  if (!is_half(desc->vectors) && (desc->weights == RONDO_E4M3 || desc->vectors != RONDO_NVFP4))
    return refuse_type("vectors", desc->vectors, desc->weights == RONDO_E4M3 ? "f16 or bf16" : "f16, bf16 or nvfp4");
  if (!is_half(desc->out) && desc->out != RONDO_F32) return refuse_type("out", desc->out, "f16, bf16 or f32");
  if (desc->row_scales && desc->weights != RONDO_E4M3)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: row_scales are for weights in e4m3, not %s",
                      rondo_dtype_name(desc->weights));
  if (!desc->quantize_from) return RONDO_OK;
  if (!is_half(desc->quantize_from) && desc->quantize_from != RONDO_F32)
    return refuse_type("quantize_from", desc->quantize_from, "f32, f16 or bf16");
  if (desc->vectors != RONDO_NVFP4) return refuse_type("vectors", desc->vectors, "nvfp4 to quantise to");
  return RONDO_OK;
}

static rondo_status desc_check(const rondo_graph_gemv_desc *desc) {
  rondo_status status = types_check(desc);
  if (status != RONDO_OK) return status;
  if (desc->m < 0 || desc->k < 0 || desc->batch < 0)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemv: m %" PRId64 ", k %" PRId64 ", batch %" PRId64
                      ": expected no negative size",
                      desc->m, desc->k, desc->batch);
  if (desc->count < 0 || desc->count > GEMV_COUNT)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: count is %" PRId32 ", expected 1 to %d",
                      desc->count, GEMV_COUNT);
  if (desc->weights == RONDO_NVFP4 && desc->k % GEMV_BLOCK)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemv: k is %" PRId64 ", expected a multiple of %d with weights in nvfp4",
                      desc->k, GEMV_BLOCK);
  float quantize_scale = desc->quantize_scale;
  if (quantize_scale != 0 && !desc->quantize_from)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: quantize_scale is %g without quantize_from",
                      (double)quantize_scale);
  if (quantize_scale < 0 || !isfinite(448.0f * quantize_scale)) /* as quantize.c has it */
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "describe: rondo_graph_gemv: quantize_scale is %g, expected a positive number, 448 times which is "
        "finite",
        (double)quantize_scale);
  float scale = (desc->scale == 0 ? 1.0f : desc->scale) * (quantize_scale == 0 ? 1.0f : quantize_scale);
  if (!isfinite(scale) || scale == 0)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemv: scale times quantize_scale is %g, expected a finite number other "
                      "than 0",
                      (double)scale);
  return RONDO_OK;
}

rondo_status rondo_graph_gemv(rondo_graph *graph, const rondo_graph_gemv_desc *desc,
                              rondo_graph_gemv_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: the %s is NULL",
                      desc ? "tensors' address" : "description");
  rondo_status status = desc_check(desc);
  if (status != RONDO_OK) return status;
  struct builder builder = {.graph = graph, .desc = desc, .count = desc->count ? desc->count : 1};
  rondo_graph_gemv_tensors made = {0};
  rondo_tensor vectors = {0}, vector_scales = {0};
  status = weights_add(&builder, &made);
  if (status == RONDO_OK) status = vectors_add(&builder, &made, &vectors, &vector_scales);
  if (status == RONDO_OK)
    status = matrix_add(&builder, rondo_output, "out", desc->out, builder.count, desc->m, &made.out);
  if (status != RONDO_OK) return status;
  status =
      rondo_add_gemv(graph, &(rondo_gemv_desc){.name = desc->name ? desc->name : "gemv",
                                               .weights = made.weights,
                                               .weight_scales = made.weight_scales,
                                               .vectors = vectors,
                                               .vector_scales = vector_scales,
                                               .out = made.out,
                                               .scale = (desc->scale == 0 ? 1.0f : desc->scale) *
                                                        (desc->quantize_scale == 0 ? 1.0f : desc->quantize_scale)});
  if (status == RONDO_OK) *tensors = made;
  return status;
}
