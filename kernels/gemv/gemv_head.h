/* gemv_head.h - what the kernels of matrices with many short rows and gemv_head_plan.c agree on. */
#pragma once

#include "gemv.h"

/* Rows of a block. A slot of shared memory is what a warp multiplies at a time: all slots, those that are asked for
 * before the vectors, the bytes of one, and where the first one begins. */
GEMV_PARAMETERS(gemv_head_parameters) {
  GEMV_COMMON
  uint32_t block_rows, slots, early_slots, slot_bytes, first_slot;
};

/* 1 to 16 vectors, NVFP4 or e4m3: gemv_head.cu. A slot has sixteen rows. */
enum {
  GEMV_HEAD_ROWS = 16,
  GEMV_HEAD_WARPS = 24, /* at most */
  GEMV_HEAD_MOST_K = 1024,
  GEMV_HEAD_FACTOR_BYTES = 64,
};
/* Bytes in shared memory from row to row, where 16 elements have `bytes`, and from vector to vector. */
#define GEMV_HEAD_PITCH(k, bytes) ((((k) + 63) / 64 | 1) * 4 * (bytes))
#define GEMV_HEAD_VECTOR_PITCH(k) (((k) + 63) / 64 * 128 + 16)
/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, weights, operands B). The
 * vectors' type is told at run time. */
#define GEMV_HEAD(KERNEL, name, W)                                                                                     \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_head_parameters, name##_q1, GEMV_HEAD_WARPS * 32, 1, W, 1)                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_head_parameters, name##_q1x2, GEMV_HEAD_WARPS * 32, 1, W, 2)
#define GEMV_HEAD_KERNELS(KERNEL)                                                                                      \
  GEMV_HEAD(KERNEL, rondo_gemv_head_nvfp4, RONDO_NVFP4)                                                                \
  GEMV_HEAD(KERNEL, rondo_gemv_head_e4m3, RONDO_E4M3)

/* 1 to 16 vectors in 16 bits: gemv_head_16.cu. A slot has sixteen rows. */
enum {
  GEMV_HEAD_16_WARPS = 16, /* a vector each */
  GEMV_HEAD_16_MOST_K = 2048,
  GEMV_HEAD_16_FIXED_BYTES = GEMV_HEAD_16_WARPS * 8 + GEMV_COUNT * 4, /* of shared memory: barriers and factors */
};
/* Bytes in shared memory from vector to vector. */
#define GEMV_HEAD_16_VECTOR_PITCH(k) (((k) / 32 | 1) * 64)
/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, operands B). */
#define GEMV_HEAD_16_KERNELS(KERNEL)                                                                                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_head_parameters, rondo_gemv_head_16bit_q1, GEMV_HEAD_16_WARPS * 32, 1, 1)    \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_head_parameters, rondo_gemv_head_16bit_q1x2, GEMV_HEAD_16_WARPS * 32, 1, 2)
