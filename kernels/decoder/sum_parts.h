/* sum_parts.h - the first step of a layer half with x in 16 bits: out = x + the sum of the parts of the half before;
 * and zeros for those of its own parts that no product writes. No graph describes it. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum { SUM_PARTS_THREADS = 128 };

/* rondo_sum_parts. Strides are counted in elements. */
struct sum_parts_parameters {
  const void *x;
  const float *parts; /* or NULL */
  void *out;
  float *zeros; /* or NULL */
  int64_t x_row, out_row;
  int64_t part, part_row, zero, zero_row; /* from part to part, and from row to row */
  uint32_t elements, columns;             /* of x */
  uint32_t part_count, zero_count;
  uint32_t dtype; /* of x and out */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, the function that it calls) */
#define SUM_PARTS_KERNELS(KERNEL)                                                                                      \
  KERNEL(EVERY_CHIP, sum_parts_parameters, rondo_sum_parts, SUM_PARTS_THREADS, sum_parts)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_sum_parts;

/* Operands: x and out [rows, columns]; f32 [parts, rows, columns], both optional. */
enum { SUM_PARTS_X, SUM_PARTS_PARTS, SUM_PARTS_OUT, SUM_PARTS_ZEROS, SUM_PARTS_OPERANDS };

rondo_status sum_parts_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
int64_t sum_parts_host_items(const struct op_task *task);
void sum_parts_host_run(const struct op_call *call, int64_t first, int64_t last);
#endif
