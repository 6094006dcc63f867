/* graph_gemv.c - the ready-made graph of a product with vectors: weights as constants, vectors in, results out, and
 * before the product a quantisation where it is asked for. */
#include <math.h>

#include "../runtime/integer.h"
#include "graph_part.h"
#include <rondo_graphs.h>

enum { NVFP4_BLOCK = 16, SCALE_ROWS = 128, SCALE_COLUMNS = 4 }; /* elements that share a scale; a tile of scales */
enum { GEMV_MOST_VECTORS = 16 };

struct builder {
  rondo_graph *graph;
  const rondo_graph_gemv_desc *desc;
  const char *name;
  int64_t count;
};

/* [batch, rows, columns], or [rows, columns] if there is no batch dimension. */
static rondo_status matrix_add(const struct builder *builder, tensor_function add, const char *part, rondo_dtype dtype,
                               int64_t rows, int64_t columns, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  int64_t batch = builder->desc->batch, shape[] = {batch, rows, columns};
  return add(builder->graph, part_name(name, builder->name, part), dtype, batch ? 3 : 2, shape + (batch ? 0 : 1),
             tensor);
}

/* [batch, columns], or [columns] if there is no batch dimension. */
static rondo_status rows_add(const struct builder *builder, const char *part, rondo_dtype dtype, int64_t columns,
                             rondo_tensor *tensor) {
  char name[NAME_BYTES];
  int64_t batch = builder->desc->batch, shape[] = {batch, columns};
  return rondo_constant(builder->graph, part_name(name, builder->name, part), dtype, batch ? 2 : 1,
                        shape + (batch ? 0 : 1), tensor);
}

/* Of rows of NVFP4. */
static rondo_status scales_add(const struct builder *builder, tensor_function add, const char *part, int64_t rows,
                               int64_t k, rondo_scale_layout layout, rondo_tensor *tensor) {
  int64_t blocks = k / NVFP4_BLOCK;
  if (layout == RONDO_SCALES_128X4) rows = round_up(rows, SCALE_ROWS), blocks = round_up(blocks, SCALE_COLUMNS);
  return matrix_add(builder, add, part, RONDO_E4M3, rows, blocks, tensor);
}

static rondo_status weights_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  rondo_status status =
      matrix_add(builder, rondo_constant, "weights", desc->weights, desc->m, desc->k, &tensors->weights);
  if (status == RONDO_OK && desc->weights == RONDO_NVFP4)
    status = scales_add(builder, rondo_constant, "weight scales", desc->m, desc->k, desc->weight_scale_layout,
                        &tensors->weight_scales);
  if (status == RONDO_OK && desc->row_scales)
    status = rows_add(builder, "row scales", RONDO_F32, desc->m, &tensors->weight_scales);
  return status;
}

/* The input, and what the product takes: `vectors` and `scales`. */
static rondo_status vectors_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors, rondo_tensor *vectors,
                                rondo_tensor *scales) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  bool packed = desc->vectors == RONDO_NVFP4, quantize = desc->quantize_from != 0;
  char name[NAME_BYTES];
  rondo_status status = matrix_add(builder, rondo_input, "vectors", quantize ? desc->quantize_from : desc->vectors,
                                   builder->count, desc->k, &tensors->vectors);
  if (status == RONDO_OK && packed)
    status = scales_add(builder, quantize ? rondo_temporary : rondo_input, "vector scales", builder->count, desc->k,
                        desc->vector_scale_layout, scales);
  if (status != RONDO_OK) return status;
  *vectors = tensors->vectors;
  if (!quantize) {
    tensors->vector_scales = *scales;
    return RONDO_OK;
  }
  status = matrix_add(builder, rondo_temporary, "vector codes", RONDO_NVFP4, builder->count, desc->k, vectors);
  if (status != RONDO_OK) return status;
  return rondo_add_quantize_nvfp4(builder->graph,
                                  &(rondo_quantize_nvfp4_desc){.name = part_name(name, builder->name, "quantize"),
                                                               .x = tensors->vectors,
                                                               .codes = *vectors,
                                                               .scales = *scales,
                                                               .global_scale = desc->quantize_scale});
}

/* What belongs together here, and what no task sees. */
static rondo_status desc_check(const rondo_graph_gemv_desc *desc) {
  float quantize_scale = desc->quantize_scale;
  if (quantize_scale != 0 && !desc->quantize_from)
    return status_set(RONDO_INVALID_ARGUMENT, "quantize_scale is %g without quantize_from", (double)quantize_scale);
  if (desc->quantize_from && desc->vectors != RONDO_NVFP4)
    return status_set(RONDO_INVALID_ARGUMENT, "vectors is %s, expected nvfp4 to quantise to",
                      rondo_dtype_name(desc->vectors));
  float scale = (desc->scale == 0 ? 1.0f : desc->scale) * (quantize_scale == 0 ? 1.0f : quantize_scale);
  if (isfinite(scale) && scale != 0) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "scale times quantize_scale is %g, expected a finite number other than 0",
                    (double)scale);
}

