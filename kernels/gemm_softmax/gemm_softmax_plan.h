/* gemm_softmax_plan.h - which kernel of sm_90a makes a product whose rows are reduced, and how rows are dealt to
 * clusters. */
#ifndef RONDO_GEMM_SOFTMAX_PLAN_H
#define RONDO_GEMM_SOFTMAX_PLAN_H

#include "gemm_softmax_wgmma.h"

struct gemm_softmax_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  bool is_softmax;
  int64_t cluster; /* blocks that share rows */
  bool held;       /* each makes two blocks of columns at once, the first held in 16 bits */
  int64_t steps;   /* teams: of WGMMA_DEPTH in k; else 0, any */
};

struct gemm_softmax_problem {
  rondo_dtype dtype;
  bool is_softmax;
  bool is_exact; /* results have more than 16 bits */
  bool is_dealt; /* teams can take it: all columns count, in groups of TEAM_GROUP, that a map of B has */
  int64_t batch, m, n, k;
  int64_t multiprocessors;
};

struct gemm_softmax_plan {
  const struct gemm_softmax_variant *variant; /* NULL: the portable kernels */
  bool resident;                              /* B stays in shared memory; else streamed */
  int64_t steps, tiles;                       /* see gemm_softmax_wgmma_parameters */
  int64_t clusters;                           /* resident: of a matrix; streamed: of all */
  int64_t column_blocks;                      /* streamed */
  int64_t a_box_rows, b_box_rows, p_box_rows;
  int64_t grid, shared_bytes;
};

/* Pure. Whether tensor maps can be made is the caller's question. */
struct gemm_softmax_plan gemm_softmax_plan_of(const struct gemm_softmax_problem *problem);

#endif
