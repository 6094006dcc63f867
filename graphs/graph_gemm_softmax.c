/* graph_gemm_softmax.c - the ready-made graph of a product and its softmax: one task between its tensors. */
#include "graph_part.h"
#include <rondo_graphs.h>

rondo_status rondo_graph_gemm_softmax(rondo_graph *graph, const rondo_graph_gemm_softmax_desc *desc,
                                      rondo_graph_gemm_softmax_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_gemm_softmax: the %s is NULL",
                      desc ? "tensors' address" : "description");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_gemm_softmax", &mark);
  if (status != RONDO_OK) return status;
  const char *name = desc->name ? desc->name : "gemm_softmax";
  char part[NAME_BYTES];
  rondo_graph_gemm_softmax_tensors out = {0};
  status = rondo_input(graph, part_name(part, name, "a"), desc->dtype, 3, (int64_t[]){desc->batch, desc->m, desc->k},
                       &out.a);
  if (status == RONDO_OK)
    status = (desc->b_constant ? rondo_constant : rondo_input)(graph, part_name(part, name, "b"), desc->dtype, 3,
                                                               (int64_t[]){desc->batch, desc->n, desc->k}, &out.b);
  if (status == RONDO_OK)
    status = rondo_output(graph, part_name(part, name, "p"), desc->p_dtype, 3,
                          (int64_t[]){desc->batch, desc->m, desc->n}, &out.p);
  if (status == RONDO_OK)
    status = rondo_add_gemm_softmax(
        graph, &(rondo_gemm_softmax_desc){
                   .name = name, .a = out.a, .b = out.b, .p = out.p, .scale = desc->scale, .causal = desc->causal});
  status = graph_end(graph, &mark, status);
  if (status == RONDO_OK) *tensors = out;
  return status;
}
