/* rondo_graphs.h - ready-made graphs: each function adds tensors and tasks to a graph from a descriptor of sizes and
 * returns the tensors' handles.
 *
 * The conventions are those of rondo.h, of threads too: what describes a graph is called by one thread at a time. A
 * call that fails, halfway too, leaves the graph as it was; its sentence names the function, then the task or tensor of
 * it that is wrong. Errors, of all: RONDO_INVALID_ARGUMENT, and RONDO_OUT_OF_MEMORY beyond the graph's limits. */
#ifndef RONDO_GRAPHS_H
#define RONDO_GRAPHS_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Products with vectors --------------------------------------------------------------------------------------- */

/* y = scale * W x for 1 to 16 vectors, in the types that rondo_gemv_desc lists. One task; two where the vectors come in
 * 16 or 32 bits and are quantised to NVFP4 first, which makes the product one of integers. */
typedef struct rondo_graph_gemv_desc {
  const char *name RONDO_ZERO; /* comes before the names of tensors and tasks; NULL: "gemv" */
  rondo_dtype weights RONDO_ZERO;
  rondo_dtype vectors RONDO_ZERO; /* what the product sees */
  rondo_dtype out RONDO_ZERO;
  int64_t m RONDO_ZERO, k RONDO_ZERO;
  int64_t batch RONDO_ZERO;      /* matrices; 0: tensors have no batch dimension */
  int32_t count RONDO_ZERO;      /* vectors of each matrix; 0: 1 */
  float scale RONDO_ZERO;        /* 0: 1. For NVFP4 weights their per-tensor factor */
  int32_t row_scales RONDO_ZERO; /* e4m3 weights: a factor for each row */
  /* vectors in NVFP4 only: the input is f32, f16 or bf16 (this type; 0: the input is NVFP4), quantised by blocks with
   * this factor for all (0: 1), by which the product is multiplied again. */
  rondo_dtype quantize_from RONDO_ZERO;
  float quantize_scale RONDO_ZERO;
  /* As in rondo_gemv_desc, from here on. bias and residual are the types of these tensors; 0: there are none. */
  rondo_scale_layout weight_scale_layout RONDO_ZERO, vector_scale_layout RONDO_ZERO;
  int32_t one_order RONDO_ZERO;
  float norm_epsilon RONDO_ZERO; /* not 0: there is a norm */
  rondo_dtype bias RONDO_ZERO;
  int32_t silu_mul RONDO_ZERO;
  rondo_dtype residual RONDO_ZERO;
  float out_global_scale RONDO_ZERO;
} rondo_graph_gemv_desc;

/* Tensors as rondo_gemv_desc has them. Those that the description does not need are all zero. */
typedef struct rondo_graph_gemv_tensors {
  rondo_tensor weights;       /* constant */
  rondo_tensor weight_scales; /* constant: e4m3 for NVFP4 weights, f32 with row_scales */
  rondo_tensor vectors;       /* input */
  rondo_tensor vector_scales; /* input: e4m3 for NVFP4 vectors that are not quantised here */
  rondo_tensor out;           /* output */
  rondo_tensor norm;          /* constant [k] */
  rondo_tensor bias;          /* constant [batch, m] */
  rondo_tensor residual;      /* input */
  rondo_tensor out_scales;    /* output, for out in NVFP4 */
} rondo_graph_gemv_tensors;

RONDO_API rondo_status rondo_graph_gemv(rondo_graph *graph, const rondo_graph_gemv_desc *desc,
                                        rondo_graph_gemv_tensors *tensors);

/* ---- Attention --------------------------------------------------------------------------------------------------- */

/* Attention as rondo_add_attention describes it: prefill, with as many queries as KV rows, or decode, with few queries
 * against a KV cache.
 *   kv_is_state   k and v are states, which live across replays, instead of inputs
 *   with_lengths  there is an input kv_lengths: KV rows that count, for each batch item
 *   with_lse      there is an output lse */
