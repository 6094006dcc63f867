/* gemv_rows_plan.c - how gemv_rows.cu deals matrices of many short rows.
 *
 * Measured on an H200, k 448 to 1024, 34000 to 262144 rows, 1 or 2, 8 and 16 vectors. With NVFP4 quads take 0.94 to
 * 1.59 times as long, the more vectors the longer (49152 x 576, NVFP4 x NVFP4: 9.2, 9.8 and 12.3 us, here 8.2, 8.2 and
 * 9.3); with e4m3 and eight or more vectors 0.92 to 2.05 times (17.3 and 21.8 us, here 10.1 and 10.7). One vector
 * beside e4m3 is better off with quads where k has no remainder. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"
#include "gemv_rows.h"

#define ROWS_KERNEL(chips, parameters, name, threads, blocks, weights, vectors, operands)                              \
  {GEMV_KERNEL(chips, parameters, name, threads, weights, vectors), operands},
static const struct gemv_columns_kernel kernels[] = {GEMV_ROWS_KERNELS(ROWS_KERNEL)};

enum {
  REMAINDER = 256,   /* of e4m3: what 16 lanes load, half of what a warp of quads has */
  FEWEST_WARPS = 16, /* each converts a vector */
};

/* What gemv_rows.cu lays out: the vectors, slots, results. The order of sums does not depend on it. */
static bool lay_out(const struct gemv_problem *problem, struct gemv_plan *plan) {
  struct gemv_rows_layout *layout = &plan->design.of_rows;
  const int64_t k = problem->k, vectors = 8 * layout->kernel->operands;
  const int64_t lane_bytes = GEMV_BLOCK * (int64_t)rondo_dtype_bits(problem->weights) / 8;
  const int64_t scales = problem->weights == RONDO_NVFP4 ? k / GEMV_BLOCK : 0;
  const int64_t held = problem->finishing ? vectors * layout->block_rows * (int64_t)sizeof(float) : 0;
  const int64_t groups = layout->block_rows / GEMV_ROWS_GROUP;
  layout->first_slot = round_up(GEMV_ROWS_FACTOR_BYTES + vectors * GEMV_ROWS_VECTOR_PITCH(k), GEMV_SHARED_ALIGNMENT);
  layout->slot_bytes = GEMV_ROWS_GROUP * (GEMV_ROWS_PITCH(k, lane_bytes) + scales);
  plan->parts = k * lane_bytes / GEMV_BLOCK / 16; /* loads of 16 bytes of a row */
  const int64_t slots = (GEMV_MOST_SHARED_BYTES - layout->first_slot - held) / layout->slot_bytes;
  const int64_t most = smaller(slots, GEMV_ROWS_WARPS);
  if (most < FEWEST_WARPS) return false;
  const int64_t turns = divide_up(groups, most);
  const int64_t warps = larger(divide_up(groups, turns), FEWEST_WARPS);
  plan->threads = 32 * warps;
  plan->shared_bytes = layout->first_slot + warps * layout->slot_bytes + held;
  return true;
}

GEMV_PLANNER(gemv_rows_plan) {
  if (problem->batch > problem->multiprocessors || (problem->count == 1 && problem->k % REMAINDER == 0)) return false;
  const struct gemv_columns_kernel *kernel = GEMV_KERNEL_FOR(problem, problem->count > 8 ? "q1x2" : "q1", kernels);
  if (!kernel) return false;
  struct gemv_rows_layout *layout = &plan->design.of_rows;
  const int64_t share = divide_up(problem->m, problem->multiprocessors / problem->batch);
  layout->kernel = kernel;
  layout->block_rows = round_up(share, larger(problem->row_multiple, GEMV_ROWS_GROUP));
  plan->blocks = divide_up(problem->m, layout->block_rows);
  plan->groups = plan->chunks = plan->tiles = 1;
  plan->kernel = &kernel->of.kernel;
  return layout->block_rows / GEMV_ROWS_GROUP >= FEWEST_WARPS && lay_out(problem, plan);
}
