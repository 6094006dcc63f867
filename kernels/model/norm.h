/* norm.h - rows divided by their root mean square: the row of the operation table, and what host code and kernel
 * tell each other. */
#ifndef RONDO_NORM_H
#define RONDO_NORM_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  RMS_NORM_THREADS = 1024, /* of a block, and of a row, at most; of a block at least RMS_NORM_BLOCK */
  RMS_NORM_BLOCK = 256,
  RMS_NORM_OUTER = 3,     /* dimensions around the rows */
  RMS_NORM_HELD_SUMS = 2, /* numbers of a thread, with parts */
  RMS_NORM_HELD = 2,      /* eights of a row that a thread keeps in registers between sum and product */
  RMS_NORM_FEWEST = 8,    /* threads of a row; it is a power of two of them, up to all of a block */
};

/* rondo_rms_norm and rondo_rms_norm_parts. Strides are counted in elements. */
struct rms_norm_parameters {
  const void *x, *norm; /* norm may be NULL */
  const float *parts;   /* of the latter */
  void *out;
  int64_t x_stride[RMS_NORM_OUTER], out_stride[RMS_NORM_OUTER], parts_stride[RMS_NORM_OUTER];
  int64_t part;                    /* stride, from one to the next */
  uint32_t extent[RMS_NORM_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t rows, k;
  uint32_t row_threads;
  uint32_t x_dtype, norm_dtype, out_dtype;
  uint32_t part_count;
  uint32_t x_is_aligned, norm_is_aligned, out_is_aligned; /* 1: rows begin at multiples of 16 bytes */
  float epsilon;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
#define RMS_NORM_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, rms_norm_parameters, rondo_rms_norm, RMS_NORM_THREADS, rms_norm_rows)                             \
  KERNEL(EVERY_CHIP, rms_norm_parameters, rondo_rms_norm_parts, RMS_NORM_THREADS, rms_norm_sums)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { RMS_NORM_X, RMS_NORM_NORM, RMS_NORM_OUT, RMS_NORM_X_PARTS, RMS_NORM_OPERANDS }; /* operands */

struct rms_norm_attributes {
  float epsilon;
};

rondo_status rms_norm_check(const struct op_task *task);
int64_t rms_norm_host_items(const struct op_task *task);
void rms_norm_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status rms_norm_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

extern const struct op op_rms_norm;
#endif
#endif
