/* gemv_quads.h - the kernels of gemv_quads.cuh and gemv_integer.cu, which gemv_quads_plan.c chooses among. */
#pragma once

#include "../exchange/exchange_rows.h"
#include "gemv.h"

/* Of kernels that may add up all ranks' results. */
GEMV_PARAMETERS(gemv_rows_parameters) {
  GEMV_COMMON
  struct exchange_rows exchange;
};

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
#define GEMV_ANY_CHIP(KERNEL, ...) KERNEL(EVERY_CHIP, gemv_parameters, __VA_ARGS__)
/* Older chips convert e4m3 by many instructions, and have too few registers for these. */
#define GEMV_NEWER(KERNEL, ...) KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, __VA_ARGS__)
#define GEMV_SEVERAL_NVFP4(KERNEL, name, V)                                                                            \
  GEMV_ANY_CHIP(KERNEL, name##_q2_r8_s1, 256, 3, RONDO_NVFP4, V, 2, 1, 8, 1, false, GEMV_SINGLE)                       \
  GEMV_ANY_CHIP(KERNEL, name##_q2_r16_s2_half, 512, 1, RONDO_NVFP4, V, 2, 1, 16, 2, true, GEMV_EXACT)                  \
  GEMV_ANY_CHIP(KERNEL, name##_q1_r16_s1, 384, 2, RONDO_NVFP4, V, 1, 1, 16, 1, false, GEMV_MASKED)                     \
  GEMV_ANY_CHIP(KERNEL, name##_q1_r16_s2, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 2, false, GEMV_EXACT)                      \
  GEMV_ANY_CHIP(KERNEL, name##_q1_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 1, false, GEMV_CHUNKED)            \
  GEMV_ANY_CHIP(KERNEL, name##_q1_r32_s2_half, 512, 1, RONDO_NVFP4, V, 1, 1, 32, 2, true, GEMV_EXACT)                  \
  GEMV_ANY_CHIP(KERNEL, name##_q1x2_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 2, 16, 1, false, GEMV_CHUNKED)          \
  GEMV_ANY_CHIP(KERNEL, name##_q1x2_r16_s1, 384, 2, RONDO_NVFP4, V, 1, 2, 16, 1, false, GEMV_MASKED)
/* Kernels with two rows a warp are so short that a branch would cost time, so each type has its own. */
#define GEMV_QUADS_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_SEVERAL_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)                                                      \
  GEMV_SEVERAL_NVFP4(KERNEL, rondo_gemv_nvfp4_16bit, GEMV_16_BITS)                                                     \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_nvfp4_16bit_q8_r4_s1, 256, 3, RONDO_NVFP4, GEMV_16_BITS, 8, 1, 4, 1, false,         \
                GEMV_MASKED)                                                                                           \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_nvfp4_16bit_q8_r4_s1_chunked, 512, 1, RONDO_NVFP4, GEMV_16_BITS, 8, 1, 4, 1, false, \
                GEMV_CHUNKED)                                                                                          \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_nvfp4_16bit_q8_r8_s1_half, 256, 2, RONDO_NVFP4, GEMV_16_BITS, 8, 1, 8, 1, true,     \
                GEMV_MASKED)                                                                                           \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_nvfp4_f16_q8_r2_s1, 128, 8, RONDO_NVFP4, RONDO_F16, 8, 1, 2, 1, false, GEMV_MASKED) \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_nvfp4_bf16_q8_r2_s1, 128, 8, RONDO_NVFP4, RONDO_BF16, 8, 1, 2, 1, false, GEMV_MASKED)
#define GEMV_NEWER_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_NEWER(KERNEL, rondo_gemv_nvfp4_nvfp4_q1x2_r16_s2, 512, 1, RONDO_NVFP4, RONDO_NVFP4, 1, 2, 16, 2, false,         \
             GEMV_EXACT)
#define GEMV_QUADS_E4M3_KERNELS(KERNEL)                                                                                \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q8_r2_s2, 128, 8, RONDO_E4M3, GEMV_16_BITS, 8, 1, 2, 2, false, GEMV_EXACT)     \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q8_r4_s1, 256, 4, RONDO_E4M3, GEMV_16_BITS, 8, 1, 4, 1, false, GEMV_MASKED)    \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q8_r4_s2, 512, 1, RONDO_E4M3, GEMV_16_BITS, 8, 1, 4, 2, false, GEMV_EXACT)     \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q8_r4_s1_chunked, 512, 1, RONDO_E4M3, GEMV_16_BITS, 8, 1, 4, 1, false,         \
                GEMV_CHUNKED)                                                                                          \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q2_r8_s4, 512, 1, RONDO_E4M3, GEMV_16_BITS, 2, 1, 8, 4, false, GEMV_EXACT)     \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q1_r16_s4, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 1, 16, 4, false, GEMV_EXACT)   \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q1_r16_s2_chunked, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 1, 16, 2, false,       \
                GEMV_CHUNKED)                                                                                          \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_e4m3_q1x2_r16_s2_chunked, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 2, 16, 2, false,     \
                GEMV_CHUNKED)
