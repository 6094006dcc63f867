/* rondo_graphs.h - ready-made graphs: each function adds tensors and tasks to a graph, from a descriptor of sizes, and
 * returns the tensors' handles.
 *
 * The conventions and errors are those of rondo.h; an error's text names the function and the wrong task or tensor.
 * Tensors that a description does not need are all zero. The names of tensors and tasks begin with `name`. */
#if defined(__cplusplus) && __cplusplus >= 201402L && defined(__has_include) && !defined(RONDO_GRAPHS_CXX_H)
#if __has_include("rondo_graphs_cxx.h")
#include "rondo_graphs_cxx.h" /* installed: the same text, with a default for each field of a descriptor */
#endif
#endif
#ifndef RONDO_GRAPHS_H
#define RONDO_GRAPHS_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Products with vectors --------------------------------------------------------------------------------------- */

/* rondo_add_gemv, or rondo_add_gemm from 17 vectors on. One task; two if the vectors are first quantised to NVFP4. */
typedef struct rondo_graph_gemv_desc {
  const char *name; /* NULL: "gemv" */
  rondo_dtype weights;
  rondo_dtype vectors; /* as the product sees them */
  rondo_dtype out;
  int64_t m, k;
  int64_t batch;      /* matrices; 0: no batch dimension */
  int32_t count;      /* vectors of each matrix; 0: 1 */
  float scale;        /* 0: 1; such as NVFP4's per-tensor factor */
  int32_t row_scales; /* 1: e4m3 weights have a factor for each row */
  /* For NVFP4 vectors, the type of the input that is quantised: f32, f16 or bf16. quantize_scale (0: 1) is the
   * global_scale, and a factor of the product. 0: the input is NVFP4. */
  rondo_dtype quantize_from;
  float quantize_scale;
  /* From here on as in rondo_gemv_desc, but bias and residual are the tensors' types; 0: absent. */
  rondo_scale_layout weight_scale_layout, vector_scale_layout;
  int32_t one_order;
  float norm_epsilon; /* > 0: there is a norm */
  rondo_dtype bias;
  int32_t silu_mul;
  rondo_dtype residual;
  float out_global_scale;
} rondo_graph_gemv_desc;

/* The tensors of rondo_gemv_desc. */
typedef struct rondo_graph_gemv_tensors {
  rondo_tensor weights;       /* constant */
  rondo_tensor weight_scales; /* constant: e4m3 for NVFP4 weights, f32 with row_scales */
  rondo_tensor vectors;       /* input */
  rondo_tensor vector_scales; /* input: e4m3 for an input in NVFP4 */
  rondo_tensor out;           /* output */
  rondo_tensor norm;          /* constant [k] */
  rondo_tensor bias;          /* constant [batch, m] */
  rondo_tensor residual;      /* input */
  rondo_tensor out_scales;    /* output, for out in NVFP4 */
} rondo_graph_gemv_tensors;

RONDO_API rondo_status rondo_graph_gemv(rondo_graph *graph, const rondo_graph_gemv_desc *desc,
                                        rondo_graph_gemv_tensors *tensors);

/* ---- Attention --------------------------------------------------------------------------------------------------- */

/* rondo_add_attention, for prefill (as many queries as KV rows) or decode (few queries).
 *   kv_is_state   1: k and v are states instead of inputs
 *   with_lengths  1: there is an input kv_lengths
 *   with_lse      1: there is an output lse */
typedef struct rondo_graph_attention_desc {
  const char *name; /* NULL: "attention" */
  rondo_dtype dtype;
  rondo_head_layout layout;
  int64_t batch, query_heads, kv_heads;
  int64_t query_length, kv_length;
  int64_t head_dimension;
  float scale;
  int32_t causal;
  int32_t splits;
  int32_t kv_is_state, with_lengths, with_lse;
} rondo_graph_attention_desc;

typedef struct rondo_graph_attention_tensors {
  rondo_tensor q;          /* input */
  rondo_tensor k, v;       /* inputs or states */
  rondo_tensor kv_lengths; /* input */
  rondo_tensor o, lse;     /* outputs */
} rondo_graph_attention_tensors;

RONDO_API rondo_status rondo_graph_attention(rondo_graph *graph, const rondo_graph_attention_desc *desc,
                                             rondo_graph_attention_tensors *tensors);

/* ---- Softmax of a product ---------------------------------------------------------------------------------------- */

