/* attention_wgmma.h - attention of many query rows on sm_90a: the kernels of attention_wgmma.cu (16 bits) and of
 * attention_wgmma_e4m3.cu, their parameters and their shared memory.
 *
 * A query tile is 64 positions of one query head for each computing warpgroup of a block. attention_wgmma_tiles.cuh
 * deals query tiles to clusters by arithmetic. */
#pragma once

#include "../common/tensor_map.h"
#include "attention.h"

/* Which KV rows a query row sees: all; the rows up to its own; or as the parameters say, which may have a causal mask,
 * a window and a soft cap. */
enum attention_wgmma_mask { ATTENTION_WGMMA_ALL, ATTENTION_WGMMA_CAUSAL, ATTENTION_WGMMA_GENERAL };

enum {
  ATTENTION_WGMMA_NO_WINDOW = 1 << 30,     /* for general kernels */
  ATTENTION_WGMMA_PACKED_LENGTH = 1 << 30, /* more than rows: see limit_of */
  ATTENTION_WGMMA_ANY_BATCH = 0x7fffffff,
  ATTENTION_WGMMA_LEAST_DIMENSION = 64, /* of a kernel: copies fill narrower heads with zeros */
  ATTENTION_WGMMA_BARRIER_BYTES = 272,
  ATTENTION_WGMMA_QUERY_BOX = 64,   /* positions of one copy of Q */
  ATTENTION_WGMMA_MOST_TILES = 4096 /* query tiles of a block: it keeps a bit for each */
};

struct attention_wgmma_parameters {
  struct tensor_map q, k, v; /* of [batch][head][position][column], in boxes of query_box and kv_box columns */
  void *o;
  float *lse;                /* or NULL */
  const int32_t *kv_lengths; /* or NULL */
  const int32_t *position;   /* settled, and each of kv_lengths is this and query_length; or NULL */
  uint32_t always_zero;      /* 0: see keep_early */
  struct attention_stride o_stride;
  int64_t lse_batch_stride, lse_head_stride;
  struct completion done;
  uint32_t query_heads, group; /* group: query heads of a KV head */
  uint32_t heads;              /* batch * query heads */
  uint32_t row_tiles;          /* of a head, each for a cluster */
  uint32_t heads_together;     /* under the causal mask: heads of a group, which is dealt as one */
  uint32_t rounds;             /* of a group: a cluster takes one tile in each */
  int32_t query_length, capacity;
  int32_t head_dimension; /* columns of O that there are */
  float scale_log2;       /* scale * log2(e), positive; with a cap: cap * log2(e) */
  float cap_scale;        /* of general kernels: scale / cap, or 0: no cap */
  int32_t window;         /* of general kernels: KV rows that a query row sees at most */
  int32_t most_length;    /* of kv_lengths: see attention_shape */
  int32_t causal_length;  /* of general kernels: query_length under the causal mask, else 0 */
  /* Of general kernels and packed rows: offsets that rise, [items + 1], and causal_length is
   * ATTENTION_WGMMA_PACKED_LENGTH. Else NULL. */
  const int32_t *starts;
  uint32_t items;
  uint32_t batch_bits; /* all of a query tile's batch; of packed rows 0 */
  /* Of e4m3's kernels: */
  float v_scale; /* O is multiplied by it */
  int32_t bf16;  /* O's type: bf16, or f16 */
};

/* Shared memory of a block: slots of Q, K and V; barriers; 32 bytes for each slot of Q; 8 for each warpgroup; for each
 * of two passes a word and a bit for each query tile; a word for each column of V or, in general kernels, three bits
 * for each query row.
 *
 * e4m3: V is transposed, with eight rows more. The two warps that transpose it have two landings each, of half a KV
 * tile, and a word for each column. */
/* Blocks that take a part each of a query tile's KV tiles. */
#define ATTENTION_WGMMA_PARTS(mask, cluster) ((mask) == ATTENTION_WGMMA_CAUSAL ? (cluster) : 1)
/* Of a warpgroup's packet: half of O, two references and two sums of each thread. */
#define ATTENTION_WGMMA_EXCHANGE_BYTES(dimension)      (128 * ((dimension) + 16))
#define ATTENTION_WGMMA_COLUMN_BYTES(mask, warpgroups) ((mask) == ATTENTION_WGMMA_GENERAL ? 24 * (warpgroups) : 4)
#define ATTENTION_WGMMA_STATE_BYTES(warpgroups, query_slots)                                                           \
  (ATTENTION_WGMMA_BARRIER_BYTES + 32 * (warpgroups) * (query_slots) + 8 * (warpgroups) +                              \
   2 * (ATTENTION_WGMMA_MOST_TILES / 8 + 4))
