/* gemv.h - products of a matrix with up to 16 vectors, and quantising to NVFP4: the rows of the operation table, and
 * what host code and kernels tell each other. */
#ifndef RONDO_GEMV_H
#define RONDO_GEMV_H

#include <stdint.h>

#include "../../runtime/completion.h"
#include <rondo.h>

enum {
  GEMV_COUNT = 16,       /* the most vectors */
  GEMV_BLOCK = 16,       /* nvfp4: elements that share a scale */
  GEMV_SCALE_ROWS = 128, /* of a tile of blocked scales */
  GEMV_SCALE_COLUMNS = 4,
  GEMV_MOST_PARTS = 16,         /* warps of a block that split k */
  GEMV_PITCH_PADDING = 4,       /* floats behind a vector's sums in shared memory, against conflicts of banks */
  GEMV_STREAM_SLOT_BYTES = 512, /* gemv_stream.cuh: sums of a warp, for each operand B */
  GEMV_STREAM_FIXED_BYTES = 16 + (1 + GEMV_MOST_PARTS + 16) * 16 * 4, /* what lies behind all of these */
  GEMV_SCALAR_THREADS = 256,
  GEMV_SCALAR_ROWS = 4,   /* of a warp of the kernel for everything */
  GEMV_SCALAR_STEP = 128, /* elements that it takes of each row at a time */
  QUANTIZE_THREADS = 256,
  QUANTIZE_ELEMENTS = 8, /* of a thread: two neighbours share a block */
  QUANTIZE_OUTER = 3,    /* dimensions around the rows */
};

/* Bytes between NVFP4's scales, in either layout: of one row and the next within 32; what a step to the next 32 rows,
 * and to the next 128, has more than that (modulo 2^32); and of four blocks of a row. */
struct gemv_scale_strides {
  uint32_t row, more_32, more_128, four;
};

enum gemv_early {
  GEMV_READS_EARLY = 1, /* no task of the graph writes weights and their scales: they are read before the predecessors
                           end */
  GEMV_STARTS_ONE = 2,  /* successors start behind the wait, not at once: see gemv_formats.cuh */
  GEMV_NORM_EARLY = 4,  /* no task writes norm either, and there is one */
};

/* Every product. A block has `groups` x `parts` warps: a group has rows of its own, and its parts split k among them.
 * `chunks` times, one after the other, they cover what the block has of k. (Of gemv_short.cu a group is eight rows, of
 * which a block has more than warps, and a part a load of 16 bytes of a row.) */
struct gemv_parameters {
  /* What a kernel needs before its first load, then what it ends with: parameters are read by lines of 64 bytes, of
   * which the first has 48 for them, and each line costs a short kernel some 70 ns (H200). */
  const unsigned char *weights, *weight_scales, *vectors, *vector_scales;
  uint32_t m, k;
  uint32_t never; /* 0: branches on it keep the compiler from moving loads */
  uint32_t early; /* of enum gemv_early */

  uint32_t parts, groups;
  uint32_t part_reciprocal; /* 2^16 / parts, rounded up: warp * part_reciprocal / 2^16 is the warp's group */
  uint32_t count;
  uint32_t weight_row, vector_row; /* bytes; 32 bits are enough where there are two, of a tensor's 2^31 elements */
  /* From one matrix, or set of vectors, to the next: in units of 16 bytes, and bytes of scales. The kernel for
   * everything has batch_bytes, and so have f32 scales of e4m3 rows, which follow each other. */
  uint32_t weight_batch, vector_batch, weight_scale_batch, vector_scale_batch;
  struct gemv_scale_strides weight_scale_strides;
  uint32_t vector_scale_row, vector_scale_four; /* bytes; there are never more than 16 */