#define GEMV_NEWER_E4M3_KERNELS(KERNEL)                                                                                \
  GEMV_NEWER(KERNEL, rondo_gemv_e4m3_q1x2_r16_s4, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 2, 16, 4, false, GEMV_EXACT)
#define GEMV_16(KERNEL, name, threads, blocks, ...)                                                                    \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_16bit_##name, threads, blocks, GEMV_16_BITS, GEMV_16_BITS, __VA_ARGS__)
#define GEMV_QUADS_16_KERNELS(KERNEL)                                                                                  \
  GEMV_16(KERNEL, q8_r4_s1, 512, 2, 8, 1, 4, 1, false, GEMV_MASKED)                                                    \
  GEMV_16(KERNEL, q8_r4_s2_chunked, 512, 1, 8, 1, 4, 2, false, GEMV_CHUNKED)                                           \
  GEMV_16(KERNEL, q2_r8_s3, 256, 2, 2, 1, 8, 3, false, GEMV_MASKED)                                                    \
  GEMV_16(KERNEL, q2_r8_s4, 512, 1, 2, 1, 8, 4, false, GEMV_EXACT)                                                     \
  GEMV_16(KERNEL, q1_r16_s3, 512, 1, 1, 1, 16, 3, false, GEMV_MASKED)                                                  \
  GEMV_16(KERNEL, q1_r16_s8, 512, 1, 1, 1, 16, 8, false, GEMV_EXACT)                                                   \
  GEMV_16(KERNEL, q1_r16_s4_chunked, 512, 1, 1, 1, 16, 4, false, GEMV_CHUNKED)                                         \
  GEMV_16(KERNEL, q1x2_r16_s3, 512, 1, 1, 2, 16, 3, false, GEMV_MASKED)                                                \
  GEMV_16(KERNEL, q1x2_r16_s4_chunked, 512, 1, 1, 2, 16, 4, false, GEMV_CHUNKED)                                       \
  GEMV_16(KERNEL, q1x2_r16_s4, 512, 1, 1, 2, 16, 4, false, GEMV_EXACT)                                                 \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_f16_q8_r2_s3, 128, 6, RONDO_F16, RONDO_F16, 8, 1, 2, 3, false, GEMV_MASKED)         \
  GEMV_ANY_CHIP(KERNEL, rondo_gemv_bf16_q8_r2_s3, 128, 6, RONDO_BF16, RONDO_BF16, 8, 1, 2, 3, false, GEMV_MASKED)
#define GEMV_ROWS_16_KERNELS(KERNEL)                                                                                   \
  KERNEL(EVERY_CHIP, gemv_rows_parameters, rondo_gemv_16bit_q8_r4_s4, 512, 1, GEMV_16_BITS, GEMV_16_BITS, 8, 1, 4, 4,  \
         false, GEMV_EXACT)
/* Blocks of a cluster split k too: KERNEL(.., vectors, quads, operands B, rows, slices, blocks of a cluster). */
#define GEMV_CLUSTERS_E4M3_KERNELS(KERNEL)                                                                             \
  GEMV_NEWER(KERNEL, rondo_gemv_e4m3_q2_r8_s4_c2, 512, 1, RONDO_E4M3, GEMV_16_BITS, 2, 1, 8, 4, 2)                     \
  GEMV_NEWER(KERNEL, rondo_gemv_e4m3_q1_r16_s4_c4, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 1, 16, 4, 4)                   \
  GEMV_NEWER(KERNEL, rondo_gemv_e4m3_q1x2_r16_s4_c4, 512, 1, RONDO_E4M3, GEMV_16_BITS, 1, 2, 16, 4, 4)
#define GEMV_CLUSTERS_16_KERNELS(KERNEL)                                                                               \
  GEMV_NEWER(KERNEL, rondo_gemv_16bit_q2_r8_s4_c2, 512, 1, GEMV_16_BITS, GEMV_16_BITS, 2, 1, 8, 4, 2)                  \
  GEMV_NEWER(KERNEL, rondo_gemv_16bit_q2_r8_s4_c4, 512, 1, GEMV_16_BITS, GEMV_16_BITS, 2, 1, 8, 4, 4)
