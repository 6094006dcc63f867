/* attention.h - attention: what host code and kernels tell each other, and the functions of the operation's row.
 *
 * Query heads that share a KV head are folded together with the query positions. Of one batch item and KV head, row r
 * is position r / group, head r % group. So a KV head is read once for its whole group, and one query position with
 * eight heads to a KV head fills half of a fragment of 16 rows.
 *
 * attention_choose.c says which kernel attends. Where that kernel cannot write new rows or apply a rotary embedding, a
 * launch before it does (attention_append.h).
 *
 * The KV sequence may be divided into splits. Each split is attended on its own, into scratch memory;
 * rondo_attention_combine then merges the splits in their order. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  ATTENTION_THREADS = 128, /* of a block that merges */
  ATTENTION_MAX_SPLITS = 256,
  ATTENTION_SPLIT_UNIT = 64, /* KV rows: a split is a multiple of them */
  ATTENTION_LEAST_PAGE_ROWS = 16,
  ATTENTION_MOST_CAPACITY = 1 << 26, /* of an item: without pages, the size of a tensor sees to it */
  ATTENTION_MOST_PAIRS = 128         /* of a row, that a rotary embedding rotates */
};

/* In elements. */
struct attention_stride {
  int64_t batch, head, position;
};

/* rondo_attention_DTYPE_DIMENSION, the same with _wide, and rondo_attention_combine. Of rows there are at most 2^26: a
 * tensor has at most 2^31 elements and a head at least 32. */
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
  int32_t most_length; /* of kv_lengths: see attention_shape */
  uint32_t row_tiles, splits;
  uint32_t section_heads; /* heads whose rows are computed side by side, the longest first */
  int32_t split_rows;     /* KV rows of a split */
  uint32_t head_dimension;
  float scale_log2;        /* scale * log2(e): scores are exponents to base 2 */
  int32_t causal, aligned; /* aligned: every row of q, k, v and o begins at a multiple of 16 bytes */
  int32_t bf16;            /* o's type, for the merge: bf16 or f16 */
  struct completion done;
};

/* Shared memory of a block: the query rows, then the stages of K, then those of V, all of two-byte numbers. */
#define ATTENTION_SHARED_BYTES(dimension, rows, tile, stages) (2 * (dimension) * ((rows) + 2 * (tile) * (stages)))

/* Of a block: its warps have one or two parts of 16 rows each. */
#define ATTENTION_ROWS(threads, parts) ((threads) / 2 * (parts))

/* KERNEL(chips, parameters, name, the most threads of a block, blocks of a multiprocessor, type, head dimension, parts
 * of a warp, KV rows of a tile, tiles in shared memory, tiles there on sm_80, 16-column steps of Q in registers)
 *
 * The wide ones are for many rows: a fragment of K or V that is read serves two parts. sm_80 has shared memory for two
 * blocks of the widest only with one tile: all else, and so the result's bits, are the same. */
#define ATTENTION_TYPE_KERNELS(KERNEL, t, type)                                                                        \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_32, 128, 4, type, 32, 1, 64, 3, 3, 2)                 \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_64, 128, 3, type, 64, 1, 64, 3, 3, 4)                 \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_128, 128, 2, type, 128, 1, 64, 2, 2, 8)               \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_256, 128, 2, type, 256, 1, 32, 2, 2, 0)               \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_64_wide, 128, 2, type, 64, 2, 128, 2, 2, 0)           \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_##t##_128_wide, 128, 2, type, 128, 2, 64, 2, 1, 0)
#define ATTENTION_KERNELS(KERNEL)                                                                                      \
  ATTENTION_TYPE_KERNELS(KERNEL, f16, RONDO_F16)                                                                       \
  ATTENTION_TYPE_KERNELS(KERNEL, bf16, RONDO_BF16)

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, what it calls) */
#define ATTENTION_COMBINE_KERNELS(KERNEL)                                                                              \
  KERNEL(EVERY_CHIP, attention_parameters, rondo_attention_combine, ATTENTION_THREADS, 0, combine_rows)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_attention;

/* Operands. */
enum {
  ATTENTION_Q,
  ATTENTION_K,
  ATTENTION_V,
  ATTENTION_KV_LENGTHS,
  ATTENTION_O,
  ATTENTION_LSE,
  ATTENTION_KV_PAGES,
  ATTENTION_NEW_K,
  ATTENTION_NEW_V,
  ATTENTION_POSITION,
  ATTENTION_ROPE_FREQUENCIES,
  ATTENTION_ROW_OFFSETS,
  ATTENTION_OPERANDS
};

