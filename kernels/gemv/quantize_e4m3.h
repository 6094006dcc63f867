/* quantize_e4m3.h - rondo_add_quantize_e4m3: the operation, its kernel and what host code tells it. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  QUANTIZE_E4M3_THREADS = 512, /* the most of a row */
  QUANTIZE_E4M3_BLOCK = 256,   /* the fewest of a block */
  QUANTIZE_E4M3_HELD = 4,      /* vectors of eight numbers that a thread keeps in registers */
  QUANTIZE_E4M3_OUTER = 3,     /* dimensions around the rows */
};
#define QUANTIZE_E4M3_MOST  448.0f    /* e4m3's largest number */
#define QUANTIZE_E4M3_LEAST 0x1p-126f /* the least scale, also of zeros: its reciprocal is finite */

/* Strides are counted in elements. */
struct quantize_e4m3_parameters {
  const void *x;
  unsigned char *codes;
  float *scales;
  int64_t x_stride[QUANTIZE_E4M3_OUTER], code_stride[QUANTIZE_E4M3_OUTER], scale_stride[QUANTIZE_E4M3_OUTER];
  uint32_t extent[QUANTIZE_E4M3_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t rows, k;
  uint32_t row_threads;                     /* a power of two, at least a warp */
  uint32_t dtype;                           /* rondo_dtype of x */
  uint32_t whole_type;                      /* the same if all rows are whole vectors of eight numbers, else 0 */
  uint32_t x_is_aligned, codes_are_aligned; /* rows begin at multiples of 16 and of 8 bytes */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, blocks that a multiprocessor must hold at least, what it calls). */
#define QUANTIZE_E4M3_KERNELS(KERNEL)                                                                                  \
  KERNEL(EVERY_CHIP, quantize_e4m3_parameters, rondo_quantize_e4m3, QUANTIZE_E4M3_THREADS, 2, quantize_e4m3)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { QUANTIZE_E4M3_X, QUANTIZE_E4M3_CODES, QUANTIZE_E4M3_SCALES, QUANTIZE_E4M3_OPERANDS };

extern const struct op op_quantize_e4m3;
OP_FUNCTIONS(quantize_e4m3);
#endif