typedef struct rondo_graph_attention_desc {
  const char *name RONDO_ZERO; /* comes before the names of tensors; NULL: "attention" */
  rondo_dtype dtype RONDO_ZERO;
  rondo_head_layout layout RONDO_ZERO;
  int64_t batch RONDO_ZERO, query_heads RONDO_ZERO, kv_heads RONDO_ZERO;
  int64_t query_length RONDO_ZERO, kv_length RONDO_ZERO;
  int64_t head_dimension RONDO_ZERO;
  float scale RONDO_ZERO;
  int32_t causal RONDO_ZERO;
  int32_t splits RONDO_ZERO;
  int32_t kv_is_state RONDO_ZERO, with_lengths RONDO_ZERO, with_lse RONDO_ZERO;
} rondo_graph_attention_desc;

/* Those that were not asked for are all zero. */
typedef struct rondo_graph_attention_tensors {
  rondo_tensor q;          /* input */
  rondo_tensor k, v;       /* inputs or states */
  rondo_tensor kv_lengths; /* input */
  rondo_tensor o, lse;     /* outputs */
} rondo_graph_attention_tensors;

RONDO_API rondo_status rondo_graph_attention(rondo_graph *graph, const rondo_graph_attention_desc *desc,
                                             rondo_graph_attention_tensors *tensors);

/* ---- Softmax of a product ---------------------------------------------------------------------------------------- */

