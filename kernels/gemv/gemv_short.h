/* gemv_short.h - what gemv_short.cu and gemv_short_plan.c agree on. */
#ifndef RONDO_GEMV_SHORT_H
#define RONDO_GEMV_SHORT_H

#include "gemv.h"

/* A group is eight rows, and a warp has as many of them as there are turns, at most. */
enum {
  GEMV_SHORT_ROWS = 8,
  GEMV_SHORT_WARPS = 16,
  GEMV_SHORT_TURNS = 4,
  GEMV_SHORT_VECTOR_BYTES = 2048, /* of shared memory: 960 elements in 16 bits, and 16 bytes more */
  GEMV_SHORT_BEHIND = 16,         /* the scales: bytes that are read in vain */
};
/* Bytes from row to row in shared memory: four lanes' blocks of weights. */
#define GEMV_SHORT_PITCH(blocks) (4 * (blocks)*GEMV_BLOCK / 2)
/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, vectors, blocks of 16 that a
 * lane has of a row: an odd number. Seventeen do not fit into registers). */
#define GEMV_SHORT(KERNEL, name, V, blocks)                                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name, GEMV_SHORT_WARPS * 32, 1, V, blocks)
#define GEMV_SHORT_KERNELS(KERNEL)                                                                                     \
  GEMV_SHORT(KERNEL, rondo_gemv_short_f16_b9, RONDO_F16, 9)                                                            \
  GEMV_SHORT(KERNEL, rondo_gemv_short_f16_b15, RONDO_F16, 15)                                                          \
  GEMV_SHORT(KERNEL, rondo_gemv_short_bf16_b9, RONDO_BF16, 9)                                                          \
  GEMV_SHORT(KERNEL, rondo_gemv_short_bf16_b15, RONDO_BF16, 15)                                                        \
  GEMV_SHORT(KERNEL, rondo_gemv_short_nvfp4_b9, RONDO_NVFP4, 9)                                                        \
  GEMV_SHORT(KERNEL, rondo_gemv_short_nvfp4_b15, RONDO_NVFP4, 15)

#endif
