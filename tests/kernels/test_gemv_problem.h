/* test_gemv_problem.h - what random problems for the plans of products have in common. */
#ifndef RONDO_TEST_GEMV_PROBLEM_H
#define RONDO_TEST_GEMV_PROBLEM_H

#include "../../kernels/gemv/gemv_plan.h"
#include "../support.h"

static inline int64_t one_of(struct random *random, const int64_t *values, int64_t count) {
  return values[random_between(random, 0, count - 1)];
}

/* Of any size, NVFP4 with loads of 16 bytes, on any chip. */
static inline struct gemv_problem problem_begin(struct random *random) {
  static const int64_t multiples[] = {1, 1, 2, 16, 32}, multiprocessors[] = {1, 78, 114, 132, 148};
  return (struct gemv_problem){.weights = RONDO_NVFP4,
                               .chip = random_between(random, 0, 1) ? CHIP_SM_90A : CHIP_SM_100A,
                               .multiprocessors = one_of(random, multiprocessors, 5),
                               .row_multiple = one_of(random, multiples, 5),
                               .wide_loads = true};
}

/* As many rows, or a few more: a step behind the product may want a multiple of them, and is there then. */
static inline void problem_finish(struct gemv_problem *problem, int64_t rows) {
  problem->m = (rows / problem->row_multiple + 1) * problem->row_multiple;
  problem->finishing = problem->row_multiple > 1;
}

#endif
