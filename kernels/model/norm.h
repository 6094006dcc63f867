/* norm.h - rondo_add_rms_norm: the operation, its kernels and their parameters. The norm divides rows by their root
 * mean square. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  RMS_NORM_THREADS = 1024,    /* the most of a block, and of a row with parts */
  RMS_NORM_ROW_THREADS = 512, /* the most of a row without parts */
  RMS_NORM_BLOCK = 256,       /* the fewest threads of a block */
  RMS_NORM_OUTER = 3,         /* outer dimensions at most */
  RMS_NORM_PARTS = 16,        /* parts that a thread loads at once */
  RMS_NORM_CLUSTER = 8,       /* blocks that share a row with parts, from RMS_NORM_LONG columns on */
  RMS_NORM_LONG = 1024,
  RMS_NORM_HELD_SUMS = 2, /* numbers that a thread keeps in registers between sum and product, with parts */
  RMS_NORM_HELD = 4,      /* vectors of eight numbers that it keeps without parts, if all are of one type */
  RMS_NORM_HELD_ANY = 2,  /* and else */
  RMS_NORM_FEWEST = 8,    /* the fewest threads of a row; their number is a power of two */
};

/* Of all kernels. Strides are counted in elements. */
struct rms_norm_parameters {
  const void *x, *norm; /* norm may be NULL */
  const float *parts;   /* of the kernels with parts, as sum and zeros are; or NULL */
  void *out, *sum;      /* sum: of x and its parts, or NULL */
  float *zeros;         /* zero_count parts that become zeros */
  int64_t x_stride[RMS_NORM_OUTER], out_stride[RMS_NORM_OUTER], parts_stride[RMS_NORM_OUTER];
  int64_t part, zero;              /* the stride from one part to the next */
  int64_t sum_row, zero_row;       /* from one row to the next */
  uint32_t extent[RMS_NORM_OUTER]; /* outermost first; 1 for a dimension that does not exist */
  uint32_t rows, k;
  uint32_t row_threads;
  uint32_t x_dtype, norm_dtype, out_dtype;
  uint32_t part_count, zero_count;
  uint32_t x_is_aligned, norm_is_aligned, out_is_aligned; /* 1: rows begin at multiples of 16 bytes */
  uint32_t whole_type;  /* of x, norm and out, if it is one of 16 bits, and all rows are whole vectors of 16 bytes */
  uint32_t plain;       /* 1: rows are not divided */
  uint32_t early;       /* 1: whole_type, and there is a norm, which is settled */
  uint32_t always_zero; /* 0: see keep_early */
  float epsilon;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define RMS_NORM_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, rms_norm_parameters, rondo_rms_norm, RMS_NORM_ROW_THREADS, rms_norm_rows)
#define RMS_NORM_PARTS_KERNELS(KERNEL)                                                                                 \
  KERNEL(EVERY_CHIP, rms_norm_parameters, rondo_rms_norm_parts, RMS_NORM_THREADS, rms_norm_sums<1>)
#define RMS_NORM_CLUSTER_KERNELS(KERNEL)                                                                               \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, rms_norm_parameters, rondo_rms_norm_parts_cluster, RMS_NORM_THREADS,              \
         rms_norm_sums<RMS_NORM_CLUSTER>)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

/* Operands. The last two, and `plain`, are for the first step of a layer half (decoder/), whose x has rank 2: x plus
 * its parts, in x's type; and f32 [count, rows, columns], which becomes zeros. */
enum { RMS_NORM_X, RMS_NORM_NORM, RMS_NORM_OUT, RMS_NORM_X_PARTS, RMS_NORM_SUM, RMS_NORM_ZEROS, RMS_NORM_OPERANDS };

struct rms_norm_attributes {
  float epsilon;
  int32_t plain; /* 1: rows are not divided */
};

extern const struct op op_rms_norm;
OP_FUNCTIONS(rms_norm);
#endif
