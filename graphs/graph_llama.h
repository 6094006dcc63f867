/* graph_llama.h - what the files of the ready-made Llama graph share: graph_llama.c what stands around the layers,
 * graph_llama_layer.c the layers. */
#ifndef RONDO_GRAPH_LLAMA_H
#define RONDO_GRAPH_LLAMA_H

#include <stdbool.h>

#include "../runtime/graph.h"
#include <rondo_graphs.h>

/* A cache has room for the padding behind a context's last token. */
enum { LLAMA_MOST_ROWS = 16, LLAMA_PADDING = LLAMA_MOST_ROWS - 1, LLAMA_MOST_PENALIZED = 1024 };

/* What is being built. */
struct llama_builder {
  rondo_graph *graph;
  rondo_graph_llama_desc desc; /* with defaults filled in */
  rondo_graph_llama_tensors *made;
  int64_t rows, q_columns, kv_columns;       /* rows: tokens that this graph takes */
  rondo_tensor ids, position;                /* what the tasks read */
  rondo_tensor hidden, qkv, attended, gated; /* temporaries [rows, ..] */
  rondo_tensor q, new_k, new_v, o;           /* heads in them */
  rondo_tensor between; /* of halves: the stream that a feed forward takes, as hidden is a layer's */
  rondo_tensor attended_parts, gated_parts; /* f32 [parts, rows, hidden]: what the halves leave to be added */
};

typedef rondo_status (*llama_tensor_function)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                              const int64_t *shape, rondo_tensor *tensor);

static inline bool llama_is_prefill(const struct llama_builder *b) { return b->desc.tokens > 0; }

/* "layer3.qkv", with what the graph is called in front. */
const char *llama_name(const struct llama_builder *b, char text[NAME_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A constant or state of the graph's own, or the lender's. */
rondo_status llama_resident_add(const struct llama_builder *b, llama_tensor_function add, const char *name,
                                rondo_dtype dtype, uint32_t rank, const int64_t *shape, rondo_tensor lent,
                                rondo_tensor *tensor);
rondo_status llama_norm_add(const struct llama_builder *b, const char *name, rondo_tensor lent, rondo_tensor *tensor);
/* A matrix of weights, and its scales where its type has any. */
rondo_status llama_weights_add(const struct llama_builder *b, const char *name, rondo_dtype dtype, int64_t rows,
                               int64_t columns, const rondo_tensor lent[2], rondo_tensor *weights,
                               rondo_tensor *scales);
/* What all products of the graph have in common; `product` says the rest. */
rondo_status llama_product_add(const struct llama_builder *b, rondo_dtype weights, rondo_gemv_desc product);

/* graph_llama_layer.c. Are layers two tasks each, which leave parts to be added to the stream? */
bool llama_in_halves(const struct llama_builder *b);
/* What all layers share. */
rondo_status llama_temporaries_add(struct llama_builder *b);
rondo_status llama_layer_add(const struct llama_builder *b, int32_t i);

#endif
