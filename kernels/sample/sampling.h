/* sampling.h - rondo_add_sample, which draws a column of each row: the operation, its kernels and their parameters. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  SAMPLE_THREADS = 1024,
  SAMPLE_CLUSTER = 8, /* blocks of a row in rondo_sample_cluster */
  SAMPLE_BINS_OF_OCTAVE = 24,
  SAMPLE_BINS = 1024,    /* 24 for each of 42 octaves; the rest makes a power of two for the scan */
  SAMPLE_LISTED = 4096,  /* the most numbers of one bin that are sorted at once */
  SAMPLE_COMPARED = 256, /* up to this number each key is compared with all others; longer lists use a network */
  SAMPLE_TOGETHER =
      512,              /* the most numbers of several bins; sorting more takes longer than listing one bin by itself */
  SAMPLE_COUNTED = 256, /* up to this top_k the bins only count; probabilities are computed for the listed numbers */
  /* The list of keys; for each bin three words of this block, a running sum and a running count. */
  SAMPLE_SHARED_BYTES = SAMPLE_LISTED * 8 + SAMPLE_BINS * (3 * 4 + 8 + 4),
};

/* rondo_sample and rondo_sample_cluster. The stride is counted in elements. The pointer of an absent setting is
 * NULL. */
struct sample_parameters {
  const void *x;
  int32_t *out;
  const float *temperature;
  const int32_t *top_k;
  const float *top_p;
  const int32_t *seed, *step;
  int64_t stride;
  uint32_t n;
  uint32_t dtype;
  uint32_t is_aligned;                          /* 1: rows begin at multiples of 16 bytes */
  uint32_t many_temperatures, many_ks, many_ps; /* 1: one value for each row; 0: one for all */
  uint32_t many_seeds, many_steps;              /* many_steps 2: the first one, and one more for each row */
  uint32_t columns;                             /* the most columns of a block; a multiple of 8 */
  uint32_t is_held; /* 1: shared memory holds the block's columns, after SAMPLE_SHARED_BYTES */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, device function) */
#define SAMPLE_KERNELS(KERNEL) KERNEL(EVERY_CHIP, sample_parameters, rondo_sample, SAMPLE_THREADS, 1, sample_row<1>)
#define SAMPLE_CLUSTER_KERNELS(KERNEL)                                                                                 \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, sample_parameters, rondo_sample_cluster, SAMPLE_THREADS, 1,                       \
         sample_row<SAMPLE_CLUSTER>)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum {
  SAMPLE_X,
  SAMPLE_OUT,
  SAMPLE_TEMPERATURE,
  SAMPLE_TOP_K,
  SAMPLE_TOP_P,
  SAMPLE_SEED,
  SAMPLE_STEP,
  SAMPLE_OPERANDS
}; /* operands */

/* Of op_sample. */
struct sample_attributes {
  int32_t steps_follow; /* 1: step is [1], of the first row, and grows by 1 with each row */
};

extern const struct op op_sample;
OP_FUNCTIONS(sample);
#endif
