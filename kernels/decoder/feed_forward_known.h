/* feed_forward_known.h - the gated half of a layer whose sizes the compiler knows, of one token and of several: the
 * list of sizes, the kernels made of it, and their parameters. Clusters, parts and blocks share the work as in
 * feed_forward.h. */
#pragma once

#include "feed_forward.h"

enum {
  FEED_FORWARD_KNOWN_PARTS = 8,   /* of the results: clusters */
  FEED_FORWARD_KNOWN_X_PARTS = 8, /* at most */
  FEED_FORWARD_KNOWN_CHUNK = 32   /* numbers of a row that a warp multiplies at once */
};

/* All operands are dense. */
struct feed_forward_known_parameters {
  struct layer_half_parameters half;
  struct completion done;
  uint32_t with_rests; /* 1: up to 8 tokens of the kernel for 16, with what rounding left */
};

/* The sizes that kernels are compiled for: X(KERNEL, model, hidden, gated columns, cuts of k of the first and of the
 * second product). A line is all that another model takes, if its sizes pass the assertions in
 * feed_forward_registers.cuh. */
#define FEED_FORWARD_KNOWN_SIZES(X, KERNEL) X(KERNEL, smollm2_135m, 576, 1536, 6, 3)

/* A tile of 16 rows of gate and up is 8 gated columns: tiles of a block, times cuts, are its warps. */
#define FEED_FORWARD_KNOWN_THREADS(columns, first_cuts)                                                                \
  ((columns) / (8 * FEED_FORWARD_KNOWN_PARTS * LAYER_HALF_CLUSTER) * (first_cuts)*32)

/* KERNEL(chips, parameters, name, threads, weights, hidden, columns, cuts). x is bf16. */
#define FEED_FORWARD_ONE_TOKEN_OF(KERNEL, model, hidden, columns, first_cuts, second_cuts)                             \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_known_parameters, rondo_feed_forward_one_token_##model##_bf16,       \
         FEED_FORWARD_KNOWN_THREADS(columns, first_cuts), RONDO_BF16, hidden, columns, first_cuts, second_cuts)        \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_known_parameters, rondo_feed_forward_one_token_##model##_nvfp4,      \
         FEED_FORWARD_KNOWN_THREADS(columns, first_cuts), RONDO_NVFP4, hidden, columns, first_cuts, second_cuts)
#define FEED_FORWARD_ONE_TOKEN_KERNELS(KERNEL) FEED_FORWARD_KNOWN_SIZES(FEED_FORWARD_ONE_TOKEN_OF, KERNEL)

/* KERNEL(chips, parameters, name, threads, operands B, of eight tokens each, weights, hidden, columns, cuts). */
#define FEED_FORWARD_TOKENS_OF(KERNEL, name, operands, weights, hidden, columns, first_cuts, second_cuts)              \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, feed_forward_known_parameters, name,                                              \
         FEED_FORWARD_KNOWN_THREADS(columns, first_cuts), operands, weights, hidden, columns, first_cuts, second_cuts)
#define FEED_FORWARD_SEVERAL_TOKENS_OF(KERNEL, model, ...)                                                             \
  FEED_FORWARD_TOKENS_OF(KERNEL, rondo_feed_forward_several_tokens_##model##_bf16_8, 1, RONDO_BF16, __VA_ARGS__)       \
  FEED_FORWARD_TOKENS_OF(KERNEL, rondo_feed_forward_several_tokens_##model##_bf16_16, 2, RONDO_BF16, __VA_ARGS__)      \
  FEED_FORWARD_TOKENS_OF(KERNEL, rondo_feed_forward_several_tokens_##model##_nvfp4_8, 1, RONDO_NVFP4, __VA_ARGS__)     \
  FEED_FORWARD_TOKENS_OF(KERNEL, rondo_feed_forward_several_tokens_##model##_nvfp4_16, 2, RONDO_NVFP4, __VA_ARGS__)
#define FEED_FORWARD_SEVERAL_TOKENS_KERNELS(KERNEL) FEED_FORWARD_KNOWN_SIZES(FEED_FORWARD_SEVERAL_TOKENS_OF, KERNEL)
