/* attention_block.h - the attention half of a layer in one launch, for one token: its kernels and their parameters.
 *
 * A cluster has a KV head and its group of query heads. Its blocks share the rows of q, k and v, then the context, then
 * the rows of the output. The cluster sums the output's columns of its own heads: that is part number `KV head` of the
 * result. Blocks exchange results from shared memory to shared memory. */
#pragma once

#include "../exchange/exchange_gather.h"
#include "layer_half.h"

enum {
  ATTENTION_BLOCK_WARPS = 12,
  ATTENTION_BLOCK_UNCONDITIONAL = 4, /* warps that request a tile of K and V before the position is known */
  ATTENTION_BLOCK_STAGES = 2,        /* of each of their rings */
  ATTENTION_BLOCK_MOST_GROUP = 8,    /* query heads of a KV head */
  ATTENTION_BLOCK_STEP = 64          /* hidden is a multiple of this */
};

/* A chunk: one load of all lanes of a warp from a tile's rows, 16 or 8 bytes of two rows each; in NVFP4 followed by the
 * scales of the 16 rows. */
#define ATTENTION_BLOCK_CHUNK_COLUMNS(weights) ((weights) == RONDO_NVFP4 ? 64 : 32)
#define ATTENTION_BLOCK_CHUNK_BYTES(weights)   ((weights) == RONDO_NVFP4 ? 576 : 1024)

/* Warps that attend. Their rings have the same bytes for each head dimension. */
#define ATTENTION_BLOCK_ATTENDING(dimension) ((dimension) == 64 ? 8 : 4)

/* Warps of a cluster that attend, with heads of 64. */
enum { ATTENTION_BLOCK_SHARES = LAYER_HALF_CLUSTER * ATTENTION_BLOCK_ATTENDING(64) };

/* Factor of the sums: attention_block_product.cuh multiplies NVFP4's weights by 2^-8. */
#define ATTENTION_BLOCK_FACTOR(weights) ((weights) == RONDO_NVFP4 ? 256.0f : 1.0f)

/* How a product is shared: tiles among the blocks of a cluster, pieces of a row among the warps. */
struct attention_block_share {
  uint32_t tiles;     /* of a block, at most */
  uint32_t all_tiles; /* of the cluster */
  uint32_t cuts;      /* of a row */
  uint32_t chunks;    /* of a row */
};

/* Of all kernels of the attention half. Strides are counted in elements. */
struct attention_block_parameters {
  struct layer_half_parameters half;
  uint32_t hidden, group, heads; /* heads: of K and V */
  uint32_t splits;               /* clusters of a KV head, which share its query heads or its rows */
  struct attention_block_share first, second;
  uint32_t early_context; /* the position, and K and V except for the new row, are settled */
  /* Places in shared memory: */
  uint32_t received, cuts, activations, norm_copy, weights, ring;
  uint32_t pitch; /* bytes from rounded activations to their remainders */
  /* Of attention_several_tokens.h's kernels: */
  uint32_t squares, table, positions;
  uint32_t position_of_each; /* 1: each row has a position; 0: one for all */
  uint32_t k_batch, v_batch;

  uint32_t out_part_count;
  float inverse_hidden;
  float scale_log2;
  const int32_t *position;
  uint32_t capacity;
  uint32_t k_position, v_position, k_head, v_head;
  void *k, *v;

  const float *frequencies; /* radians a position, or NULL: */
  double frequency_step;    /* exponents to base 2, from pair to pair */
  int32_t has_rope, rope_is_halves;
  struct completion done;
  struct exchange_gather exchange; /* of a kernel that takes or gives parts over ranks */
  /* Places in shared memory of attention_several_tokens.h's kernels with tokens of one sequence, else 0: the tokens'
   * new K and V, and results of shares of the context (attention_rows_as_tokens.cuh). */
  uint32_t new_rows, shares;
};

/* Places in shared memory that do not depend on sizes. */
enum {
  ATTENTION_BLOCK_BARRIERS = 0,
  ATTENTION_BLOCK_SQUARES = 64, /* [warps] */
  ATTENTION_BLOCK_TABLE = 128,  /* [pairs] cosine and sine */
  ATTENTION_BLOCK_STATS = 640,  /* [warps][8 heads] maximum and sum */
  ATTENTION_BLOCK_NUMBERS = ATTENTION_BLOCK_STATS + ATTENTION_BLOCK_WARPS * ATTENTION_BLOCK_MOST_GROUP * 8
};
/* [heads of q, then k, v]: bytes of a row there. */
#define ATTENTION_BLOCK_NUMBERS_PITCH(dimension) (2 * (dimension) + 16)

/* KERNEL(chips, parameters, name, threads, weights, head dimension) */
#define ATTENTION_BLOCK_KERNEL(KERNEL, name, weights, dimension)                                                       \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_block_parameters, name, 32 * ATTENTION_BLOCK_WARPS, weights, dimension)
#define ATTENTION_BLOCK_KERNELS(KERNEL)                                                                                \
  ATTENTION_BLOCK_KERNEL(KERNEL, rondo_attention_block_bf16_64, RONDO_BF16, 64)                                        \
  ATTENTION_BLOCK_KERNEL(KERNEL, rondo_attention_block_bf16_128, RONDO_BF16, 128)                                      \
  ATTENTION_BLOCK_KERNEL(KERNEL, rondo_attention_block_nvfp4_64, RONDO_NVFP4, 64)                                      \
  ATTENTION_BLOCK_KERNEL(KERNEL, rondo_attention_block_nvfp4_128, RONDO_NVFP4, 128)
