/* gemv_scalar_plan.c - how gemv_scalar.cu, which takes every problem, deals rows and k. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"
#include "gemv_scalar.h"

#define SCALAR(chips, parameters, name, threads, ...) GEMV_KERNEL(chips, parameters, name, threads, 0, 0),
static const struct gemv_kernel kernels[] = {GEMV_SCALAR_KERNELS(SCALAR)};

enum { ENOUGH_BLOCKS = 264 };

/* With few blocks, a block has fewer rows and more of its warps along k; but one block writes all of a scale group of
 * NVFP4 results, of which row_multiple tells. */
bool gemv_scalar_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  const int64_t warps = GEMV_SCALAR_THREADS / 32, steps = divide_up(problem->k, GEMV_SCALAR_STEP);
  int64_t groups = warps;
  while (problem->row_multiple < GEMV_BLOCK && groups > 1 && warps / groups * 2 <= steps &&
         divide_up(problem->m, groups * GEMV_SCALAR_ROWS) * problem->batch < ENOUGH_BLOCKS)
    groups /= 2;
  plan->groups = groups, plan->parts = warps / groups;
  plan->chunks = divide_up(steps, plan->parts), plan->tiles = divide_up(problem->m, groups * GEMV_SCALAR_ROWS);
  plan->blocks = plan->tiles, plan->threads = GEMV_SCALAR_THREADS;
  plan->kernel = &kernels[0].kernel;
  return true;
}
