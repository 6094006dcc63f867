/* rope.h - rotary embedding: the row of the operation table, and what host code and kernel tell each other. */
#ifndef RONDO_ROPE_H
#define RONDO_ROPE_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  ROPE_THREADS = 128,
  ROPE_PAIRS = 4,        /* of a thread, in each of its heads */
  ROPE_HEADS = 4,        /* of a thread, where there are many */
  ROPE_MOST_PAIRS = 128, /* of a row: the largest head dimension is 256 */
};

/* rondo_rope. Strides are counted in elements. */
struct rope_parameters {
  const void *x;
  void *out;
  const int32_t *positions;
  const float *frequencies; /* radians a position, on the device; NULL: base_frequencies */
  int64_t x_batch, x_head, x_row, out_batch, out_head, out_row;
  uint32_t batch, heads, sequence, pairs; /* pairs of a row */
  uint32_t row_parts, head_parts, parts;  /* threads for a row, for a column of heads, and in all */
  uint32_t dtype;
  uint32_t by_halves;
  uint32_t is_aligned; /* 1: eight numbers of x and of out begin at multiples of what they take, in all rows */
  uint32_t per_item;   /* 1: a position for each item; 0: one for all */
  float base_frequencies[ROPE_MOST_PAIRS];
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
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

/* Radians a position of each of the d/2 pairs: base^(-2i/d), rounded to fp32 once. */
void rope_frequencies(float base, int64_t pairs, float *frequencies);
/* base is 0 or more and finite, pairing one of the two: else a sentence that begins with `prefix` before the field. */
rondo_status rope_check_fields(const char *prefix, float base, int32_t pairing);

rondo_status rope_check(const struct op_task *task);
int64_t rope_host_items(const struct op_task *task);
void rope_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status rope_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

extern const struct op op_rope;
#endif
#endif
