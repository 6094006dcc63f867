/* gemv_rows_plan.c - where matrices of many short rows go to gemv_rows.cu, and how.
 *
 * Measured on an H200, k 448 to 1024, 34000 to 262144 rows, 1 or 2, 8 and 16 vectors, beside the kernels of
 * gemv_plan.c: with NVFP4 they take 0.94 to 1.59 times as long, the more vectors the longer (49152 x 576, NVFP4 x
 * NVFP4: 9.2, 9.8 and 12.3 us, here 8.2, 8.2 and 9.3); with e4m3 and eight or more 0.92 to 2.05 times (17.3 and 21.8
 * us, here 10.1 and 10.7). One vector beside NVFP4 has gemv_short.cu, and beside e4m3 it is better off there where k
 * has no remainder. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"

#define ROWS_KERNEL(chips, parameters, name, threads, blocks, weights, vectors, operands)                              \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, vectors, operands},
static const struct gemv_rows_variant variants[] = {GEMV_ROWS_KERNELS(ROWS_KERNEL)};

enum {
  MOST_SHARED_BYTES = 227 << 10, /* of a block */
  LEAST_K = 384,
  REMAINDER = 256,   /* of e4m3: what 16 lanes load, half of what a warp of gemv_plan.c's kernels has */
  FEWEST_WARPS = 16, /* each converts a vector */
};

static const struct gemv_rows_variant *variant_of(const struct gemv_problem *problem) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct gemv_rows_variant *v = &variants[i];
    if (v->weights == problem->weights && v->vectors == problem->vectors && 8 * v->operands >= problem->count &&
        v->kernel.chips & problem->chip)
      return v;
  }
  return NULL;
}

static bool is_possible(const struct gemv_problem *problem) {
  if (!problem->wide_loads || problem->norm || problem->one_order) return false;
  if (problem->k < LEAST_K || problem->k > GEMV_ROWS_MOST_K || problem->batch > problem->multiprocessors) return false;
  if (!problem->packed_weights || problem->blocked_scales) return false;
  if (problem->count == 1 && (problem->weights == RONDO_NVFP4 || problem->k % REMAINDER == 0)) return false;
  return problem->weights == RONDO_E4M3 ||
         (problem->weights == RONDO_NVFP4 && problem->k % 2 == 0 && problem->k / 2 % GEMV_BLOCK == 0);
}

/* What gemv_rows.cu lays out: the vectors, slots, results. The order of sums is one whatever comes of it. */
static bool lay_out(const struct gemv_problem *problem, struct gemv_rows_plan *plan) {
  const int64_t k = problem->k, vectors = 8 * plan->variant->operands;
  const int64_t lane_bytes = GEMV_BLOCK * (int64_t)rondo_dtype_bits(problem->weights) / 8;
  const int64_t scales = problem->weights == RONDO_NVFP4 ? k / GEMV_BLOCK : 0;
  const int64_t held = problem->finishing ? vectors * plan->block_rows * (int64_t)sizeof(float) : 0;
  const int64_t groups = plan->block_rows / GEMV_ROWS_GROUP;
  plan->first_stage = divide_up(GEMV_ROWS_FACTOR_BYTES + vectors * GEMV_ROWS_VECTOR_PITCH(k), 128) * 128;
  plan->slot_bytes = GEMV_ROWS_GROUP * (GEMV_ROWS_PITCH(k, lane_bytes) + scales);
  plan->row_loads = k * lane_bytes / GEMV_BLOCK / 16;
  const int64_t slots = (MOST_SHARED_BYTES - plan->first_stage - held) / plan->slot_bytes;
  const int64_t most = smaller(slots, GEMV_ROWS_WARPS);
  if (most < FEWEST_WARPS) return false;
  const int64_t turns = divide_up(groups, most);
  plan->warps = larger(divide_up(groups, turns), FEWEST_WARPS);
  plan->shared_bytes = plan->first_stage + plan->warps * plan->slot_bytes + held;
  return true;
}

struct gemv_rows_plan gemv_rows_plan_of(const struct gemv_problem *problem) {
  const struct gemv_rows_plan none = {0};
  struct gemv_rows_plan plan = {0};
  if (!is_possible(problem)) return none;
  plan.variant = variant_of(problem);
  if (!plan.variant) return none;
  const int64_t multiple = larger(problem->row_multiple, GEMV_ROWS_GROUP);
  const int64_t share = divide_up(problem->m, problem->multiprocessors / problem->batch);
  plan.block_rows = round_up(share, multiple);
  plan.blocks = divide_up(problem->m, plan.block_rows);
  if (plan.block_rows / GEMV_ROWS_GROUP < FEWEST_WARPS) return none;
  return lay_out(problem, &plan) ? plan : none;
}