#define ATTENTION_WGMMA_SHARED_BYTES(dimension, mask, warpgroups, tile, kv_slots, query_slots, cluster)                \
  (2 * (dimension) * (64 * (warpgroups) * (query_slots) + 2 * (tile) * (kv_slots)) +                                   \
   (ATTENTION_WGMMA_PARTS(mask, cluster) > 1 ? 2 * (warpgroups)*ATTENTION_WGMMA_EXCHANGE_BYTES(dimension) : 0) +       \
   ATTENTION_WGMMA_STATE_BYTES(warpgroups, query_slots) + (dimension)*ATTENTION_WGMMA_COLUMN_BYTES(mask, warpgroups))
#define ATTENTION_E4M3_SHARED_BYTES(dimension, warpgroups, tile, kv_slots, query_slots)                                \
  ((dimension) * (64 * (warpgroups) * (query_slots) + (tile) * ((kv_slots) + 2)) +                                     \
   ((dimension) + 8) * (tile) * (kv_slots) + ATTENTION_WGMMA_STATE_BYTES(warpgroups, query_slots) + 8 * (dimension))

/* KERNEL(chips, parameters, name, threads, type, head dimension, mask, computing warpgroups, KV rows of a tile, slots
 * of K and of V, slots of Q, blocks of a cluster, scores that become weights before the wait for O: eighths of a tile;
 * in e4m3, words of which one half is made then) */
#define ATTENTION_WGMMA_KERNELS_OF(KERNEL, name, T)                                                                    \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64, 384, T, 64, ALL, 2, 128, 4, 2, 1, 4)                      \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64_causal, 384, T, 64, CAUSAL, 2, 128, 4, 2, 1, 4)            \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64_high, 512, T, 64, ALL, 3, 128, 4, 2, 1, 2)                 \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64_high_causal, 512, T, 64, CAUSAL, 3, 128, 4, 2, 1, 2)       \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_128, 384, T, 128, ALL, 2, 128, 2, 2, 1, 4)                    \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_128_causal, 384, T, 128, CAUSAL, 2, 128, 2, 2, 1, 4)          \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_128_pair, 384, T, 128, ALL, 2, 128, 2, 2, 2, 4)               \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_256, 384, T, 256, ALL, 2, 64, 2, 1, 1, 4)                     \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_256_pair, 384, T, 256, ALL, 2, 64, 2, 1, 2, 4)                \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_256_causal, 384, T, 256, CAUSAL, 2, 64, 2, 1, 1, 4)           \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64_general, 384, T, 64, GENERAL, 2, 128, 4, 2, 1, 4)          \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_64_parts_causal, 256, T, 64, CAUSAL, 1, 128, 2, 2, 2, 4)      \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_128_general, 384, T, 128, GENERAL, 2, 128, 2, 2, 1, 4)        \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, name##_256_general, 384, T, 256, GENERAL, 2, 64, 2, 1, 1, 4)
#define ATTENTION_WGMMA_F16_KERNELS(KERNEL)  ATTENTION_WGMMA_KERNELS_OF(KERNEL, rondo_attention_wgmma_f16, RONDO_F16)
#define ATTENTION_WGMMA_BF16_KERNELS(KERNEL) ATTENTION_WGMMA_KERNELS_OF(KERNEL, rondo_attention_wgmma_bf16, RONDO_BF16)
#define ATTENTION_WGMMA_KERNELS(KERNEL)      ATTENTION_WGMMA_F16_KERNELS(KERNEL) ATTENTION_WGMMA_BF16_KERNELS(KERNEL)

#define ATTENTION_E4M3_KERNELS(KERNEL)                                                                                 \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, rondo_attention_e4m3_128, 384, RONDO_E4M3, 128, ALL, 2, 128, 4, 2,   \
         1, 4)                                                                                                         \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, rondo_attention_e4m3_128_causal, 384, RONDO_E4M3, 128, CAUSAL, 2,    \
         128, 4, 2, 1, 4)

/* Blocks of a multiprocessor. */
#define ATTENTION_WGMMA_AT_ONCE(warpgroups) ((warpgroups) == 1 ? 2 : 1)

#ifndef __CUDACC__
struct attention_wgmma_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t head_dimension;
  enum attention_wgmma_mask mask;
  int64_t rows; /* of a query tile */
  int64_t tile; /* KV rows */
  int64_t cluster;
  int64_t at_once; /* blocks of a multiprocessor */
  int64_t parts;   /* of a query tile's KV tiles: blocks that take one each */
  int64_t shared_bytes;
  int64_t key_box_rows, value_box_rows, box_columns; /* of one copy of K and of V */
};

struct attention_wgmma_plan {
  const struct attention_wgmma_variant *variant;
  int64_t row_tiles;              /* of a head, for a cluster */
  int64_t heads_together, rounds; /* see attention_wgmma_parameters */
  int64_t blocks;
};
#endif
