/* ladder.h - the kernels of ladder.cu and their parameters. */
#pragma once

#include <stdint.h>

enum {
  LADDER_LANES = 128, /* threads of a block in the first steps */
  LADDER_WARPS = 8,   /* warps of a block from ladder_four_rows on */
  LADDER_ROWS = 4,    /* rows of a warp from ladder_four_rows on */
  LADDER_STAGES = 4,  /* stages of the last step's ring */
  LADDER_STAGE_BYTES = 19008,
  LADDER_BARRIER_BYTES = 64,
};

/* c = scale A b for each matrix of a batch, NVFP4 times NVFP4. All tensors are dense and begin at multiples of 16
 * bytes; scale factors are stored by row. k is a multiple of 1024, m of 32. The grid's second dimension counts
 * matrices. */
struct ladder_product {
  const uint8_t *a, *a_scales, *b, *b_scales;
  uint16_t *c; /* f16 */
  uint32_t m, k;
  float scale;
};
