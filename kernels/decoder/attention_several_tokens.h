/* attention_several_tokens.h - the attention half of a decoder's layer in one launch, for several rows: its kernels.
 * They are told what those of attention_block.h are.
 *
 * A cluster has a KV head and eight rows, each of which is a token of its own sequence: its blocks share the products,
 * whose weights are read once for eight tokens, and each has the context of one. */
#ifndef RONDO_ATTENTION_SEVERAL_TOKENS_H
#define RONDO_ATTENTION_SEVERAL_TOKENS_H

#include "attention_block.h"

enum {
  ATTENTION_SEVERAL_TOKENS_TOKENS = ATTENTION_BLOCK_CLUSTER,        /* of a cluster, each a column of operand B */
  ATTENTION_SEVERAL_TOKENS_STAGES = 3,                              /* of a warp's ring: 576 rows of K and V for all */
  ATTENTION_SEVERAL_TOKENS_BARRIER = ATTENTION_BLOCK_BARRIERS + 16, /* of numbers of x */
  ATTENTION_SEVERAL_TOKENS_PAIRS = 32,                              /* that a rotary embedding turns */
  ATTENTION_SEVERAL_TOKENS_CUT_BYTES = 80 /* sums of a tile and token, so far apart that banks differ */
};

/* Chunks of a warp, at most, of the first and of the second product: they are in registers. */
#define ATTENTION_SEVERAL_TOKENS_FIRST(weights)  ((weights) == RONDO_NVFP4 ? 3 : 5)
#define ATTENTION_SEVERAL_TOKENS_SECOND(weights) ((weights) == RONDO_NVFP4 ? 2 : 3)

/* Sums of squares of a token: of so many warps, each of which makes 64 numbers. */
#define ATTENTION_SEVERAL_TOKENS_WARPS(hidden)   (((hidden) + 63) / 64)
#define ATTENTION_SEVERAL_TOKENS_SQUARES(hidden) ((ATTENTION_SEVERAL_TOKENS_WARPS(hidden) + 3) / 4 * 4)

/* KERNEL(chips, parameters, name, threads, type, weights); head dimension 64. */
#define ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, name, type, weights)                                                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_block_parameters, name, 32 * ATTENTION_BLOCK_WARPS, type, weights)
#define ATTENTION_SEVERAL_TOKENS_KERNELS(KERNEL)                                                                       \
  ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, rondo_attention_several_tokens_bf16, RONDO_BF16, RONDO_BF16)                 \
  ATTENTION_SEVERAL_TOKENS_KERNEL(KERNEL, rondo_attention_several_tokens_nvfp4, RONDO_BF16, RONDO_NVFP4)

#endif
