/* attention_decode.h - attention of few query rows: its kernels, what they are told, and how they are chosen.
 *
 * KV rows are dealt in tiles of 16: of each split's, tile i goes to warp i % 4 of part i / 4 % 8. So that any length is
 * shared evenly, and which sums are made, and in which order they meet, depends on nothing but the length and the
 * number of splits: not on the batch, nor on whether a block has one part of a head or all of them. */
#ifndef RONDO_ATTENTION_DECODE_H
#define RONDO_ATTENTION_DECODE_H

#include "attention.h"

enum {
  DECODE_WARPS = 4,
  DECODE_THREADS = 32 * DECODE_WARPS,
  DECODE_PARTS = 8,                                       /* of a split */
  DECODE_TILE = 16,                                       /* KV rows */
  DECODE_RUN = DECODE_PARTS * DECODE_WARPS * DECODE_TILE, /* KV rows: a tile for every warp of every part */
  DECODE_MOST_ROWS = 16
};

/* In elements. */
struct attention_decode_stride {
  uint32_t batch, head, position;
};

/* rondo_attention_decode_*. A grid is (KV heads x blocks of a cluster, batch, splits). In the order of need: a kernel
 * reads its parameters by lines of 64 bytes. */
struct attention_decode_parameters {
  const void *q, *k, *v;
  const int32_t *kv_lengths; /* or NULL */
  struct attention_decode_stride k_stride, v_stride;
  uint32_t capacity, query_length;

  struct attention_decode_stride q_stride;
  uint32_t group, group_reciprocal; /* row * group_reciprocal >> 16 is row / group */
  uint32_t rows;                    /* of a KV head: query length * group */
  int32_t causal;
  float scale_log2;
  void *o;
  struct attention_decode_stride o_stride;
  uint32_t lse_head_stride;

  float *lse; /* or NULL */
  uint32_t lse_batch_stride, batch;
  float *partial_o, *partial_lse; /* with splits, as attention_combine.cu has them; else NULL */
  struct completion done;
};

/* Shared memory of a block: see attention_decode.cu. */
#define DECODE_SHARED_BYTES(dimension, stages, cluster, rows)                                                          \
  (128 + (dimension)*4 * DECODE_WARPS * DECODE_TILE * (stages) +                                                       \
   ((cluster) > 1 ? (rows)*4 * DECODE_WARPS * (dimension) : 0) +                                                       \
   (rows)*8 * DECODE_WARPS * ((cluster) > 1 ? DECODE_PARTS : 1) + (rows)*2 * DECODE_WARPS * (dimension))

/* KERNEL(chips, parameters, name, threads, type, head dimension, most query rows / 8, stages, blocks of a cluster). As
 * many stages as leave room for two blocks on a multiprocessor, where rows are few: so clusters are spread evenly
 * though others still run. */
#define ATTENTION_DECODE_OF(KERNEL, name, ...)                                                                         \
  KERNEL(CHIP_SM_90A | CHIP_SM_100A, attention_decode_parameters, name, DECODE_THREADS, __VA_ARGS__)
#define ATTENTION_DECODE_OF_TYPE(KERNEL, name, type)                                                                   \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8, type, 64, 1, 6, 8)                                                          \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16, type, 64, 2, 4, 8)                                                         \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8, type, 128, 1, 3, 8)                                                        \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16, type, 128, 2, 3, 8)                                                       \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8, type, 256, 1, 2, 8)                                                        \
  ATTENTION_DECODE_OF(KERNEL, name##_256_16, type, 256, 2, 2, 8)                                                       \
  ATTENTION_DECODE_OF(KERNEL, name##_64_8_alone, type, 64, 1, 6, 1)                                                    \
  ATTENTION_DECODE_OF(KERNEL, name##_64_16_alone, type, 64, 2, 6, 1)                                                   \
  ATTENTION_DECODE_OF(KERNEL, name##_128_8_alone, type, 128, 1, 3, 1)                                                  \
  ATTENTION_DECODE_OF(KERNEL, name##_128_16_alone, type, 128, 2, 3, 1)                                                 \
  ATTENTION_DECODE_OF(KERNEL, name##_256_8_alone, type, 256, 1, 2, 1)

#define ATTENTION_DECODE_KERNELS(KERNEL)                                                                               \
  ATTENTION_DECODE_OF_TYPE(KERNEL, rondo_attention_decode_f16, RONDO_F16)                                              \
  ATTENTION_DECODE_OF_TYPE(KERNEL, rondo_attention_decode_bf16, RONDO_BF16)

#ifndef __CUDACC__
struct attention_decode_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t dimension, operands, stages, cluster;
};

struct attention_decode_problem {
  rondo_dtype dtype;
  int64_t dimension, batch, kv_heads;
  int64_t rows; /* of a KV head */
  int64_t capacity;
  int64_t splits; /* asked for; 0: chosen here */
  bool aligned;   /* every row of q, k, v and o begins at a multiple of 16 bytes */
  uint32_t chip;  /* CHIP_SM_90A or CHIP_SM_100A; 0: any other */
  int64_t multiprocessors, shared_bytes;
};

struct attention_decode_plan {
  const struct attention_decode_variant *variant; /* NULL: these kernels cannot do it */
  int64_t splits, shared_bytes;
};

/* Pure. What the bits depend on, the number of splits, is chosen by KV heads and capacity alone: not by the batch, nor
 * by the chip. */
struct attention_decode_plan attention_decode_plan_of(const struct attention_decode_problem *problem);
int64_t attention_decode_splits(int64_t kv_heads, int64_t capacity, int64_t asked);

struct attention_decode_plan attention_decode_plan_for(const struct op_task *task, const struct attention_shape *shape,
                                                       const struct chip *chip);
/* `shape` has the plan's splits. */
void attention_decode_launch(const struct op_call *call, const struct attention_shape *shape,
                             const struct attention_decode_plan *plan, struct op_launches *launches);
#endif
#endif
