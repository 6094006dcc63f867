/* append.h - rows written at a position that the device reads: the row of the operation table, and what host code and
 * kernel tell each other.
 *
 * Both tensors are taken apart into pieces of bytes that lie densely, one for each element of the dimensions around
 * them. One of those dimensions counts rows: there a piece of src goes to its own row plus the position, if dst has it.
 */
#ifndef RONDO_APPEND_H
#define RONDO_APPEND_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  APPEND_OUTER = 4, /* dimensions around the pieces: all of a tensor's, where the last one counts rows */
  APPEND_THREADS = 256,
  APPEND_UNROLL = 4, /* loads in flight in each thread */
  APPEND_VECTOR_BYTES = 16,
};

/* rondo_append. Strides and sizes are counted in vectors of vector_bytes: 16, 8, 4, 2 or 1, as alignment and sizes
 * allow. */
struct append_parameters {
  const void *src;
  void *dst;
  const int32_t *positions;
  int64_t src_stride[APPEND_OUTER], dst_stride[APPEND_OUTER];
  uint32_t extent[APPEND_OUTER]; /* of src, outermost first; 1 behind the last dimension */
  uint32_t piece, total;         /* vectors */
  uint32_t vector_bytes;
  uint32_t dimension; /* that counts rows */
  uint32_t capacity;  /* rows of dst */
  uint32_t per_item;  /* 1: a position for each of the first dimension; 0: one for all */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
#define APPEND_KERNELS(KERNEL) KERNEL(EVERY_CHIP, append_parameters, rondo_append, APPEND_THREADS, append_rows)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { APPEND_SRC, APPEND_DST, APPEND_POSITION }; /* operands */

struct append_attributes {
  uint32_t dimension;
};

/* The same in bytes. */
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

rondo_status append_check(const struct op_task *task);
int64_t append_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
int64_t append_host_items(const struct op_task *task);
void append_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status append_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

extern const struct op op_append;
#endif
#endif
