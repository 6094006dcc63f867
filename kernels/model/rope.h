/* rope.h - rondo_add_rope, the rotary embedding: the operation, its kernels and their parameters. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  ROPE_THREADS = 128,
  ROPE_PAIRS = 4,        /* of a thread, in each of its heads */
  ROPE_HEADS = 4,        /* of a thread of rondo_rope_heads */
  ROPE_MOST_PAIRS = 128, /* of a row: the largest head dimension is 256 */
};

/* rondo_rope. Strides are counted in elements. */
struct rope_parameters {
  const void *x;
  void *out;
  const int32_t *positions;
  const float *frequencies; /* on the device, in radians for each position; NULL: base_frequencies */
  int64_t x_batch, x_head, x_row, out_batch, out_head, out_row;
  uint32_t batch, heads, sequence, pairs; /* pairs of a row */
  uint32_t row_parts, head_parts, parts;  /* threads for a row, for the same pairs of all heads, and in all */
  uint32_t dtype;
  uint32_t by_halves;
  uint32_t is_aligned; /* 1: a thread's numbers begin at multiples of a vector, in all rows of x and out */
  uint32_t per_item;   /* 1: one position for each item of the batch; 0: one position for all */
  float base_frequencies[ROPE_MOST_PAIRS];
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define ROPE_KERNELS(KERNEL)                                                                                           \
  KERNEL(EVERY_CHIP, rope_parameters, rondo_rope, ROPE_THREADS, rope_rows<1>)                                          \
  KERNEL(EVERY_CHIP, rope_parameters, rondo_rope_heads, ROPE_THREADS, rope_rows<ROPE_HEADS>)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { ROPE_X, ROPE_POSITION, ROPE_FREQUENCIES, ROPE_OUT, ROPE_OPERANDS }; /* operands */

struct rope_attributes {
  int32_t layout, pairing;
  float base;
};

/* The frequencies of the d/2 pairs in radians for each position: base^(-2i/d), rounded to fp32 once. */
void rope_frequencies(float base, int64_t pairs, float *frequencies);

extern const struct op op_rope;
OP_FUNCTIONS(rope);
#endif
