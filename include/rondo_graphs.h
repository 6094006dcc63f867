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
 *   panel_width  columns of a panel; 0 lets Rondo choose,
 * including whether there are panels at all */
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

#ifdef __cplusplus
}
#endif
#endif
