/* gptq.h - rounds a matrix of weights to NVFP4 so that its products with typical inputs change little: GPTQ (Frantar
 * and others, arXiv 2210.17323), with a choice of the scale factors. */
#pragma once

#include <stdint.h>

#include "hessian.h"

enum { GPTQ_BLOCK = HESSIAN_BLOCK }; /* columns with one scale factor */

struct gptq {
  struct grid weights;    /* the number of columns is a multiple of GPTQ_BLOCK */
  const int64_t *columns; /* in the order in which they are rounded (hessian_order) */
  struct grid factor;     /* R of the inputs in this order (hessian.h), mirrored */
  float global_scale;     /* a weight is code * scale * global_scale */
  uint8_t *codes;         /* results: e2m1, a byte each, [rows, columns] */
  uint8_t *scales;        /* e4m3, [rows, columns / 16] */
  struct grid rounded;    /* the weights that they stand for */
};

/* Returns the sum of the squares of all changes of results: |(weights - rounded) R|^2. */
double gptq_round(const struct gptq *gptq);
