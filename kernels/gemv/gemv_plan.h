/* gemv_plan.h - which kernel multiplies, and how rows and k are dealt to blocks and warps: split-K. */
#ifndef RONDO_GEMV_PLAN_H
#define RONDO_GEMV_PLAN_H

#include "gemv.h"

/* A kernel of gemv_integer.cu (quads is 0) or gemv_quads.cuh. */
struct gemv_variant {
  struct op_kernel kernel;
  int64_t blocks; /* of as many threads as it may have, that a multiprocessor holds */
  rondo_dtype weights, vectors;
  int64_t quads, operands, rows, slices;
  bool half;
  enum gemv_cut cut;
  int64_t cluster; /* blocks that split k */
};

struct gemv_problem {
  rondo_dtype weights, vectors;
  int64_t batch, m, k, count;
  uint32_t chip; /* one of CHIP_SM_80, .. */
  int64_t multiprocessors;
  int64_t row_multiple; /* of a tile: what finishing takes at a time */
  int64_t scale_bytes;  /* that a load of NVFP4's scales may take at once: 1, 2, .. 16 */
  bool blocked_scales;  /* 128 x 4 */
  bool wide_loads;      /* rows are multiples of 16 bytes, and aligned to them */
  bool dense_weights;   /* of NVFP4: so are rows of scales by row, and rows of a matrix have no gaps */
  bool packed_weights;  /* rows, and NVFP4's scales, have no gaps, and each matrix's begin at multiples of 16 bytes */
  bool norm;            /* vectors are normalised */
  bool finishing;       /* anything but a factor is done to the results */
  bool one_order;
};

struct gemv_plan {
  const struct gemv_variant *variant; /* NULL: the kernel for everything */
  int64_t parts, groups;              /* warps of a block that split k, and that have rows of their own */
  int64_t chunks;                     /* how often they do so, one after the other, to come to the end of k */
  int64_t tiles, blocks;              /* of one matrix; blocks are a multiple of a cluster's */
  int64_t shared_bytes;
  bool starts_one; /* see gemv_early */
};

/* Pure: from the problem alone, so that bits never change. Of the count of vectors only the class counts (1, 2 to 4, 5
 * to 8, 9 to 16); with one_order k is cut by k, the types and row_multiple alone. */
struct gemv_plan gemv_plan_of(const struct gemv_problem *problem);

/* A kernel of gemv_ring.cu: see GEMV_RING_KERNELS. */
struct gemv_ring_variant {
  struct op_kernel kernel;
  int64_t blocks; /* as above */
  rondo_dtype vectors;
  int64_t most, rows, part, behind;
};

/* See gemv_parameters. */
struct gemv_ring_plan {
  const struct gemv_ring_variant *variant; /* NULL: it is not right */
  int64_t parts, groups, tiles, block_rows, group_rows;
  int64_t stages, stage_bytes, first_stage;
  int64_t window_tiles, window_pitch, held_pitch;
  int64_t blocks; /* of one matrix */
  int64_t threads, shared_bytes;
};

/* Is asked third, and pure as well. Whether it is right depends on the matrices' bytes and the GPU too, so that with
 * it the cut of k does; k is cut by k, the types and the class of the count: 1, 2, 3 to 4. Never with one_order. */
struct gemv_ring_plan gemv_ring_plan_of(const struct gemv_problem *problem);

/* A kernel of gemv_short.cu: see GEMV_SHORT_KERNELS. */
struct gemv_short_variant {
  struct op_kernel kernel;
  rondo_dtype vectors;
  int64_t blocks; /* of 16 elements, that a lane has of a row */
};

/* See gemv_parameters. */
struct gemv_short_plan {
  const struct gemv_short_variant *variant; /* NULL: it is not right */
  int64_t groups;                           /* of eight rows, that a block has */
  int64_t blocks;                           /* of one matrix */
  int64_t shared_bytes;
};

/* Is asked first, and pure as well. Whether it is right depends on the rows and the GPU too; the order of a
 * row's sums then on k and the vector's type alone. Never with one_order. */
struct gemv_short_plan gemv_short_plan_of(const struct gemv_problem *problem);

/* A kernel of gemv_rows.cu: see GEMV_ROWS_KERNELS. */
struct gemv_rows_variant {
  struct op_kernel kernel;
  rondo_dtype weights, vectors;
  int64_t operands;
};

/* See gemv_parameters. */
struct gemv_rows_plan {
  const struct gemv_rows_variant *variant; /* NULL: it is not right */
  int64_t block_rows, blocks;              /* of one matrix */
  int64_t warps, slot_bytes, first_stage;
  int64_t row_loads; /* of 16 bytes */
  int64_t shared_bytes;
};

/* Is asked second, and pure as well. Whether it is right depends on the rows, the GPU and whether there is one vector
 * or more than eight too; k is not cut, so that the order of a row's sums depends on k alone. Never with one_order. */
struct gemv_rows_plan gemv_rows_plan_of(const struct gemv_problem *problem);

/* A kernel of gemv_tall.cu: see GEMV_TALL_KERNELS. */
struct gemv_tall_variant {
  struct op_kernel kernel;
  rondo_dtype dtype; /* of weights and vectors */
  int64_t operands;
};

/* See gemv_parameters. */
struct gemv_tall_plan {
  const struct gemv_tall_variant *variant; /* NULL: it is not right */
  int64_t tiles, blocks;                   /* of one matrix */
  int64_t slots, first_slots;              /* of a block; those that are asked for before the vectors */
  int64_t slot_bytes, first_stage;
  int64_t shared_bytes;
};

/* Pure as well, and of 16-bit weights alone, of the others only gemv_plan_of takes these: so it is asked fifth.
 * Whether it is right depends on the rows and the GPU too; k is not cut, so that the order of a row's sums depends on k
 * alone. Never with one_order. */
struct gemv_tall_plan gemv_tall_plan_of(const struct gemv_problem *problem);

/* A kernel of gemv_stream.cuh: see GEMV_STREAM_KERNELS. */
struct gemv_stream_variant {
  struct op_kernel kernel;
  rondo_dtype vectors;
  int64_t operands, slices, stages, cluster;
  bool in_bf16; /* what the tensor cores are given */
};

/* Elements of k that a warp has at once. */
static inline int64_t gemv_stream_part(const struct gemv_stream_variant *variant) { return 128 * variant->slices; }

/* See gemv_parameters. */
struct gemv_stream_plan {
  const struct gemv_stream_variant *variant; /* NULL: it is not right */
  int64_t parts, groups, chunks, tiles;
  int64_t blocks; /* of one matrix; a multiple of a cluster's */
  int64_t threads, first_stage, shared_bytes;
};

/* Is asked fourth, and pure as well. Whether it is right depends on the matrices' bytes too, so that with it the cut of
 * k does; k is cut by k, the types, row_multiple, finishing and the class of the count: 2 to 8, 9 to 16. Never with
 * one_order. */
struct gemv_stream_plan gemv_stream_plan_of(const struct gemv_problem *problem);

#endif