/* P = softmax over rows of scale * A B^T for `batch` matrices, as rondo_add_gemm_softmax; sizes >= 0. */
typedef struct rondo_graph_gemm_softmax_desc {
  const char *name RONDO_ZERO;    /* comes before the names of tensors; NULL: "gemm_softmax" */
  rondo_dtype dtype RONDO_ZERO;   /* of A and B: f16 or bf16 */
  rondo_dtype p_dtype RONDO_ZERO; /* of P: f16, bf16 or f32 */
  int64_t batch RONDO_ZERO, m RONDO_ZERO, n RONDO_ZERO, k RONDO_ZERO;
  float scale RONDO_ZERO;        /* 0 means 1 */
  int32_t causal RONDO_ZERO;     /* column j counts for row i only if j <= i + n - m */
  int32_t b_constant RONDO_ZERO; /* B is uploaded once instead of filled in for each replay */
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

/* QR of `batch` matrices m x n, k = min(m, n), f32 or f64, sizes >= 0. One task for R or thin Q while a matrix fits in
 * shared memory; for H and tau up to 128 x 128, up to 512 x 128 (f64: 512 x 64) where there are four rows to a column,
 * and of more than 128 rows where there are many matrices: more than 64 of up to 2048 rows (f64: 1024), than 256 of up
 * to 256 (f64: 128), than twice as many where n >= 2 m. These are figures of an H200, taken wherever it runs: a matrix
 * may have other last bits among 65 than among 64.
 * Beyond that panels: factor one, update the next one (so that it can be factored at once), update the rest beside it;
 * thin Q is then formed from the last panel to the first.
 *   panel_width  columns of a panel; 0: Rondo chooses, and also whether there are panels at all */
typedef struct rondo_graph_qr_desc {
  const char *name RONDO_ZERO; /* comes before the names of tensors and tasks; NULL: "qr" */
  rondo_dtype dtype RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  int64_t m RONDO_ZERO, n RONDO_ZERO, batch RONDO_ZERO;
  rondo_qr_form form RONDO_ZERO;
  int32_t panel_width RONDO_ZERO;
} rondo_graph_qr_desc;

/* Tensors [batch, columns, rows] (column-major) or [batch, rows, columns]. Those that the form does not have are all
 * zero. */
typedef struct rondo_graph_qr_tensors {
  rondo_tensor a;      /* input */
  rondo_tensor h, tau; /* outputs */
  rondo_tensor r, q;   /* outputs */
} rondo_graph_qr_tensors;

RONDO_API rondo_status rondo_graph_qr(rondo_graph *graph, const rondo_graph_qr_desc *desc,
                                      rondo_graph_qr_tensors *tensors);

/* ---- Llama ------------------------------------------------------------------------------------------------------- */

/* A step of a decoder as Llama has it: RMS norm, rotary embedding, KV heads that query heads share, silu(gate) * up, no
 * biases. Decode: one token of each of `sequences`. Prefill: up to `tokens` tokens of one of them. Both are made from
 * one description, the second one borrowing the weights and KV caches of the first:
 *
 *     rondo_llama_layer layers[30], prefill_layers[30];
 *     rondo_graph_llama_tensors decode = {.layers = layers}, prefill = {.layers = prefill_layers};
 *     TRY(rondo_graph_llama(decode_graph, &desc, &decode));
 *     desc.tokens = 16, desc.lender = &decode;
 *     TRY(rondo_graph_llama(prefill_graph, &desc, &prefill));
 *
 * Decode's tasks are "embedding", of each layer "layer0.attention" (rondo_add_attention_block) and ".feed_forward",
 * then "norm", "head", the product that gives logits, and "next", the column of the largest or a draw. A prefill's
 * layers are five tasks: "layer0.qkv", ".attention" (which rotates, appends to the KV cache and attends), ".output",
 * ".gate_up" and ".down"; in front of "head", which normalises too unless it is NVFP4, "last row" gathers that row. So
 * are those of a decode that is not of dtype BF16 with weights in BF16 or NVFP4, at most 16 KV heads and no one_order,
 * and of heads of 64 with hidden at most 2048 (in NVFP4 of several sequences 1024), or heads of 128 with hidden at most
 * 1024 and one sequence: five tasks are faster then. What is added around them is named below. Sums are fp32, logits
 * f32, and the residual stream is `dtype`, as all that five tasks hand on. Each task is as exact as its operation says;
 * of the logits of any number of layers nothing follows from that. Those of two layers of random weights are off by at
 * most 0.008 (f16) or 0.06 (bf16) of the root mean square of their row.
 *
 * A prefill takes `tokens` rows at consecutive positions, of which those up to row `last` count, and next and logits
 * are row last's. The rows behind it are padding (tokens of any value, such as 0): they are appended to the KV cache
 * too, seen by no row that counts, and overwritten by the tokens that come to their positions; for those behind the
 * context's end the caches have 15 rows more. So a prompt is taken in chunks, each at the position where the one before
 * it ended.
 *
 * With feed_back the graph keeps each sequence's last token and its position itself, as states: decode takes the
 * tokens from there, puts the next ones in their place (and out, by a copy "token") and moves positions by `advance`
 * ("move"); prefill begins at the sequence's position and leaves the next token and the new position there. After the
 * prompt there is then nothing to fill: replay and read `next`. Both are zeros at first; rondo_upload sets them, of one
 * sequence through a view that is made before rondo_instantiate.
 *
 * What the caller sees to: the position of a row that counts stays below `context` (what comes out beyond it means
 * nothing), and a token is below `vocabulary` (else its row is NaN). A sequence that rests may be given any token at
 * the position that its next one will have; with feed_back its advance is 0, and its token is set before it goes on. */
typedef struct rondo_graph_llama_desc {
  /* before the names of tensors and tasks, "draft.layer0.qkv", at most 29 characters; NULL: nothing */
  const char *name RONDO_ZERO;
  int32_t layers RONDO_ZERO;
  int64_t hidden RONDO_ZERO;
  int64_t query_heads RONDO_ZERO, kv_heads RONDO_ZERO;
  int64_t head_dimension RONDO_ZERO; /* 0: hidden / query_heads */
  int64_t feed_forward RONDO_ZERO, vocabulary RONDO_ZERO;
  int64_t context RONDO_ZERO; /* tokens of a sequence, at most */
  float rope_base RONDO_ZERO; /* 0: 10000 */
  rondo_rope_pairing rope_pairing
      RONDO_ZERO;                      /* of a checkpoint of Hugging Face RONDO_ROPE_HALVES, of a GGUF file the other */
  int32_t rope_frequencies RONDO_ZERO; /* 1: there is a constant of them, in place of rope_base */
  float epsilon RONDO_ZERO;            /* of RMS norms; 0: 1e-5 */
  rondo_dtype dtype RONDO_ZERO;        /* f16 or bf16 */
  rondo_dtype weights RONDO_ZERO;      /* of the layers: dtype, e4m3 or nvfp4 */
  rondo_dtype embedding RONDO_ZERO;    /* and of the head: dtype or nvfp4; 0: nvfp4 where weights are, else dtype */
  float nvfp4_scale RONDO_ZERO;        /* factor of all that is nvfp4; 0: 1 */
  int32_t tied_embedding RONDO_ZERO;   /* 1: the embedding is the head too */
  int32_t one_order RONDO_ZERO;        /* 1: a sequence's products have the same bits beside any others */
  int32_t sequences RONDO_ZERO;        /* 1 to 16; 0: 1 */
  int32_t tokens RONDO_ZERO;           /* prefill: 1 to 16; 0: decode */
  int32_t sequence RONDO_ZERO;         /* prefill: whose, below `sequences` */
  int32_t feed_back RONDO_ZERO;        /* 1: tokens and positions are states that the graph moves on itself */
  int32_t with_logits RONDO_ZERO;      /* 1: logits are an output too */
  int32_t with_sampling RONDO_ZERO;    /* 1: the next token is drawn, as rondo_add_sample does */
  int32_t penalized RONDO_ZERO;        /* ids of a row that rondo_add_penalty sees, up to 1024; 0: no penalties */
  /* NULL: constants and states are made here. Else they are those of this graph, whose description is the same but for
   * name, one_order, tokens, sequence, with_logits and with_sampling, and feed_back, which it has if this one has; its
   * exec is open first. Anything else is RONDO_INVALID_ARGUMENT. Read during the call only. */
  const struct rondo_graph_llama_tensors *lender RONDO_ZERO;
} rondo_graph_llama_desc;

/* Constants, and two states. Weights in e4m3 have scales f32 [rows], in nvfp4 e4m3 [rows, columns / 16]. */
typedef struct rondo_llama_layer {
  rondo_tensor attention_norm;          /* [hidden], as all norms in `dtype` */
  rondo_tensor qkv, qkv_scales;         /* [(query_heads + 2 kv_heads) head_dimension, hidden]: q, k, v */
  rondo_tensor output, output_scales;   /* [hidden, query_heads head_dimension] */
  rondo_tensor feed_forward_norm;       /* [hidden] */
  rondo_tensor gate_up, gate_up_scales; /* [2 feed_forward, hidden]: row 2i is gate's i, row 2i + 1 is up's */
  rondo_tensor down, down_scales;       /* [hidden, feed_forward] */
  rondo_tensor k, v;                    /* states [sequences, context + 15, kv_heads, head_dimension]: KV caches */
} rondo_llama_layer;

/* Those that the description does not need are all zero. n is `sequences` for decode and 1 for prefill. */
typedef struct rondo_graph_llama_tensors {
  rondo_tensor embedding, embedding_scales; /* constant [vocabulary, hidden] */
  rondo_tensor norm;                        /* constant [hidden] */
  rondo_tensor head, head_scales;           /* constant [vocabulary, hidden]; not with tied_embedding */
  rondo_tensor frequencies;                 /* constant f32 [head_dimension / 2], as rondo_rope_desc has them */
  /* Decode: input i32 [n], the tokens that are seen. With feed_back a state [sequences], of prefill too. */
  rondo_tensor token;
  /* i32 [n]: where the token, or a prefill's first one, stands: input, or with feed_back a state [sequences] */
  rondo_tensor position;
  rondo_tensor prompt;  /* prefill: input i32 [tokens] */
  rondo_tensor last;    /* prefill: input i32 [1]: the last row that counts */
  rondo_tensor advance; /* feed_back: input i32 [n], added to positions: 1, or of prefill last + 1 */
  /* with_sampling: inputs [n] as rondo_add_sample has them. A draw's `step` is the position of the row drawn from. */
  rondo_tensor temperature, top_k, top_p, seed;
  /* penalized: inputs i32 [n, penalized], and f32 [n] each. Logits that are an output are those with penalties. */
  rondo_tensor recent, repetition, frequency, presence;
  rondo_tensor next;              /* output i32 [n] */
  rondo_tensor logits;            /* output f32 [n, vocabulary] */
  rondo_llama_layer *layers;      /* set before the call: room for desc->layers, of no use after a failed one */
  int32_t layer_count, sequences; /* from here on: of the description, what who borrows must have too */
  int64_t context;
  rondo_rope_pairing rope_pairing;
  float rope_base, epsilon, nvfp4_scale;
} rondo_graph_llama_tensors;

/* Of the graph's limits it takes at most 5 tasks and, without scales, 8 to 10 tensors a layer, and some 30 besides. */
RONDO_API rondo_status rondo_graph_llama(rondo_graph *graph, const rondo_graph_llama_desc *desc,
                                         rondo_graph_llama_tensors *tensors);

#ifdef __cplusplus
}
#endif
#endif