/* rondo_add_gemm_softmax: P = softmax over rows of scale * A B^T, for `batch` matrices; sizes >= 0. */
typedef struct rondo_graph_gemm_softmax_desc {
  const char *name;    /* NULL: "gemm_softmax" */
  rondo_dtype dtype;   /* of A and B: f16 or bf16 */
  rondo_dtype p_dtype; /* of P: f16, bf16 or f32 */
  int64_t batch, m, n, k;
  float scale;        /* 0: 1 */
  int32_t causal;     /* 1: row i sees column j only if j <= i + n - m */
  int32_t b_constant; /* 1: B is a constant instead of an input */
} rondo_graph_gemm_softmax_desc;

typedef struct rondo_graph_gemm_softmax_tensors {
  rondo_tensor a; /* input, [batch, m, k] */
  rondo_tensor b; /* input or constant, [batch, n, k] */
  rondo_tensor p; /* output, [batch, m, n] */
} rondo_graph_gemm_softmax_tensors;

RONDO_API rondo_status rondo_graph_gemm_softmax(rondo_graph *graph, const rondo_graph_gemm_softmax_desc *desc,
                                                rondo_graph_gemm_softmax_tensors *tensors);

/* ---- QR ---------------------------------------------------------------------------------------------------------- */

typedef enum rondo_qr_form {
  RONDO_QR_H_TAU = 0, /* outputs h and tau, as LAPACK geqrf leaves them */
  RONDO_QR_R,         /* output r, k x n */
  RONDO_QR_THIN_Q     /* outputs q, m x k, and r, k x n */
} rondo_qr_form;

/* QR of `batch` matrices m x n, k = min(m, n), f32 or f64, sizes >= 0. Small matrices, and larger ones in large
 * batches, are one task. Others are factored by panels with lookahead: the next panel is updated first, and factored
 * while the rest is updated. Thin Q is then formed from the last panel to the first. The choice depends on the
 * description alone, so last bits may differ between batches of 64 and 65.
 *   panel_width  columns of a panel; 0: Rondo chooses it, or no panels */
typedef struct rondo_graph_qr_desc {
  const char *name; /* NULL: "qr" */
  rondo_dtype dtype;
  rondo_layout layout;
  int64_t m, n, batch;
  rondo_qr_form form;
  int32_t panel_width;
} rondo_graph_qr_desc;

/* Tensors [batch, columns, rows] (column-major) or [batch, rows, columns]. */
typedef struct rondo_graph_qr_tensors {
  rondo_tensor a;      /* input */
  rondo_tensor h, tau; /* outputs */
  rondo_tensor r, q;   /* outputs */
} rondo_graph_qr_tensors;

RONDO_API rondo_status rondo_graph_qr(rondo_graph *graph, const rondo_graph_qr_desc *desc,
                                      rondo_graph_qr_tensors *tensors);

/* ---- Llama ------------------------------------------------------------------------------------------------------- */

