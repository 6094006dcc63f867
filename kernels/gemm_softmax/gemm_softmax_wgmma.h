/* gemm_softmax_wgmma.h - the kernels of sm_90a for products whose rows are reduced in registers, their parameters and
 * their sizes. */
#pragma once

#include "../common/tensor_map.h"
#include "gemm_softmax.h"

enum {
  WGMMA_CLUSTER = 8,
  WGMMA_TILE = 64,                             /* rows of a warpgroup */
  WGMMA_COLUMNS = 256,                         /* of a warpgroup */
  WGMMA_DEPTH = 64,                            /* of k in a panel: 128 bytes */
  WGMMA_BOX_BYTES = 128,                       /* of a row of P in a box of shared memory */
  WGMMA_PANEL_BYTES = WGMMA_TILE * 128,        /* 64 rows of a panel, or of a box */
  WGMMA_STAGING_BYTES = 4 * WGMMA_PANEL_BYTES, /* of a warpgroup's stores */
  /* A block's message about 64 rows: for each warp and group {max, sum} of two rows. The rest keeps the reads of four
   * lanes in different banks. */
  WGMMA_SLOT_BYTES = 512 + 64,
  WGMMA_BARRIER_BYTES = 256,
};

/* rondo_gemm_softmax_resident, rondo_gemm_rowmax_resident: gemm_softmax_resident.cu. All of B's k lies in shared
 * memory while a cluster takes its tiles of rows. */
enum {
  RESIDENT_PARTS = 2,                                /* warpgroups that share a block's columns */
  RESIDENT_COLUMNS = RESIDENT_PARTS * WGMMA_COLUMNS, /* of a block */
  RESIDENT_WARPGROUPS = 2,                           /* of the softmax */
  RESIDENT_STAGING_BYTES = RESIDENT_WARPGROUPS * WGMMA_STAGING_BYTES,
  RESIDENT_ROWMAX_WARPGROUPS = 3,
  RESIDENT_STAGES = 1, /* of A */
  RESIDENT_ROWMAX_STAGES = 3,
  RESIDENT_B_BYTES = RESIDENT_PARTS * WGMMA_COLUMNS * 128, /* for each WGMMA_DEPTH of k */
  RESIDENT_MOST_STEPS = 2,                                 /* of WGMMA_DEPTH */
  RESIDENT_ROWMAX_TURNS = 4,
};

/* Of shared memory: for the softmax two sets of slots, for the maxima those of all tiles that a block reduces. */
#define RESIDENT_SLOT_BYTES(is_softmax)                                                                                \
  (WGMMA_CLUSTER * RESIDENT_PARTS * ((is_softmax) ? 2 * WGMMA_SLOT_BYTES : RESIDENT_ROWMAX_TURNS * WGMMA_TILE * 4))

/* rondo_gemm_softmax_staggered_*: gemm_softmax_staggered.cu. The same for softmax in 16 bits: warpgroups take turns. */
enum {
  STAGGERED_WARPGROUPS = 3, /* of a block */
  STAGGERED_WARPS = 4,
  STAGGERED_THREADS = STAGGERED_WARPGROUPS * STAGGERED_WARPS * 32,
  STAGGERED_MEASURING_WARPS = (STAGGERED_WARPGROUPS - 1) * STAGGERED_WARPS, /* that find the longest row of B */
  STAGGERED_ROWS = 32,                                                      /* of a tile */
  STAGGERED_GROUP = 128,                                                    /* columns of a warp */
  STAGGERED_COLUMNS = 4 * STAGGERED_GROUP,                                  /* of a block */
  STAGGERED_PRODUCTS = STAGGERED_COLUMNS / 64,                              /* of a warpgroup */
  /* Of shared memory, for all warpgroups: */
  STAGGERED_B_BYTES = STAGGERED_COLUMNS * 128,                         /* for each WGMMA_DEPTH of k */
  STAGGERED_A_BYTES = STAGGERED_WARPGROUPS * 2 * STAGGERED_ROWS * 128, /* two panels: two tiles, or one */
  STAGGERED_BOX_BYTES =
      STAGGERED_WARPGROUPS * STAGGERED_WARPS * 2 * 32 * 128, /* two boxes of each warp, or two halves */
  /* From all blocks of a cluster: */
  STAGGERED_TOLD_BYTES = WGMMA_CLUSTER * (STAGGERED_WARPGROUPS * STAGGERED_ROWS * 24 + STAGGERED_MEASURING_WARPS * 4),
  STAGGERED_OWN_BYTES =
      STAGGERED_WARPGROUPS * STAGGERED_WARPS * STAGGERED_ROWS * 12 + STAGGERED_WARPGROUPS * STAGGERED_ROWS * 4 + 512
};

