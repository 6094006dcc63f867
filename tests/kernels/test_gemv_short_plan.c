/* test_gemv_short_plan.c - whatever the problem, a plan for many short rows keeps what its kernels rely on
 * (gemv_short.cu), and what they cannot do is not sent there. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/gemv/gemv_short.h"
#include "../../runtime/plan.h"
#include "../support.h"
#include "test_gemv_launch.h"
#include "test_gemv_problem.h"

enum { MOST_SHARED_BYTES = 232448, VECTOR_BYTES = 16, MOST_GROUPS = 16 * 4 };

/* Mostly one that could be taken. */
static struct gemv_problem random_problem(struct random *random) {
  static const int64_t vectors[] = {RONDO_NVFP4, RONDO_F16, RONDO_BF16}, batches[] = {1, 1, 1, 2, 4, 37, 132};
  struct gemv_problem problem = problem_begin(random);
  problem.vectors = (rondo_dtype)one_of(random, vectors, 3);
  problem.batch = one_of(random, batches, 7);
  problem.k = 32 * random_between(random, 1, 40);
  problem.count = 1;
  problem.scale_bytes = 2;
  problem.packed_weights = true;
  int64_t rows = random_between(random, 1, 100000) / problem.batch;
  problem_finish(&problem, rows);
  return problem;
}

static void check_plan(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_short_kernel *kernel = plan->design.of_short;
  const int64_t rows = 8 * plan->groups, pitch = 32 * kernel->blocks;
  cr_assert_eq(kernel->of.vectors, problem->vectors);
  cr_assert(kernel->of.kernel.chips & problem->chip);
  cr_assert_eq(kernel->blocks % 2, 1);
  cr_assert(kernel->blocks <= problem->k / 16 && problem->k / 16 <= 4 * kernel->blocks);
  cr_assert_eq(problem->k % 32, 0); /* eight rows have whole copies of scales */
  cr_assert_leq(2 * problem->k + VECTOR_BYTES, GEMV_SHORT_VECTOR_BYTES);
  cr_assert_leq(plan->groups, MOST_GROUPS);
  cr_assert(plan->blocks * rows >= problem->m && (plan->blocks - 1) * rows < problem->m);
  cr_assert_eq(rows % problem->row_multiple, 0);
  cr_assert_leq(plan->blocks * problem->batch, problem->multiprocessors);
  cr_assert_geq(plan->blocks * problem->batch * 10, problem->multiprocessors * 9);
  const int64_t behind = rows * (problem->k / 16) + 4 + (problem->finishing ? 4 * rows : 0);
  cr_assert_geq(plan->shared_bytes, GEMV_SHORT_VECTOR_BYTES + rows * pitch + behind);
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
}

