/* gemv_large.h - large products on the kernel that the library chooses for them on an H200: values against fp64, the
 * same bits in every replay, weights that an earlier task of the graph writes, and epilogues.
 *
 * A stage of shared memory that is refilled too early shows in some replays only, mostly if the weights are still in
 * L2. Therefore one graph is replayed a hundred times. The host has one kernel for all sizes, so there all sizes have
 * few rows. */
#pragma once

#include "../../kernels/gemv/gemv_plan.h"
#include "gemv_oracle.h"

enum { PADDED = 1, NORMALISED = 2, IN_E4M3 = 4, IN_16_BITS = 8 /* of the vectors' type */ };

/* A size, and the kernel that it is for. */
struct large {
  rondo_dtype vectors;
  int64_t batch, m, k, count;
  const char *kernel;
  int with;
};

/* The large product as a problem, with the given type of the result. */
struct problem problem_of(rondo_backend backend, const struct large *large, rondo_dtype out);

/* Fills the weights, their scales and the norm. */
void fill_weights(struct problem *p, struct random *random);

/* Fills the vectors and their scales. */
void fill_vectors(struct problem *p, struct random *random);

/* Checks the first and the last rows of each matrix, and some between them. */
void check_samples(const struct problem *p, int index);

/* The graph's task `index` launches this kernel first on an H200. */
void require_kernel(const struct trial *trial, uint32_t index, const char *kernel);

/* Replays the product for two sets of vectors in turn: the values are right, and the same bits come each time. */
void check_large(rondo_backend backend, const struct large *large, int index);

/* The library chooses the kernel that the size is for. Needs no GPU. */
void check_chosen(const struct large *large);

/* One of `count` sizes is for this kernel and this type of vectors. */
void require_size(const struct large *sizes, int count, const char *kernel, rondo_dtype vectors);

/* For a list of kernels: each has a size among `larges` with vectors in NVFP4 or, if it takes 16 bits, in f16 and in
 * bf16. */
#define REQUIRE_SIZE_FOR(chips, parameters, name, ...)                                                                 \
  if (strstr(#name, "_16bit_")) {                                                                                      \
    require_size(larges, LARGES, #name, RONDO_F16);                                                                    \
    require_size(larges, LARGES, #name, RONDO_BF16);                                                                   \
  } else {                                                                                                             \
    require_size(larges, LARGES, #name, RONDO_NVFP4);                                                                  \
  }

/* An earlier task writes other weights in each replay, so that the kernel may not fetch them early. */
void check_written(rondo_backend backend, const struct large *large);

/* The large kernel computes the plain product. `gating` computes silu(gate) * up with bias and residual, and
 * `quantising` stores the same in NVFP4. */
void check_finished(rondo_backend backend, struct large large, const char *gating, const char *quantising);
