/* ready_graphs.h - the ready-made graphs by name, for the command line. Each has a table of its descriptor's fields. */
#pragma once

#include <rondo_graphs.h>

#include "arguments.h"

union ready_desc {
  rondo_graph_attention_desc attention;
  rondo_graph_gemm_softmax_desc gemm_softmax;
  rondo_graph_gemv_desc gemv;
  rondo_graph_llama_desc llama;
  rondo_graph_qr_desc qr;
};

enum {
  READY_LAYERS_MOST = 256,
  LLAMA_ENDS = offsetof(rondo_graph_llama_tensors, layers) / sizeof(rondo_tensor), /* tensors outside the layers */
  LAYER_TENSORS = sizeof(rondo_llama_layer) / sizeof(rondo_tensor),
  READY_TENSORS_MOST = LLAMA_ENDS + READY_LAYERS_MOST * LAYER_TENSORS
};
union ready_tensors {
  rondo_graph_attention_tensors attention;
  rondo_graph_gemm_softmax_tensors gemm_softmax;
  rondo_graph_gemv_tensors gemv;
  struct {
    rondo_tensor ends[LLAMA_ENDS];
    rondo_llama_layer layers[READY_LAYERS_MOST];
  } llama;
  rondo_graph_qr_tensors qr;
  rondo_tensor each[READY_TENSORS_MOST]; /* tensors that the graph does not have are all zero */
};
_Static_assert(sizeof(union ready_tensors) == READY_TENSORS_MOST * sizeof(rondo_tensor),
               "the union consists of tensors");

struct ready_graph {
  const char *name, *about;
  struct argument_table fields;
  size_t desc_bytes;       /* of the fields that can be typed */
  union ready_desc preset; /* the fields that are not given: shapes of common models */
  rondo_status (*add)(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors);
};

extern const struct ready_graph ready_graphs[];
extern const size_t ready_graph_count;

/* NULL if no graph has this name. */
const struct ready_graph *ready_graph_called(const char *name);

/* "attention, gemm_softmax, gemv, llama, qr or smollm2". */
extern const char ready_graph_names[];

/* Describes the graph of the descriptor, in a graph with room for the tasks of a large QR. */
rondo_status ready_graph_describe(const struct ready_graph *ready, const union ready_desc *desc, rondo_graph **graph,
                                  union ready_tensors *tensors);
