/* test_gemv_rows_plan.c - whatever the problem, a plan for several vectors with many short rows keeps what its kernels
 * rely on (gemv_rows.cu), and what they cannot do is not sent there. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/gemv/gemv_rows.h"
#include "test_gemv_problem.h"

enum { MOST_SHARED_BYTES = 232448 };

/* Mostly one that could be taken. */
static struct gemv_problem random_problem(struct random *random) {
  static const int64_t vectors[] = {RONDO_F16, RONDO_BF16, RONDO_NVFP4}, batches[] = {1, 1, 1, 2, 4, 37, 132};
  const bool in_e4m3 = random_between(random, 0, 1);
  struct gemv_problem problem = problem_begin(random);
  if (in_e4m3) problem.weights = RONDO_E4M3;
  problem.vectors = (rondo_dtype)one_of(random, vectors, in_e4m3 ? 2 : 3);
  problem.batch = one_of(random, batches, 7);
  problem.k = 16 * random_between(random, 1, 70);
  problem.count = random_between(random, 1, 16);
  problem.scale_bytes = 2;
  problem.packed_weights = true;
  int64_t rows = random_between(random, 1, 200000) / problem.batch;
  problem_finish(&problem, rows);
  return problem;
}

static void check_rows(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  cr_assert_eq(plan->design.of_rows.block_rows % 16, 0);
  cr_assert_eq(plan->design.of_rows.block_rows % problem->row_multiple, 0);
  cr_assert(plan->blocks * plan->design.of_rows.block_rows >= problem->m &&
            (plan->blocks - 1) * plan->design.of_rows.block_rows < problem->m);
  cr_assert_leq(plan->blocks * problem->batch, problem->multiprocessors);
}

/* In shared memory rows are whole steps of 64 elements, an odd number of them. */
static void check_memory(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const bool in_e4m3 = problem->weights == RONDO_E4M3;
  const int64_t k = problem->k, step_bytes = in_e4m3 ? 64 : 32, steps = (k + 63) / 64;
  cr_assert_eq(k % (in_e4m3 ? 16 : 32), 0);
  cr_assert_leq(k, GEMV_ROWS_MOST_K);
  cr_assert_eq(plan->parts * 16, in_e4m3 ? k : k / 2);
  const int64_t vectors = 8 * plan->design.of_rows.kernel->operands * (steps * 128 + 16),
                pitch = (steps | 1) * step_bytes;
  cr_assert_eq(plan->design.of_rows.first_slot % 128, 0);
  cr_assert_geq(plan->design.of_rows.first_slot, 16 * (int64_t)sizeof(float) + vectors);
  cr_assert_eq(plan->design.of_rows.slot_bytes % 16, 0);
  cr_assert_geq(plan->design.of_rows.slot_bytes, 16 * (pitch + (in_e4m3 ? 0 : k / 16)));
  const int64_t held =
      problem->finishing ? problem->count * plan->design.of_rows.block_rows * (int64_t)sizeof(float) : 0;
  cr_assert_geq(plan->shared_bytes,
                plan->design.of_rows.first_slot + plan->threads / 32 * plan->design.of_rows.slot_bytes + held);
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
}

static void check_kernel(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_columns_kernel *kernel = plan->design.of_rows.kernel;
  cr_assert(kernel->of.weights == problem->weights && kernel->of.vectors == problem->vectors);
  cr_assert(kernel->of.kernel.chips & problem->chip);
  cr_assert_leq(problem->count, 8 * kernel->operands);
  cr_assert_leq(32 * plan->threads / 32, kernel->of.kernel.threads);
  cr_assert_geq(plan->threads / 32, problem->count); /* each converts a vector */
}

#define NAME(chips, parameters, name, ...) #name,
static const char *const kernels[] = {GEMV_ROWS_KERNELS(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *check_one(struct random *random) {
  struct gemv_problem problem = random_problem(random);
  struct gemv_plan plan = design_plan("rows", &problem);
  if (!plan.kernel) return NULL;
  check_kernel(&problem, &plan);
  check_rows(&problem, &plan);
  check_memory(&problem, &plan);
  return plan.kernel->name;
}

Test(gemv_rows_plan, plans_keep_what_the_kernels_rely_on_and_use_all_of_them) {
  plans_check(8, check_one, kernels, KERNELS, 100);
}

/* ---- What is not taken --------------------------------------------------------------------------------------------
 */

static bool takes(struct gemv_problem problem) { return design_plan("rows", &problem).kernel; }

#define NOT_WITH(change)                                                                                               \
  do {                                                                                                                 \
    struct gemv_problem problem = problem_taken(RONDO_NVFP4, RONDO_BF16, 8);                                           \
    problem.change;                                                                                                    \
    cr_expect_not(takes(problem), #change);                                                                            \
  } while (0)

Test(gemv_rows_plan, what_the_kernels_cannot_do_is_not_taken) {
  for (int64_t count = 2; count <= 16; count++) {
    cr_assert(takes(problem_taken(RONDO_NVFP4, RONDO_NVFP4, count)) &&
              takes(problem_taken(RONDO_NVFP4, RONDO_BF16, count)));
    cr_assert(takes(problem_taken(RONDO_E4M3, RONDO_F16, count)) &&
              takes(problem_taken(RONDO_E4M3, RONDO_BF16, count)));
  }
  struct gemv_problem one = problem_taken(RONDO_E4M3, RONDO_BF16, 1);
  cr_assert(takes(one));
  one.k = 512; /* what another kernel is faster with */
  cr_assert_not(takes(one));
  NOT_WITH(count = 1);
  NOT_WITH(weights = RONDO_BF16);
  NOT_WITH(chip = CHIP_SM_80);
  NOT_WITH(wide_loads = false);
  NOT_WITH(packed_weights = false);
  NOT_WITH(blocked_scales = true);
  NOT_WITH(norm = true);
  NOT_WITH(one_order = true);
  NOT_WITH(k = 592);
  NOT_WITH(k = 352);
  NOT_WITH(k = 1056);
  NOT_WITH(batch = 133);
  NOT_WITH(m = 31680); /* 240 rows a multiprocessor */
}

/* So that, as rondo.h says, the order of sums does not change within a class of counts; here it is one for all. */
Test(gemv_rows_plan, counts_of_a_class_are_taken_alike) {
  static const int64_t classes[][2] = {{2, 8}, {9, 16}};
  struct random random = {.state = 9};
  for (int i = 0; i < PROBLEMS / 4; i++) {
    struct gemv_problem problem = random_problem(&random);
    for (int c = 0; c < 2; c++) {
      problem.count = classes[c][0];
      const bool is_taken = takes(problem);
      for (; problem.count <= classes[c][1]; problem.count++) cr_assert_eq(takes(problem), is_taken);
    }
  }
}
