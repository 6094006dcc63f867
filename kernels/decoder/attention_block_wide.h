/* attention_block_wide.h - the attention half of a layer in one launch, for one token of a wide model: its kernels.
 * They have the parameters of attention_block.h, but sizes are known to the compiler, since instructions that run for
 * the first time bound the kernel.
 *
 * Several clusters, `splits`, share the query heads of a KV head. Each computes k and v for itself, and leaves a part
 * of the result. Two blocks share a multiprocessor: otherwise only fifteen of sixteen clusters of eight find room. */
#pragma once

#include "attention_block.h"

enum {
  ATTENTION_BLOCK_WIDE_HIDDEN = 2048,
  ATTENTION_BLOCK_WIDE_DIMENSION = 64,
  ATTENTION_BLOCK_WIDE_GROUP = 2, /* query heads of a cluster */
  ATTENTION_BLOCK_WIDE_WARPS = 8,
  ATTENTION_BLOCK_WIDE_ATTENDING = 4, /* warps that have tiles of K and V */
  ATTENTION_BLOCK_WIDE_TILES = 2,     /* of a block and of the first product, which the warps cut: */
  ATTENTION_BLOCK_WIDE_CUTS = ATTENTION_BLOCK_WIDE_WARPS / ATTENTION_BLOCK_WIDE_TILES,
  ATTENTION_BLOCK_WIDE_SECOND_TILES =
      ATTENTION_BLOCK_WIDE_HIDDEN / LAYER_HALF_TILE / LAYER_HALF_CLUSTER / ATTENTION_BLOCK_WIDE_WARPS,
  ATTENTION_BLOCK_WIDE_SLOT = 1024, /* a chunk: 64 bytes of each row of a tile */
  ATTENTION_BLOCK_WIDE_UNIT = 64,   /* columns of x that a warp adds */
  ATTENTION_BLOCK_WIDE_X_PARTS = 15 /* as the feed forward leaves them; other numbers only without ranks */
};
#define ATTENTION_BLOCK_WIDE_CHUNK_COLUMNS(weights) ((weights) == RONDO_NVFP4 ? 128 : 32)
#define ATTENTION_BLOCK_WIDE_SLOTS(weights)         ((weights) == RONDO_NVFP4 ? 6 : 8) /* of a warp */

/* Places in shared memory. */
enum {
  ATTENTION_BLOCK_WIDE_ZEROS = 512,       /* after the table of 32 pairs */
  ATTENTION_BLOCK_WIDE_CODE_TABLES = 576, /* [warps] two words */
  ATTENTION_BLOCK_WIDE_SUMS = 2048,
  ATTENTION_BLOCK_WIDE_ROW_SQUARES = ATTENTION_BLOCK_WIDE_SUMS + ATTENTION_BLOCK_WIDE_WARPS * 64,
  ATTENTION_BLOCK_WIDE_POWERS =
      ATTENTION_BLOCK_WIDE_ROW_SQUARES + ATTENTION_BLOCK_WIDE_HIDDEN / ATTENTION_BLOCK_WIDE_UNIT * 4,
  ATTENTION_BLOCK_WIDE_NORM = ATTENTION_BLOCK_WIDE_POWERS + ATTENTION_BLOCK_WIDE_HIDDEN / 16 * 4,
  ATTENTION_BLOCK_WIDE_ROW = ATTENTION_BLOCK_WIDE_NORM + ATTENTION_BLOCK_WIDE_HIDDEN / LAYER_HALF_CLUSTER * 2,
  ATTENTION_BLOCK_WIDE_PITCH = ATTENTION_BLOCK_WIDE_HIDDEN * 2 + 16, /* to the remainders, or low bytes */
  /* In its place, after the first product, the second product's vector and partial results: */
  ATTENTION_BLOCK_WIDE_SECOND_PITCH = ATTENTION_BLOCK_WIDE_GROUP * ATTENTION_BLOCK_WIDE_DIMENSION * 2 + 16,
  ATTENTION_BLOCK_WIDE_RECEIVED = ATTENTION_BLOCK_WIDE_ROW + 640,
  ATTENTION_BLOCK_WIDE_RING = ATTENTION_BLOCK_WIDE_ROW + 2 * ATTENTION_BLOCK_WIDE_PITCH + 96,
  ATTENTION_BLOCK_WIDE_RING_BYTES =
      ATTENTION_BLOCK_WIDE_ATTENDING * ATTENTION_BLOCK_STAGES * LAYER_HALF_TILE * ATTENTION_BLOCK_WIDE_DIMENSION * 4,
  ATTENTION_BLOCK_WIDE_WEIGHTS = ATTENTION_BLOCK_WIDE_RING + ATTENTION_BLOCK_WIDE_RING_BYTES,
  ATTENTION_BLOCK_WIDE_SCALE_PITCH = 48, /* of the first product's rows, in different banks */
  ATTENTION_BLOCK_WIDE_SCALE_BYTES =
      16 * ATTENTION_BLOCK_WIDE_SCALE_PITCH + ATTENTION_BLOCK_WIDE_SECOND_TILES * 16 * 8 /* of a warp */
};
#define ATTENTION_BLOCK_WIDE_SCALES(weights)                                                                           \
  (ATTENTION_BLOCK_WIDE_WEIGHTS +                                                                                      \
   ATTENTION_BLOCK_WIDE_WARPS * ATTENTION_BLOCK_WIDE_SLOTS(weights) * ATTENTION_BLOCK_WIDE_SLOT)
#define ATTENTION_BLOCK_WIDE_BYTES(weights)                                                                            \
  (ATTENTION_BLOCK_WIDE_SCALES(weights) +                                                                              \
   ((weights) == RONDO_NVFP4 ? ATTENTION_BLOCK_WIDE_WARPS * ATTENTION_BLOCK_WIDE_SCALE_BYTES : 0))

/* KERNEL(chips, parameters, name, threads, weights) */
#define ATTENTION_BLOCK_WIDE_KERNEL(KERNEL, name, weights)                                                             \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_block_parameters, name, 32 * ATTENTION_BLOCK_WIDE_WARPS, weights)
#define ATTENTION_BLOCK_WIDE_KERNELS(KERNEL)                                                                           \
  ATTENTION_BLOCK_WIDE_KERNEL(KERNEL, rondo_attention_block_wide_bf16, RONDO_BF16)                                     \
  ATTENTION_BLOCK_WIDE_KERNEL(KERNEL, rondo_attention_block_wide_nvfp4, RONDO_NVFP4)
/* Those that take and give parts over ranks. */
#define ATTENTION_BLOCK_WIDE_RANKS_KERNELS(KERNEL)                                                                     \
  ATTENTION_BLOCK_WIDE_KERNEL(KERNEL, rondo_attention_block_wide_bf16_ranks, RONDO_BF16)
