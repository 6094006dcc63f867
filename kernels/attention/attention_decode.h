/* attention_decode.h - the kernels of attention_decode.cu: their list, their parameters and their plan.
 *
 * KV rows are dealt in tiles of 16. Tile i of a split goes to warp i % warps of part i / warps % 8. Any length is
 * shared evenly in this way. Which sums are made, and in which order they are joined, depends only on the length and on
 * the number of splits: not on the batch, nor on whether a block has one part of a head or all parts. */
#pragma once

#include "attention.h"

enum {
  DECODE_PARTS = 8, /* of a split */
  DECODE_PAIR = 2,  /* blocks of a cluster, each of which has half of the parts */
  DECODE_TILE = 16, /* KV rows */
  DECODE_MOST_ROWS = 16,
  DECODE_CROWDED_STAGES = 3, /* of a kernel's stages, where more blocks than two are to share a multiprocessor */
  DECODE_NO_WINDOW = 1 << 30
};
#define DECODE_RUN(warps) (DECODE_PARTS * (warps)*DECODE_TILE) /* KV rows: a tile for every warp of every part */
enum { DECODE_LEAST_RUN = DECODE_RUN(4) };

/* Without pages, window and cap, in one type; with them, as the parameters ask, in f16 and bf16; the same with K and V
 * in e4m3, which are multiplied as f16. The first two also write new rows. */
enum decode_kind { DECODE_PLAIN, DECODE_GENERAL, DECODE_E4M3 };

/* In elements. */
struct attention_decode_stride {
  uint32_t batch, head, position;
};

/* A grid is (KV heads x blocks of a cluster, batch, splits). Parameters that a kernel needs first come first, since it
 * reads them in lines of 64 bytes. */
struct attention_decode_parameters {
  const void *q, *k, *v;
  const int32_t *kv_lengths; /* or NULL */
  struct attention_decode_stride k_stride, v_stride;
  uint32_t capacity, query_length;

  struct attention_decode_stride q_stride;
  uint32_t group, group_reciprocal; /* row * group_reciprocal >> 16 is row / group */
  uint32_t rows;                    /* of a KV head: query length * group */
  int32_t causal;
  int32_t most_length; /* of kv_lengths, and of the end of new rows: see attention_shape */
  float scale_log2;
  uint32_t crowded; /* 1: DECODE_CROWDED_STAGES */
  void *o;
  struct attention_decode_stride o_stride;
  uint32_t lse_head_stride;

  float *lse; /* or NULL */
  uint32_t lse_batch_stride, batch;
  float *partial_o, *partial_lse; /* with splits: see attention_combine.cu; else NULL */
  struct completion done;

  /* Plain kernels do not read these: */
  const int32_t *kv_pages; /* or NULL: then each item is a page */
  uint32_t pages_stride, pool_pages, page_shift;
  int32_t window;              /* or DECODE_NO_WINDOW */
  float cap_log2, cap_inverse; /* the soft cap and its inverse as exponents to base 2; 0: none */
  float v_scale;
  int32_t bf16; /* q's and o's type: bf16 or f16 */

  /* New rows: attention_decode_append.cuh. */
  int32_t rotates, by_halves;
  const void *new_k, *new_v; /* or NULL */
  const int32_t *positions;  /* kv_lengths is NULL then */
  struct attention_decode_stride new_k_stride, new_v_stride;
  uint32_t position_step;   /* 1: a position for each item; 0: one for all */
  const float *frequencies; /* radians a position, or NULL: */
  double frequency_step;    /* exponents to base 2, from pair to pair */
  uint32_t early;           /* 1: no task before writes K and V */
  uint32_t always_zero;     /* 0: keep_early */
};

/* A warp's results of a part as its lanes have them, with up to eight query rows. */
#define DECODE_KEPT_BYTES(dimension) (((dimension) / 16 + 1) * 512)

/* Shared memory of a block without new rows: attention_decode_tile.cuh has its layout. */
#define DECODE_SHARED_BYTES(dimension, kind, warps, stages, cluster, rows)                                             \
  (128 + (warps) * ((dimension)*2 * ((kind) == DECODE_E4M3 ? 1 : 2) * DECODE_TILE * (stages) +                         \
                    (rows)*8 * ((cluster) == DECODE_PARTS ? DECODE_PARTS : 1) + (rows)*2 * (dimension) +               \
                    ((cluster) == DECODE_PARTS ? (rows)*4 * (dimension) : 0) +                                         \
                    ((cluster) == DECODE_PAIR ? DECODE_PARTS / DECODE_PAIR * DECODE_KEPT_BYTES(dimension) : 0)))