struct attention_attributes {
  int32_t layout; /* rondo_head_layout */
  int32_t causal;
  int32_t splits;                  /* 0: chosen here */
  float scale;                     /* 0: 1 / sqrt(head dimension) */
  int32_t window;                  /* 0: none */
  float soft_cap;                  /* 0: none */
  float q_scale, k_scale, v_scale; /* 0: 1 */
  float rope_base;                 /* 0: none */
  int32_t rope_pairing;            /* rondo_rope_pairing */
  int32_t has_ends;                /* kv_lengths are ends of new rows: see attention_rest */
};

/* The sizes of a checked task, and how it is cut; from the description alone, so that the bits do not depend on the
 * chip. */
struct attention_shape {
  int64_t batch, query_heads, kv_heads, group; /* batch: of q */
  int64_t items;                               /* of K and V: the batch, or of packed rows as many as share them */
  int64_t query_length, capacity, head_dimension;
  int64_t rows;       /* of a KV head: query_length * group */
  int64_t total_rows; /* batch * kv_heads * rows */
  int64_t block_rows; /* 64 or, where there are many, 128 */
  int64_t row_tiles;  /* of block_rows, of a KV head */
  int64_t splits, split_rows;
  float scale; /* of the products of numbers as they are stored: with q_scale and k_scale */
  bool causal;
  struct attention_stride q_stride, k_stride, v_stride, o_stride;
  /* With kv_pages: K and V are pool_pages pages of page_rows rows, and their stride.batch leads from page to page.
   * Item b has the entries kv_pages[b * pages_stride] and on, item_pages of them. */
  bool paged;
  int64_t pool_pages, page_rows, item_pages, pages_stride;
  int64_t window; /* a row sees columns [limit - window, limit); 0: [0, limit). Always less than the capacity */
  float soft_cap; /* 0: none */
  float v_scale;  /* a result's last factor */
  bool plain;     /* no pages, no window, no soft cap, no e4m3, not packed */
  bool packed;    /* row_offsets say on the device which rows of q, new_k, new_v and o belong to which item */
  bool appends;   /* rows of new_k and new_v are written to k and v first */
  bool rotates;   /* a rotary embedding of q and of the rows of new_k, before all else */
  bool by_halves; /* it rotates pairs i and i + d/2, not 2 i and 2 i + 1 */
  bool has_ends;  /* kv_lengths are ends of new rows, anywhere in the capacity: only the device knows them */
  /* The most that kv_lengths may be: the capacity. If they are ends of new rows under a causal mask, it is query_length
   * - 1 more: row r then sees position + r + 1 KV rows, up to the capacity. */
  int64_t most_length;
};
struct attention_shape attention_shape_of(const struct op_task *task);
/* Do all rows of q, k, v and o begin at multiples of 16 bytes? */
bool attention_rows_aligned(const struct op_task *task);
struct attention_stride attention_stride_of(const struct op_task *task, uint32_t index);
/* Which dimension of a 4-dimensional operand is its heads, and which its positions. */
int attention_head_axis(const struct op_task *task);
int attention_position_axis(const struct op_task *task);
/* How many items have KV rows of their own. */
int64_t attention_items(const struct op_task *task);
/* The factor of products of numbers of q and k as they are stored. */
float attention_score_scale(const struct op_task *task);

/* Scratch memory. Partial results of splits lie first. Offsets and size in bytes. */
struct attention_scratch {
  uint64_t rotated; /* of queries, [batch, query length, query heads, head dimension] */
  uint64_t lengths; /* of kv_lengths, [items] */
  uint64_t starts;  /* of packed rows: row_offsets that rise, [items + 1] */
  uint64_t bytes;
};
struct attention_scratch attention_scratch_of(const struct op_task *task);
/* Where the partial log-sum-exps begin in scratch. */
uint64_t attention_partial_o_bytes(const struct attention_shape *shape);

/* attention_append.c: new rows and the rotary embedding. */
rondo_status attention_append_check(const struct op_task *task);
/* Radians a position of each pair: those that are given or, else, in `room`, the base's. */
const float *attention_frequencies(const struct op_call *call, float room[ATTENTION_MOST_PAIRS]);

/* The functions of the operation's row. */
rondo_status attention_task_check(const struct op_task *task);
uint64_t attention_scratch_bytes(const struct op_task *task);
int64_t attention_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
enum { ATTENTION_ITEM_ROWS = 96, ATTENTION_NEW_POSITIONS = 16 }; /* of an item of each step on the host */
int64_t attention_items_per_head(const struct attention_shape *shape);
bool attention_item_appends(const struct attention_shape *shape);
bool attention_host_step(const struct op_call *call, uint32_t index, struct op_step *step);
extern const struct op op_attention_new_rows, op_attention_rows;
int64_t attention_new_rows_host_items(const struct op_task *task);
void attention_new_rows_host_run(const struct op_call *call, int64_t first, int64_t last);
int64_t attention_rows_host_items(const struct op_task *task);
void attention_rows_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status attention_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
