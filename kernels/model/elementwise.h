/* elementwise.h - rondo_add_silu_mul and rondo_add_add: the two operations, their kernel and its parameters.
 *
 * The three operands have one shape and one type. They are treated as rows: dimensions that are dense in all three
 * become part of the row. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum { ELEMENTWISE_THREADS = 256, ELEMENTWISE_OUTER = 3, ELEMENTWISE_ELEMENTS = 8 /* of a thread */ };

/* Strides are counted in elements. */
struct elementwise_parameters {
  const void *a, *b; /* gate and up of silu_mul; b of add in i32 may be NULL */
  void *out;
  int64_t a_stride[ELEMENTWISE_OUTER], b_stride[ELEMENTWISE_OUTER], out_stride[ELEMENTWISE_OUTER];
  uint32_t extent[ELEMENTWISE_OUTER]; /* outermost first; 1 for a dimension that does not exist */
  uint32_t row;                       /* elements */
  uint32_t row_parts, parts;          /* threads for a row, and for all rows */
  uint32_t dtype;
  uint32_t is_aligned; /* 1: the rows of all three begin at multiples of 16 bytes */
  uint32_t more;       /* of add in i32: is added too */
  uint32_t is_gated;   /* 1: silu_mul; 0: add */
  uint32_t reserved;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define ELEMENTWISE_KERNELS(KERNEL)                                                                                    \
  KERNEL(EVERY_CHIP, elementwise_parameters, rondo_elementwise, ELEMENTWISE_THREADS, elementwise)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"
#include "../common/dense_rows.h"

enum { ELEMENTWISE_OUT, ELEMENTWISE_A, ELEMENTWISE_B, ELEMENTWISE_OPERANDS }; /* operands; A and B are gate and up */

/* Of op_add, in i32 alone. */
struct add_attributes {
  int32_t more; /* out = a + more, without b; 0: out = a + b */
};

static inline struct dense_rows elementwise_rows_of(const struct op_task *task) {
  return dense_rows_of(&task->operands[ELEMENTWISE_OUT], task->operands, ELEMENTWISE_OPERANDS);
}

extern const struct op op_silu_mul, op_add;
rondo_status silu_mul_check(const struct op_task *task);
rondo_status add_check(const struct op_task *task);
int64_t elementwise_host_items(const struct op_task *task);
void elementwise_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status elementwise_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