/* A step of a Llama decoder: RMS norm, rotary embedding, grouped-query attention, silu(gate) * up, no biases.
 *   decode   one token of each of `sequences`
 *   prefill  up to `tokens` tokens of one sequence, or with packed of all
 * Both come from one description; prefill borrows decode's weights and KV caches:
 *
 *     rondo_llama_layer layers[30], prefill_layers[30];
 *     rondo_graph_llama_tensors decode = {.layers = layers}, prefill = {.layers = prefill_layers};
 *     TRY(rondo_graph_llama(decode_graph, &desc, &decode));
 *     desc.tokens = 512, desc.lender = &decode;
 *     TRY(rondo_graph_llama(prefill_graph, &desc, &prefill));
 *
 * Tasks, in order. A layer is two halves if these are faster and one_order is 0, else five or seven tasks:
 *   "embedding"
 *   "layer0.attention", ".feed_forward"                          halves; of the first of several chains ".attention.0"
 *   "layer0.qkv", ".attention", ".output", ".gate_up", ".down"   .attention also rotates and appends to the KV cache
 *   "layer0.qkv norm", ".gate_up norm"                           with many tokens or sequences
 *   "last row"                                                   prefill: gathers row `last`
 *   "norm"                                                       where it is not a part of "head"
 *   "head", "next"                                               product that gives logits; argmax or draw
 * Chains are groups of rows that run side by side. Sums and logits are f32, other results `dtype`; the residual stream
 * is f32 between halves and, in bf16, in some steps of 9 rows or more. Each task has the bound of its operation; logits
 * have none. With two layers of random weights their error is at most 0.01 (f16) or 0.08 (bf16) of the root mean square
 * of their row.
 *
 * Prefill takes a prompt in chunks of `tokens` rows, one after the other. Rows 0 to `last` count; next and logits are
 * those of row `last`. Later rows are padding, with any tokens: they are written to the cache where it has room, but no
 * row that counts sees them, and later tokens overwrite them. With every_row there is no `last`: each row has next and
 * logits, to score a text or check drafted tokens; feed_back, with_sampling and penalized are then 0.
 *
 * With packed, row_offsets say which rows belong to which sequence, and `last` has a row of each sequence (any row if
 * it has none). Rows of no sequence are padding, which enters no cache. feed_back and with_sampling are 0. If the
 * lender has feed_back, the program uploads its states after the prompts.
 *
 * With page_rows, caches are pools of pages, and kv_pages says which pages a sequence has. Padding and pausing
 * sequences are written too. A layer of decode is five tasks. A borrower of one sequence without page_rows uses the
 * pages after the first, in order.
 *
 * With feed_back, each sequence's last token and its position are states, zeros at first. Decode reads these tokens,
 * replaces them by the next ones (a task "token" copies these to the output), and adds `advance` to the positions
 * ("move"). Prefill begins at the sequence's position and leaves the next token and the new position. After the prompt,
 * a program only replays and reads next. rondo_upload sets the states; to set one sequence's, make a view of them
 * before rondo_instantiate.
 *
 * With draft (one sequence, feed_back), graphs keep the sequence's tokens in `history` and draft that many next tokens
 * (rondo_add_prompt_lookup). There is no advance: the position moves by the accepted tokens. With verify, decode's rows
 * are the token and its drafts, so a replay gives 1 to 1 + draft tokens. They are those of decode alone, except where
 * rounding decides between two logits: rounding of the head's fp32 sums with SmolLM2 135M's sizes in bf16 on compute
 * capability 9.0 or later, else of all layers. Repeats may alternate: decode until `matched` is not 0, verify until it
 * is 0 or -1.
 *
 * With ranks, each rank of a group has a graph; their descriptions differ in `rank` alone. All are replayed with the
 * same inputs and have the same results, to the bit. A task such as "layer0.attention sum" adds the ranks' results
 * after each half, output and down (a token alone has only the one after the last half: its other tasks contain
 * theirs); "logits" joins the ranks' columns. Constants and caches below are divided by ranks: q, k, v, gate_up and
 * head have part `rank` of their rows, output and down of their columns; embedding and norms are whole. Results of more
 * than 16 rows are rounded before they are added.
 *
 * A token outside the vocabulary makes its row NaN, a position outside 0 .. `context` - 1 undefined. Other sequences
 * keep their bits. A sequence that pauses takes any token at the position of its next one; with feed_back its advance
 * is 0, and its token is set before it continues. */
typedef struct rondo_graph_llama_desc {
  /* "draft" gives "draft.layer0.qkv"; at most 29 characters. NULL: no prefix */
  const char *name;
  int32_t layers;
  int64_t hidden;
  int64_t query_heads, kv_heads;
  int64_t head_dimension; /* 0: hidden / query_heads */
  int64_t feed_forward, vocabulary;
  int64_t context;                 /* the most tokens of a sequence */
  float rope_base;                 /* 0: 10000 */
  rondo_rope_pairing rope_pairing; /* Hugging Face: RONDO_ROPE_HALVES; GGUF: RONDO_ROPE_INTERLEAVED */
  int32_t rope_frequencies;        /* 1: a constant `frequencies` replaces rope_base */
  float epsilon;                   /* of RMS norms; 0: 1e-5 */
  rondo_dtype dtype;               /* f16 or bf16 */
  rondo_dtype weights;             /* of the layers: dtype, nvfp4; up to 16 tokens or sequences also e4m3 */
  rondo_dtype embedding;           /* and head: dtype, or as weights nvfp4; 0: nvfp4 if weights are */
  float nvfp4_scale;               /* factor of all nvfp4 weights; 0: 1 */
  int32_t tied_embedding;          /* 1: the embedding is the head too */
  int32_t one_order;               /* 1: products have equal bits beside 0 to 15 other sequences; beside more, others */
  int32_t sequences;               /* 1 to 256; 0: 1 */
  int32_t tokens;                  /* prefill: 1 to 8192; 0: decode */
  int32_t sequence;                /* prefill: its sequence, below `sequences` */
  int32_t packed;                  /* prefill: 1: rows of all sequences, with row_offsets */
  int32_t every_row;               /* prefill: 1: each row has next and logits */
  int32_t feed_back;               /* 1: tokens and positions are states */
  int32_t with_logits;             /* 1: logits are an output */
  int32_t with_sampling;           /* 1: rondo_add_sample draws the next token */
  int32_t penalized;               /* ids of each sequence for rondo_add_penalty, up to 1024; 0: no penalties */
  int32_t draft;                   /* drafted tokens, up to 127; 0: none. Not with pages, penalties or ranks */
  int32_t verify;                  /* decode with draft: 1: rows are the token and its drafts */
  int64_t page_rows, pages;        /* of KV caches in pages (kv_pages); 0: none */
  /* The graph whose constants and states this one borrows, and whose exec is open first; NULL: none. Its description
   * may differ in name, one_order, tokens, sequence, packed, every_row, verify, with_logits and with_sampling; with
   * page_rows in sequences; if the lender alone has feed_back, in feed_back and draft. Read during the call only. */
  const struct rondo_graph_llama_tensors *lender;
  uint32_t rank, ranks;         /* ranks divides heads, feed_forward and vocabulary; 0: 1 */
  const rondo_tensor *exchange; /* [ranks]: of rondo_exchange_desc, for rondo_graph_llama_exchange_bytes */
} rondo_graph_llama_desc;

