/* copy.h - copying rectangles: the row of the operation table, and what host code and kernel tell each other.
 *
 * A rectangle is rows of bytes: dimensions that lie densely in both tensors are folded into the row, and the rest, at
 * most three, are counted from outermost to innermost. exec.c uses the same operation to move an input or
 * output between pinned and device memory (several small ones: transfer.h), so either address may be the host's. */
#ifndef RONDO_COPY_H
#define RONDO_COPY_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  COPY_OUTER = 3, /* dimensions around the rows */
  COPY_THREADS = 256,
  COPY_UNROLL = 4, /* loads in flight in each thread */
  COPY_VECTOR_BYTES = 16,
  COPY_BLOCK_BYTES = COPY_THREADS * COPY_VECTOR_BYTES, /* of a small copy, for each block */
  COPY_SMALL_BYTES = 64 * 1024,                        /* up to here a block for each 4 KB is best: copy_select.c */
};

/* rondo_copy. Everything is counted in vectors of vector_bytes: 16, 8, 4, 2 or 1, as alignment and sizes allow. A
 * tensor has at most 2^31 elements of at least half a byte and a vector holds whole bytes, so `total` fits. */
struct copy_parameters {
  const void *src;
  void *dst;
  int64_t src_stride[COPY_OUTER], dst_stride[COPY_OUTER];
  uint32_t extent[COPY_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t row;                /* vectors in a row */
  uint32_t total;              /* vectors in all */
  uint32_t vector_bytes;
  struct completion done;
};

/* rondo_copy_small: one row of at most COPY_SMALL_BYTES, from and to multiples of 16, a vector for each thread. */
struct copy_small_parameters {
  const void *src;
  void *dst;
  uint32_t bytes;
  uint32_t reserved;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
#define COPY_KERNELS(KERNEL)                                                                                           \
  KERNEL(EVERY_CHIP, copy_parameters, rondo_copy, COPY_THREADS, copy_rows)                                             \
  KERNEL(EVERY_CHIP, copy_small_parameters, rondo_copy_small, COPY_THREADS, copy_small)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { COPY_SRC, COPY_DST }; /* operands */

/* The rectangle in bytes. */
struct copy_shape {
  int64_t extent[COPY_OUTER];
  int64_t src_stride[COPY_OUTER], dst_stride[COPY_OUTER];
  int64_t row_bytes;
  int64_t rows; /* the product of the extents; 0 if there is nothing to copy */
};
struct copy_shape copy_shape_of(const struct op_task *task);

rondo_status copy_check(const struct op_task *task);
int64_t copy_host_items(const struct op_task *task);
void copy_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status copy_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
#endif
