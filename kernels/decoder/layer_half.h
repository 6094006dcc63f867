/* layer_half.h - what the kernels of both layer halves have in common: the shape of their clusters, and the head of
 * their parameters. */
#pragma once

#include <rondo.h>
#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  LAYER_HALF_CLUSTER = 8, /* blocks; more take longer to launch: 0.95 us where these take 0.64 (H200) */
  LAYER_HALF_TILE = 16    /* rows of weights, and of K and V */
};

struct layer_half_matrix {
  const void *weights, *scales; /* scales: of NVFP4 */
};

/* The first member of each design's parameters. The first product is with `first` (q, k and v; or gate and up), the
 * second with `second` (output; or down). */
struct layer_half_parameters {
  struct layer_half_matrix first, second;
  const void *norm; /* or NULL */
  const float *x, *x_parts;
  float *out, *out_parts;
  uint32_t part_count; /* of x */
  uint32_t rows;
  uint32_t early;       /* 1: weights and norm may be read before the predecessors end */
  uint32_t always_zero; /* unknown to the compiler: keep_early */
  float epsilon;        /* 0: no norm */
  float scale;          /* of the sums of products, with the factor of the weights' format */
};