#define NAME(chips, parameters, name, ...) #name,
static const char *const kernels[] = {GEMV_SHORT_KERNELS(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *check_one(struct random *random) {
  struct gemv_problem problem = random_problem(random);
  struct gemv_plan plan = design_plan("short", &problem);
  if (!plan.kernel) return NULL;
  check_plan(&problem, &plan);
  return plan.kernel->name;
}

Test(gemv_short_plan, plans_keep_what_the_kernels_rely_on_and_use_all_of_them) {
  plans_check(8, check_one, kernels, KERNELS, 100);
}

/* ---- What is not taken --------------------------------------------------------------------------------------------
 */

/* One that is. */
static struct gemv_problem taken(rondo_dtype vectors) {
  return (struct gemv_problem){.weights = RONDO_NVFP4,
                               .vectors = vectors,
                               .batch = 1,
                               .m = 49152,
                               .k = 576,
                               .count = 1,
                               .chip = CHIP_SM_90A,
                               .multiprocessors = 132,
                               .row_multiple = 1,
                               .scale_bytes = 4,
                               .wide_loads = true,
                               .packed_weights = true};
}

static bool takes(struct gemv_problem problem) { return design_plan("short", &problem).kernel; }

#define NOT_WITH(change)                                                                                               \
  do {                                                                                                                 \
    struct gemv_problem problem = taken(RONDO_BF16);                                                                   \
    problem.change;                                                                                                    \
    cr_expect_not(takes(problem), #change);                                                                            \
  } while (0)

Test(gemv_short_plan, what_the_kernels_cannot_do_is_not_taken) {
  cr_assert(takes(taken(RONDO_BF16)) && takes(taken(RONDO_F16)) && takes(taken(RONDO_NVFP4)));
  NOT_WITH(weights = RONDO_E4M3);
  NOT_WITH(vectors = RONDO_E4M3);
  NOT_WITH(chip = CHIP_SM_80);
  NOT_WITH(wide_loads = false);
  NOT_WITH(packed_weights = false);
  NOT_WITH(blocked_scales = true);
  NOT_WITH(norm = true);
  NOT_WITH(one_order = true);
  NOT_WITH(count = 2);
  NOT_WITH(k = 592);
  NOT_WITH(k = 128);
  NOT_WITH(k = 992);
  NOT_WITH(batch = 133);
}

Test(gemv_short_plan, too_few_and_too_many_rows_are_not_taken) {
  NOT_WITH(m = 100);
  NOT_WITH(m = INT64_C(120) * 132);
  NOT_WITH(m = INT64_C(512) * 132 + 1);
  NOT_WITH(batch = 100); /* a block each, and 32 multiprocessors without */
  struct gemv_problem problem = taken(RONDO_BF16);
  problem.m = INT64_C(120) * 132 + 1;
  cr_expect(takes(problem));
  problem.m = INT64_C(512) * 132;
  cr_expect(takes(problem));
  problem.batch = 132, problem.m = 371;
  cr_expect(takes(problem));
}

/* A row's sums are in an order of their own kernel's: it must not change with what is done to results, but for shared
 * memory that is full, nor with how many rows there are. */
Test(gemv_short_plan, the_cut_of_k_depends_on_k_and_the_type_alone) {
  struct random random = {.state = 9};
  for (int i = 0; i < PROBLEMS; i++) {
    struct gemv_problem problem = random_problem(&random), other = random_problem(&random);
    other.k = problem.k, other.vectors = problem.vectors;
    const struct op_kernel *one = design_plan("short", &problem).kernel;
    const struct op_kernel *two = design_plan("short", &other).kernel;
    cr_assert(!one || !two || one == two);
  }
}

/* ---- By the description -------------------------------------------------------------------------------------------
 */

struct short_product {
  int64_t batch; /* 0: no batch dimension */
  int64_t m, k;
  int64_t offset; /* elements in front of the scales */
  int64_t gap;    /* elements behind each row of weights */
  bool written;
};

/* The launch of one vector times so many rows. */
static struct op_launch launch_of_short(struct short_product what) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_gemv_desc desc = {0};
  rondo_tensor whole;
  const int64_t batch = what.batch ? what.batch : 1, blocks = what.k / 16;
  const uint32_t rank = what.batch ? 3 : 2;
  int64_t weights[] = {batch, what.m, what.k}, scales[] = {batch, what.m, blocks}, x[] = {batch, 1, what.k},
          y[] = {batch, 1, what.m}, wide[] = {batch, what.m, what.k + what.gap}, zero[3] = {0};
  const int skipped = what.batch ? 0 : 1;
  REQUIRE_OK(
      (what.written ? rondo_input : rondo_constant)(trial.graph, "weights", RONDO_NVFP4, rank, wide + skipped, &whole));
  desc.weights = whole;
  if (what.gap) REQUIRE_OK(rondo_view(trial.graph, whole, zero, weights + skipped, &desc.weights));
  int64_t flat[] = {batch * what.m * blocks + what.offset}, first[] = {what.offset}, all[] = {batch * what.m * blocks};
  REQUIRE_OK(rondo_constant(trial.graph, "scales", RONDO_E4M3, 1, flat, &whole));
  REQUIRE_OK(rondo_view(trial.graph, whole, first, all, &whole));
  REQUIRE_OK(rondo_reshape(trial.graph, whole, rank, scales + skipped, &desc.weight_scales));
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, rank, x + skipped, &desc.vectors));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, rank, y + skipped, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  return selected_launch(&trial, what.written);
}

static bool is_short(struct short_product what) { return strstr(launch_of_short(what).kernel, "_short_") != NULL; }

Test(gemv_short_plan, scales_may_begin_where_a_copy_of_a_matrix_can) {
  cr_expect(is_short((struct short_product){.m = 49152, .k = 576}));
  cr_expect(is_short((struct short_product){.m = 49152, .k = 576, .written = true}));
  cr_expect(is_short((struct short_product){.m = 49151, .k = 576, .offset = 16}));
  cr_expect_not(is_short((struct short_product){.m = 49152, .k = 576, .offset = 8}));
  cr_expect_not(is_short((struct short_product){.m = 49152, .k = 576, .gap = 32}));
  cr_expect(is_short((struct short_product){.batch = 2, .m = 24576, .k = 576}));
  cr_expect_not(is_short((struct short_product){.batch = 2, .m = 24575, .k = 576}));
}

Test(gemv_short_plan, the_kernel_is_told_what_it_lays_out) {
  struct gemv_parameters parameters;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch =
        launch_of_short((struct short_product){.batch = 2, .m = 24576, .k = 576, .written = written});
    memcpy(&parameters, launch.parameters, sizeof parameters);
    cr_expect_eq(parameters.early, !written);
    cr_expect_eq(parameters.parts, 576 / 32);
    cr_expect_eq(parameters.groups, 47);
    cr_expect(launch.grid[0] == 66 && launch.grid[1] == 2 && launch.grid[2] == 1);
    for (uint32_t load = 0; load < 256; load++) /* of eight rows */
      cr_assert_eq(load * parameters.part_reciprocal >> 16, load / parameters.parts);
  }
}
