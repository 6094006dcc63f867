/* gemv_tall.h - what gemv_tall.cu and gemv_tall_plan.c agree on. A tile is sixteen rows. */
#ifndef RONDO_GEMV_TALL_H
#define RONDO_GEMV_TALL_H

#include "gemv.h"

enum {
  GEMV_TALL_ROWS = 16,
  GEMV_TALL_WARPS = 16, /* a vector each */
  GEMV_TALL_THREADS = 32 * GEMV_TALL_WARPS,
  GEMV_TALL_MOST_K = 2048,
  GEMV_TALL_FIXED_BYTES = GEMV_TALL_WARPS * 8 + GEMV_COUNT * 4, /* of shared memory: barriers and factors */
};
/* Slots of a block, and those that are asked for before the vectors. */
GEMV_PARAMETERS(gemv_tall_parameters) {
  GEMV_COMMON
  uint32_t slots, early_slots, slot_bytes, first_slot;
};

/* Bytes in shared memory from vector to vector. */
#define GEMV_TALL_VECTOR_PITCH(k) (((k) / 32 | 1) * 64)
/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, weights and vectors,
 * operands B). */
#define GEMV_TALL(KERNEL, name, T)                                                                                     \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_tall_parameters, name##_q1, GEMV_TALL_THREADS, 1, T, 1)                      \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_tall_parameters, name##_q1x2, GEMV_TALL_THREADS, 1, T, 2)
#define GEMV_TALL_KERNELS(KERNEL)                                                                                      \
  GEMV_TALL(KERNEL, rondo_gemv_tall_f16, RONDO_F16)                                                                    \
  GEMV_TALL(KERNEL, rondo_gemv_tall_bf16, RONDO_BF16)

#endif
