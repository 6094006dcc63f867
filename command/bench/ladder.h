/* ladder.h - what ladder.cu and bench_ladder.c tell each other. */
#ifndef RONDO_LADDER_H
#define RONDO_LADDER_H

#include <stdint.h>

enum {
  LADDER_LANES = 128, /* threads of a block in the first steps */
  LADDER_WARPS = 8,   /* of a block from ladder_four_rows on */
  LADDER_ROWS = 4,    /* of a warp, from there on */
  LADDER_STAGES = 4,  /* of the last step's ring */
  LADDER_STAGE_BYTES = 19008,
  LADDER_BARRIER_BYTES = 64,
};

/* c = scale A b for each matrix of a batch, NVFP4 times NVFP4, dense, scales by row; k a multiple of 1024 and m of 32.
 * 16-byte aligned. The grid's second dimension counts matrices. */
struct ladder_product {
  const uint8_t *a, *a_scales, *b, *b_scales;
  uint16_t *c; /* f16 */
  uint32_t m, k;
  float scale;
};

#endif
