/* gemm.h - products of a matrix with 1 to 65,536 vectors, out = scale X W^T + bias + residual: the operation, and what
 * host code tells kernels. Operands and attributes are those of gemv (gemv.h). X are the vectors, a row each. */
#pragma once

#include "../common/tensor_map.h"
#include "../gemv/gemv.h"

enum {
  GEMM_MOST_ROWS = 65536, /* of X */
  GEMM_DEPTH = 64,        /* of k in a step of the sm_90a kernels: 128 bytes of a row in 16 bits */
  GEMM_E4M3_DEPTH = 128,  /* and in e4m3 */
  GEMM_GROUP = 64,        /* columns of out that have a sum of squares for each row */
};

/* What becomes of the sums. Strides are in elements. */
struct gemm_finish {
  void *out;
  const void *bias, *residual; /* NULL: none */
  int64_t out_batch, out_row, bias_batch, residual_batch, residual_row;
  uint32_t out_dtype, bias_dtype, residual_dtype; /* rondo_dtype */
  uint32_t silu_mul;                              /* rows 2i and 2i + 1 of W are gate and up of column i */
  float scale;
};

/* An RMS norm between two products. The first one also writes normed = out * norm, and sums of squares of out. The
 * second one takes normed as its X, and multiplies row i of its results by the factor 1/sqrt(mean + epsilon) of row i.
 * Squares are [batch, groups, rows]. Strides are in elements. */
struct gemm_norms {
  const float *vector_squares; /* of X; NULL: rows have no factors */
  int64_t vector_squares_batch, vector_squares_group;
  uint32_t vector_groups, in_fours;  /* 1: four rows of squares begin at multiples of 16 bytes */
  float mean_factor, epsilon, scale; /* 1 / k; the factors are scale/sqrt(..) */
  const void *norm;                  /* of X's type; NULL: no second result */
  void *normed;
  float *squares;
  int64_t normed_batch, normed_row, squares_batch, squares_group;
};

/* ---- sm_90a ------------------------------------------------------------------------------------------------------ */

/* For n below 2^31, n / by is (2 n factor >> 32) >> shift. A division by `by` itself is 20 instructions, and a block
 * waits for each when it starts. */
struct gemm_divisor {
  uint32_t by, factor, shift;
};

/* The kernels of gemm_wgmma_*.cu. P is the operand whose rows are rows of wgmma, Q the other one: P is X and Q is W, or
 * the other way round. */
struct gemm_wgmma_parameters {
  struct tensor_map p, q, out, residual, normed;
  /* Units are tiles that a cluster has at a time. A group has some units along P, each for all of Q, and is walked
   * before the next group: `along` of them in each of the first `groups` groups, `last_along` in a last one that has
   * fewer. of_matrix and of_group count all units of a matrix and of a group. */
  struct gemm_divisor of_matrix, of_group, along, last_along;
  uint32_t groups;
  uint32_t least, more;   /* units of each cluster, and how many clusters have one more */
  uint32_t steps;         /* of GEMM_DEPTH in k */
  uint32_t rows, columns; /* of a matrix of out: of X and of W */
  uint32_t is_bf16;       /* X and W are, else f16 */
  uint32_t weights_early; /* no task writes W: it is copied before the predecessors end */
  uint32_t by_map;        /* results leave as boxes by the map of out. Otherwise threads store them */
  uint32_t in_fours;      /* silu_mul: threads store four numbers of 16 bits at a time */
  uint32_t finishing;     /* 0: no scale, bias or residual */
  uint32_t fetched;       /* columns of a box of the residual, which is fetched into L2 with a tile; 0: it is not */
  uint32_t boxed;         /* the boxes of the residual come through the stages, after the last k of a tile */
  uint32_t row_factors;   /* 1: rows have factors, by norms.vector_squares */
  uint32_t streamed;      /* out and residual are f32 and boxed, and there is a second result */
  uint32_t scale_batch;   /* W in NVFP4: bytes from the scales of a matrix to the next */
  uint32_t scale_copies;  /* gemm_scale_copies */
  struct gemv_scale_strides scale_strides;
  const unsigned char *scales;
  struct gemm_finish finish;
  struct completion done;
  struct gemm_norms norms; /* here and below: other tasks do not read these lines */
  /* X and W in e4m3: factors of rows of X and of W, or NULL; elements from those of a matrix to the next. */
  const float *row_scales, *column_scales;
  int64_t row_scales_batch, column_scales_batch;
};

