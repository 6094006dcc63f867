/* graph_attention.c - the ready-made attention graph: its tensors in the layout asked for, and one task. */
#include "graph_part.h"
#include <rondo_graphs.h>

static const char *name_of(const rondo_graph_attention_desc *desc) { return desc->name ? desc->name : "attention"; }

static rondo_status heads_add(rondo_graph *graph, const rondo_graph_attention_desc *desc, tensor_function add,
                              const char *part, int64_t heads, int64_t length, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  bool heads_first = desc->layout == RONDO_BHSD;
  int64_t shape[] = {desc->batch, heads_first ? heads : length, heads_first ? length : heads, desc->head_dimension};
  return add(graph, part_name(name, name_of(desc), part), desc->dtype, 4, shape, tensor);
}

static rondo_status tensors_add(rondo_graph *graph, const rondo_graph_attention_desc *desc,
                                rondo_graph_attention_tensors *tensors) {
  char name[NAME_BYTES];
  tensor_function add_kv = desc->kv_is_state ? rondo_state : rondo_input;
  rondo_status status = heads_add(graph, desc, rondo_input, "q", desc->query_heads, desc->query_length, &tensors->q);
  if (status == RONDO_OK) status = heads_add(graph, desc, add_kv, "k", desc->kv_heads, desc->kv_length, &tensors->k);
  if (status == RONDO_OK) status = heads_add(graph, desc, add_kv, "v", desc->kv_heads, desc->kv_length, &tensors->v);
  if (status == RONDO_OK && desc->with_lengths)
    status = rondo_input(graph, part_name(name, name_of(desc), "kv_lengths"), RONDO_I32, 1, (int64_t[]){desc->batch},
                         &tensors->kv_lengths);
  if (status == RONDO_OK)
    status = heads_add(graph, desc, rondo_output, "o", desc->query_heads, desc->query_length, &tensors->o);
  if (status == RONDO_OK && desc->with_lse)
    status = rondo_output(graph, part_name(name, name_of(desc), "lse"), RONDO_F32, 3,
                          (int64_t[]){desc->batch, desc->query_heads, desc->query_length}, &tensors->lse);
  return status;
}

rondo_status rondo_graph_attention(rondo_graph *graph, const rondo_graph_attention_desc *desc,
                                   rondo_graph_attention_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_attention: the %s is NULL",
                      desc ? "tensors' address" : "description");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_attention", &mark);
  if (status != RONDO_OK) return status;
  rondo_graph_attention_tensors out = {0};
  status = tensors_add(graph, desc, &out);
  if (status == RONDO_OK)
    status = rondo_add_attention(graph, &(rondo_attention_desc){.name = name_of(desc),
                                                                .layout = desc->layout,
                                                                .q = out.q,
                                                                .k = out.k,
                                                                .v = out.v,
                                                                .o = out.o,
                                                                .kv_lengths = out.kv_lengths,
                                                                .lse = out.lse,
                                                                .scale = desc->scale,
                                                                .causal = desc->causal,
                                                                .splits = desc->splits});
  status = graph_end(graph, &mark, status);
  if (status == RONDO_OK) *tensors = out;
  return status;
}
