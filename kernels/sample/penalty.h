/* penalty.h - rondo_add_penalty, which makes recently drawn columns less likely: the operation, its kernel and the
 * kernel's parameters. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  PENALTY_THREADS = 256,
  PENALTY_MOST_IDS = 1024, /* of a row; the kernel keeps them in shared memory */
};

/* rondo_penalty. Strides are counted in elements. The pointer of an absent penalty is NULL. */
struct penalty_parameters {
  void *x;
  const int32_t *ids;
  const float *repetition, *frequency, *presence;
  int64_t stride, ids_stride;
  uint32_t n, length;
  uint32_t dtype;
  uint32_t many_repetitions, many_frequencies, many_presences; /* 1: one value for each row; 0: one for all */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define PENALTY_KERNELS(KERNEL) KERNEL(EVERY_CHIP, penalty_parameters, rondo_penalty, PENALTY_THREADS, penalize_row)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum {
  PENALTY_X,
  PENALTY_IDS,
  PENALTY_REPETITION,
  PENALTY_FREQUENCY,
  PENALTY_PRESENCE,
  PENALTY_OPERANDS
}; /* operands */

extern const struct op op_penalty;
OP_FUNCTIONS(penalty);
int64_t penalty_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
#endif