/* Of a warpgroup: A's tiles; and rows of the two boxes through which each of its warps stores. */
#define STAGGERED_A_TILES(steps)  (2 / (steps))
#define STAGGERED_BOX_ROWS(steps) (32 / (steps))

#define STAGGERED_SHARED_BYTES(steps)                                                                                  \
  ((steps)*STAGGERED_B_BYTES + STAGGERED_A_BYTES + STAGGERED_BOX_BYTES / (steps) + STAGGERED_TOLD_BYTES +              \
   STAGGERED_OWN_BYTES)

/* rondo_gemm_softmax_streamed_*, _held_* and rondo_gemm_rowmax_streamed: gemm_softmax_streamed.cu. */
enum {
  STREAMED_THREADS = 288, /* two warpgroups that multiply and one warp that asks for copies */
  /* Where a block of columns is held, registers go from the copying warp's warpgroup to the others. */
  STREAMED_HELD_THREADS = 384,
  STREAMED_HELD_REGISTERS = 240,
  STREAMED_ASKING_REGISTERS = 24,
  STREAMED_STAGES = 4,
  STREAMED_ROWS = 2 * WGMMA_TILE,
  STREAMED_STAGE_BYTES = 2 * WGMMA_PANEL_BYTES + WGMMA_COLUMNS * 128,
  STREAMED_RING_BYTES = STREAMED_STAGES * STREAMED_STAGE_BYTES,
  STREAMED_STAGING_BYTES = 2 * WGMMA_PANEL_BYTES,                     /* a box of 16 rows for each warp */
  STREAMED_MOST_SHARERS = 4,                                          /* blocks that share rows */
  STREAMED_SLOT_BYTES = STREAMED_MOST_SHARERS * 4 * WGMMA_SLOT_BYTES, /* two sets for each warpgroup */
};

struct gemm_softmax_wgmma_parameters {
  struct tensor_map a, b, p; /* p: of the softmax */
  float *max;                /* of the maxima */
  int64_t max_batch_stride, max_row_stride;
  uint32_t batch, m, n;
  uint32_t steps;      /* of WGMMA_DEPTH in k */
  uint32_t tiles;      /* of rows in a matrix: of 64, staggered of 32 */
  uint32_t row_blocks; /* neighbours in a cluster that share rows: 1, 2, 4 or 8 */
  uint32_t row_blocks_log2;
  uint32_t groups;  /* of such blocks; resident, staggered: of a matrix; streamed: of all */
  uint32_t blocks;  /* streamed: of columns, that a block takes one after the other; 2 where it holds one */
  uint32_t is_bf16; /* A and B are, else f16 */
  uint32_t causal, negative, output;
  uint32_t b_groups; /* staggered: of B's rows, from one matrix to the next */
  float factor;      /* |scale|, times log2(e) for the softmax */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, is softmax) */
#define GEMM_SOFTMAX_RESIDENT_KERNELS(KERNEL)                                                                          \
  KERNEL(CHIP_SM_90A, gemm_softmax_wgmma_parameters, rondo_gemm_softmax_resident, 128 * RESIDENT_WARPGROUPS, true)     \
  KERNEL(CHIP_SM_90A, gemm_softmax_wgmma_parameters, rondo_gemm_rowmax_resident, 128 * RESIDENT_ROWMAX_WARPGROUPS,     \
         false)

/* KERNEL(chips, parameters, name, threads, steps) */
#define GEMM_SOFTMAX_STAGGERED_KERNELS(KERNEL)                                                                         \
  KERNEL(CHIP_SM_90A, gemm_softmax_wgmma_parameters, rondo_gemm_softmax_staggered_k64, STAGGERED_THREADS, 1)           \
  KERNEL(CHIP_SM_90A, gemm_softmax_wgmma_parameters, rondo_gemm_softmax_staggered_k128, STAGGERED_THREADS, 2)

/* KERNEL(chips, parameters, name, threads, is softmax, blocks of a cluster, a block of columns is held) */
#define GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, name, ...)                                                                \
  KERNEL(CHIP_SM_90A, gemm_softmax_wgmma_parameters, name, __VA_ARGS__)
#define GEMM_SOFTMAX_STREAMED_KERNELS(KERNEL)                                                                          \
  GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, rondo_gemm_softmax_streamed_c2, STREAMED_THREADS, true, 2, false)               \
  GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, rondo_gemm_softmax_streamed_c4, STREAMED_THREADS, true, 4, false)               \
  GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, rondo_gemm_softmax_held_c2, STREAMED_HELD_THREADS, true, 2, true)               \
  GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, rondo_gemm_softmax_held_c4, STREAMED_HELD_THREADS, true, 4, true)               \
  GEMM_SOFTMAX_STREAMED_KERNEL(KERNEL, rondo_gemm_rowmax_streamed, STREAMED_THREADS, false, 4, false)
