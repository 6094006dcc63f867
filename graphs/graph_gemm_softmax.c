/* graph_gemm_softmax.c - the ready-made graph of a product and its softmax: one task between its tensors. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "../runtime/op.h"
#include <rondo_graphs.h>

/* What rondo_add_gemm_softmax would refuse after the tensors were added. */
static rondo_status desc_check(const rondo_graph_gemm_softmax_desc *desc) {
  if (desc->dtype != RONDO_F16 && desc->dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemm_softmax: dtype is %s, expected f16 or bf16",
                      rondo_dtype_name(desc->dtype));
  if (desc->p_dtype != RONDO_F32 && desc->p_dtype != RONDO_F16 && desc->p_dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemm_softmax: p_dtype is %s, expected f16, bf16 or f32",
                      rondo_dtype_name(desc->p_dtype));
  if (desc->batch < 0 || desc->m < 0 || desc->n < 0 || desc->k < 0)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemm_softmax: batch %" PRId64 ", m %" PRId64 ", n %" PRId64 ", k %" PRId64
                      ": expected no negative size",
                      desc->batch, desc->m, desc->n, desc->k);
  if (!isfinite(desc->scale))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_graph_gemm_softmax: scale is %g, expected a finite number", (double)desc->scale);
  return RONDO_OK;
}

static const char *name_of(const rondo_graph_gemm_softmax_desc *desc, char *text, size_t bytes, const char *part) {
  snprintf(text, bytes, "%s %s", desc->name ? desc->name : "gemm_softmax", part);
  return text;
}

rondo_status rondo_graph_gemm_softmax(rondo_graph *graph, const rondo_graph_gemm_softmax_desc *desc,
                                      rondo_graph_gemm_softmax_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemm_softmax: the %s is NULL",
                      desc ? "tensors' address" : "description");
  rondo_status status = desc_check(desc);
  if (status != RONDO_OK) return status;
  char name[64];
  rondo_graph_gemm_softmax_tensors out = {0};
  status = rondo_input(graph, name_of(desc, name, sizeof name, "a"), desc->dtype, 3,
                       (int64_t[]){desc->batch, desc->m, desc->k}, &out.a);
  if (status != RONDO_OK) return status;
  status = (desc->b_constant ? rondo_constant : rondo_input)(graph, name_of(desc, name, sizeof name, "b"), desc->dtype,
                                                             3, (int64_t[]){desc->batch, desc->n, desc->k}, &out.b);
  if (status == RONDO_OK)
    status = rondo_output(graph, name_of(desc, name, sizeof name, "p"), desc->p_dtype, 3,
                          (int64_t[]){desc->batch, desc->m, desc->n}, &out.p);
  if (status == RONDO_OK)
    status = rondo_add_gemm_softmax(graph, &(rondo_gemm_softmax_desc){.name = desc->name ? desc->name : "gemm_softmax",
                                                                      .a = out.a,
                                                                      .b = out.b,
                                                                      .p = out.p,
                                                                      .scale = desc->scale,
                                                                      .causal = desc->causal});
  if (status == RONDO_OK) *tensors = out;
  return status;
}
