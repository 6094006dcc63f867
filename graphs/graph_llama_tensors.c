/* graph_llama_tensors.c - what all files of the ready-made Llama graph add: named constants and states, the graph's own
 * or the lender's, and products. */
#include <stdarg.h>
#include <stdio.h>

#include "graph_llama.h"

enum { NVFP4_SCALE_GROUP = 16 /* elements that share a scale factor */ };

const char *llama_name(const struct llama_builder *b, char text[NAME_BYTES], const char *format, ...) {
  va_list arguments;
  int used = b->desc.name ? snprintf(text, NAME_BYTES, "%s.", b->desc.name) : 0;
  va_start(arguments, format);
  vsnprintf(text + used, (size_t)(NAME_BYTES - used), format, arguments);
  va_end(arguments);
  return text;
}

rondo_status llama_resident_add(const struct llama_builder *b, tensor_function add, const char *name, rondo_dtype dtype,
                                uint32_t rank, const int64_t *shape, rondo_tensor lent, rondo_tensor *tensor) {
  if (!b->desc.lender) return add(b->graph, name, dtype, rank, shape, tensor);
  if (!lent.graph) return status_set(RONDO_INVALID_ARGUMENT, "the lender has no '%s'", name);
  rondo_status status = rondo_borrow(b->graph, lent, tensor);
  if (status != RONDO_OK) return status;
  const struct tensor *borrowed = &b->graph->tensors[tensor->index];
  bool fits = borrowed->dtype == dtype && borrowed->rank == rank;
  for (uint32_t i = 0; i < rank && fits; i++) fits = borrowed->shape[i] == shape[i];
  if (fits) return RONDO_OK;
  char has[96], expected[96];
  shape_describe(has, sizeof has, borrowed->dtype, borrowed->rank, borrowed->shape);
  shape_describe(expected, sizeof expected, dtype, rank, shape);
  return status_set(RONDO_INVALID_ARGUMENT, "the lender's '%s' is %s, expected %s", name, has, expected);
}

rondo_status llama_list_add(const struct llama_builder *b, tensor_function add, const char *part, rondo_dtype dtype,
                            int64_t count, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return add(b->graph, llama_name(b, name, "%s", part), dtype, 1, &count, tensor);
}

rondo_status llama_norm_add(const struct llama_builder *b, const char *name, rondo_tensor lent, rondo_tensor *tensor) {
  return llama_resident_add(b, rondo_constant, name, b->desc.dtype, 1, &b->desc.hidden, lent, tensor);
}

rondo_status llama_weights_add(const struct llama_builder *b, const char *name, rondo_dtype dtype, int64_t rows,
                               int64_t columns, const rondo_tensor lent[2], rondo_tensor *weights,
                               rondo_tensor *scales) {
  char of_scales[NAME_BYTES];
  int64_t shape[] = {rows, columns}, scale_shape[] = {rows, columns / NVFP4_SCALE_GROUP};
  rondo_status status = llama_resident_add(b, rondo_constant, name, dtype, 2, shape, lent[0], weights);
  if (status != RONDO_OK || (dtype != RONDO_E4M3 && dtype != RONDO_NVFP4)) return status;
  snprintf(of_scales, sizeof of_scales, "%.55s scales", name);
  bool is_packed = dtype == RONDO_NVFP4;
  return llama_resident_add(b, rondo_constant, of_scales, is_packed ? RONDO_E4M3 : RONDO_F32, is_packed ? 2 : 1,
                            scale_shape, lent[1], scales);
}

/* A product with many vectors, with what all products of the graph have. */
static rondo_gemm_desc many_rows_product_of(const struct llama_builder *b, const rondo_gemv_desc *product) {
  return (rondo_gemm_desc){.name = product->name,
                           .weights = product->weights,
                           .weight_scales = product->weight_scales,
                           .scale = b->desc.weights == RONDO_NVFP4 ? b->desc.nvfp4_scale : 0,
                           .vectors = product->vectors,
                           .residual = product->residual,
                           .silu_mul = product->silu_mul,
                           .one_order = b->desc.one_order,
                           .out = product->out};
}

static rondo_status many_rows_product_add(const struct llama_builder *b, const rondo_gemv_desc *product) {
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  rondo_gemm_desc desc = many_rows_product_of(b, product);
  desc.scale = product->scale;
  if (product->norm.graph) {
    snprintf(name, sizeof name, "%.58s norm", product->name);
    status = rondo_add_rms_norm(
        b->graph,
        &(rondo_rms_norm_desc){
            .name = name, .x = product->vectors, .norm = product->norm, .out = b->normed, .epsilon = b->desc.epsilon});
    desc.vectors = b->normed;
  }
  return status == RONDO_OK ? rondo_add_gemm(b->graph, &desc) : status;
}

rondo_status llama_stream_add(const struct llama_builder *b, rondo_gemv_desc product, rondo_tensor next_norm) {
  rondo_gemm_desc desc = many_rows_product_of(b, &product);
  desc.norm = next_norm, desc.normed = b->normed, desc.squares = b->squares;
  return rondo_add_gemm(b->graph, &desc);
}

rondo_status llama_normed_product_add(const struct llama_builder *b, rondo_gemv_desc product) {
  rondo_gemm_desc desc = many_rows_product_of(b, &product);
  desc.vectors = b->normed, desc.vector_squares = b->squares, desc.norm_epsilon = b->desc.epsilon;
  return rondo_add_gemm(b->graph, &desc);
}

rondo_status llama_product_add(const struct llama_builder *b, rondo_dtype weights, int64_t rows,
                               rondo_gemv_desc product) {
  product.scale = weights == RONDO_NVFP4 ? b->desc.nvfp4_scale : 0;
  if (rows > LLAMA_MOST_VECTORS || (b->streams && product.norm.graph)) return many_rows_product_add(b, &product);
  product.one_order = b->desc.one_order;
  product.norm_epsilon = product.norm.graph ? b->desc.epsilon : 0;
  return rondo_add_gemv(b->graph, &product);
}