/* Constants, and the KV caches. Scales of e4m3 weights are f32 [rows], those of nvfp4 e4m3 [rows, columns / 16]. */
typedef struct rondo_llama_layer {
  rondo_tensor attention_norm;          /* [hidden]; norms are in `dtype` */
  rondo_tensor qkv, qkv_scales;         /* [(query_heads + 2 kv_heads) head_dimension, hidden]: q, k, v */
  rondo_tensor output, output_scales;   /* [hidden, query_heads head_dimension] */
  rondo_tensor feed_forward_norm;       /* [hidden] */
  rondo_tensor gate_up, gate_up_scales; /* [2 feed_forward, hidden]: rows 2i are gate's, 2i + 1 up's */
  rondo_tensor down, down_scales;       /* [hidden, feed_forward] */
  /* states [sequences, context + 15, kv_heads, head_dimension], or [pages, page_rows, kv_heads, head_dimension] */
  rondo_tensor k, v;
} rondo_llama_layer;

/* n is `sequences` for decode and packed prefill, else 1. */
typedef struct rondo_graph_llama_tensors {
  rondo_tensor embedding, embedding_scales; /* constant [vocabulary, hidden] */
  rondo_tensor norm;                        /* constant [hidden] */
  rondo_tensor head, head_scales;           /* constant [vocabulary, hidden]; not with tied_embedding */
  rondo_tensor frequencies;                 /* constant f32 [head_dimension / 2], of rondo_rope_desc */
  /* decode: input i32 [n]. With feed_back, of prefill too: state [sequences], with draft [1 + draft] */
  rondo_tensor token;
  /* of the token, or of prefill's first one: input i32 [n], with feed_back state [sequences] */
  rondo_tensor position;
  rondo_tensor prompt;       /* prefill: input i32 [tokens] */
  rondo_tensor last;         /* prefill: input i32 [n]: the last row that counts */
  rondo_tensor row_offsets;  /* packed: input i32 [sequences + 1], of rondo_add_attention */
  rondo_tensor kv_pages;     /* page_rows: input i32 [n, context / page_rows, rounded up], of rondo_add_attention */
  rondo_tensor advance;      /* feed_back: input i32 [n], added to positions: 1, for prefill last + 1 */
  rondo_tensor history;      /* draft: state i32 [context + 8192], tokens by position */
  rondo_tensor stops, limit; /* draft, decode: inputs i32 [16], -1 for none, and [1] of rondo_add_prompt_lookup */
  rondo_tensor matched;      /* draft: output i32 [1] */
  /* with_sampling: inputs [n] of rondo_add_sample. Its step is the position of the row drawn from. */
  rondo_tensor temperature, top_k, top_p, seed;
  /* penalized: inputs i32 [n, penalized], and f32 [n] each. Output logits include penalties. */
  rondo_tensor recent, repetition, frequency, presence;
  rondo_tensor next; /* output i32 [n], with every_row [tokens], with verify [1 + draft]: the accepted ones, then -1 */
  rondo_tensor logits;       /* output f32 [n, vocabulary], with every_row [tokens, ..], with verify [1 + draft, ..] */
  rondo_llama_layer *layers; /* set before the call: room for desc->layers; undefined after a failed call */
  int32_t layer_count, sequences; /* from here on: values that a borrower's description must share */
  int64_t context;
  uint32_t rank, ranks;
  rondo_rope_pairing rope_pairing;
  float rope_base, epsilon, nvfp4_scale;
} rondo_graph_llama_tensors;

/* The size of the largest exchange, for rondo_exchange_state; 0 for one rank. */
RONDO_API rondo_status rondo_graph_llama_exchange_bytes(const rondo_graph_llama_desc *desc, uint64_t *bytes);

/* Of the graph's limits it takes at most 7 tasks a layer (with ranks 12) and, without scales, 8 to 10 tensors a layer,
 * and some 40 of each besides. */
RONDO_API rondo_status rondo_graph_llama(rondo_graph *graph, const rondo_graph_llama_desc *desc,
                                         rondo_graph_llama_tensors *tensors);

#ifdef __cplusplus
}
#endif
#endif