  void *out;
  int64_t out_batch, out_row; /* elements */
  struct completion done;
  uint32_t tiles;     /* of a block's rows, in one matrix */
  uint32_t finishing; /* 0: results are sums times factors. What else may be done to them, below; see rondo_gemv_desc */
  uint32_t out_dtype; /* rondo_dtype, as the others */
  float scale;
  float norm_epsilon; /* 0: vectors are taken as they are */
  float mean_factor;  /* 1 / k */
  uint32_t chunks;

  const void *norm; /* [k], of the vectors' type; NULL: 1 */
  uint32_t batch, weight_dtype, vector_dtype;
  struct {
    uint64_t weights, weight_scales, vectors, vector_scales;
  } batch_bytes;
  uint32_t silu_mul, bias_dtype, residual_dtype;
  const void *bias, *residual;
  int64_t bias_batch, residual_batch, residual_row; /* elements */
  unsigned char *out_scales;
  int64_t out_scale_batch, out_scale_row;
  float out_global_scale, six_out_global_scale;
  /* first_stage is gemv_stream.cuh's too; it, block_rows and stage_bytes, of a warp's slot, are gemv_rows.cu's. The
   * others are gemv_ring.cu's alone: rows of a block, and of a group in a tile; the stages, their bytes and where they
   * begin; tiles of a window, after which the parts' sums meet; floats from vector to vector of the sums of a window,
   * of a block. */
  uint32_t block_rows, group_rows, stages, stage_bytes, first_stage, window_tiles, window_pitch, held_pitch;
};

/* rondo_quantize_nvfp4. Strides are elements for x, bytes for codes and scales. */
struct quantize_parameters {
  const void *x;
  unsigned char *codes, *scales;
  int64_t x_stride[QUANTIZE_OUTER], code_stride[QUANTIZE_OUTER], scale_stride[QUANTIZE_OUTER];
  uint32_t extent[QUANTIZE_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t row_parts;              /* of QUANTIZE_ELEMENTS, in a row */
  uint32_t parts;                  /* in all */
  uint32_t dtype;                  /* rondo_dtype of x */
  uint32_t aligned;                /* 16-byte loads of x and 4-byte stores of codes are possible */
  float global_scale, six_global_scale;
  struct completion done;
};

/* What a kernel does where k ends. */
enum gemv_cut {
  GEMV_EXACT,   /* k is a multiple of a part's elements */
  GEMV_MASKED,  /* any k up to what a block covers */
  GEMV_SINGLE,  /* the same, and a block has one tile: less code, which is what short kernels wait for */
  GEMV_CHUNKED, /* any k */
};

/* KERNEL(chips, parameters, name, the most threads of a block, blocks of so many that a multiprocessor holds, rows of a
 * warp, slices of a part, half of a tile at a time): gemv_integer.cu. */
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
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s2, 256, 3, RONDO_NVFP4, V, 2, 1, 8, 2, false, GEMV_EXACT)          \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r16_s2_half, 512, 1, RONDO_NVFP4, V, 2, 1, 16, 2, true, GEMV_EXACT)    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s1, 384, 2, RONDO_NVFP4, V, 1, 1, 16, 1, false, GEMV_MASKED)       \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s1_single, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 1, false,             \
         GEMV_SINGLE)                                                                                                  \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s2, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 2, false, GEMV_EXACT)        \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 1, 16, 1, false,            \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r32_s2_half, 512, 1, RONDO_NVFP4, V, 1, 1, 32, 2, true, GEMV_EXACT)    \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s1_chunked, 512, 1, RONDO_NVFP4, V, 1, 2, 16, 1, false,          \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s1, 320, 2, RONDO_NVFP4, V, 1, 2, 16, 1, false, GEMV_MASKED)     \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s1_single, 512, 1, RONDO_NVFP4, V, 1, 2, 16, 1, false,           \
         GEMV_SINGLE)
