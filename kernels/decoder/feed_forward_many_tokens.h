/* feed_forward_many_tokens.h - the feed forward half of a layer whose sizes the compiler knows, for more rows than
 * feed_forward_several_tokens.cu takes: its kernels. */
#pragma once

#include "feed_forward_known.h"
#include "many_tokens.h"

enum {
  FEED_FORWARD_MANY_TOKENS_TILE = 64,    /* tokens of a cluster */
  FEED_FORWARD_MANY_TOKENS_COLUMNS = 32, /* gated columns of a block */
  FEED_FORWARD_MANY_TOKENS_THREADS = 512,
  FEED_FORWARD_MANY_TOKENS_SLICE = FEED_FORWARD_MANY_TOKENS_COLUMNS * LAYER_HALF_CLUSTER,
  FEED_FORWARD_MANY_TOKENS_GATED = FEED_FORWARD_MANY_TOKENS_TILE * FEED_FORWARD_MANY_TOKENS_COLUMNS * 2, /* bytes */
  FEED_FORWARD_MANY_TOKENS_FIXED = FEED_FORWARD_MANY_TOKENS_GATED * LAYER_HALF_CLUSTER + 1024
};

struct feed_forward_many_tokens_parameters {
  struct layer_half_parameters half;
  unsigned char *exchange; /* what each block has for all blocks of its cluster */
  struct completion done;
};
/* Clusters that share the gated columns. */
#define FEED_FORWARD_MANY_TOKENS_PARTS(columns) ((columns) / FEED_FORWARD_MANY_TOKENS_SLICE)
/* Of shared memory: x and the rows of both matrices; the cluster's gated columns, and barriers. */
#define FEED_FORWARD_MANY_TOKENS_BYTES(hidden) ((hidden)*256 + (hidden)*64 + FEED_FORWARD_MANY_TOKENS_FIXED)
/* What a block has for others: eight rows of x, and 64 rows of its gated columns. */
#define FEED_FORWARD_MANY_TOKENS_EXCHANGE(hidden) ((hidden)*16 + FEED_FORWARD_MANY_TOKENS_GATED)

/* KERNEL(chips, parameters, name, threads, hidden, columns). x and weights are bf16. */
#define FEED_FORWARD_MANY_TOKENS_OF(KERNEL, model, hidden, columns, first_cuts, second_cuts)                           \
  KERNEL(CHIP_SM_90A, feed_forward_many_tokens_parameters, rondo_feed_forward_many_tokens_##model,                     \
         FEED_FORWARD_MANY_TOKENS_THREADS, hidden, columns)
#define FEED_FORWARD_MANY_TOKENS_KERNELS(KERNEL) FEED_FORWARD_KNOWN_SIZES(FEED_FORWARD_MANY_TOKENS_OF, KERNEL)
