/* graph_llama.h - shared by the files of the ready-made Llama graph: graph_llama_layer.c adds the layers, graph_llama.c
 * all other tasks, graph_llama_tensors.c named tensors and products, graph_llama_ranks.c what several ranks exchange,
 * graph_llama_draft.c drafted tokens. */
#pragma once

#include <stdbool.h>

#include "../runtime/layer_form.h"
#include "graph_part.h"
#include <rondo_graphs.h>

enum {
  LLAMA_MOST_DRAFT = 127, /* tokens of rondo_add_prompt_lookup, but for the first */
  LLAMA_MOST_STOPS = 16,
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
  rondo_tensor attended, gated;         /* added by the next half: the parts, or the sum of all ranks' as one part */
  rondo_tensor attended_sum, gated_sum; /* with ranks: that part, [rows, hidden] */
};

/* The graph while it is described. */
struct llama_builder {
  rondo_graph *graph;
  rondo_graph_llama_desc desc; /* with defaults filled in; heads and feed_forward are the rank's own */
  rondo_graph_llama_tensors *made;
  int64_t rows, q_columns, kv_columns;       /* rows: the tokens of a step */
  bool verifies;                             /* desc.verify: rows of one sequence, whose ids are a state */
  int64_t head_rows;                         /* the vocabulary, or the rank's part of it */
  struct layer_form form;                    /* all zero: five tasks */
  rondo_tensor ids, position;                /* read by the tasks */
  rondo_tensor hidden, qkv, attended, gated; /* temporaries [rows, ..] */
  rondo_tensor normed;                       /* [rows, hidden]: with many rows a product's norm is a task before it */
  bool streams;                    /* with many rows: the residual stream is f32, and norms begin and end in products */
  rondo_tensor squares;            /* of the rows of the stream, for the norm that has begun */
  rondo_tensor product;            /* with ranks: the rank's part of what is added to the stream, [rows, hidden] */
  rondo_tensor q, new_k, new_v, o; /* heads in them */
  struct llama_chain chains[LLAMA_MOST_CHAINS]; /* of a step in halves */
  int64_t chain_count;
};

/* Are caches a lender's pages, but without a list of them? */
static inline bool llama_takes_pages_in_order(const rondo_graph_llama_desc *desc) {
  return desc->lender && desc->lender->kv_pages.graph && !desc->page_rows;
}
static inline bool llama_is_prefill(const struct llama_builder *b) { return b->desc.tokens > 0; }
/* A prefill of one sequence has lists of one number, as attention has one item. */
static inline bool llama_is_of_one(const struct llama_builder *b) { return llama_is_prefill(b) && !b->desc.packed; }
static inline int64_t llama_items(const struct llama_builder *b) { return llama_is_of_one(b) ? 1 : b->desc.sequences; }
/* Does one row of a sequence, `last`, have logits and a next token, or has every row? */
static inline bool llama_has_last_row(const struct llama_builder *b) {
  return llama_is_prefill(b) && !b->desc.every_row;
}
static inline int64_t llama_results(const struct llama_builder *b) {
  return llama_has_last_row(b) ? llama_items(b) : b->rows;
}
static inline bool llama_has_ranks(const struct llama_builder *b) { return b->desc.ranks > 1; }
/* Do halves of one token have the sum over ranks themselves? */
static inline bool llama_halves_sum(const struct llama_builder *b) {
  return llama_has_ranks(b) && b->rows == 1 && !llama_is_prefill(b);
}

/* ---- graph_llama_tensors.c ---- */