#define GEMV_DIAGONAL_NVFP4(KERNEL, name, V)                                                                           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r2_s1, 128, 8, RONDO_NVFP4, V, 8, 1, 2, 1, false, GEMV_MASKED)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1, 256, 3, RONDO_NVFP4, V, 8, 1, 4, 1, false, GEMV_MASKED)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s2, 256, 2, RONDO_NVFP4, V, 8, 1, 4, 2, false, GEMV_EXACT)          \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1_chunked, 512, 1, RONDO_NVFP4, V, 8, 1, 4, 1, false,              \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r8_s1, 128, 4, RONDO_NVFP4, V, 8, 1, 8, 1, false, GEMV_MASKED)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r8_s1_half, 256, 2, RONDO_NVFP4, V, 8, 1, 8, 1, true, GEMV_MASKED)
#define GEMV_QUADS_E4M3(KERNEL, name, V)                                                                               \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r2_s2, 128, 8, RONDO_E4M3, V, 8, 1, 2, 2, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1, 256, 4, RONDO_E4M3, V, 8, 1, 4, 1, false, GEMV_MASKED)          \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s2, 512, 1, RONDO_E4M3, V, 8, 1, 4, 2, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r4_s1_chunked, 512, 1, RONDO_E4M3, V, 8, 1, 4, 1, false, GEMV_CHUNKED) \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r8_s4, 512, 1, RONDO_E4M3, V, 2, 1, 8, 4, false, GEMV_EXACT)           \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q2_r32_s2_half, 512, 1, RONDO_E4M3, V, 2, 1, 32, 2, true, GEMV_EXACT)     \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s4, 512, 1, RONDO_E4M3, V, 1, 1, 16, 4, false, GEMV_EXACT)         \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r16_s2_chunked, 512, 1, RONDO_E4M3, V, 1, 1, 16, 2, false,             \
         GEMV_CHUNKED)                                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1_r32_s4_half, 512, 1, RONDO_E4M3, V, 1, 1, 32, 4, true, GEMV_EXACT)     \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q1x2_r16_s2_chunked, 512, 1, RONDO_E4M3, V, 1, 2, 16, 2, false,           \
         GEMV_CHUNKED)
#define GEMV_QUADS_16(KERNEL, name, T)                                                                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, name##_q8_r2_s3, 128, 6, T, T, 8, 1, 2, 3, false, GEMV_MASKED)                   \
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
#define GEMV_CLUSTERS_E4M3_KERNELS(KERNEL)                                                                             \
  GEMV_CLUSTERS_E4M3(KERNEL, rondo_gemv_e4m3_f16, RONDO_F16)                                                           \
  GEMV_CLUSTERS_E4M3(KERNEL, rondo_gemv_e4m3_bf16, RONDO_BF16)
#define GEMV_CLUSTERS_16(KERNEL, name, T)                                                                              \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q2_r8_s4_c2, 512, 1, T, T, 2, 1, 8, 4, 2)                 \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q2_r8_s4_c4, 512, 1, T, T, 2, 1, 8, 4, 4)
#define GEMV_CLUSTERS_16_KERNELS(KERNEL)                                                                               \
  GEMV_CLUSTERS_16(KERNEL, rondo_gemv_f16, RONDO_F16)                                                                  \
  GEMV_CLUSTERS_16(KERNEL, rondo_gemv_bf16, RONDO_BF16)
#define GEMV_LARGE_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_LARGE_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)                                                        \
  GEMV_LARGE_NVFP4(KERNEL, rondo_gemv_nvfp4_f16, RONDO_F16)                                                            \
  GEMV_LARGE_NVFP4(KERNEL, rondo_gemv_nvfp4_bf16, RONDO_BF16)                                                          \
  GEMV_SIXTEEN_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)                                                      \
  GEMV_SIXTEEN_NVFP4(KERNEL, rondo_gemv_nvfp4_f16, RONDO_F16)
#define GEMV_LARGE_E4M3_KERNELS(KERNEL)                                                                                \
  GEMV_SIXTEEN_E4M3(KERNEL, rondo_gemv_e4m3_f16, RONDO_F16)                                                            \
  GEMV_SIXTEEN_E4M3(KERNEL, rondo_gemv_e4m3_bf16, RONDO_BF16)

