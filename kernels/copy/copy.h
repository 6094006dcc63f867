/* copy.h - rondo_add_copy: the operation, its kernels and their parameters. A copy moves a rectangle.
 *
 * A rectangle is rows of bytes. Dimensions that are dense in both tensors become part of the row; at most three outer
 * dimensions remain. exec.c uses this operation for inputs and outputs, between pinned and device memory, and so either
 * address may be the host's. Several small inputs or outputs share one launch: transfer.h. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  COPY_OUTER = 3, /* outer dimensions at most */
  COPY_THREADS = 256,
  COPY_UNROLL = 4, /* loads in flight in each thread */
  COPY_VECTOR_BYTES = 16,
  COPY_BLOCK_BYTES = COPY_THREADS * COPY_VECTOR_BYTES, /* a block's share of a small copy */
  COPY_SMALL_BYTES = 64 * 1024,                        /* up to this size one block for each 4 KB is fastest: copy.c */
};

/* rondo_copy. Strides and sizes are in vectors of vector_bytes: 16, 8, 4, 2 or 1, the most that the alignment of all
 * offsets, strides and sizes allows. `total` fits 32 bits: a tensor has at most 2^31 elements, and a vector holds at
 * least one element. */
struct copy_parameters {
  const void *src;
  void *dst;
  int64_t src_stride[COPY_OUTER], dst_stride[COPY_OUTER];
  uint32_t extent[COPY_OUTER]; /* outermost first; 1 for a dimension that does not exist */
  uint32_t row;                /* vectors in a row */
  uint32_t total;              /* vectors in all */
  uint32_t vector_bytes;
  struct completion done;
};

/* rondo_copy_small: one row of at most COPY_SMALL_BYTES. Both addresses are multiples of 16. A thread moves one
 * vector. */
struct copy_small_parameters {
  const void *src;
  void *dst;
  uint32_t bytes;
  uint32_t reserved;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define COPY_KERNELS(KERNEL)                                                                                           \
  KERNEL(EVERY_CHIP, copy_parameters, rondo_copy, COPY_THREADS, copy_rows)                                             \
  KERNEL(EVERY_CHIP, copy_small_parameters, rondo_copy_small, COPY_THREADS, copy_small)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"
#include "../common/dense_rows.h"

enum { COPY_SRC, COPY_DST }; /* operands */

/* The rectangle; a row begins and ends at whole bytes. */
static inline struct dense_rows copy_rows_of(const struct op_task *task) {
  return dense_rows_of(&task->operands[COPY_SRC], task->operands, 2);
}
static inline int64_t copy_bytes(const struct op_task *task, int64_t elements) {
  return elements * (int64_t)rondo_dtype_bits(task->operands[COPY_SRC].dtype) / 8;
}

OP_FUNCTIONS(copy);
#endif
