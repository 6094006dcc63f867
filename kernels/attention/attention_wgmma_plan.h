/* attention_wgmma_plan.h - see attention_wgmma_plan.c. A plan is a pure function of the description and the chip. */
#ifndef RONDO_ATTENTION_WGMMA_PLAN_H
#define RONDO_ATTENTION_WGMMA_PLAN_H

#include "attention_wgmma.h"

struct attention_wgmma_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t head_dimension;
  enum attention_wgmma_mask mask;
  int64_t rows; /* of a query tile */
  int64_t tile; /* KV rows */
  int64_t cluster;
  int64_t shared_bytes;
  int64_t key_box_rows, value_box_rows, box_columns; /* of one copy of K and of V */
};

struct attention_wgmma_problem {
  uint32_t chip; /* CHIP_.. */
  int64_t multiprocessors, shared_bytes;
  rondo_dtype dtype;
  bool causal;
  bool has_maps; /* q, k and v can have tensor maps, and rows of o begin at multiples of 16 bytes */
  float scale_log2;
  float soft_cap; /* or 0 */
  int64_t window; /* or 0 */
  int64_t batch, query_heads, kv_heads, query_length, capacity, head_dimension;
};

struct attention_wgmma_plan {
  const struct attention_wgmma_variant *variant; /* NULL: another kernel is better, or the only one */
  int64_t row_tiles;                             /* of a head, for a cluster */
  int64_t heads_together, rounds;                /* see attention_wgmma_parameters */
  int64_t blocks;
};
struct attention_wgmma_plan attention_wgmma_plan_of(const struct attention_wgmma_problem *problem);

#endif
