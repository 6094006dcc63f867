/* qr_block_plan.h - which kernel factors a matrix by block columns, if any does. */
#ifndef RONDO_QR_BLOCK_PLAN_H
#define RONDO_QR_BLOCK_PLAN_H

#include "qr_block.h"

struct qr_block {
  struct op_kernel kernel;
  int32_t element_bytes, rows, columns, chunk;
};

struct qr_block_problem {
  uint32_t element_bytes;
  int64_t m, n, batch;
  int64_t shared_bytes; /* of the chip */
};

struct qr_block_plan {
  const struct qr_block *block; /* NULL: left to other kernels */
  int64_t shared_bytes;
};

/* Pure: the kernel for the fewest rows. The batch chooses nothing, so that it changes no bit. */
struct qr_block_plan qr_block_plan_of(const struct qr_block_problem *problem);

#endif
