/* feed_forward_stream.h - the feed forward half of a layer in one launch, for one token and large matrices in NVFP4:
 * its kernel and its parameters. Clusters and blocks share the work as in feed_forward.h. */
#pragma once

#include "layer_half.h"

enum {
  FEED_FORWARD_STREAM_WARPS = 16, /* that multiply; four more gather, gate and convert */
  FEED_FORWARD_STREAM_THREADS = 32 * (FEED_FORWARD_STREAM_WARPS + 4),
  FEED_FORWARD_STREAM_CHUNK = 128,   /* columns of a tile that a warp takes at once */
  FEED_FORWARD_STREAM_GROUP = 64,    /* gated columns: a tile of gate and up for each block */
  FEED_FORWARD_STREAM_HIDDEN = 2048, /* at most: a chunk, and a tile of the second product, for each warp */
  FEED_FORWARD_STREAM_GROUPS = 16,   /* of a cluster, at most */
  FEED_FORWARD_STREAM_SLOT = 1024,
  FEED_FORWARD_STREAM_SLOTS = 4, /* of a warp */
  FEED_FORWARD_STREAM_PARTS = 16,
  FEED_FORWARD_STREAM_SCALE_PADDING = 16 /* bytes: rows of scales are in different banks */
};

struct feed_forward_stream_parameters {
  struct layer_half_parameters half;
  uint32_t hidden, columns;            /* columns: that are gated */
  uint32_t groups, parts, last_groups; /* parts: clusters, to which the groups are dealt; last_groups: the last */
  uint32_t sums, scales, second_scales, ring; /* in shared memory */
  float inverse_hidden;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads); x is bf16. */
#define FEED_FORWARD_STREAM_KERNELS(KERNEL)                                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_stream_parameters, rondo_feed_forward_stream,                        \
         FEED_FORWARD_STREAM_THREADS)

/* Places in shared memory that do not depend on sizes. */
enum {
  /* Barriers of arrivals: x and its powers; its squares; [groups] a tile's sums; [chunks] gated numbers of all blocks;
     [chunks] the integers made of them. */
  FEED_FORWARD_STREAM_X_HERE = 0,
  FEED_FORWARD_STREAM_SQUARES_HERE = 8,
  FEED_FORWARD_STREAM_SUMMED = 16,
  FEED_FORWARD_STREAM_RECEIVED_HERE = FEED_FORWARD_STREAM_SUMMED + FEED_FORWARD_STREAM_GROUPS * 8,
  FEED_FORWARD_STREAM_CONVERTED = FEED_FORWARD_STREAM_RECEIVED_HERE + FEED_FORWARD_STREAM_GROUPS / 2 * 8,
  FEED_FORWARD_STREAM_SQUARES = 320, /* [units] */
  FEED_FORWARD_STREAM_ZEROS = 448,   /* 32 bytes */
  FEED_FORWARD_STREAM_TABLES = 512,  /* [warps] two words */
  FEED_FORWARD_STREAM_BLOCKS = 640,  /* [blocks of 16 of x] powers of two */
  FEED_FORWARD_STREAM_SECOND_BLOCKS = FEED_FORWARD_STREAM_BLOCKS + FEED_FORWARD_STREAM_HIDDEN / 16 * 4,
  FEED_FORWARD_STREAM_NORM = FEED_FORWARD_STREAM_SECOND_BLOCKS + FEED_FORWARD_STREAM_GROUPS * 16,
  /* High bytes of numbers, then low ones: */
  FEED_FORWARD_STREAM_X = FEED_FORWARD_STREAM_NORM + FEED_FORWARD_STREAM_HIDDEN / LAYER_HALF_CLUSTER * 2,
  FEED_FORWARD_STREAM_GATED = FEED_FORWARD_STREAM_X + FEED_FORWARD_STREAM_HIDDEN * 2,
  FEED_FORWARD_STREAM_RECEIVED = FEED_FORWARD_STREAM_GATED + FEED_FORWARD_STREAM_GROUPS * 128,
  FEED_FORWARD_STREAM_FIXED = FEED_FORWARD_STREAM_RECEIVED + FEED_FORWARD_STREAM_GROUPS * 256
};
