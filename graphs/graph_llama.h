/* graph_llama.h - shared by the files of the ready-made Llama graph: graph_llama_layer.c adds the layers, graph_llama.c
 * all other tasks, graph_llama_tensors.c named tensors and products. */
#pragma once

#include <stdbool.h>

#include "../runtime/graph.h"
#include "../runtime/layer_form.h"
#include <rondo_graphs.h>

enum {
  LLAMA_MOST_VECTORS = 16, /* rows of a step whose products are rondo_add_gemv's; more are rondo_add_gemm's */
  LLAMA_PADDING = LLAMA_MOST_VECTORS - 1, /* rows of a cache after the context */
  LLAMA_MOST_SEQUENCES = 256,
  LLAMA_MOST_CHAINS = LLAMA_MOST_SEQUENCES / LLAMA_MOST_VECTORS,
  LLAMA_MOST_TOKENS = 8192,
  LLAMA_MOST_PENALIZED = 1024
};

/* Some sequences of a decode step in halves. Chains depend on each other nowhere between embedding and head. */
struct llama_chain {
  int64_t first, rows;
  rondo_tensor hidden, between, position;   /* their rows; between: the residual stream between the halves of a layer */
  rondo_tensor attended_parts, gated_parts; /* f32 [parts, rows, hidden], written by the halves */
};

/* The graph while it is described. */
struct llama_builder {
  rondo_graph *graph;
  rondo_graph_llama_desc desc; /* with defaults filled in */
  rondo_graph_llama_tensors *made;
  int64_t rows, q_columns, kv_columns;       /* rows: the tokens of a step */
  struct layer_form form;                    /* all zero: five tasks */
  rondo_tensor ids, position;                /* read by the tasks */
  rondo_tensor hidden, qkv, attended, gated; /* temporaries [rows, ..] */
  rondo_tensor normed;                       /* [rows, hidden]: with many rows a product's norm is a task before it */
  bool streams;                    /* with many rows: the residual stream is f32, and norms begin and end in products */
  rondo_tensor squares;            /* of the rows of the stream, for the norm that has begun */
  rondo_tensor q, new_k, new_v, o; /* heads in them */
  struct llama_chain chains[LLAMA_MOST_CHAINS]; /* of a step in halves */
  int64_t chain_count;
};

typedef rondo_status (*llama_tensor_function)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                              const int64_t *shape, rondo_tensor *tensor);

/* Are caches a lender's pages, but without a list of them? */
static inline bool llama_takes_pages_in_order(const rondo_graph_llama_desc *desc) {
  return desc->lender && desc->lender->kv_pages.graph && !desc->page_rows;
}
static inline bool llama_is_prefill(const struct llama_builder *b) { return b->desc.tokens > 0; }
/* A prefill of one sequence has lists of one number, as attention has one item. */
static inline bool llama_is_of_one(const struct llama_builder *b) { return llama_is_prefill(b) && !b->desc.packed; }
static inline int64_t llama_items(const struct llama_builder *b) { return llama_is_of_one(b) ? 1 : b->desc.sequences; }

/* ---- graph_llama_tensors.c ---- */

/* The name after the graph's own: "model.layer3.qkv". */
const char *llama_name(const struct llama_builder *b, char text[NAME_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A constant or state of the graph's own, or the lender's. */
rondo_status llama_resident_add(const struct llama_builder *b, llama_tensor_function add, const char *name,
                                rondo_dtype dtype, uint32_t rank, const int64_t *shape, rondo_tensor lent,
                                rondo_tensor *tensor);
rondo_status llama_norm_add(const struct llama_builder *b, const char *name, rondo_tensor lent, rondo_tensor *tensor);
/* A matrix of weights, and its scales if its type has any. */
rondo_status llama_weights_add(const struct llama_builder *b, const char *name, rondo_dtype dtype, int64_t rows,
                               int64_t columns, const rondo_tensor lent[2], rondo_tensor *weights,
                               rondo_tensor *scales);
/* Adds a product whose result joins a residual stream in f32, and begins the norm that follows. */
rondo_status llama_stream_add(const struct llama_builder *b, rondo_gemv_desc product, rondo_tensor next_norm);
/* Adds a product that ends the norm. */
rondo_status llama_normed_product_add(const struct llama_builder *b, rondo_gemv_desc product);
/* Adds a product with `rows` vectors, with the scale, the order of sums and the epsilon that all products of the graph
 * have. With many rows the norm is a task before it, "NAME norm", which writes b->normed. */
rondo_status llama_product_add(const struct llama_builder *b, rondo_dtype weights, int64_t rows,
                               rondo_gemv_desc product);

/* ---- graph_llama_layer.c ---- */

struct layer_form llama_form_of(const struct llama_builder *b);
bool llama_streams(const struct llama_builder *b);
/* [rows, ..]: the chain's rows of it. */
rondo_status llama_chain_rows(const struct llama_builder *b, const struct llama_chain *chain, rondo_tensor all,
                              rondo_tensor *seen);
/* Temporaries that all layers share. */
rondo_status llama_temporaries_add(struct llama_builder *b);
rondo_status llama_layers_add(const struct llama_builder *b);
