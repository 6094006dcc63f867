/* test_gemv_tall_plan.c - whatever the problem, a plan for vectors with many short rows in 16 bits keeps what
 * its kernels rely on (gemv_tall.cu), and what they cannot do is not sent there. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/gemv/gemv_tall.h"
#include "test_gemv_problem.h"

enum { MOST_SHARED_BYTES = 232448, ROWS = 16 };

/* Mostly one that could be taken. */
static struct gemv_problem random_problem(struct random *random) {
  static const int64_t types[] = {RONDO_F16, RONDO_BF16}, batches[] = {1, 1, 1, 2, 4, 37, 132, 300};
  struct gemv_problem problem = problem_begin(random);
  problem.weights = problem.vectors = (rondo_dtype)one_of(random, types, 2);
  problem.batch = one_of(random, batches, 8);
  problem.k = random_between(random, 0, 3) ? 32 * random_between(random, 1, 70) : 8 * random_between(random, 1, 280);
  problem.count = random_between(random, 1, 16);
  problem.row_multiple = 1;
  problem.packed_weights = true;
  int64_t rows = random_between(random, 1, 200000) / problem.batch;
  problem_finish(&problem, rows);
  return problem;
}

/* Every slot's first tile is asked for where there is one, and each tile has all of its rows. */
static void check_rows(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  cr_assert_geq(problem->m, ROWS);
  cr_assert(plan->tiles * ROWS >= problem->m && (plan->tiles - 1) * ROWS < problem->m);
  cr_assert_leq(plan->blocks * problem->batch, problem->multiprocessors);
  cr_assert(plan->blocks >= 1 && plan->blocks <= plan->tiles);
}

/* Barriers, factors, then vectors, an odd number of pieces apart; a slot holds sixteen rows without gaps. */
static void check_memory(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const int64_t pieces = problem->k / 32, vectors = 8 * plan->design.of_tall.kernel->operands;
  cr_assert_eq(problem->k % 32, 0);
  cr_assert_leq(problem->k, GEMV_TALL_MOST_K);
  cr_assert_eq(plan->design.of_tall.first_slot % 128, 0);
  cr_assert_geq(plan->design.of_tall.first_slot,
                INT64_C(16) * 8 + 16 * (int64_t)sizeof(float) + vectors * (pieces | 1) * 64);
  cr_assert_eq(plan->design.of_tall.slot_bytes, INT64_C(2) * ROWS * problem->k);
  cr_assert_geq(plan->shared_bytes,
                plan->design.of_tall.first_slot + plan->design.of_tall.slots * plan->design.of_tall.slot_bytes);
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
}

static void check_kernel(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_columns_kernel *kernel = plan->design.of_tall.kernel;
  cr_assert(kernel->of.weights == problem->weights && kernel->of.kernel.chips & problem->chip);
  cr_assert_leq(problem->count, 8 * kernel->operands);
  cr_assert_leq(32 * problem->count, kernel->of.kernel.threads); /* each warp has a vector */
  cr_assert(plan->design.of_tall.early_slots >= 1 && plan->design.of_tall.early_slots <= plan->design.of_tall.slots);
  cr_assert(plan->design.of_tall.slots >= 2 && 32 * plan->design.of_tall.slots <= kernel->of.kernel.threads);
}

#define NAME(chips, parameters, name, ...) #name,
static const char *const kernels[] = {GEMV_TALL_KERNELS(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *check_one(struct random *random) {
  struct gemv_problem problem = random_problem(random);
  struct gemv_plan plan = design_plan("tall", &problem);
  if (!plan.kernel) return NULL;
  check_kernel(&problem, &plan);
  check_rows(&problem, &plan);
  check_memory(&problem, &plan);
  return plan.kernel->name;
}

Test(gemv_tall_plan, plans_keep_what_the_kernels_rely_on_and_use_all_of_them) {
  plans_check(8, check_one, kernels, KERNELS, 100);
}

/* ---- What is not taken --------------------------------------------------------------------------------------------
 */

static bool takes(struct gemv_problem problem) { return design_plan("tall", &problem).kernel; }

#define NOT_WITH(change)                                                                                               \
  do {                                                                                                                 \
    struct gemv_problem problem = problem_taken(RONDO_BF16, RONDO_BF16, 16);                                           \
    problem.change;                                                                                                    \
    cr_expect_not(takes(problem), #change);                                                                            \
  } while (0)

Test(gemv_tall_plan, what_the_kernels_cannot_do_is_not_taken) {
  for (int64_t count = 1; count <= 16; count++)
    cr_assert(takes(problem_taken(RONDO_F16, RONDO_F16, count)) && takes(problem_taken(RONDO_BF16, RONDO_BF16, count)));
  NOT_WITH(weights = RONDO_NVFP4);
  NOT_WITH(weights = RONDO_E4M3);
  NOT_WITH(chip = CHIP_SM_80);
  NOT_WITH(wide_loads = false);
  NOT_WITH(packed_weights = false);
  NOT_WITH(finishing = true);
  NOT_WITH(one_order = true);
  NOT_WITH(k = 584);
  NOT_WITH(k = 2080);
  NOT_WITH(k = 224);
  NOT_WITH(batch = 133);
  NOT_WITH(m = 594 * 16 - 16); /* less than 4.5 tiles a multiprocessor */
}

/* So that, as rondo.h says, the order of sums does not change within a class of counts. */
Test(gemv_tall_plan, counts_of_a_class_are_taken_alike) {
  static const int64_t classes[][2] = {{2, 4}, {5, 8}, {9, 16}};
  struct random random = {.state = 9};
  for (int i = 0; i < PROBLEMS / 4; i++) {
    struct gemv_problem problem = random_problem(&random);
    for (int c = 0; c < 3; c++) {
      problem.count = classes[c][0];
      const bool is_taken = takes(problem);
      for (; problem.count <= classes[c][1]; problem.count++) cr_assert_eq(takes(problem), is_taken);
    }
  }
}
