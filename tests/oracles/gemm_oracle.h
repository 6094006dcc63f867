/* gemm_oracle.h - products of the operation gemm: a problem becomes operands and one task of a graph, and its result is
 * checked against sums in fp64. Operands may be views of larger tensors (frame.h). */
#pragma once

#include "frame.h"

struct gemm_problem_case {
  rondo_dtype dtype, out_dtype; /* of weights and vectors; of out */
  bool packed;                  /* weights are nvfp4 */
  bool scaled;                  /* e4m3: rows of weights and of vectors have scales */
  bool blocked;                 /* their scales are RONDO_SCALES_128X4 */
  int64_t batch;                /* 0: no batch dimension */
  int64_t rows, columns, k;
  float scale;
  int32_t one_order;
  rondo_dtype bias_dtype, residual_dtype; /* 0: none */
  bool bias_for_all;                      /* matrices of a batch */
  bool in_place;                          /* the residual is out itself */
  bool silu_mul;                          /* columns is that of weights; out has half as many */
  bool normed;                            /* a second result, normed, and its squares */
  float epsilon;                          /* above 0: rows have factors by squares of the vectors, any numbers */
  bool positive;                          /* no numbers cancel: errors of sums add up */
  int64_t room, unit;                     /* of frame_add; unit 0: 1 */
};

struct gemm_trial {
  struct gemm_problem_case of;
  struct frame weights, scales, vectors, out, bias, residual;
  struct frame norm, normed, squares, vector_squares;
  struct frame vector_scales;
};

/* Adds the operands and the task to the trial's graph, and fills the operands. */
void gemm_trial_add(struct gemm_trial *t, struct trial *trial, const struct gemm_problem_case *of,
                    struct random *random);

/* Uploads all operands. Out is NaN, or the residual. */
void gemm_trial_set(struct gemm_trial *t, struct trial *trial);

/* Fetches out and checks it: all results, or of many results a sample with the edges of all matrices. */
void gemm_trial_check(struct gemm_trial *t, struct trial *trial);

/* A graph of one problem, ready to replay. */
void gemm_trial_begin(struct gemm_trial *t, struct trial *trial, rondo_backend backend,
                      const struct gemm_problem_case *of);

/* Uploads, replays, and returns out. */
struct frame gemm_trial_replayed(struct gemm_trial *t, struct trial *trial);

void gemm_trial_end(struct gemm_trial *t);

/* The first rows have the same bits in any of these numbers of rows, the largest first. The host has an eighth. */
void gemm_rows_check(rondo_backend backend, struct gemm_problem_case of, const int64_t *counts, size_t count);

/* The index of the scale of a row of nvfp4 weights and a block of 16 in their state. */
int64_t gemm_trial_scale(const struct gemm_trial *t, int64_t batch, int64_t column, int64_t block);

/* The index of a result in the view of out. */
int64_t gemm_trial_result(const struct gemm_trial *t, int64_t batch, int64_t row, int64_t column);

/* Describes all problems in one graph, replays it once and checks the results. */
void gemm_problems_check(rondo_backend backend, const struct gemm_problem_case *problems, size_t count);

/* Sizes for which the library chooses each of its sm_90a kernels on a GPU of 132 multiprocessors, and the kernel. */
struct gemm_size {
  int64_t rows, columns, k;
  const char *choice;
};
extern const struct gemm_size gemm_sizes[], gemm_packed_sizes[]; /* packed: with weights in nvfp4 */
extern const size_t gemm_size_count, gemm_packed_size_count;

/* Rows or columns of a test on this backend: the host needs fewer than tiles have. */
int64_t gemm_fewer(rondo_backend backend, int64_t count);