/* Shared memory of new rows: the rows, and sines and cosines. */
#define DECODE_NEW_BYTES(dimension, warps, query_length) ((warps) * (query_length)*8 * (dimension))

/* KERNEL(chips, parameters, name, threads, type, kind, head dimension, most query rows / 8, warps, stages, blocks of a
 * cluster).
 *
 * In 16 bits, and with few rows, the stages leave room for two blocks on a multiprocessor. So clusters are spread
 * evenly even if blocks of another kernel still run. The order of sums depends on the number of warps. So clusters and
 * blocks that are alone have the same number. e4m3 has eight: four take too long to convert it. */
#define ATTENTION_DECODE_OF(KERNEL, name, type, kind, dimension, operands, warps, stages, cluster)                     \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_decode_parameters, name, 32 * (warps), type, kind, dimension, operands, \
         warps, stages, cluster)
/* Heads of 64 and 128 with up to eight rows. A general kernel takes 6 to 8 % longer at short lengths, and 2 % in blocks
 * that are alone. Plain attention of other sizes takes general kernels. */
#define ATTENTION_DECODE_OF_PLAIN(KERNEL, name, type, kind)                                                            \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8, type, kind, 64, 1, 4, 6, 8)                                                 \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8, type, kind, 128, 1, 4, 3, 8)                                               \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8_pair, type, kind, 64, 1, 4, 6, 2)                                            \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8_pair, type, kind, 128, 1, 4, 3, 2)                                          \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8_alone, type, kind, 64, 1, 4, 6, 1)                                           \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8_alone, type, kind, 128, 1, 4, 3, 1)
/* If a kernel for eight rows is missing, the one for sixteen takes its tasks, with the same bits. This costs 2 % in
 * blocks that are alone, and 8 to 14 % in e4m3 with heads of 64. In clusters with heads of 64 and 16 bits it would cost
 * 6 to 10 %, in e4m3 with heads of 128 12 to 17 %. With heads of 256 it would change the bits. */
#define ATTENTION_DECODE_OF_GENERAL(KERNEL, name, type, kind)                                                          \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8, type, kind, 64, 1, 4, 6, 8)                                                 \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16, type, kind, 64, 2, 4, 4, 8)                                                \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8, type, kind, 128, 1, 4, 3, 8)                                               \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16, type, kind, 128, 2, 4, 3, 8)                                              \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8, type, kind, 256, 1, 4, 2, 8)                                               \
  ATTENTION_DECODE_OF(KERNEL, name##_256_16, type, kind, 256, 2, 4, 2, 8)                                              \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16_alone, type, kind, 64, 2, 4, 6, 1)                                          \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16_alone, type, kind, 128, 2, 4, 3, 1)                                        \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8_alone, type, kind, 256, 1, 4, 2, 1)
#define ATTENTION_DECODE_OF_E4M3(KERNEL, name, type, kind)                                                             \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16, type, kind, 64, 2, 8, 6, 8)                                                \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8, type, kind, 128, 1, 8, 2, 8)                                               \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16, type, kind, 128, 2, 8, 3, 8)                                              \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8, type, kind, 256, 1, 4, 3, 8)                                               \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16_alone, type, kind, 64, 2, 8, 6, 1)                                          \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8_alone, type, kind, 128, 1, 8, 3, 1)                                         \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16_alone, type, kind, 128, 2, 8, 3, 1)                                        \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8_alone, type, kind, 256, 1, 4, 4, 1)

#define ATTENTION_DECODE_KERNELS(KERNEL)                                                                               \
  ATTENTION_DECODE_OF_PLAIN(KERNEL, rondo_attention_decode_f16, RONDO_F16, DECODE_PLAIN)                               \
  ATTENTION_DECODE_OF_PLAIN(KERNEL, rondo_attention_decode_bf16, RONDO_BF16, DECODE_PLAIN)                             \
  ATTENTION_DECODE_OF_GENERAL(KERNEL, rondo_attention_decode_general, RONDO_BF16, DECODE_GENERAL)                      \
  ATTENTION_DECODE_OF_E4M3(KERNEL, rondo_attention_decode_e4m3, RONDO_F16, DECODE_E4M3)

#ifndef __CUDACC__
struct attention_decode_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  enum decode_kind kind;
  int64_t dimension, operands, warps, stages, cluster;
};

struct attention_decode_plan {
  const struct attention_decode_variant *variant;
  int64_t shared_bytes;
  bool crowded;
};

/* Of the KV rows. `asked`: that the task asks for, or 0. */
int64_t attention_decode_splits(int64_t kv_heads, int64_t capacity, int64_t asked);
#endif