#define GEMV_QUADS_NVFP4_KERNELS(KERNEL)                                                                               \
  GEMV_QUADS_NVFP4(KERNEL, rondo_gemv_nvfp4_nvfp4, RONDO_NVFP4)                                                        \
  GEMV_QUADS_NVFP4(KERNEL, rondo_gemv_nvfp4_f16, RONDO_F16)                                                            \
  GEMV_QUADS_NVFP4(KERNEL, rondo_gemv_nvfp4_bf16, RONDO_BF16)                                                          \
  GEMV_DIAGONAL_NVFP4(KERNEL, rondo_gemv_nvfp4_f16, RONDO_F16)                                                         \
  GEMV_DIAGONAL_NVFP4(KERNEL, rondo_gemv_nvfp4_bf16, RONDO_BF16)
#define GEMV_QUADS_E4M3_KERNELS(KERNEL)                                                                                \
  GEMV_QUADS_E4M3(KERNEL, rondo_gemv_e4m3_f16, RONDO_F16)                                                              \
  GEMV_QUADS_E4M3(KERNEL, rondo_gemv_e4m3_bf16, RONDO_BF16)
#define GEMV_QUADS_16_KERNELS(KERNEL)                                                                                  \
  GEMV_QUADS_16(KERNEL, rondo_gemv_f16, RONDO_F16)                                                                     \
  GEMV_QUADS_16(KERNEL, rondo_gemv_bf16, RONDO_BF16)

/* KERNEL(chips, parameters, name, threads and blocks as above, vectors, how many at most, rows that a group multiplies
 * at a time, elements of a part, how many of the last part's may lie behind the end of k, product and what it is a
 * template of): gemv_ring.cu. */
