/* gemm_choose.h - the table of the kernels of products of many rows (gemm_choose.c), and their planners.
 *
 * A choice says by ranges which sizes its kernel takes. Its planner, a pure function of problem and choice, fills a
 * plan with an estimate of cycles, or refuses; its launch makes the launch of a plan. */
#pragma once

#include "../common/size_range.h"
#include "gemm_portable.h"
#include "gemm_slices.h"

struct gemm_problem {
  bool has_maps;  /* of sm_90a: X and W have tensor maps, and what is added or stored moves in pairs */
  bool has_codes; /* W is in NVFP4 */
  bool is_e4m3;   /* X and W are */
  bool one_order; /* bits must not depend on the number of rows */
  bool one_type; /* out and residual have the type of X and W and move by boxes; no bias, no silu_mul with a residual */
  bool silu_mul, has_residual;
  bool row_factors, streamed;      /* see gemm_wgmma_parameters */
  bool has_norms;                  /* an RMS norm begins or ends in the task */
  int64_t batch, rows, columns, k; /* rows of X, columns of out: rows of W */
  int64_t most_parts;              /* of k, in portable kernels */
  int64_t multiprocessors, shared_bytes;
};

struct gemm_plan {
  double cycles;                          /* an estimate, 0 for gemv's kernels */
  int64_t p_units, q_units, units, group; /* tiles that a cluster has at a time: of a matrix along P and along Q, of all
                                           * matrices; and those along P that are taken for all of Q before the next */
  int64_t row_tiles, column_tiles, parts; /* see gemm_portable_parameters */
  int64_t grid, shared_bytes;
  int groups; /* see gemm_slices_parameters */
};

/* A kernel with its tile: of sm_90a, portable (blocks > 0), or of slices (parts > 0). */
struct gemm_kernel {
  struct op_kernel kernel;
  struct gemm_tile tile;
  int stages;
  enum gemm_types types;
  struct gemm_portable_tile portable;
  int blocks; /* that a multiprocessor holds, if it has shared memory for them */
  int parts;  /* of k, in a cluster */
};

struct gemm_choice {
  const char *name, *why;
  const struct gemm_kernel *kernel; /* NULL: gemv chooses */
  bool needs_maps;
  bool has_order_of_its_own; /* of sums: not for one_order */
  struct size_range rows, k;
  bool (*plan)(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan);
  rondo_status (*launch)(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                         const struct gemm_plan *plan, struct op_launches *launches);
};

/* In the order in which they are preferred. */
const struct gemm_choice *gemm_choices(size_t *count);
/* Of the choices that take the problem and need at most 3% more cycles than the least, the first; with its plan. NULL
 * if there is none. */
const struct gemm_choice *gemm_choose(const struct gemm_problem *problem, struct gemm_plan *plan);

/* gemm_plan.c */
bool gemm_few_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan);
bool gemm_wgmma_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan);
bool gemm_slices_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan);
bool gemm_portable_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan);

/* gemm_launch.c */
struct gemm_divisor gemm_divisor_of(int64_t by); /* from 1 to 2^31 - 1 */
struct gemm_problem gemm_problem_of(const struct op_call *call, const struct chip *chip);
rondo_status gemm_few_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                             const struct gemm_plan *plan, struct op_launches *launches);
rondo_status gemm_wgmma_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                               const struct gemm_plan *plan, struct op_launches *launches);
rondo_status gemm_slices_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                                const struct gemm_plan *plan, struct op_launches *launches);
rondo_status gemm_portable_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                                  const struct gemm_plan *plan, struct op_launches *launches);
