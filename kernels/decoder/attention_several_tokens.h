/* attention_several_tokens.h - the attention half of a layer in one launch, for 2 to 128 tokens: its kernels, with the
 * parameters of attention_block.h.
 *
 * A cluster has a KV head and eight tokens, or sixteen, each of a sequence of its own. Its blocks share the products,
 * whose weights are read once for all of them; each block attends the context of one token, or of two. Or it has up to
 * eight tokens of one sequence, each with the bits that it has alone (attention_rows_as_tokens.cuh). */
#pragma once

#include "attention_block.h"

enum {
  ATTENTION_SEVERAL_TOKENS_TOKENS = LAYER_HALF_CLUSTER, /* of a cluster, each a column of operand B */
  ATTENTION_SEVERAL_TOKENS_PAIRED_ROWS = 25,  /* from here on a block has two tokens, so that its clusters find room */
  ATTENTION_SEVERAL_TOKENS_STAGES = 3,        /* of a warp's ring: 576 rows of K and V for all */
  ATTENTION_SEVERAL_TOKENS_STAGES_OF_ONE = 2, /* the same of tokens of one sequence */
  ATTENTION_SEVERAL_TOKENS_BARRIER = ATTENTION_BLOCK_BARRIERS + 16, /* of numbers of x */
  ATTENTION_SEVERAL_TOKENS_PAIRS = 32,                              /* rotary pairs of a head */
  ATTENTION_SEVERAL_TOKENS_CUT_BYTES = 80 /* sums of a tile and token, so far apart that banks differ */
};

/* The most chunks of a warp, of the first and of the second product: they lie in registers. */
#define ATTENTION_SEVERAL_TOKENS_FIRST(weights)  ((weights) == RONDO_NVFP4 ? 3 : 5)
#define ATTENTION_SEVERAL_TOKENS_SECOND(weights) ((weights) == RONDO_NVFP4 ? 2 : 3)

/* Warps that make a token's numbers, 64 each, and their sums of squares. */
#define ATTENTION_SEVERAL_TOKENS_WARPS(hidden)   (((hidden) + 63) / 64)
#define ATTENTION_SEVERAL_TOKENS_SQUARES(hidden) ((ATTENTION_SEVERAL_TOKENS_WARPS(hidden) + 3) / 4 * 4)

/* KERNEL(chips, parameters, name, threads, weights); head dimension 64. The second one also has pairs of tokens. */
#define ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, name, weights)                                                         \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_block_parameters, name, 32 * ATTENTION_BLOCK_WARPS, weights)
#define ATTENTION_SEVERAL_TOKENS_PAIRS(KERNEL, weights)                                                                \
  ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, rondo_attention_several_tokens_nvfp4_or_pairs, weights)
#define ATTENTION_SEVERAL_TOKENS_KERNELS(KERNEL)                                                                       \
  ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, rondo_attention_several_tokens_bf16, RONDO_BF16)                             \
  ATTENTION_SEVERAL_TOKENS_PAIRS(KERNEL, RONDO_NVFP4)
