/* gemv_plan.h - which design multiplies, and how it deals rows and k to blocks and warps.
 *
 * gemv_choose.c has the family's one table. Its rows are asked in order; a row names the problems that it takes by
 * ranges, and its planner (gemv_*_plan.c) lays out the launch or refuses. Ranges and planners are pure functions of the
 * problem, so that bits never change. */
#pragma once

#include "../common/launch.h"
#include "../common/size_range.h"
#include "gemv_head.h"
#include "gemv_quads.h"
#include "gemv_ring.h"
#include "gemv_stream.h"

enum {
  GEMV_MOST_SHARED_BYTES = 227 << 10, /* of a block, with compute capability 9.0 and 10.0 */
  GEMV_SHARED_ALIGNMENT = 128,        /* of what asynchronous copies fill */
  GEMV_MOST_BATCH = 65535,            /* a grid's second dimension */
  GEMV_MOST_BLOCKS = INT32_MAX,
};

struct gemv_problem {
  rondo_dtype weights, vectors;
  int64_t batch, m, k, count;
  uint32_t chip; /* one of CHIP_SM_80, .. */
  int64_t multiprocessors;
  int64_t row_multiple; /* of a tile: the epilogue takes this many rows at a time */
  int64_t scale_bytes;  /* that a load of NVFP4's scales may take at once: 1, 2, .. 16 */
  bool blocked_scales;  /* 128 x 4 */
  bool wide_loads;      /* rows are multiples of 16 bytes, and aligned to them */
  bool dense_weights;   /* of NVFP4: rows have no gaps; each row of weights and of scales begins at 16 bytes */
  bool packed_weights;  /* rows, and NVFP4's scales, have no gaps; each matrix's begin at multiples of 16 bytes */
  bool norm;            /* vectors are normalised */
  bool finishing;       /* results get more than a factor: bias, silu, residual or NVFP4 */
  bool one_order;
};

/* Bytes of weights, in all matrices. */
int64_t gemv_weight_bytes(const struct gemv_problem *problem);

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

/* The type of operands in kernels that take all types; see GEMV_16_BITS too. */
#define GEMV_ANY_TYPE ((rondo_dtype)31)

/* Each design's list of kernels becomes a table whose entries begin so. */
struct gemv_kernel {
  struct op_kernel kernel;
  rondo_dtype weights, vectors;
};
/* All of the family's parameter structs begin with struct gemv_parameters, which has `done`. */
#define GEMV_KERNEL(chips, parameters, name, threads, weights, vectors)                                                \
  { {#name, sizeof(struct parameters), offsetof(struct gemv_parameters, done), chips, threads}, weights, vectors }

/* The kernel of a table of `count` entries of `bytes` that is for the problem's types and chip and whose name ends with
 * "_" and `ending`; or NULL. */
const void *gemv_kernel_for(const struct gemv_problem *problem, const char *ending, const void *table, size_t count,
                            size_t bytes);
#define GEMV_KERNEL_FOR(problem, ending, table)                                                                        \
  gemv_kernel_for(problem, ending, table, sizeof(table) / sizeof *(table), sizeof *(table))

/* A kernel of gemv_integer.cu (quads is 0) or gemv_quads.cuh. */
struct gemv_quads_kernel {
  struct gemv_kernel of;
  int64_t blocks; /* of as many threads as it may have, that a multiprocessor holds */
  int64_t quads, operands, rows, slices;
  bool half;
  enum gemv_cut cut;
  int64_t cluster; /* blocks that split k */
};

/* A kernel of gemv_ring.cu: see GEMV_RING_KERNELS. */
struct gemv_ring_kernel {
  struct gemv_kernel of;
  int64_t blocks; /* as above */
  int64_t most, rows, part, beyond;
};

/* A kernel of gemv_stream.cu: see GEMV_STREAM_KERNELS. */
struct gemv_stream_kernel {
  struct gemv_kernel of;
  int64_t operands, slices, stages, cluster;
};
/* Elements of k that a warp has at once. */
static inline int64_t gemv_stream_part(const struct gemv_stream_kernel *kernel) { return 128 * kernel->slices; }

/* A kernel of gemv_head.cu or gemv_head_16.cu: see gemv_head.h. */
struct gemv_head_kernel {
  struct gemv_kernel of;
  int64_t width; /* operands B */
};

/* What a kernel is told. A planner sets what follows the common parameters. */
union gemv_told {
  struct gemv_rows_parameters rows;
  struct gemv_head_parameters head;
  struct gemv_ring_parameters ring;
  struct gemv_stream_parameters stream;
};

struct gemv_plan {
  const struct op_kernel *kernel; /* NULL: none */
  int64_t blocks;                 /* of one matrix; a multiple of a cluster's */
  int64_t threads, shared_bytes;
  int64_t parts,
      groups;      /* warps of a block that split k, and that have rows of their own; see struct gemv_parameters */
  int64_t chunks;  /* how often they do so, one after the other, to come to the end of k */
  int64_t tiles;   /* of one matrix, or of a block of the ring */
  bool starts_one; /* see enum gemv_early */
  union {          /* the kernel in the design's own table */
    const struct gemv_quads_kernel *quads;
    const struct gemv_head_kernel *head;
    const struct gemv_ring_kernel *ring;
    const struct gemv_stream_kernel *stream;
  } of;
  union gemv_told told;
};

/* ---- Choices ---------------------------------------------------------------------------------------------------- */

/* What a problem may ask for beyond the plain case, as bits. */
enum gemv_demand {
  GEMV_WITH_NORM = 1,
  GEMV_WITH_EPILOGUE = 2,       /* finishing */
  GEMV_WITH_ONE_ORDER = 4,      /* all counts of vectors have one order of sums */
  GEMV_WITH_BLOCKED_SCALES = 8, /* of weights */
  GEMV_WITH_GAPS = 16,          /* weights are not packed */
  GEMV_WITH_LOOSE_ROWS = 32,    /* nor dense */
  GEMV_WITH_NARROW_ROWS = 64,   /* no loads of 16 bytes */
  GEMV_WITH_MANY_MATRICES = 128 /* more than GEMV_MOST_BATCH */
};

/* May refuse; `plan` is zero. */
typedef bool gemv_planner(const struct gemv_problem *problem, struct gemv_plan *plan);
gemv_planner gemv_head_plan, gemv_head_16_plan, gemv_ring_plan, gemv_stream_plan, gemv_integer_plan, gemv_quads_plan,
    gemv_scalar_plan;

/* Adds the launch; `parameters` has what all designs are told of the problem. */
typedef void gemv_launcher(const struct op_call *call, const struct gemv_plan *plan,
                           const struct gemv_parameters *parameters, struct op_launches *launches);
gemv_launcher gemv_launch, gemv_scalar_launch;

struct gemv_choice {
  const char *name;
  uint32_t chips;                    /* CHIP_SM_80, .. */
  uint32_t weights, vectors;         /* types, as bits 1 << rondo_dtype; 0: any */
  struct size_range count, k, bytes; /* bytes of all weights */
  int64_t k_multiple;                /* 0: any */
  uint32_t takes;                    /* demands that it can meet */
  gemv_planner *plan;
  gemv_launcher *launch;
  const char *why;
};

/* In the order in which they are asked. */
const struct gemv_choice *gemv_choices(size_t *count);
/* Does this row take the problem? The plan has no kernel otherwise. */
bool gemv_plan_by(const struct gemv_choice *choice, const struct gemv_problem *problem, struct gemv_plan *plan);
/* The first row that does: there is always one. */
const struct gemv_choice *gemv_choose(const struct gemv_problem *problem, struct gemv_plan *plan);