#define GEMV_RING(KERNEL, name, threads, blocks, V, most, rows, part, behind, ...)                                     \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name, threads, blocks, V, most, rows, part, behind, __VA_ARGS__)
#define GEMV_RING_16(KERNEL, name, V)                                                                                  \
  GEMV_RING(KERNEL, name##_blocks_s4, 512, 1, V, 1, 16, 512, 256, blocks_product, 4)                                   \
  GEMV_RING(KERNEL, name##_q8_s1, 480, 2, V, 1, 2, 1024, 1024, quads_product, 8, 1)                                    \
  GEMV_RING(KERNEL, name##_q8_s2, 288, 2, V, 1, 2, 2048, 1024, quads_product, 8, 2)
#define GEMV_RING_NVFP4(KERNEL, name, V)                                                                               \
  GEMV_RING(KERNEL, name##_s7, 384, 1, V, 1, 1, 7168, 1024, integer_product, 1, 7)                                     \
  GEMV_RING(KERNEL, name##_s4, 512, 1, V, 1, 1, 4096, 1024, integer_product, 1, 4)                                     \
  GEMV_RING(KERNEL, name##_q4_s2, 512, 1, V, 2, 4, 1024, 512, quads_product, 4, 2)                                     \
  GEMV_RING(KERNEL, name##_q2_s4, 512, 1, V, 4, 8, 1024, 256, quads_product, 2, 4)
#define GEMV_RING_KERNELS(KERNEL)                                                                                      \
  GEMV_RING_16(KERNEL, rondo_gemv_ring_f16, RONDO_F16)                                                                 \
  GEMV_RING_16(KERNEL, rondo_gemv_ring_bf16, RONDO_BF16)                                                               \
  GEMV_RING_NVFP4(KERNEL, rondo_gemv_ring_nvfp4, RONDO_NVFP4)

/* gemv_short.cu: a group is eight rows, and a warp has as many of them as there are turns, at most. */
enum {
  GEMV_SHORT_ROWS = 8,
  GEMV_SHORT_WARPS = 16,
  GEMV_SHORT_TURNS = 4,
  GEMV_SHORT_VECTOR_BYTES = 2048, /* of shared memory: 960 elements in 16 bits, and 16 bytes more */
  GEMV_SHORT_BEHIND = 16,         /* the scales: bytes that are read in vain */
};
/* Bytes from row to row in shared memory: four lanes' blocks of weights. */
#define GEMV_SHORT_PITCH(blocks) (4 * (blocks)*GEMV_BLOCK / 2)
/* KERNEL(chips, parameters, name, threads and blocks as above, vectors, blocks of 16 that a lane has of a row: an odd
 * number. Seventeen do not fit into registers). */
#define GEMV_SHORT(KERNEL, name, V, blocks)                                                                            \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name, GEMV_SHORT_WARPS * 32, 1, V, blocks)
#define GEMV_SHORT_KERNELS(KERNEL)                                                                                     \
  GEMV_SHORT(KERNEL, rondo_gemv_short_f16_b9, RONDO_F16, 9)                                                            \
  GEMV_SHORT(KERNEL, rondo_gemv_short_f16_b15, RONDO_F16, 15)                                                          \
  GEMV_SHORT(KERNEL, rondo_gemv_short_bf16_b9, RONDO_BF16, 9)                                                          \
  GEMV_SHORT(KERNEL, rondo_gemv_short_bf16_b15, RONDO_BF16, 15)                                                        \
  GEMV_SHORT(KERNEL, rondo_gemv_short_nvfp4_b9, RONDO_NVFP4, 9)                                                        \
  GEMV_SHORT(KERNEL, rondo_gemv_short_nvfp4_b15, RONDO_NVFP4, 15)

/* gemv_rows.cu: a group is sixteen rows. */
enum {
  GEMV_ROWS_GROUP = 16,
  GEMV_ROWS_WARPS = 24, /* at most */
  GEMV_ROWS_MOST_K = 1024,
  GEMV_ROWS_FACTOR_BYTES = 64,
};
/* Bytes in shared memory from row to row, of so many in 16 elements, and from vector to vector. */
#define GEMV_ROWS_PITCH(k, bytes) ((((k) + 63) / 64 | 1) * 4 * (bytes))
#define GEMV_ROWS_VECTOR_PITCH(k) (((k) + 63) / 64 * 128 + 16)
/* KERNEL(chips, parameters, name, threads and blocks as above, weights, vectors, operands B). */
#define GEMV_ROWS(KERNEL, name, W, V)                                                                                  \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1, GEMV_ROWS_WARPS * 32, 1, W, V, 1)                     \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2, GEMV_ROWS_WARPS * 32, 1, W, V, 2)
#define GEMV_ROWS_KERNELS(KERNEL)                                                                                      \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_nvfp4, RONDO_NVFP4, RONDO_NVFP4)                                             \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_f16, RONDO_NVFP4, RONDO_F16)                                                 \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_nvfp4_bf16, RONDO_NVFP4, RONDO_BF16)                                               \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_e4m3_f16, RONDO_E4M3, RONDO_F16)                                                   \
  GEMV_ROWS(KERNEL, rondo_gemv_rows_e4m3_bf16, RONDO_E4M3, RONDO_BF16)

/* KERNEL(chips, parameters, name, the most threads of a block, vectors, operands B, slices of a part, stages of a
 * warp's ring, blocks of a cluster, which split k; whether the tensor cores are given bf16): gemv_stream.cuh. */
#define GEMV_STREAM(KERNEL, name, V)                                                                                   \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_s2, 512, V, 2, 2, 3, 1, false)                       \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_s2_c2, 512, V, 2, 2, 3, 2, false)                    \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1_s4, 512, V, 1, 4, 2, 1, false)                         \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1_s4_c2, 512, V, 1, 4, 2, 2, false)
#define GEMV_STREAM_BF16(KERNEL, name)                                                                                 \
  GEMV_STREAM(KERNEL, name, RONDO_BF16)                                                                                \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_s2_in_bf16, 512, RONDO_BF16, 2, 2, 3, 1, true)       \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, gemv_parameters, name##_q1x2_s2_c4, 512, RONDO_BF16, 2, 2, 3, 4, false)
#define GEMV_STREAM_16_KERNELS(KERNEL)                                                                                 \
  GEMV_STREAM(KERNEL, rondo_gemv_stream_f16, RONDO_F16)                                                                \
  GEMV_STREAM_BF16(KERNEL, rondo_gemv_stream_bf16)
#define GEMV_STREAM_KERNELS(KERNEL)                                                                                    \
  GEMV_STREAM(KERNEL, rondo_gemv_stream_nvfp4, RONDO_NVFP4)                                                            \
  GEMV_STREAM_16_KERNELS(KERNEL)

/* KERNEL(chips, parameters, name, threads, blocks that a multiprocessor must hold at least, what it calls). */
#define GEMV_OTHER_KERNELS(KERNEL)                                                                                     \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_scalar, GEMV_SCALAR_THREADS, 2, gemv_scalar)
#define QUANTIZE_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, quantize_parameters, rondo_quantize_nvfp4, QUANTIZE_THREADS, 0, quantize)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_gemv;
extern const struct op op_quantize_nvfp4;

enum {
  GEMV_WEIGHTS,
  GEMV_WEIGHT_SCALES,
  GEMV_VECTORS,
  GEMV_VECTOR_SCALES,
  GEMV_OUT,
  GEMV_NORM,
  GEMV_BIAS,
  GEMV_RESIDUAL,
  GEMV_OUT_SCALES,
  GEMV_OPERANDS
};

struct gemv_attributes {
  float scale;                                      /* never 0 */
  float norm_epsilon;                               /* 0: vectors are taken as they are */
  float out_global_scale;                           /* as described: 0 means 1 */
  int32_t weight_scale_layout, vector_scale_layout; /* rondo_scale_layout */
  int32_t one_order, silu_mul;                      /* 0 or 1 */
};

struct gemv_shape {
  int64_t batch, m, k, count;
  int64_t columns; /* of out: m, or half of it */
};
struct gemv_shape gemv_shape_of(const struct op_task *task);
/* An operand's stride from one matrix, or set of vectors, to the next; 0 without a batch dimension. */
int64_t gemv_batch_stride(const struct op_operand *operand);

/* The byte at which a scale of a matrix lies in the blocked layout, from the matrix's first; `row_bytes` is the width
 * of its rows. */
static inline int64_t gemv_blocked_scale(int64_t row, int64_t block, int64_t row_bytes) {
  int64_t inside = row % GEMV_SCALE_ROWS;
  return row / GEMV_SCALE_ROWS * GEMV_SCALE_ROWS * row_bytes + block / 4 * 512 + inside % 32 * 16 + inside / 32 * 4 +
         block % 4;
}

enum { GEMV_HOST_ROWS = 32 }; /* of an item: whole blocks of NVFP4 results, of pairs of rows too */
int64_t gemv_host_items(const struct op_task *task);
void gemv_host_run(const struct op_call *call, int64_t first, int64_t last);
/* Results of one vector from the sums of an item's rows, first_row .. first_row + rows - 1, which are overwritten;
 * `factor` is what each is multiplied with. */
void gemv_host_finish(const struct op_call *call, int64_t batch, int64_t vector, int64_t first_row, int64_t rows,
                      float factor, float *sums);
rondo_status gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

enum { QUANTIZE_X, QUANTIZE_CODES, QUANTIZE_SCALES, QUANTIZE_OPERANDS };

struct quantize_attributes {
  float global_scale; /* never 0 */
};

/* 16 values to 8 bytes of codes, and the block's scale. */
uint8_t quantize_host_block(const float *values, float global_scale, uint8_t *codes);
int64_t quantize_host_items(const struct op_task *task);
void quantize_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status quantize_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
#endif
