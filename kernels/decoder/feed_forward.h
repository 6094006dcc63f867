/* feed_forward.h - the feed forward half of a layer in one launch: its kernels and their parameters.
 *
 * A cluster has a share of the gated columns. Its blocks share the rows of gate and up for these columns, exchange the
 * gated numbers, and share the rows of the second product. The cluster multiplies its own columns only: that is one
 * part of the result. */
#pragma once

#include "../exchange/exchange_gather.h"
#include "layer_half.h"

enum {
  FEED_FORWARD_THREADS = 512,
  FEED_FORWARD_UNIT = 64,     /* columns of x that a warp brings at once */
  FEED_FORWARD_BARRIERS = 16, /* bytes in front of shared memory */
  FEED_FORWARD_MOST_PARTS = 16
};

/* The shares of a cluster's blocks and their warps in a product. Tile rank + i * cluster is block rank's i-th. Its
 * warps cut k, so that all have the same work: warp w has cut w % cuts of tile w / cuts, and of every step-th tile
 * after it. */
struct feed_forward_product {
  uint32_t row_bytes, scale_row_bytes;
  uint32_t all_tiles, tiles; /* of a cluster at most, and of a block at most */
  uint32_t cuts, cut_chunks; /* chunks of a cut, at most; see feed_forward.cu */
  uint32_t reciprocal;       /* 2^16 / cuts, rounded up */
  uint32_t step;             /* beyond all tiles where a warp has one */
};

struct feed_forward_parameters {
  struct layer_half_parameters half;
  struct feed_forward_product gate_up, down;
  uint32_t hidden;
  float inverse_hidden;
  uint32_t groups;                 /* of 64 gated columns: dealt to the clusters */
  uint32_t parts;                  /* clusters */
  uint32_t units, unit_reciprocal; /* of a token; 2^16 / units, rounded up */
  /* Places in shared memory. At `sums` lies the norm until all of x has arrived, then the first product's sums until
   * all gated numbers have, then the second product's sums. */
  uint32_t squares, activations, received, sums, ring;
  uint32_t pitch, received_pitch; /* bytes of a row of activations */
  struct completion done;
  struct exchange_gather exchange; /* of a kernel that takes or gives parts over ranks */
  /* Of such a kernel: */
  uint32_t first_part, first_group; /* of its first cluster */
  uint32_t follows;                 /* 1: the second launch of a half, see feed_forward.cu */
};

/* Of a warp: slots of a chunk each, in bf16 2048 bytes. The deep kernel over ranks has as many as a multiprocessor has
 * room for. It also holds the first tiles of gate and up in registers; its sixteen warps have equal parts of k. */
enum {
  FEED_FORWARD_SLOTS = 3,
  FEED_FORWARD_DEEP_SLOTS = 6,
  FEED_FORWARD_HELD = 2,
  FEED_FORWARD_HELD_CHUNKS = 2 /* of a tile and a warp */
};
#define FEED_FORWARD_RING_BYTES(weights) ((weights) == RONDO_NVFP4 ? 8 * 768 : FEED_FORWARD_SLOTS * 2048)
enum { FEED_FORWARD_DEEP_BYTES = FEED_FORWARD_DEEP_SLOTS * 2048 };

/* KERNEL(chips, parameters, name, the most threads, weights, is a token two columns of B (at most four tokens),
 * operands B, slots of a warp's ring, a chunk each). x is bf16. */
#define FEED_FORWARD_KERNEL(KERNEL, name, ...)                                                                         \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_parameters, name, FEED_FORWARD_THREADS, __VA_ARGS__)
#define FEED_FORWARD_KERNELS(KERNEL)                                                                                   \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_bf16_few, RONDO_BF16, true, 1, FEED_FORWARD_SLOTS)                    \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_nvfp4_few, RONDO_NVFP4, true, 1, 8)                                   \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_bf16_many, RONDO_BF16, false, 2, FEED_FORWARD_SLOTS)                  \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_nvfp4_many, RONDO_NVFP4, false, 2, 8)
/* Those that take and give parts over ranks: without that a token takes 1% less. The last constant is the number of
 * tiles that a block holds in registers. */
#define FEED_FORWARD_RANKS_KERNELS(KERNEL)                                                                             \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_bf16_few_ranks, RONDO_BF16, true, 1, FEED_FORWARD_SLOTS, 0)           \
  FEED_FORWARD_KERNEL(KERNEL, rondo_feed_forward_bf16_few_deep, RONDO_BF16, true, 1, FEED_FORWARD_DEEP_SLOTS,          \
                      FEED_FORWARD_HELD)
