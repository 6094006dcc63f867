/* sampling.h - drawing a column of each row: the row of the operation table, and what host code and kernels tell each
 * other. */
#ifndef RONDO_SAMPLING_H
#define RONDO_SAMPLING_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  SAMPLE_THREADS = 1024,
  SAMPLE_CLUSTER = 8, /* blocks of a row, where there are clusters and few rows */
  SAMPLE_BINS_OF_OCTAVE = 24,
  SAMPLE_BINS = 1024,    /* 24 for each of 42 octaves, and some for the scan */
  SAMPLE_LISTED = 4096,  /* numbers of one bin that are sorted at once */
  SAMPLE_COMPARED = 256, /* up to so many are sorted by comparing all with all */
  SAMPLE_TOGETHER = 512, /* of several bins: more take longer to sort than a bin by itself takes to be listed */
  SAMPLE_COUNTED = 256,  /* up to this top_k numbers are counted, and only those that are listed have probabilities */
  /* Keys that are sorted, three words and a sum of two for each bin, and a sum of counts. */
  SAMPLE_SHARED_BYTES = SAMPLE_LISTED * 8 + SAMPLE_BINS * (3 * 4 + 8 + 4),
};

/* rondo_sample and rondo_sample_cluster. The stride is counted in elements; those pointers that may be absent are then
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
  uint32_t many_temperatures, many_ks, many_ps; /* 1: one for each row */
  uint32_t many_seeds, many_steps;
  uint32_t columns; /* of a block, at most; a multiple of 8 */
  uint32_t is_held; /* 1: they are kept in shared memory, behind SAMPLE_SHARED_BYTES */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, what it calls) */
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

rondo_status sample_check(const struct op_task *task);
int64_t sample_host_items(const struct op_task *task);
void sample_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status sample_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

extern const struct op op_sample;
#endif
#endif