/* The name after the graph's own: "model.layer3.qkv". */
const char *llama_name(const struct llama_builder *b, char text[NAME_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A constant or state of the graph's own, or the lender's. */
rondo_status llama_resident_add(const struct llama_builder *b, tensor_function add, const char *name, rondo_dtype dtype,
                                uint32_t rank, const int64_t *shape, rondo_tensor lent, rondo_tensor *tensor);
rondo_status llama_norm_add(const struct llama_builder *b, const char *name, rondo_tensor lent, rondo_tensor *tensor);
/* A matrix of weights, and its scales if its type has any. */
rondo_status llama_weights_add(const struct llama_builder *b, const char *name, rondo_dtype dtype, int64_t rows,
                               int64_t columns, const rondo_tensor lent[2], rondo_tensor *weights,
                               rondo_tensor *scales);
/* Adds a product whose result joins a residual stream in f32, and begins the norm that follows. */
rondo_status llama_stream_add(const struct llama_builder *b, rondo_gemv_desc product, rondo_tensor next_norm);
/* Adds a product that ends the norm. */
rondo_status llama_normed_product_add(const struct llama_builder *b, rondo_gemv_desc product);
/* i32 or f32 [count]. */
rondo_status llama_list_add(const struct llama_builder *b, tensor_function add, const char *part, rondo_dtype dtype,
                            int64_t count, rondo_tensor *tensor);
/* Adds a product with `rows` vectors, with the scale, the order of sums and the epsilon that all products of the graph
 * have. With many rows the norm is a task before it, "NAME norm", which writes b->normed. */
rondo_status llama_product_add(const struct llama_builder *b, rondo_dtype weights, int64_t rows,
                               rondo_gemv_desc product);

/* ---- graph_llama_ranks.c ---- */

/* Do the ranks divide the sizes, and is there an exchange? */
rondo_status llama_ranks_check(const rondo_graph_llama_desc *desc);
/* Leaves the rank's own part of heads, feed_forward and vocabulary in the builder. */
void llama_ranks_divide(struct llama_builder *b);
/* The sums of all ranks' parts, as the halves of a chain take them. Without ranks those are the parts. */
rondo_status llama_chain_sums_add(const struct llama_builder *b, struct llama_chain *chain);
/* Of the half that begins with this sum of the graph; the first half, of sum -1, has none. states is NULL if it neither
 * begins with a sum nor gives parts. */
struct layer_exchange llama_layer_exchange(const struct llama_builder *b, int32_t sum);
/* Adds the task "NAME sum": out = the sum of what all ranks have in `in`, and the residual if there is one. */
rondo_status llama_sum_add(const struct llama_builder *b, const char *name, rondo_tensor in, rondo_tensor residual,
                           rondo_tensor out);
/* Adds a product with the rank's columns of a matrix, and the sum of all ranks' products and the residual. */
rondo_status llama_summed_product_add(const struct llama_builder *b, rondo_gemv_desc product);
/* b->product. */
rondo_status llama_product_part_add(struct llama_builder *b);
/* The rank's rows of the head, which with tied_embedding are rows of the embedding. */
rondo_status llama_head_rows(const struct llama_builder *b, rondo_tensor *weights, rondo_tensor *scales);
/* What the head writes, [results, head_rows]: without ranks the logits. */
rondo_status llama_logits_part_add(const struct llama_builder *b, rondo_tensor logits, rondo_tensor *part);
/* Adds the task "logits", which puts all ranks' columns side by side. Without ranks there is none. */
rondo_status llama_logits_gather(const struct llama_builder *b, rondo_tensor part, rondo_tensor logits);
/* Of the largest exchange. */
uint64_t llama_exchange_bytes(const struct llama_builder *b);

/* ---- graph_llama_draft.c ---- */

/* Do draft and verify fit the other fields? */
rondo_status llama_draft_check(const rondo_graph_llama_desc *desc);
/* History, stops and limit; and the prompt into the history. */
rondo_status llama_draft_add(const struct llama_builder *b);
/* Adds the task "lookup": `chosen` of all rows becomes made->next, and the token with its drafts. */
rondo_status llama_lookup_add(const struct llama_builder *b, rondo_tensor chosen);

/* ---- graph_llama_layer.c ---- */

struct layer_form llama_form_of(const struct llama_builder *b);
bool llama_streams(const struct llama_builder *b);
/* [rows, ..]: the chain's rows of it. */
rondo_status llama_chain_rows(const struct llama_builder *b, const struct llama_chain *chain, rondo_tensor all,
                              rondo_tensor *seen);
/* Temporaries that all layers share. */
rondo_status llama_temporaries_add(struct llama_builder *b);
rondo_status llama_layers_add(const struct llama_builder *b);
