/* gemv_launch.h - the launch that the library selects for a product on an H200, from its description. Needs no GPU. */
#pragma once

#include "../../kernels/gemv/gemv.h"
#include "../../runtime/op.h"
#include "../support.h"

/* The launch of the trial's only task, which has one; ends the trial. Weights are settled unless written. */
struct op_launch selected_launch(struct trial *trial, bool written);

/* A product of NVFP4 weights. */
struct described {
  rondo_dtype vectors;
  int64_t m, k;  /* 0: 7168, 16384 */
  int64_t count; /* of vectors; 0: one */
  int64_t gap;   /* elements after each row of the weights */
  rondo_scale_layout layout;
  float norm_epsilon;
  int32_t one_order, silu_mul;
  bool written; /* the weights are an input: something writes them in each replay */
};

/* The launch of a product that is described so. */
struct op_launch launch_of(struct described what);
