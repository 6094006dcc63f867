/* gemm_portable.h - the kernels of gemm_portable.cu, which run on every chip: their tiles and parameters. */
#pragma once

#include "gemm.h"

enum {
  GEMM_PORTABLE_DEPTH = 64,        /* of k in a stage: 128 bytes of a row */
  GEMM_PORTABLE_GROUP_ROWS = 2048, /* of X that are taken for all of W before the next ones */
};

/* A tile of results: rows of X and of W, warps along each, slices of k in a stage, stages; W is in NVFP4. */
struct gemm_portable_tile {
  int x, w, along_x, along_w, slices, stages, codes;
};
/* Numbers from a row of sums to the next, in shared memory: stores of eight rows meet different banks. */
GEMM_CONSTANT int gemm_portable_stride(int w) { return w + 8; }
GEMM_CONSTANT int gemm_portable_shared_bytes(struct gemm_portable_tile t) {
  const int stages = t.stages * (t.x + t.w) * GEMM_PORTABLE_DEPTH * 2;
  const int sums = t.slices * t.x * gemm_portable_stride(t.w) * 4;
  return stages > sums ? stages : sums;
}

/* Strides are in elements. */
struct gemm_portable_parameters {
  const uint16_t *x;
  const void *w; /* 16-bit numbers, or NVFP4's codes */
  int64_t x_batch, x_row, w_batch, w_row;
  int64_t k;
  uint32_t rows, columns; /* of a matrix of out: of X and of W */
  uint32_t row_tiles, column_tiles;
  uint32_t group; /* tiles along X that are taken for all of W before the next ones */
  /* Parts of k, each of part_k, are summed by blocks of their own. With several, out is [parts, batch, rows, columns]
   * in f32, rows of a multiple of 8 columns, and part_numbers are those of a part; rondo_gemm_portable_sum adds them
   * up: units of 8 columns, of all rows. */
  uint32_t parts, units;
  int64_t part_k, part_numbers;
  const float *sums;
  uint32_t is_bf16;    /* X and W are, else f16 */
  uint32_t vectors;    /* rows of X and W begin at multiples of 16 bytes */
  uint32_t code_words; /* W in NVFP4: rows of codes begin at multiples of 8 bytes */
  uint32_t out_whole, residual_whole, normed_whole, norm_whole; /* rows begin at multiples of 16 bytes */
  uint32_t plain; /* out and residual are whole and of 16 bits, and there is no norm */
  uint32_t scale_batch;
  struct gemv_scale_strides scale_strides;
  const unsigned char *scales;
  struct gemm_finish finish;
  struct completion done;
  struct gemm_norms norms; /* last: other tasks do not read its lines */
};

/* KERNEL(chips, parameters, name, threads, blocks that a multiprocessor must hold at least, tile) */
#define GEMM_PORTABLE_KERNEL(KERNEL, name, ...)                                                                        \
  KERNEL(EVERY_CHIP, gemm_portable_parameters, rondo_gemm_portable_##name, __VA_ARGS__)
#define GEMM_PORTABLE_KERNELS(KERNEL)                                                                                  \
  GEMM_PORTABLE_KERNEL(KERNEL, 128x256, 256, 1, (128, 256, 2, 4, 1, 3, 0))                                             \
  GEMM_PORTABLE_KERNEL(KERNEL, 128, 128, 1, (128, 128, 2, 2, 1, 4, 0))                                                 \
  GEMM_PORTABLE_KERNEL(KERNEL, 64, 128, 3, (64, 64, 2, 2, 1, 3, 0))                                                    \
  GEMM_PORTABLE_KERNEL(KERNEL, 64_slices, 256, 1, (64, 64, 2, 2, 2, 6, 0))                                             \
  GEMM_PORTABLE_KERNEL(KERNEL, nvfp4_64, 128, 3, (64, 64, 2, 2, 1, 3, 1))

#define GEMM_SUM_KERNELS(KERNEL) KERNEL(EVERY_CHIP, gemm_portable_parameters, rondo_gemm_portable_sum, 128)
