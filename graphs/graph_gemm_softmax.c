/* graph_gemm_softmax.c - the ready-made graph of a product and its softmax: one task between its tensors. */
#include <stdio.h>

#include "../runtime/graph.h"
#include <rondo_graphs.h>

static const char *name_of(const rondo_graph_gemm_softmax_desc *desc, char *text, size_t bytes, const char *part) {
  snprintf(text, bytes, "%s %s", desc->name ? desc->name : "gemm_softmax", part);
  return text;
}

rondo_status rondo_graph_gemm_softmax(rondo_graph *graph, const rondo_graph_gemm_softmax_desc *desc,
                                      rondo_graph_gemm_softmax_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemm_softmax: the %s is NULL",
                      desc ? "tensors' address" : "description");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_gemm_softmax", &mark);
  if (status != RONDO_OK) return status;
  char name[64];
  rondo_graph_gemm_softmax_tensors out = {0};
  status = rondo_input(graph, name_of(desc, name, sizeof name, "a"), desc->dtype, 3,
                       (int64_t[]){desc->batch, desc->m, desc->k}, &out.a);
  if (status == RONDO_OK)
    status =
        (desc->b_constant ? rondo_constant : rondo_input)(graph, name_of(desc, name, sizeof name, "b"), desc->dtype, 3,
                                                          (int64_t[]){desc->batch, desc->n, desc->k}, &out.b);
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
  status = graph_end(graph, &mark, status);
  if (status == RONDO_OK) *tensors = out;
  return status;
}