/* KERNEL(chips, parameters, name, threads, tile, stages, types)
 * `tile` is a struct gemm_tile: (rows of P that a warpgroup has, warpgroups, they take turns, rows of Q, tiles of
 * a cluster along P, along Q, parts of k, W is P, slots for W in NVFP4). Warpgroups share a tile, unless they take
 * turns at tiles (1), or at the steps of a tile (2), which are GEMM_DEPTH of k each.
 *
 * `types` is an enum gemm_types. */
#define GEMM_TILE_128x256       (64, 2, 0, 256, 2, 1, 1, 0, 0)
#define GEMM_TILE_128x192       (64, 2, 0, 192, 2, 1, 1, 0, 0)
#define GEMM_TILE_128x192_turns (128, 2, 1, 192, 2, 1, 1, 0, 0)
#define GEMM_TILE_128x128_turns (128, 2, 1, 128, 2, 1, 1, 0, 0)
#define GEMM_TILE_128x128       (64, 2, 0, 128, 1, 1, 1, 0, 0)
#define GEMM_TILE_128x96        (64, 2, 0, 96, 2, 1, 1, 0, 0)
#define GEMM_TILE_64x128_turns  (64, 2, 1, 128, 2, 1, 1, 0, 0)
#define GEMM_TILE_64x96_turns   (64, 2, 1, 96, 2, 1, 1, 0, 0)
#define GEMM_TILE_64x64_pair    (64, 1, 0, 64, 1, 2, 1, 1, 0)
#define GEMM_TILE_64x64         (64, 1, 0, 64, 1, 1, 1, 1, 0)
#define GEMM_TILE_64x128        (64, 2, 0, 64, 1, 1, 1, 1, 0)
#define GEMM_TILE_64x64_parts   (64, 1, 0, 64, 1, 1, 2, 1, 0)
#define GEMM_TILE_32x64_parts   (64, 1, 0, 32, 1, 1, 2, 1, 0)

#define GEMM_TILE_e4m3_128x128 (64, 2, 0, 128, 2, 1, 1, 0, 0)

/* W in NVFP4: rows of X x rows of W. */
#define GEMM_TILE_nvfp4_256x128      (64, 2, 0, 256, 2, 1, 1, 1, 3)
#define GEMM_TILE_nvfp4_128x128      (64, 2, 0, 128, 2, 1, 1, 1, 4)
#define GEMM_TILE_nvfp4_64x128       (64, 2, 0, 64, 1, 1, 1, 1, 4)
#define GEMM_TILE_nvfp4_64x64_parts  (64, 2, 2, 64, 1, 1, 2, 1, 6)
#define GEMM_TILE_nvfp4_64x64_three  (64, 2, 2, 64, 1, 1, 3, 1, 6)
#define GEMM_TILE_nvfp4_128x64_parts (64, 2, 2, 128, 1, 1, 2, 1, 5)