/* What the product is multiplied with and added to, and where it goes. */
static rondo_status results_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  int64_t columns = desc->silu_mul ? desc->m / 2 : desc->m;
  char name[NAME_BYTES];
  rondo_status status = matrix_add(builder, rondo_output, "out", desc->out, builder->count, columns, &tensors->out);
  if (status == RONDO_OK && desc->norm_epsilon != 0)
    status = rondo_constant(builder->graph, part_name(name, builder->name, "norm"), desc->vectors, 1, &desc->k,
                            &tensors->norm);
  if (status == RONDO_OK && desc->bias) status = rows_add(builder, "bias", desc->bias, desc->m, &tensors->bias);
  if (status == RONDO_OK && desc->residual)
    status = matrix_add(builder, rondo_input, "residual", desc->residual, builder->count, columns, &tensors->residual);
  if (status == RONDO_OK && desc->out == RONDO_NVFP4)
    status = scales_add(builder, rondo_output, "out scales", builder->count, columns, RONDO_SCALES_BY_ROW,
                        &tensors->out_scales);
  return status;
}

/* Vectors that rondo_add_gemv does not take, and nothing that rondo_add_gemm lacks. */
static bool is_for_gemm(const struct builder *builder) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  if (desc->vectors == RONDO_E4M3)
    return desc->norm_epsilon == 0 && desc->out != RONDO_NVFP4 && desc->out_global_scale == 0;
  return builder->count > GEMV_MOST_VECTORS && desc->weights != RONDO_E4M3 && desc->vectors != RONDO_NVFP4 &&
         desc->norm_epsilon == 0 && desc->out != RONDO_NVFP4 && !desc->quantize_from && !desc->row_scales &&
         desc->out_global_scale == 0;
}

static rondo_status product_add(const struct builder *builder, rondo_graph_gemv_tensors *tensors) {
  const rondo_graph_gemv_desc *desc = builder->desc;
  rondo_tensor vectors = {0}, vector_scales = {0};
  rondo_status status = weights_add(builder, tensors);
  if (status == RONDO_OK) status = vectors_add(builder, tensors, &vectors, &vector_scales);
  if (status == RONDO_OK) status = results_add(builder, tensors);
  if (status != RONDO_OK) return status;
  if (is_for_gemm(builder))
    return rondo_add_gemm(builder->graph, &(rondo_gemm_desc){.name = builder->name,
                                                             .weights = tensors->weights,
                                                             .weight_scales = tensors->weight_scales,
                                                             .weight_scale_layout = desc->weight_scale_layout,
                                                             .vectors = vectors,
                                                             .out = tensors->out,
                                                             .scale = desc->scale,
                                                             .one_order = desc->one_order,
                                                             .silu_mul = desc->silu_mul,
                                                             .bias = tensors->bias,
                                                             .residual = tensors->residual});
  return rondo_add_gemv(builder->graph,
                        &(rondo_gemv_desc){.name = builder->name,
                                           .weights = tensors->weights,
                                           .weight_scales = tensors->weight_scales,
                                           .vectors = vectors,
                                           .vector_scales = vector_scales,
                                           .out = tensors->out,
                                           .scale = (desc->scale == 0 ? 1.0f : desc->scale) *
                                                    (desc->quantize_scale == 0 ? 1.0f : desc->quantize_scale),
                                           .weight_scale_layout = desc->weight_scale_layout,
                                           .vector_scale_layout = desc->vector_scale_layout,
                                           .one_order = desc->one_order,
                                           .norm_epsilon = desc->norm_epsilon,
                                           .norm = tensors->norm,
                                           .bias = tensors->bias,
                                           .silu_mul = desc->silu_mul,
                                           .residual = tensors->residual,
                                           .out_scales = tensors->out_scales,
                                           .out_global_scale = desc->out_global_scale});
}

rondo_status rondo_graph_gemv(rondo_graph *graph, const rondo_graph_gemv_desc *desc,
                              rondo_graph_gemv_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemv: the %s is NULL",
                      desc ? "tensors' address" : "description");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_gemv", &mark);
  if (status != RONDO_OK) return status;
  struct builder builder = {
      .graph = graph, .desc = desc, .name = desc->name ? desc->name : "gemv", .count = desc->count ? desc->count : 1};
  rondo_graph_gemv_tensors made = {0};
  status = desc_check(desc);
  if (status == RONDO_OK) status = product_add(&builder, &made);
  status = graph_end(graph, &mark, status);
  if (status == RONDO_OK) *tensors = made;
  return status;
}
