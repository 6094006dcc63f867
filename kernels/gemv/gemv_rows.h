/* gemv_rows.h - what gemv_rows.cu and gemv_rows_plan.c agree on. */
#ifndef RONDO_GEMV_ROWS_H
#define RONDO_GEMV_ROWS_H

#include "gemv.h"

/* gemv_rows.cu: rows of a block; a warp's slot, and the byte of shared memory where the first one begins. */
GEMV_PARAMETERS(gemv_rows_parameters) {
  GEMV_COMMON
  uint32_t block_rows, slot_bytes, first_slot;
};

/* A group is sixteen rows. */
enum {
  GEMV_ROWS_GROUP = 16,
  GEMV_ROWS_WARPS = 24, /* at most */
  GEMV_ROWS_MOST_K = 1024,
  GEMV_ROWS_FACTOR_BYTES = 64,
};
/* Bytes in shared memory from row to row, of so many in 16 elements, and from vector to vector. */
#define GEMV_ROWS_PITCH(k, bytes) ((((k) + 63) / 64 | 1) * 4 * (bytes))
#define GEMV_ROWS_VECTOR_PITCH(k) (((k) + 63) / 64 * 128 + 16)
/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, weights, vectors, operands
 * B). */
#define GEMV_ROWS(KERNEL, name, W, V)                                                                                  \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_rows_parameters, name##_q1, GEMV_ROWS_WARPS * 32, 1, W, V, 1)                \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_rows_parameters, name##_q1x2, GEMV_ROWS_WARPS * 32, 1, W, V, 2)
#define GEMV_ROWS_KERNELS(KERNEL)                                                                                      \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_nvfp4, RONDO_NVFP4, RONDO_NVFP4)                                             \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_f16, RONDO_NVFP4, RONDO_F16)                                                 \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_bf16, RONDO_NVFP4, RONDO_BF16)                                               \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_e4m3_f16, RONDO_E4M3, RONDO_F16)                                                   \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_e4m3_bf16, RONDO_E4M3, RONDO_BF16)

#endif
