/* test_gemv_problem.h - random problems for the plans of products. */
#ifndef RONDO_TEST_GEMV_PROBLEM_H
#define RONDO_TEST_GEMV_PROBLEM_H

#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../support.h"

enum { PROBLEMS = 200000 };

static inline int64_t one_of(struct random *random, const int64_t *values, int64_t count) {
  return values[random_between(random, 0, count - 1)];
}

/* The plan of the first row of the table, called `design` or `design`_.., that takes the problem; it has no kernel
 * where none does. */
static inline struct gemv_plan design_plan(const char *design, const struct gemv_problem *problem) {
  size_t count;
  struct gemv_plan plan = {0};
  const struct gemv_choice *choices = gemv_choices(&count);
  const size_t length = strlen(design);
  for (size_t i = 0; i < count && !plan.kernel; i++)
    if (!strncmp(choices[i].name, design, length) &&
        (choices[i].name[length] == '\0' || choices[i].name[length] == '_'))
      gemv_plan_by(&choices[i], problem, &plan);
  return plan;
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

/* One that is taken where there are many short rows: the vocabulary of a small model. */
static inline struct gemv_problem problem_taken(rondo_dtype weights, rondo_dtype vectors, int64_t count) {
  return (struct gemv_problem){.weights = weights,
                               .vectors = vectors,
                               .batch = 1,
                               .m = 49152,
                               .k = 576,
                               .count = count,
                               .chip = CHIP_SM_90A,
                               .multiprocessors = 132,
                               .row_multiple = 1,
                               .scale_bytes = 4,
                               .wide_loads = true,
                               .packed_weights = true};
}

/* So many random problems, of which `check` looks at the plan, and tells whose it is: a kernel's name, or NULL where
 * there is none. Each kernel has more than `least`. */
static inline void plans_check(uint64_t seed, const char *(*check)(struct random *random), const char *const *kernels,
                               int kernel_count, int least) {
  enum { MOST_KERNELS = 64 };
  struct random random = {.state = seed};
  int chosen[MOST_KERNELS] = {0};
  cr_assert_leq(kernel_count, MOST_KERNELS);
  for (int i = 0; i < PROBLEMS; i++) {
    const char *name = check(&random);
    for (int kernel = 0; name && kernel < kernel_count; kernel++) chosen[kernel] += !strcmp(kernels[kernel], name);
  }
  for (int kernel = 0; kernel < kernel_count; kernel++)
    cr_expect_gt(chosen[kernel], least, "%s is chosen %d times", kernels[kernel], chosen[kernel]);
}

#endif
