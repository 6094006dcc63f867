/* attention.h - attention: the row of the operation table, and what host code and kernels tell each other.
 *
 * The query heads that share a KV head are folded together with the query positions: of one batch item and KV head, row
 * r is position r / group, head r % group. So a KV head is read once for its whole group, and one query position with
 * eight heads to a KV head fills half of a 16-row fragment. Prefill and decode are the same kernel,
 * but for few rows newer chips have kernels of their own: attention_decode.h.
 *
 * The KV sequence may be cut in splits. Each is then attended on its own, into scratch; rondo_attention_combine merges
 * them in their order. */
#ifndef RONDO_ATTENTION_H
#define RONDO_ATTENTION_H

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  ATTENTION_THREADS = 128,
  ATTENTION_ROWS = ATTENTION_THREADS / 32 * 16, /* of a block; a warp has 16 */
  ATTENTION_MAX_SPLITS = 256,
  ATTENTION_SPLIT_UNIT = 64 /* a split is a multiple of so many KV rows */
};

/* In elements. */
struct attention_stride {
  int64_t batch, head, position;
};

/* rondo_attention_DTYPE_DIMENSION and rondo_attention_combine. Of rows there are at most 2^26: a tensor has at most
 * 2^31 elements and a head at least 32. */
struct attention_parameters {
  const void *q, *k, *v;
  const int32_t *kv_lengths; /* or NULL */
  void *o;
  float *lse; /* or NULL */
  /* With splits: what each gave, in fp32: o [splits][batch * kv_heads * rows][head dimension], and the log-sum-exp to
   * base 2 [splits][batch * kv_heads * rows]. */
  float *partial_o, *partial_lse;
  struct attention_stride q_stride, k_stride, v_stride, o_stride;
  int64_t lse_batch_stride, lse_head_stride;
  uint32_t batch, kv_heads, group;
  uint32_t rows; /* of a KV head: query length * group */
  int32_t query_length, capacity;
  uint32_t row_tiles, splits;
  int32_t split_rows; /* KV rows of a split */
  uint32_t head_dimension;
  float scale_log2;        /* scale * log2(e): scores are exponents to base 2 */
  int32_t causal, aligned; /* aligned: every row of q, k, v and o begins at a multiple of 16 bytes */
  int32_t bf16;            /* o's type, for the merge: bf16 or f16 */
  struct completion done;
};

/* Shared memory of a block: the query rows, then the stages of K, then those of V, all of two-byte numbers. */
#define ATTENTION_SHARED_BYTES(dimension, tile, stages) (2 * (dimension) * (ATTENTION_ROWS + 2 * (tile) * (stages)))

/* KERNEL(chips, parameters, name, threads, type, head dimension, KV rows of a tile, tiles in shared memory) */
#define ATTENTION_KERNELS(KERNEL)                                                                                      \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_f16_32, ATTENTION_THREADS, RONDO_F16, 32, 64, 3)            \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_f16_64, ATTENTION_THREADS, RONDO_F16, 64, 64, 3)            \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_f16_128, ATTENTION_THREADS, RONDO_F16, 128, 64, 2)          \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_f16_256, ATTENTION_THREADS, RONDO_F16, 256, 32, 2)          \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_bf16_32, ATTENTION_THREADS, RONDO_BF16, 32, 64, 3)          \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_bf16_64, ATTENTION_THREADS, RONDO_BF16, 64, 64, 3)          \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_bf16_128, ATTENTION_THREADS, RONDO_BF16, 128, 64, 2)        \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_bf16_256, ATTENTION_THREADS, RONDO_BF16, 256, 32, 2)

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, what it calls) */
#define ATTENTION_COMBINE_KERNELS(KERNEL)                                                                              \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_combine, ATTENTION_THREADS, 0, combine_rows)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_attention;

enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_KV_LENGTHS, ATTENTION_O, ATTENTION_LSE }; /* operands */

struct attention_attributes {
  int32_t layout; /* rondo_head_layout */
  int32_t causal;
  int32_t splits; /* 0: chosen here */
  float scale;    /* 0: 1 / sqrt(head dimension) */
};

/* The sizes of a checked task, and how it is cut; from the description alone, so that the bits do not depend on the
 * chip. */
struct attention_shape {
  int64_t batch, query_heads, kv_heads, group;
  int64_t query_length, capacity, head_dimension;
  int64_t rows;       /* of a KV head: query_length * group */
  int64_t total_rows; /* batch * kv_heads * rows */
  int64_t row_tiles;  /* of ATTENTION_ROWS, of a KV head */
  int64_t splits, split_rows;
  float scale;
  bool causal;
  struct attention_stride q_stride, k_stride, v_stride, o_stride;
};
struct attention_shape attention_shape_of(const struct op_task *task);

uint64_t attention_scratch_bytes(const struct op_task *task);
/* Where the partial log-sum-exps begin in scratch. */
uint64_t attention_partial_o_bytes(const struct attention_shape *shape);

int64_t attention_host_items(const struct op_task *task);
void attention_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status attention_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
#endif
