/* argmax.h - rondo_add_argmax, the column of each row's largest number: the operation, its kernels and their
 * parameters. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum { ARGMAX_THREADS = 1024, ARGMAX_CLUSTER = 8 /* blocks of a row in rondo_argmax_cluster */ };

/* rondo_argmax and rondo_argmax_cluster. The stride is counted in elements. */
struct argmax_parameters {
  const void *x;
  int32_t *out;
  int64_t stride;
  uint32_t n;
  uint32_t dtype;
  uint32_t is_aligned; /* 1: rows begin at multiples of 16 bytes */
  uint32_t reserved;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define ARGMAX_KERNELS(KERNEL) KERNEL(EVERY_CHIP, argmax_parameters, rondo_argmax, ARGMAX_THREADS, argmax_row<1>)
#define ARGMAX_CLUSTER_KERNELS(KERNEL)                                                                                 \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, argmax_parameters, rondo_argmax_cluster, ARGMAX_THREADS,                          \
         argmax_row<ARGMAX_CLUSTER>)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { ARGMAX_X, ARGMAX_OUT, ARGMAX_OPERANDS }; /* operands */

extern const struct op op_argmax;
OP_FUNCTIONS(argmax);
#endif