#define GEMM_ONE_TYPE_KERNEL(KERNEL, tile, threads, stages)                                                            \
  KERNEL(CHIP_SM_90A, gemm_wgmma_parameters, rondo_gemm_##tile, threads, GEMM_TILE_##tile, stages, GEMM_ONE_TYPE)
#define GEMM_ANY_KERNEL(KERNEL, tile, threads, stages)                                                                 \
  KERNEL(CHIP_SM_90A, gemm_wgmma_parameters, rondo_gemm_##tile##_any, threads, GEMM_TILE_##tile, stages, GEMM_ANY_TYPES)
#define GEMM_WGMMA_LARGE_KERNELS(KERNEL)                                                                               \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 128x256, 384, 4)                                                                        \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 128x192, 384, 5)                                                                        \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 128x192_turns, 384, 5)
#define GEMM_WGMMA_MIDDLE_KERNELS(KERNEL)                                                                              \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 128x128, 384, 6)                                                                        \
  GEMM_ANY_KERNEL(KERNEL, 128x128_turns, 384, 6)                                                                       \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 128x96, 384, 7)
#define GEMM_WGMMA_SMALL_KERNELS(KERNEL)                                                                               \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x128_turns, 384, 8)                                                                   \
  GEMM_ANY_KERNEL(KERNEL, 64x128_turns, 384, 8)                                                                        \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x96_turns, 384, 10)
#define GEMM_WGMMA_FEW_ROWS_KERNELS(KERNEL)                                                                            \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x64_pair, 256, 13)                                                                    \
  GEMM_ANY_KERNEL(KERNEL, 64x64_pair, 256, 13)                                                                         \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x64, 256, 13)                                                                         \
  GEMM_ANY_KERNEL(KERNEL, 64x64, 256, 13)                                                                              \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x128, 384, 8)                                                                         \
  GEMM_ONE_TYPE_KERNEL(KERNEL, 64x64_parts, 256, 13)                                                                   \
  GEMM_ANY_KERNEL(KERNEL, 32x64_parts, 256, 16)
#define GEMM_E4M3_KERNELS(KERNEL)                                                                                      \
  KERNEL(CHIP_SM_90A, gemm_wgmma_parameters, rondo_gemm_e4m3_128x128, 384, GEMM_TILE_e4m3_128x128, 6, GEMM_E4M3)
