/* gemv_scalar.h - what gemv_scalar.cu and gemv_scalar_plan.c agree on. */
#pragma once

#include "gemv.h"

enum {
  GEMV_SCALAR_THREADS = 256,
  GEMV_SCALAR_ROWS = 4,   /* of a warp of the kernel for everything */
  GEMV_SCALAR_STEP = 128, /* elements that it takes of each row at a time */
};

GEMV_PARAMETERS(gemv_scalar_parameters) {
  GEMV_COMMON
  uint64_t weight_batch_bytes, vector_batch_bytes; /* of any alignment */
  uint32_t batch;
};

/* KERNEL(chips, parameters, name, threads, blocks that a multiprocessor must hold at least, what it calls). */
#define GEMV_SCALAR_KERNELS(KERNEL)                                                                                    \
  KERNEL(EVERY_CHIP, gemv_scalar_parameters, rondo_gemv_scalar, GEMV_SCALAR_THREADS, 2, gemv_scalar)
