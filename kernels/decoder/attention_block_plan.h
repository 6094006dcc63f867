/* attention_block_plan.h - which kernel does an attention block, and what it is told of sizes: between
 * attention_block_select.c and attention_block_wide_select.c. */
#ifndef RONDO_ATTENTION_BLOCK_PLAN_H
#define RONDO_ATTENTION_BLOCK_PLAN_H

#include "../../runtime/op.h"
#include "attention_block.h"
#include "decoder.h"

enum {
  ATTENTION_BLOCK_STAT_NUMBERS = 2,
  ATTENTION_BLOCK_CUT_BYTES = 64 /* sums of a tile */
};

struct attention_block_plan {
  const struct op_kernel *kernel;
  struct attention_block_parameters parameters; /* shares, group, places; factor: what the weights' format asks for */
  int64_t parts;                                /* clusters */
  int64_t shared_bytes;
};

/* A product of so many rows and chunks of columns. */
struct attention_block_share attention_block_share_of(int64_t rows, int64_t chunks, int64_t warps);

/* A kernel of attention_block_wide.cu; false where they do not suit. */
bool attention_block_wide_plan(const struct attention_block_shape *shape, const struct chip *chip,
                               struct attention_block_plan *plan);

/* A kernel of attention_rows.cu, for several rows; so too. */
bool attention_rows_plan(const struct attention_block_shape *shape, const struct chip *chip,
                         struct attention_block_plan *plan);

#endif
