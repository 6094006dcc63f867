/* gemm_block.h - a block of vectors times rows of a matrix, all decoded, on the host: what gemm_host.c asks of the
 * loops in gemm_block_loops.h, which are compiled for AVX2 and for AVX-512 and give the same bits. */
#pragma once

#include <stdint.h>

enum {
  BLOCK_ROWS = 32,     /* of the matrix: a panel */
  BLOCK_PANELS = 4,    /* whose sums lie beside each other */
  BLOCK_VECTORS = 384, /* the most; a multiple of BLOCK_STEP */
  BLOCK_STEP = 4,      /* vectors are a multiple */
  BLOCK_DEPTH = 128,   /* of k; a multiple of each run below */
  BLOCK_PITCH = BLOCK_ROWS * BLOCK_PANELS,
  BLOCK_ALIGNMENT = 64
};

struct gemm_block {
  const float *vectors; /* [count][BLOCK_DEPTH] */
  const float *weights; /* [depth][BLOCK_ROWS] */
  int64_t count, depth;
  int64_t run; /* products along k that are summed from zero, before they are added to the sum */
  float *sums; /* [count][BLOCK_PITCH] */
};

/* A sum of n products has at most run + n / run roundings. That is within the bound of the header: 16 + n/8 roundings
 * of 2^-24. */
static inline int64_t gemm_block_run(int64_t k) { return k < 256 ? 16 : k < 512 ? 32 : k < 1024 ? 64 : 128; }

typedef void gemm_block_loops(const struct gemm_block *block);
gemm_block_loops gemm_block_256, gemm_block_512;
gemm_block_loops *gemm_block_loops_here(void); /* of this processor */
