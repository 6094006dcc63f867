/* gemv_short_plan.c - how gemv_short.cu deals the rows of an NVFP4 matrix of many short rows.
 *
 * Measured on an H200 at 49152 x 576 alone: 6.6 us with an NVFP4 vector and 7.2 us with one in 16 bits, where quads
 * take 8.2 and 9.9 us. Matrices of several waves are refused: a block has a multiprocessor for itself, and no other
 * block hides its first bytes and its tail. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"
#include "gemv_short.h"

#define SHORT(chips, parameters, name, threads, blocks, vectors, of_lane)                                              \
  {GEMV_KERNEL(chips, parameters, name, threads, RONDO_NVFP4, vectors), of_lane},
static const struct gemv_short_kernel kernels[] = {GEMV_SHORT_KERNELS(SHORT)};

enum {
  SMALLER_K = 4 * 9 * GEMV_BLOCK, /* four lanes of nine blocks have a row */
  COPIED = 2 * GEMV_BLOCK,        /* elements in 16 bytes */
  MOST_GROUPS = GEMV_SHORT_WARPS * GEMV_SHORT_TURNS,
};

/* What gemv_short.cu lays out: the vector, rows, scales, sums. */
static int64_t shared_bytes(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const int64_t row_bytes = GEMV_SHORT_PITCH(plan->design.of_short->blocks) + problem->k / GEMV_BLOCK +
                            (problem->finishing ? (int64_t)sizeof(float) : 0);
  return GEMV_SHORT_VECTOR_BYTES + plan->groups * GEMV_SHORT_ROWS * row_bytes + GEMV_SHORT_BEHIND;
}

/* A part is a load of 16 bytes of a row, and a group eight rows. */
GEMV_PLANNER(gemv_short_plan) {
  if (problem->batch > problem->multiprocessors) return false;
  const struct gemv_short_kernel *kernel = GEMV_KERNEL_FOR(problem, problem->k <= SMALLER_K ? "b9" : "b15", kernels);
  if (!kernel) return false;
  const int64_t share = divide_up(problem->m, problem->multiprocessors / problem->batch);
  const int64_t rows = round_up(share, larger(problem->row_multiple, GEMV_SHORT_ROWS));
  plan->design.of_short = kernel;
  plan->parts = problem->k / COPIED, plan->groups = rows / GEMV_SHORT_ROWS, plan->chunks = plan->tiles = 1;
  plan->blocks = divide_up(problem->m, rows), plan->threads = INT64_C(32) * GEMV_SHORT_WARPS;
  plan->shared_bytes = shared_bytes(problem, plan);
  plan->kernel = &kernel->of.kernel;
  /* In smaller matrices warps would have nothing to do, or multiprocessors; and others are as fast there. */
  return plan->groups >= GEMV_SHORT_WARPS && plan->groups <= MOST_GROUPS &&
         plan->shared_bytes <= GEMV_MOST_SHARED_BYTES &&
         plan->blocks * problem->batch * 10 >= problem->multiprocessors * 9;
}
