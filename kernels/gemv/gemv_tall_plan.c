/* gemv_tall_plan.c - how gemv_tall.cu deals 16-bit matrices of many short rows. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"
#include "gemv_tall.h"

#define TALL_KERNEL(chips, parameters, name, threads, blocks, dtype, operands)                                         \
  {GEMV_KERNEL(chips, parameters, name, threads, dtype, dtype), operands},
static const struct gemv_columns_kernel kernels[] = {GEMV_TALL_KERNELS(TALL_KERNEL)};

enum { COLUMNS_A_TILE = 128 /* of a block's tiles: with fewer, slots are not filled often enough to be faster */ };

/* What gemv_tall.cu lays out. At the largest k there are two slots. */
static void lay_out(const struct gemv_problem *problem, struct gemv_plan *plan) {
  struct gemv_tall_layout *layout = &plan->design.of_tall;
  const int64_t vectors = GEMV_TALL_FIXED_BYTES + 8 * layout->kernel->operands * GEMV_TALL_VECTOR_PITCH(problem->k);
  layout->first_slot = round_up(vectors, GEMV_SHARED_ALIGNMENT);
  layout->slot_bytes = INT64_C(2) * GEMV_TALL_ROWS * problem->k;
  layout->slots = smaller((GEMV_MOST_SHARED_BYTES - layout->first_slot) / layout->slot_bytes, GEMV_TALL_WARPS);
  layout->early_slots = divide_up(layout->slots, 2);
  plan->shared_bytes = layout->first_slot + layout->slots * layout->slot_bytes;
}

GEMV_PLANNER(gemv_tall_plan) {
  if (problem->batch > problem->multiprocessors) return false;
  const struct gemv_columns_kernel *kernel = GEMV_KERNEL_FOR(problem, problem->count > 8 ? "q1x2" : "q1", kernels);
  if (!kernel) return false;
  plan->design.of_tall.kernel = kernel;
  plan->parts = plan->groups = plan->chunks = 1;
  plan->tiles = divide_up(problem->m, GEMV_TALL_ROWS);
  plan->blocks = problem->multiprocessors / problem->batch, plan->threads = GEMV_TALL_THREADS;
  plan->kernel = &kernel->of.kernel;
  lay_out(problem, plan);
  return plan->tiles * COLUMNS_A_TILE >= plan->blocks * problem->k;
}
