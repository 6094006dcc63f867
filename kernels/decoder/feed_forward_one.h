/* feed_forward_one.h - the gated half of a small decoder's layer, of one token and of several: kernels for sizes known
 * when they are compiled. Clusters, parts and blocks share the work as in feed_forward.h. */
#ifndef RONDO_FEED_FORWARD_ONE_H
#define RONDO_FEED_FORWARD_ONE_H

#include "feed_forward.h"

enum {
  FEED_FORWARD_ONE_PARTS = 8,   /* of the results: clusters */
  FEED_FORWARD_ONE_X_PARTS = 8, /* at most */
  FEED_FORWARD_ONE_CHUNK = 32   /* numbers of a row that a warp multiplies at once */
};

/* rondo_feed_forward_one_* and rondo_feed_forward_rows_*. All is dense. */
struct feed_forward_one_parameters {
  const void *gate_up, *gate_up_scales, *down, *down_scales;
  const void *x, *norm; /* norm: or NULL */
  const float *x_parts;
  void *out;
  float *out_parts;
  uint32_t part_count; /* of x */
  uint32_t rows;
  uint32_t early; /* 1: weights and norm may be read before the predecessors end */
  uint32_t never; /* 0: keep_early */
  float epsilon;  /* 0: no norm */
  float scale;    /* of all weights */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, weights, hidden, gated columns, cuts of k of the first and of the second
 * product). x is bf16. SmolLM2 135M has these sizes. */
#define FEED_FORWARD_ONE_KERNEL(KERNEL, name, W)                                                                       \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_one_parameters, name, 576, W, 576, 1536, 6, 3)
#define FEED_FORWARD_ONE_KERNELS(KERNEL)                                                                               \
  FEED_FORWARD_ONE_KERNEL(KERNEL, rondo_feed_forward_one_bf16_576, RONDO_BF16)                                         \
  FEED_FORWARD_ONE_KERNEL(KERNEL, rondo_feed_forward_one_nvfp4_576, RONDO_NVFP4)

/* The same of several tokens: at most eight for each operand B. */
#define FEED_FORWARD_ROWS_KERNEL(KERNEL, name, W, operands)                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_one_parameters, name, 576, operands, W, 576, 1536, 6, 3)
#define FEED_FORWARD_ROWS_KERNELS(KERNEL)                                                                              \
  FEED_FORWARD_ROWS_KERNEL(KERNEL, rondo_feed_forward_rows_bf16_576_8, RONDO_BF16, 1)                                  \
  FEED_FORWARD_ROWS_KERNEL(KERNEL, rondo_feed_forward_rows_bf16_576_16, RONDO_BF16, 2)                                 \
  FEED_FORWARD_ROWS_KERNEL(KERNEL, rondo_feed_forward_rows_nvfp4_576_8, RONDO_NVFP4, 1)                                \
  FEED_FORWARD_ROWS_KERNEL(KERNEL, rondo_feed_forward_rows_nvfp4_576_16, RONDO_NVFP4, 2)

#endif
