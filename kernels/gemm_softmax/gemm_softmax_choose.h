/* gemm_softmax_choose.h - the table of the kernels of products whose rows are reduced (gemm_softmax_choose.c).
 *
 * A choice says by ranges which sizes its design takes. Its planner, a pure function of the problem, fills a plan or
 * refuses; its launch makes the launch of a plan. */
#pragma once

#include "../common/size_range.h"
#include "gemm_softmax_wgmma.h"

struct gemm_softmax_problem {
  bool is_softmax;
  bool is_exact; /* results have more than 16 bits */
  bool has_maps; /* of sm_90a: tensor maps of all operands can be made */
  bool is_dealt; /* all columns count, in groups of STAGGERED_GROUP, and a map of B has the groups */
  int64_t batch, m, n, k;
  int64_t multiprocessors, shared_bytes;
};

struct gemm_softmax_plan {
  const struct op_kernel *kernel;
  int64_t steps, tiles;  /* see gemm_softmax_wgmma_parameters */
  int64_t row_blocks;    /* neighbours in a cluster that share rows */
  int64_t groups;        /* of such blocks; staggered, resident: of a matrix; streamed: of all */
  int64_t column_blocks; /* streamed */
  int64_t a_box_rows, b_box_rows, p_box_rows;
  int64_t grid, shared_bytes;
};

struct gemm_softmax_choice {
  const char *name, *why;
  bool needs_maps, needs_deal; /* has_maps; is_dealt, and a softmax in 16 bits */
  struct size_range n, k;
  bool (*plan)(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan);
  void (*launch)(const struct op_call *call, const struct gemm_softmax_plan *plan, struct op_launches *launches);
};

/* In the order in which they are tried. */
const struct gemm_softmax_choice *gemm_softmax_choices(size_t *count);
/* The first choice that takes the problem, and its plan; NULL: none does. */
const struct gemm_softmax_choice *gemm_softmax_choose(const struct gemm_softmax_problem *problem,
                                                      struct gemm_softmax_plan *plan);
