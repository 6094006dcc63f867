/* gemv_quads.h - the kernels of gemv_quads.cuh and gemv_integer.cu, which gemv_quads_plan.c chooses among. */
#ifndef RONDO_GEMV_QUADS_H
#define RONDO_GEMV_QUADS_H

#include "gemv.h"

/* What a kernel does where k ends. */
enum gemv_cut {
  GEMV_EXACT,   /* k is a multiple of a part's elements */
  GEMV_MASKED,  /* any k up to what a block covers */
  GEMV_SINGLE,  /* the same, and a block has one tile: short kernels wait for less code */
  GEMV_CHUNKED, /* any k */
};

/* KERNEL(chips, parameters, name, the most threads of a block, such blocks a multiprocessor, rows of a warp,
 * slices of a part, half of a tile at a time): gemv_integer.cu. */
#define GEMV_INTEGER_KERNELS(KERNEL)                                                                                   \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r1_s1, 128, 8, 1, 1, false, GEMV_MASKED)                      \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r2_s2, 224, 4, 2, 2, false, GEMV_EXACT)                       \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r4_s1_half, 256, 4, 4, 1, true, GEMV_MASKED)                  \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r4_s2, 256, 2, 4, 2, false, GEMV_EXACT)                       \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r4_s2_chunked, 256, 2, 4, 2, false, GEMV_CHUNKED)             \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_integer_r8_s1, 256, 3, 8, 1, false, GEMV_MASKED)

/* KERNEL(chips, parameters, name, threads and blocks as above, weights, vectors, quads of a row, operands B, rows of a
 * warp, slices of a part, half of a tile at a time): gemv_quads.cuh. */
#define GEMV_QUADS_NVFP4(KERNEL, name, V)                                                                              \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s1, 256, 3, RONDO_NVFP4, V, 2, 1, 8, 1, false, GEMV_SINGLE)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r16_s2_half, 512, 1, RONDO_NVFP4, V, 2, 1, 16, 2, true, GEMV_EXACT)    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s1, 384, 2, RONDO_NVFP4, V, 1, 1, 16, 1, false, GEMV_MASKED)       \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s2, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 2, false, GEMV_EXACT)        \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 1, false,            \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r32_s2_half, 512, 1, RONDO_NVFP4, V, 1, 1, 32, 2, true, GEMV_EXACT)    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 2, 16, 1, false,          \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s1, 384, 2, RONDO_NVFP4, V, 1, 2, 16, 1, false, GEMV_MASKED)
#define GEMV_DIAGONAL_NVFP4(KERNEL, name, V)                                                                           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1, 256, 3, RONDO_NVFP4, V, 8, 1, 4, 1, false, GEMV_MASKED)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1_chunked, 512, 1, RONDO_NVFP4, V, 8, 1, 4, 1, false,              \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r8_s1_half, 256, 2, RONDO_NVFP4, V, 8, 1, 8, 1, true, GEMV_MASKED)
#define GEMV_QUADS_E4M3(KERNEL, name, V)                                                                               \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r2_s2, 128, 8, RONDO_E4M3, V, 8, 1, 2, 2, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1, 256, 4, RONDO_E4M3, V, 8, 1, 4, 1, false, GEMV_MASKED)          \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s2, 512, 1, RONDO_E4M3, V, 8, 1, 4, 2, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1_chunked, 512, 1, RONDO_E4M3, V, 8, 1, 4, 1, false, GEMV_CHUNKED) \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s4, 512, 1, RONDO_E4M3, V, 2, 1, 8, 4, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s4, 512, 1, RONDO_E4M3, V, 1, 1, 16, 4, false, GEMV_EXACT)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s2_chunked, 512, 1, RONDO_E4M3, V, 1, 1, 16, 2, false,             \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s2_chunked, 512, 1, RONDO_E4M3, V, 1, 2, 16, 2, false,           \
         GEMV_CHUNKED)