#define GEMM_NVFP4_KERNEL(KERNEL, tile, threads, stages)                                                               \
  KERNEL(CHIP_SM_90A, gemm_wgmma_parameters, rondo_gemm_##tile, threads, GEMM_TILE_##tile, stages, GEMM_ANY_TYPES)
#define GEMM_NVFP4_KERNELS(KERNEL)                                                                                     \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_256x128, 384, 4)                                                                     \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_128x128, 384, 3)                                                                     \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_64x128, 384, 6)                                                                      \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_64x64_parts, 384, 3)                                                                 \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_64x64_three, 384, 3)                                                                 \
  GEMM_NVFP4_KERNEL(KERNEL, nvfp4_128x64_parts, 384, 3)
#define GEMM_WGMMA_KERNELS(KERNEL)                                                                                     \
  GEMM_WGMMA_LARGE_KERNELS(KERNEL)                                                                                     \
  GEMM_WGMMA_MIDDLE_KERNELS(KERNEL)                                                                                    \
  GEMM_WGMMA_SMALL_KERNELS(KERNEL)                                                                                     \
  GEMM_WGMMA_FEW_ROWS_KERNELS(KERNEL)                                                                                  \
  GEMM_NVFP4_KERNELS(KERNEL)                                                                                           \
  GEMM_E4M3_KERNELS(KERNEL)

enum {
  GEMM_P_PANEL_BYTES = 64 * 128,   /* 64 rows of a stage */
  GEMM_STAGING_BYTES = 64 * 128,   /* of a warpgroup's buffer for results on their way out */
  GEMM_SLOT_STEPS = 4,             /* of GEMM_DEPTH, for which a slot has W in NVFP4 */
  GEMM_CODE_BYTES = 128,           /* of a row in a slot */
  GEMM_SCALERS = 64,               /* threads that decode scales */
  GEMM_MOST_SHARED_BYTES = 232448, /* of a block of sm_90 */
};

/* What a kernel's code is for. With one type it has less code, and so starts sooner where other kernels ran before: out
 * and residual have the type of X and W and could move by boxes, and there is no bias. */
enum gemm_types {
  GEMM_ONE_TYPE,
  GEMM_ANY_TYPES, /* of out, bias and residual */
  GEMM_E4M3       /* X and W; any of the others */
};

/* How scales of NVFP4 are copied, so that neighbours in memory are copied by neighbours. */
enum gemm_scale_copies {
  GEMM_SCALES_BY_ROW,     /* words of four scales; the next one of a row is its neighbour */
  GEMM_SCALES_IN_SIXTEEN, /* the same, and rows begin at multiples of 16 bytes */
  GEMM_SCALES_BLOCKED,    /* words; the next one of a column, of the row 32 further, is its neighbour */
};

/* What a kernel's tile and stages mean; for C and CUDA. */
struct gemm_tile {
  int rows, warpgroups; /* rows: of P that a warpgroup has */
  int turns;            /* 1: warpgroups take turns at tiles; 2: at a tile's steps; 0: they share a tile */
  int columns;          /* rows of Q */
  int along_p, along_q, parts;
  int swapped; /* W is P */
  int slots;   /* for W in NVFP4, of 256 of k; 0: W is in 16 bits */
};
#ifdef __CUDACC__
#define GEMM_CONSTANT constexpr __host__ __device__
#else
#define GEMM_CONSTANT static inline
#endif
GEMM_CONSTANT int gemm_tile_p(struct gemm_tile t) { return t.turns ? t.rows : t.rows * t.warpgroups; }
GEMM_CONSTANT int gemm_tile_cluster(struct gemm_tile t) { return t.along_p * t.along_q * t.parts; }
/* Columns of results that a block stores after the parts have met. Of three parts the third stores none. */
GEMM_CONSTANT int gemm_tile_stored(struct gemm_tile t) { return t.parts > 1 ? t.columns / 2 : t.columns; }
/* Boxes of X in a stage, of a step each. With W in NVFP4 a warpgroup that finds a stage full multiplies two steps, if
 * there is room. */
GEMM_CONSTANT int gemm_tile_boxes(struct gemm_tile t) {
  return !t.slots || t.columns > 128 ? 1 : t.turns == 2 && t.columns == 64 ? 4 : 2;
}
/* W in NVFP4 has no place in the stages. */
GEMM_CONSTANT int gemm_stage_bytes(struct gemm_tile t) {
  return ((t.slots ? 0 : gemm_tile_p(t)) + t.columns) * 128 * gemm_tile_boxes(t);
}
GEMM_CONSTANT int gemm_slot_bytes(struct gemm_tile t) { return gemm_tile_p(t) * GEMM_CODE_BYTES; }
/* Of scales, for each row of a stage: a word, and four numbers of 16 bits. */
GEMM_CONSTANT int gemm_scale_bytes(struct gemm_tile t) { return t.slots * GEMM_SLOT_STEPS * gemm_tile_p(t) * (4 + 8); }
/* The sums leave a warpgroup few registers, too few for a residual. */
GEMM_CONSTANT int gemm_tile_is_wide(struct gemm_tile t) { return t.rows * t.columns > 64 * 256; }
/* With silu_mul: do results leave as boxes? Of how many columns? If W is P, a warpgroup has 32. */
GEMM_CONSTANT int gemm_tile_gates_by_box(struct gemm_tile t) { return !t.swapped && t.columns >= (t.turns ? 128 : 96); }
GEMM_CONSTANT int gemm_tile_gated_columns(struct gemm_tile t) {
  return t.swapped ? 32 : t.columns < 128 ? t.columns / 2 : 64;
}
/* Does it write out in f32, the residual stream, with a second result? */
GEMM_CONSTANT int gemm_tile_streams(struct gemm_tile t) {
  return t.rows == 64 && (t.swapped || t.columns % GEMM_GROUP == 0) && !(t.slots && t.columns > 128);
}
/* Of X. */
GEMM_CONSTANT int gemm_tile_x(struct gemm_tile t) { return t.swapped ? t.columns : gemm_tile_p(t); }
/* The rows that a tile has more than X, where a block copies X for itself. They are not copied, since rows past the
 * last would slow a copy down: their places keep what was there, and their results are not stored. */
GEMM_CONSTANT int gemm_x_missing(struct gemm_tile t, int64_t rows) {
  const int whole = gemm_tile_x(t), sharers = t.swapped ? t.along_p : t.along_q;
  return sharers == 1 && rows < whole ? whole - (int)rows : 0;
}
/* Factors of the rows of two tiles; and, if W is P, what each warp has of each row's squares. */
GEMM_CONSTANT int gemm_row_bytes(struct gemm_tile t) {
  return 2 * 4 * gemm_tile_x(t) + (t.swapped ? 4 * 4 * t.warpgroups * gemm_tile_stored(t) : 0);
}
/* Barriers: full and empty for each stage and slot; and for each of two warpgroups one for parts. */
GEMM_CONSTANT int gemm_barrier_bytes(struct gemm_tile t, int stages) { return 8 * (2 * stages + 2 + 2 * t.slots); }
/* Where parts meet, if a block may have several tiles: two places in turn. Else they meet in the buffers, once. */
GEMM_CONSTANT int gemm_meeting_bytes(struct gemm_tile t) {
  return t.parts > 1 && t.columns < 64 ? 2 * t.rows * gemm_tile_stored(t) * 4 : 0;
}
/* Where the sums of two warpgroups meet that take turns at steps, if the second one's buffers are too small. */
GEMM_CONSTANT int gemm_split_bytes(struct gemm_tile t) { return t.turns == 2 && t.columns > 64 ? t.columns * 256 : 0; }
/* All but the buffers. */
GEMM_CONSTANT int gemm_copied_bytes(struct gemm_tile t, int stages) {
  return stages * gemm_stage_bytes(t) + t.slots * gemm_slot_bytes(t) + gemm_scale_bytes(t) + gemm_row_bytes(t) +
         gemm_meeting_bytes(t) + gemm_split_bytes(t) + gemm_barrier_bytes(t, stages);
}
/* Buffers of a warpgroup: two if there is room. */
GEMM_CONSTANT int gemm_tile_buffers(struct gemm_tile t, int stages) {
  return gemm_copied_bytes(t, stages) + 2 * t.warpgroups * GEMM_STAGING_BYTES <= GEMM_MOST_SHARED_BYTES ? 2 : 1;
}
GEMM_CONSTANT int gemm_shared_bytes(struct gemm_tile t, int stages) {
  return gemm_copied_bytes(t, stages) + gemm_tile_buffers(t, stages) * t.warpgroups * GEMM_STAGING_BYTES;
}

#ifndef __CUDACC__
extern const struct op op_gemm;

/* After the operands of gemv. */
enum { GEMM_NORMED = GEMV_OPERANDS, GEMM_SQUARES, GEMM_VECTOR_SQUARES, GEMM_OPERANDS };

/* Does an RMS norm begin or end in the task? gemv's kernels cannot do it. */
static inline bool gemm_has_norms(const struct op_task *task) {
  return task->operands[GEMM_NORMED].present || task->operands[GEMM_VECTOR_SQUARES].present;
}
static inline int64_t gemm_groups(int64_t columns) { return (columns + GEMM_GROUP - 1) / GEMM_GROUP; }

rondo_status gemm_check(const struct op_task *task);
/* Numbers in scratch of one part of k: rows of a multiple of eight columns. */
int64_t gemm_part_numbers(const struct op_task *task);
/* The most parts of k that the portable kernels may sum apart, in scratch: at most 8 MiB. A plan is made before a chip
 * is known, so sm_90a reserves them too. They lie where other temporaries do at other times (docs/lab/gemm.md). */
int64_t gemm_most_parts(const struct op_task *task);
uint64_t gemm_scratch_bytes(const struct op_task *task);
int64_t gemm_host_items(const struct op_task *task);
void gemm_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status gemm_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
