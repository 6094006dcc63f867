/* gemv_tall_plan.c - where 16-bit matrices of many short rows go to gemv_tall.cu, and how. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"
#include "gemv_tall.h"

#define TALL_KERNEL(chips, parameters, name, threads, blocks, dtype, operands)                                         \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, operands},
static const struct gemv_tall_variant variants[] = {GEMV_TALL_KERNELS(TALL_KERNEL)};

enum {
  MOST_SHARED_BYTES = 227 << 10, /* of a block */
  ALIGNMENT = 128,               /* of slots */
  LEAST_K = 256,
  WHOLE_K = 32,        /* what a quad takes of a row at a time */
  COLUMNS_A_TILE = 128 /* of a block's tiles: with fewer, slots are not filled often enough to be faster */
};

static const struct gemv_tall_variant *variant_of(const struct gemv_problem *problem) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct gemv_tall_variant *v = &variants[i];
    if (v->dtype == problem->weights && 8 * v->operands >= problem->count && v->kernel.chips & problem->chip) return v;
  }
  return NULL;
}

static bool is_possible(const struct gemv_problem *problem) {
  if (!problem->wide_loads || !problem->packed_weights || problem->finishing || problem->one_order) return false;
  return problem->k >= LEAST_K && problem->k <= GEMV_TALL_MOST_K && problem->k % WHOLE_K == 0 &&
         problem->batch <= problem->multiprocessors;
}

/* What gemv_tall.cu lays out. At the largest k there are two slots. */
static void lay_out(const struct gemv_problem *problem, struct gemv_tall_plan *plan) {
  const int64_t vectors = GEMV_TALL_FIXED_BYTES + 8 * plan->variant->operands * GEMV_TALL_VECTOR_PITCH(problem->k);
  plan->first_stage = round_up(vectors, ALIGNMENT);
  plan->slot_bytes = INT64_C(2) * GEMV_TALL_ROWS * problem->k;
  plan->slots = smaller((MOST_SHARED_BYTES - plan->first_stage) / plan->slot_bytes, GEMV_TALL_WARPS);
  plan->first_slots = divide_up(plan->slots, 2);
  plan->shared_bytes = plan->first_stage + plan->slots * plan->slot_bytes;
}

struct gemv_tall_plan gemv_tall_plan_of(const struct gemv_problem *problem) {
  const struct gemv_tall_plan none = {0};
  struct gemv_tall_plan plan = {0};
  if (!is_possible(problem)) return none;
  plan.variant = variant_of(problem);
  if (!plan.variant) return none;
  plan.tiles = divide_up(problem->m, GEMV_TALL_ROWS);
  plan.blocks = problem->multiprocessors / problem->batch;
  if (plan.tiles * COLUMNS_A_TILE < plan.blocks * problem->k) return none;
  lay_out(problem, &plan);
  return plan;
}