/* With two rows a warp, kernels are so short that a branch by the vectors' type counts: one for each. */
#define GEMV_SMALL(KERNEL, name, blocks, W, V, slices)                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name, 128, blocks, W, V, 8, 1, 2, slices, false, GEMV_MASKED)
#define GEMV_QUADS_16(KERNEL, name, T)                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1, 512, 2, T, T, 8, 1, 4, 1, false, GEMV_MASKED)                   \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s4, 512, 1, T, T, 8, 1, 4, 4, false, GEMV_EXACT)                    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s2_chunked, 512, 1, T, T, 8, 1, 4, 2, false, GEMV_CHUNKED)          \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s3, 256, 2, T, T, 2, 1, 8, 3, false, GEMV_MASKED)                   \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s4, 512, 1, T, T, 2, 1, 8, 4, false, GEMV_EXACT)                    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s3, 512, 1, T, T, 1, 1, 16, 3, false, GEMV_MASKED)                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s8, 512, 1, T, T, 1, 1, 16, 8, false, GEMV_EXACT)                  \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s4_chunked, 512, 1, T, T, 1, 1, 16, 4, false, GEMV_CHUNKED)        \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s3, 512, 1, T, T, 1, 2, 16, 3, false, GEMV_MASKED)               \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s4_chunked, 512, 1, T, T, 1, 2, 16, 4, false, GEMV_CHUNKED)      \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s4, 512, 1, T, T, 1, 2, 16, 4, false, GEMV_EXACT)

/* Those for which older chips, that convert e4m3 by many instructions, have not the registers. */
#define GEMV_LARGE_NVFP4(KERNEL, name, V)                                                                              \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1_r16_s4, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 4, false,    \
         GEMV_EXACT)
#define GEMV_SIXTEEN_NVFP4(KERNEL, name, V)                                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_r16_s2, 512, 1, RONDO_NVFP4, V, 1, 2, 16, 2, false,  \
         GEMV_EXACT)
#define GEMV_SIXTEEN_E4M3(KERNEL, name, V)                                                                             \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_r16_s4, 512, 1, RONDO_E4M3, V, 1, 2, 16, 4, false,   \
         GEMV_EXACT)
/* Blocks of a cluster split k too: KERNEL(.., vectors, quads, operands B, rows, slices, blocks of a cluster). */
#define GEMV_CLUSTERS_E4M3(KERNEL, name, V)                                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q2_r8_s4_c2, 512, 1, RONDO_E4M3, V, 2, 1, 8, 4, 2)        \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1_r16_s4_c4, 512, 1, RONDO_E4M3, V, 1, 1, 16, 4, 4)      \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_r16_s4_c4, 512, 1, RONDO_E4M3, V, 1, 2, 16, 4, 4)
#define GEMV_CLUSTERS_E4M3_KERNELS(KERNEL) GEMV_CLUSTERS_E4M3(KERNEL, rondo_gemv_e4m3, GEMV_16_BITS)
#define GEMV_CLUSTERS_16(KERNEL, name, T)                                                                              \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q2_r8_s4_c2, 512, 1, T, T, 2, 1, 8, 4, 2)                 \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q2_r8_s4_c4, 512, 1, T, T, 2, 1, 8, 4, 4)
#define GEMV_CLUSTERS_16_KERNELS(KERNEL) GEMV_CLUSTERS_16(KERNEL, rondo_gemv_16bit, GEMV_16_BITS)
#define GEMV_LARGE_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_LARGE_NVFP4(KERNEL, rondo_gemv_nvfp4_16bit, GEMV_16_BITS)                                                       \
  GEMV_SIXTEEN_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)
#define GEMV_LARGE_E4M3_KERNELS(KERNEL) GEMV_SIXTEEN_E4M3(KERNEL, rondo_gemv_e4m3, GEMV_16_BITS)

#define GEMV_QUADS_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_QUADS_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)                                                        \
  GEMV_QUADS_NVFP4(KERNEL, rondo_gemv_nvfp4_16bit, GEMV_16_BITS)                                                       \
  GEMV_DIAGONAL_NVFP4(KERNEL, rondo_gemv_nvfp4_16bit, GEMV_16_BITS)                                                    \
  GEMV_SMALL(KERNEL, rondo_gemv_nvfp4_f16_q8_r2_s1, 8, RONDO_NVFP4, RONDO_F16, 1)                                      \
  GEMV_SMALL(KERNEL, rondo_gemv_nvfp4_bf16_q8_r2_s1, 8, RONDO_NVFP4, RONDO_BF16, 1)
#define GEMV_QUADS_E4M3_KERNELS(KERNEL) GEMV_QUADS_E4M3(KERNEL, rondo_gemv_e4m3, GEMV_16_BITS)
#define GEMV_QUADS_16_KERNELS(KERNEL)                                                                                  \
  GEMV_QUADS_16(KERNEL, rondo_gemv_16bit, GEMV_16_BITS)                                                                \
  GEMV_SMALL(KERNEL, rondo_gemv_f16_q8_r2_s3, 6, RONDO_F16, RONDO_F16, 3)                                              \
  GEMV_SMALL(KERNEL, rondo_gemv_bf16_q8_r2_s3, 6, RONDO_BF16, RONDO_BF16, 3)

#endif
