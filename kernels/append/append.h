/* append.h - rondo_add_append: the operation, its kernel and the kernel's parameters. An append writes rows at a
 * position that the device reads.
 *
 * Both tensors are divided into pieces, which are dense runs of bytes. Each piece has an index in every outer
 * dimension. One outer dimension counts the rows: the piece of row i of src goes to row i + position of dst, if dst has
 * that row. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  APPEND_OUTER = 4, /* outer dimensions at most: all four of a tensor, if the last one counts the rows */
  APPEND_THREADS = 256,
  APPEND_UNROLL = 4, /* loads in flight in each thread */
  APPEND_VECTOR_BYTES = 16,
};

/* rondo_append. Strides and sizes are in vectors of vector_bytes: 16, 8, 4, 2 or 1, the most that the alignment of all
 * offsets, strides and sizes allows. */
struct append_parameters {
  const void *src;
  void *dst;
  const int32_t *positions;
  int64_t src_stride[APPEND_OUTER], dst_stride[APPEND_OUTER];
  uint32_t extent[APPEND_OUTER]; /* of src, outermost first; 1 after the last dimension */
  uint32_t piece, total;         /* vectors of a piece, and of src */
  uint32_t vector_bytes;
  uint32_t dimension; /* the one that counts the rows */
  uint32_t capacity;  /* rows of dst */
  uint32_t per_item;  /* 1: one position for each index of the first dimension; 0: one position for all */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define APPEND_KERNELS(KERNEL) KERNEL(EVERY_CHIP, append_parameters, rondo_append, APPEND_THREADS, append_rows)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { APPEND_SRC, APPEND_DST, APPEND_POSITION }; /* operands */

struct append_attributes {
  uint32_t dimension;
};

/* The same as append_parameters, in bytes. */
struct append_shape {
  int64_t extent[APPEND_OUTER];
  int64_t src_stride[APPEND_OUTER], dst_stride[APPEND_OUTER];
  int64_t piece_bytes;
  int64_t pieces; /* the product of the extents; 0 if there is nothing to write */
  int64_t capacity;
  uint32_t dimension;
  bool per_item;
};
struct append_shape append_shape_of(const struct op_task *task);

extern const struct op op_append;
OP_FUNCTIONS(append);
int64_t append_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
#endif
