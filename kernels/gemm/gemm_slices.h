/* gemm_slices.h - the kernels of gemm_slices.cu: W in NVFP4 and up to 32 vectors, on sm_90a.
 *
 * A block's sixteen warps have `groups` of 32 rows of W, and each group's warps have slices of k. The fewer groups, the
 * more slices: what a launch has of rows decides. */
#pragma once

#include "gemm.h"

enum {
  GEMM_SLICES_WARPS = 16,
  GEMM_SLICES_THREADS = 32 * GEMM_SLICES_WARPS + 128, /* four more warps copy, and tend rows */
  GEMM_SLICES_ROWS = 32,                              /* of a group; and of X at most */
  GEMM_SLICES_DEPTH = 256,                            /* of k in a stage */
  GEMM_SLICES_CHUNKS = 4,                             /* of a stage: a warp multiplies one at a time */
  GEMM_SLICES_MOST_GROUPS = 8,
  GEMM_SLICES_MOST_STAGES = 8,
};

/* Slices of k that each group has at least: a power of two, and its logarithm. */
GEMM_CONSTANT int gemm_slices_shift(int groups) { return 4 - (groups > 1) - (groups > 2) - (groups > 4); }
GEMM_CONSTANT int gemm_slices_of(int groups) { return 1 << gemm_slices_shift(groups); }
/* The first groups have twice as many, so that all warps have work. */
GEMM_CONSTANT int gemm_slices_doubled(int groups) { return GEMM_SLICES_WARPS / gemm_slices_of(groups) - groups; }
/* Warps that read a stage. */
GEMM_CONSTANT int gemm_slices_readers(int groups) {
  const int slices = gemm_slices_of(groups), most = GEMM_SLICES_CHUNKS;
  const int doubled = gemm_slices_doubled(groups), in_doubled = 2 * slices < most ? 2 * slices : most;
  return doubled * in_doubled + (groups - doubled) * (slices < most ? slices : most);
}
/* A panel of X has 64 of k, and rows in groups of eight. */
GEMM_CONSTANT int gemm_slices_panel_rows(int rows) { return (rows + 7) / 8 * 8; }
/* A stage: four panels of X, W's codes, W's scales. */
GEMM_CONSTANT int gemm_slices_codes_at(int rows) { return GEMM_SLICES_CHUNKS * gemm_slices_panel_rows(rows) * 128; }
GEMM_CONSTANT int gemm_slices_scales_at(int groups, int rows) {
  return gemm_slices_codes_at(rows) + groups * GEMM_SLICES_ROWS * (GEMM_SLICES_DEPTH / 2);
}
GEMM_CONSTANT int gemm_slices_stage_bytes(int groups, int rows) {
  return (gemm_slices_scales_at(groups, rows) + groups * GEMM_SLICES_ROWS * (GEMM_SLICES_DEPTH / 16) + 1023) / 1024 *
         1024;
}
enum { GEMM_SLICES_SUM_BYTES = GEMM_SLICES_ROWS * GEMM_SLICES_ROWS * 4 }; /* of a warp */
/* Vectors whose results a block of a cluster stores; and where it gets their sums from all parts. */
GEMM_CONSTANT int gemm_slices_share(int parts) { return (GEMM_SLICES_ROWS + parts - 1) / parts; }
GEMM_CONSTANT int gemm_slices_meeting_bytes(int groups, int parts) {
  return parts > 1 ? parts * gemm_slices_share(parts) * groups * GEMM_SLICES_ROWS * 4 : 0;
}
/* Factors of vectors, barriers, and the meeting. */
GEMM_CONSTANT int gemm_slices_other_bytes(int groups, int parts) {
  return GEMM_SLICES_ROWS * 4 + 16 * GEMM_SLICES_MOST_STAGES + 16 + gemm_slices_meeting_bytes(groups, parts);
}
/* As many stages as there is room for; in blocks of one tile the sums take their place. A warp that skips stages sees
 * every round of its own. */
GEMM_CONSTANT int gemm_slices_stages(int groups, int rows, int parts, int has_one_tile) {
  const int sums = has_one_tile ? 0 : GEMM_SLICES_WARPS * GEMM_SLICES_SUM_BYTES;
  const int room =
      (GEMM_MOST_SHARED_BYTES - gemm_slices_other_bytes(groups, parts) - sums) / gemm_slices_stage_bytes(groups, rows);
  const int slices = gemm_slices_of(groups) * (gemm_slices_doubled(groups) ? 2 : 1);
  const int skipped = slices > GEMM_SLICES_CHUNKS ? slices / GEMM_SLICES_CHUNKS : 1;
  return (room < GEMM_SLICES_MOST_STAGES ? room : GEMM_SLICES_MOST_STAGES) / skipped * skipped;
}
GEMM_CONSTANT int gemm_slices_factors_at(int groups, int rows, int parts, int has_one_tile) {
  const int stages = gemm_slices_stages(groups, rows, parts, has_one_tile) * gemm_slices_stage_bytes(groups, rows);
  const int sums = GEMM_SLICES_WARPS * GEMM_SLICES_SUM_BYTES;
  return has_one_tile ? (stages > sums ? stages : sums) : stages + sums;
}
GEMM_CONSTANT int gemm_slices_shared_bytes(int groups, int rows, int parts, int has_one_tile) {
  return gemm_slices_factors_at(groups, rows, parts, has_one_tile) + gemm_slices_other_bytes(groups, parts);
}

struct gemm_slices_parameters {
  struct tensor_map w, x;
  struct gemm_divisor of_matrix; /* tiles of a matrix */
  uint32_t tiles;                /* of all matrices */
  uint32_t groups;
  uint32_t slices_shift,
      doubled;      /* a group has 1 << slices_shift slices of k; the first `doubled` groups twice as many */
  uint32_t readers; /* warps that read a stage */
  uint32_t stages, stage_bytes, codes_at, scales_at, sums_at, factors_at;
  uint32_t steps;         /* of GEMM_SLICES_DEPTH in k */
  uint32_t rows, columns; /* of a matrix of out: of X and of W */
  uint32_t is_bf16;       /* X is, else f16 */
  uint32_t weights_early; /* no task writes W: it is copied before the predecessors end */
  uint32_t k;
  uint32_t scale_batch;  /* bytes from the scales of a matrix to the next */
  uint32_t scale_copies; /* gemm_scale_copies */
  struct gemv_scale_strides scale_strides;
  const unsigned char *scales;
  uint32_t out_whole, residual_whole, normed_whole, norm_whole; /* rows begin at multiples of 16 bytes */
  struct gemm_finish finish;
  struct completion done;
  struct gemm_norms norms; /* last: other tasks do not read its lines */
};

/* KERNEL(chips, parameters, name, threads, parts of k: blocks of a cluster) */
#define GEMM_SLICES_KERNELS(KERNEL)                                                                                    \
  KERNEL(CHIP_SM_90A, gemm_slices_parameters, rondo_gemm_nvfp4_slices, GEMM_SLICES_THREADS, 1)                         \
  KERNEL(CHIP_SM_90A, gemm_slices_parameters, rondo_gemm_nvfp4_slices_two, GEMM_SLICES_THREADS, 2)                     \
  KERNEL(CHIP_SM_90A, gemm_slices_parameters, rondo_gemm_nvfp4_slices_three, GEMM_SLICES_THREADS, 3)
