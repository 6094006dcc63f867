/* gemv_ring.h - what gemv_ring.cu and gemv_ring_plan.c agree on. */
#pragma once

#include "gemv.h"

/* gemv_ring.cu: rows of a block, and of a group in a tile; the stages, how many are filled before the vectors come,
 * their bytes and where the first one begins; floats from vector to vector of the sums; where the warps' own memory
 * begins, and bytes of a warp. */
GEMV_PARAMETERS(gemv_ring_parameters) {
  GEMV_COMMON
  uint32_t block_rows, group_rows, stages, early_stages, stage_bytes, first_stage, pitch, own_memory, own_bytes;
};

/* KERNEL(chips, parameters, name, the most threads of a block, blocks of as many that a multiprocessor holds, vectors,
 * how many at most, rows that a group multiplies at a time, elements of a part, how many of the last part's may lie
 * beyond the end of k, product): gemv_ring.cu. */
#define GEMV_RING(KERNEL, name, ...)                                                                                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_ring_parameters, rondo_gemv_ring_##name, __VA_ARGS__)
#define GEMV_RING_KERNELS(KERNEL)                                                                                      \
  GEMV_RING(KERNEL, 16bit_blocks_s4, 512, 1, GEMV_16_BITS, 1, 16, 512, 256, blocks_product<4>)                         \
  GEMV_RING(KERNEL, 16bit_pairs_s8, 544, 1, GEMV_16_BITS, 1, 8, 1024, 1024, pairs_product<8>)                          \
  GEMV_RING(KERNEL, 16bit_q8_s2, 288, 2, GEMV_16_BITS, 1, 2, 2048, 1024, quads_product<8, 2>)                          \
  GEMV_RING(KERNEL, 16bit_q2_s4, 512, 1, GEMV_16_BITS, 4, 8, 1024, 256, quads_product<2, 4>)                           \
  GEMV_RING(KERNEL, nvfp4_s7, 384, 1, RONDO_NVFP4, 1, 1, 7168, 1024, integer_product<7>)                               \
  GEMV_RING(KERNEL, nvfp4_s4, 512, 1, RONDO_NVFP4, 1, 1, 4096, 1024, integer_product<4>)
