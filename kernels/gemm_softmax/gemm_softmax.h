/* gemm_softmax.h - products whose rows are reduced in registers: the functions of both operations, and the portable
 * kernels with their parameters. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  GEMM_THREADS = 128,
  GEMM_SOFTMAX_ROWS = GEMM_THREADS / 32 * 16, /* of A in a block, 16 for each warp */
  GEMM_SOFTMAX_DEPTH = 64,                    /* of k in a stage of shared memory */
  GEMM_SOFTMAX_STAGES = 2,
  GEMM_SOFTMAX_PITCH =
      72, /* of a row in shared memory: 144 bytes spread the eight rows of an ldmatrix over all banks */
};

enum gemm_softmax_output { GEMM_SOFTMAX_F32, GEMM_SOFTMAX_F16, GEMM_SOFTMAX_BF16 };

/* rondo_gemm_softmax_64 and rondo_gemm_softmax_128. Strides are in elements. */
struct gemm_softmax_parameters {
  const void *a, *b;
  void *out; /* max, or p */
  int64_t a_batch_stride, a_row_stride, b_batch_stride, b_row_stride, out_batch_stride, out_row_stride;
  int64_t m, n, k;
  uint32_t row_tiles; /* of GEMM_SOFTMAX_ROWS in a matrix; the grid is row_tiles * batch */
  float scale;
  uint32_t is_softmax; /* else maxima */
  uint32_t is_bf16;    /* A and B are, else f16 */
  uint32_t causal;
  uint32_t vectors; /* rows of A and B begin at multiples of 16 bytes */
  uint32_t pairs;   /* rows of P begin at multiples of two elements */
  uint32_t output;  /* enum gemm_softmax_output, of P */
  struct completion done;
};

/* Shared memory of a block that makes `columns` of S at a time: the stages of A, then those of B. */
#define GEMM_SOFTMAX_SHARED_BYTES(columns)                                                                             \
  (2 * GEMM_SOFTMAX_STAGES * (GEMM_SOFTMAX_ROWS + (columns)) * GEMM_SOFTMAX_PITCH)

/* KERNEL(chips, parameters, name, threads, columns, blocks that a multiprocessor must hold at least: without the last
 * ptxas spills for more of them) */
#define GEMM_SOFTMAX_KERNELS(KERNEL)                                                                                   \
  KERNEL(EVERY_CHIP, gemm_softmax_parameters, rondo_gemm_softmax_64, GEMM_THREADS, 64, 4)                              \
  KERNEL(EVERY_CHIP, gemm_softmax_parameters, rondo_gemm_softmax_128, GEMM_THREADS, 128, 3)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_gemm_rowmax;
extern const struct op op_gemm_softmax;

enum { GEMM_A, GEMM_B, GEMM_OUT }; /* operands of both operations; the last is max or p */

struct gemm_softmax_attributes {
  float scale; /* 0: 1 */
  int32_t causal;
};

/* Sizes and strides of a task of either operation, with a batch of one where the batch dimension is left out. */
struct gemm_softmax_shape {
  int64_t batch, m, n, k;
  int64_t a_batch_stride, a_row_stride, b_batch_stride, b_row_stride, out_batch_stride, out_row_stride;
  float scale;
  bool causal;
};
struct gemm_softmax_shape gemm_softmax_shape_of(const struct op_task *task);

rondo_status gemm_rowmax_check(const struct op_task *task);
OP_FUNCTIONS(gemm_softmax);
void gemm_rowmax_host_run(const struct op_call *call, int64_t first, int64_t last);
#endif
