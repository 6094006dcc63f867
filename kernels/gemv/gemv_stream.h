/* gemv_stream.h - what gemv_stream.cu and gemv_stream_plan.c agree on. */
#pragma once

#include "gemv.h"

enum {
  GEMV_STREAM_SLOT_BYTES = 512, /* gemv_stream.cu: sums of a warp, for each operand B */
  GEMV_STREAM_FIXED_BYTES = 16 + (1 + GEMV_MOST_PARTS + 16) * 16 * 4, /* what follows all of these */
};

/* gemv_stream.cu: where the first stage begins; how many are filled before vectors are asked for. */
GEMV_PARAMETERS(gemv_stream_parameters) {
  GEMV_COMMON
  uint32_t first_stage, early_stages;
};

/* KERNEL(chips, parameters, name, the most threads of a block, vectors, operands B, slices of a part, stages of a
 * warp's ring, blocks of a cluster, which split k): gemv_stream.cu. */
#define GEMV_STREAM(KERNEL, name, V)                                                                                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_stream_parameters, name##_q1x2_s2, 512, V, 2, 2, 3, 1)                       \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_stream_parameters, name##_q1x2_s2_c2, 512, V, 2, 2, 3, 2)                    \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_stream_parameters, name##_q1_s4, 512, V, 1, 4, 2, 1)                         \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_stream_parameters, name##_q1_s4_c2, 512, V, 1, 4, 2, 2)
#define GEMV_STREAM_KERNELS(KERNEL)                                                                                    \
  GEMV_STREAM(KERNEL, rondo_gemv_stream_nvfp4, RONDO_NVFP4)                                                            \
  GEMV_STREAM(KERNEL, rondo_gemv_stream_16bit, GEMV_16_BITS)                                                           \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_stream_parameters, rondo_gemv_stream_16bit_q1_s2, 512, GEMV_16_BITS, 1, 2,   \
         4, 1)
