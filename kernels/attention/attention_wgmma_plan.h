/* attention_wgmma_plan.h - see attention_wgmma_plan.c. A pure function of the description and the chip. */
#ifndef RONDO_ATTENTION_WGMMA_PLAN_H
#define RONDO_ATTENTION_WGMMA_PLAN_H

#include "attention_wgmma.h"

struct attention_wgmma_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t head_dimension;
  enum attention_wgmma_mask mask;
  bool capped;
  int64_t rows; /* of a query tile */
  int64_t tile; /* KV rows */
  int64_t cluster;
  int64_t shared_bytes;
};

struct attention_wgmma_problem {
  uint32_t chip; /* CHIP_.. */
  int64_t multiprocessors, shared_bytes;
  rondo_dtype dtype;
  bool causal;
  bool one_split; /* none are asked for */
  bool has_maps;  /* q, k and v can have tensor maps, and rows of o begin at multiples of 16 bytes */
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

/* For kernels whose blocks take tiles likewise: whether such an attention may be for them, and the plan with one. */
bool attention_wgmma_is_possible(const struct attention_wgmma_problem *problem);
struct attention_wgmma_plan attention_wgmma_plan_with(const struct attention_wgmma_problem *problem,
                                                      const struct attention_wgmma_variant *variant);

/* attention_wgmma_select.c. The map of an operand as kernels want it: of [batch][head][position][column]. */
struct attention_wgmma_problem attention_wgmma_problem_of(const struct op_task *task,
                                                          const struct attention_shape *shape, const struct chip *chip);
struct attention_wgmma_parameters attention_wgmma_parameters_of(const struct op_call *call,
                                                                const struct attention_shape *shape,
                                                                const struct attention_wgmma_problem *problem,
                                                                const struct attention_wgmma_plan *plan);
void attention_wgmma_map(struct op_launch *launch, size_t offset, const struct op_call *call, uint32_t index,
                         int64_t rows, int64_t columns);

/* Whether it has added the launch. */
bool attention_wgmma_select(const struct op_call *call, const struct attention_shape *shape, const struct chip *chip,
                            struct op_launches *launches);

#endif
