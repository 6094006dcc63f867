/* test_gemv_stream_plan.c - whatever the problem, a plan for the rings of warps keeps what their kernels rely on
 * (gemv_stream.cuh), and what these cannot do is not sent there. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/gemv/gemv_stream.h"
#include "../../runtime/plan.h"
#include "../support.h"
#include "test_gemv_launch.h"
#include "test_gemv_problem.h"

enum { MOST_SHARED_BYTES = 227 << 10, ROWS = 16 };

/* Mostly one that is taken. */
static struct gemv_problem random_problem(struct random *random) {
  static const int64_t vectors[] = {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, RONDO_BF16};
  static const int64_t batches[] = {1, 1, 1, 2, 4, 8, 37, 300}, sizes[] = {1 << 18, 1 << 25, 1 << 27, 1 << 30};
  struct gemv_problem problem = problem_begin(random);
  problem.vectors = (rondo_dtype)one_of(random, vectors, 4);
  problem.batch = one_of(random, batches, 8);
  problem.k = random_between(random, 0, 7) ? 128 * random_between(random, 1, 300) : 32 * random_between(random, 1, 600);
  problem.count = random_between(random, 1, 16);
  problem.scale_bytes = 16;
  while (problem.k / 16 % problem.scale_bytes) problem.scale_bytes /= 2;
  int64_t rows = random_between(random, 1, one_of(random, sizes, 4)) * 2 / problem.k / problem.batch;
  problem_finish(&problem, rows);
  problem.finishing |= random_between(random, 0, 3) == 0;
  return problem;
}

/* ---- What kernels ask of a plan ---------------------------------------------------------------------------------- */

static int64_t elements_of_part(const struct gemv_stream_kernel *kernel) { return kernel->slices * 128; }

static void check_k(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->design.stream.kernel;
  int64_t part = elements_of_part(kernel), chunk = plan->parts * part * kernel->cluster;
  cr_assert(plan->parts >= 1 && plan->parts <= GEMV_MOST_PARTS && plan->chunks >= 1);
  cr_assert(plan->chunks * chunk >= problem->k && (plan->chunks - 1) * chunk < problem->k);
  cr_assert(kernel->cluster > 1 || plan->chunks == 1);
  /* Two lanes copy the scales of a row of a piece: none of their copies crosses the end of k, all are aligned. */
  cr_assert_eq(problem->k % (part / 2), 0);
  cr_assert_geq(problem->scale_bytes, part / 32);
}

static void check_rows(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  int64_t rows = plan->groups * ROWS, cluster = plan->design.stream.kernel->cluster;
  cr_assert(plan->groups == 1 || (plan->groups == 2 && plan->parts <= 8)); /* sums lie in 16 slots */
  cr_assert(rows <= problem->m && rows % problem->row_multiple == 0);
  cr_assert(plan->tiles * rows >= problem->m && (plan->tiles - 1) * rows < problem->m);
  cr_assert(plan->blocks >= cluster && plan->blocks <= plan->tiles * cluster && plan->blocks % cluster == 0);
}

static void check_memory(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->design.stream.kernel;
  int64_t teams = plan->blocks / kernel->cluster, tiles = (plan->tiles + teams - 1) / teams;
  int64_t number = sizeof(float), tile_sums = number * ROWS * 8 * kernel->operands;
  int64_t first_stage = tile_sums * 2 * 16 + 16 + number * (1 + 16 + 16) * 16; /* sums, meeting, factors, squares */
  if (kernel->cluster > 1) first_stage += tiles * plan->groups * ROWS * problem->count * number;
  int64_t piece = ROWS * elements_of_part(kernel) / 2 + ROWS * elements_of_part(kernel) / 16;
  cr_assert_eq(plan->design.stream.first_stage % 128, 0);
  cr_assert_geq(plan->design.stream.first_stage, first_stage);
  cr_assert_geq(plan->shared_bytes, plan->design.stream.first_stage + plan->threads / 32 * kernel->stages * piece);
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
}

static void check_kernel(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->design.stream.kernel;
  cr_assert_eq(plan->threads, 32 * plan->parts * plan->groups);
  cr_assert_leq(plan->threads, kernel->of.kernel.threads);
  cr_assert(problem->count > 1 && problem->count <= 8 * kernel->operands);
  cr_assert_eq(kernel->of.vectors, problem->vectors);
  cr_assert(kernel->of.kernel.chips & problem->chip);
  cr_assert(kernel->cluster > 1 || !problem->finishing);
  cr_assert(kernel->stages >= 2 && (kernel->slices == 2 || kernel->slices == 4));
}

#define NAME(chips, parameters, name, ...) #name,
static const char *const kernels[] = {GEMV_STREAM_KERNELS(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *check_one(struct random *random) {
  struct gemv_problem problem = random_problem(random);
  struct gemv_plan plan = design_plan("stream", &problem);
  if (!plan.kernel) return NULL;
  check_kernel(&problem, &plan);
  check_k(&problem, &plan);
  check_rows(&problem, &plan);
  check_memory(&problem, &plan);
  return plan.kernel->name;
}

Test(gemv_stream_plan, plans_keep_what_the_kernels_rely_on_and_use_all_of_them) {
  plans_check(5, check_one, kernels, KERNELS, 0);
}

static bool same_cut(const struct gemv_plan *a, const struct gemv_plan *b) {
  return a->kernel == b->kernel && a->parts == b->parts && a->chunks == b->chunks;
}

/* What rondo.h says of the order of sums, and that the number of rows or multiprocessors does not change how the same
 * kernel cuts k. */
Test(gemv_stream_plan, counts_of_a_class_and_any_rows_cut_k_alike) {
  static const int64_t classes[][2] = {{2, 4}, {5, 8}, {9, 16}};
  struct random random = {.state = 6};
  int taken = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    struct gemv_problem problem = random_problem(&random);
    if (problem.count < 2) continue;
    struct gemv_plan plan = design_plan("stream", &problem);
    const int64_t *class = classes[problem.count <= 4 ? 0 : problem.count <= 8 ? 1 : 2];
    for (problem.count = class[0]; problem.count <= class[1]; problem.count++) {
      struct gemv_plan other = design_plan("stream", &problem);
      cr_assert(same_cut(&plan, &other), "%d x [%d, %d], %d vectors", (int)problem.batch, (int)problem.m,
                (int)problem.k, (int)problem.count);
    }
    problem.count = class[0];
    problem.m += 32 * random_between(&random, 0, 100);
    problem.multiprocessors = random_between(&random, 1, 200);
    struct gemv_plan other = design_plan("stream", &problem);
    if (plan.kernel && other.kernel == plan.kernel) cr_assert(same_cut(&plan, &other));
    taken += plan.kernel != NULL;
  }
  cr_assert_gt(taken, 1000);
}

/* ---- What is not taken --------------------------------------------------------------------------------------------
 */

/* One that is, of 7168 x 16384. */
static struct gemv_problem taken(rondo_dtype vectors, int64_t count) {
  return (struct gemv_problem){.weights = RONDO_NVFP4,
                               .vectors = vectors,
                               .batch = 1,
                               .m = 7168,
                               .k = 16384,
                               .count = count,
                               .chip = CHIP_SM_90A,
                               .multiprocessors = 132,
                               .row_multiple = 1,
                               .scale_bytes = 16,
                               .wide_loads = true};
}

static bool takes(struct gemv_problem problem) { return design_plan("stream", &problem).kernel; }

#define NOT_WITH(change)                                                                                               \
  do {                                                                                                                 \
    struct gemv_problem problem = taken(RONDO_BF16, 16);                                                               \
    problem.change;                                                                                                    \
    cr_expect_not(takes(problem), #change);                                                                            \
  } while (0)

Test(gemv_stream_plan, what_the_kernels_cannot_do_is_not_taken) {
  for (int64_t count = 2; count <= 16; count++)
    cr_assert(takes(taken(RONDO_BF16, count)) && takes(taken(RONDO_F16, count)) && takes(taken(RONDO_NVFP4, count)));
  NOT_WITH(weights = RONDO_E4M3);
  NOT_WITH(chip = CHIP_SM_80);
  NOT_WITH(wide_loads = false);
  NOT_WITH(blocked_scales = true);
  NOT_WITH(one_order = true);
  NOT_WITH(scale_bytes = 4);
  NOT_WITH(count = 1);
  NOT_WITH(k = 16384 - 32);
  NOT_WITH(m = 15);
  NOT_WITH(batch = 65536);
}

/* Results of gate and up in NVFP4 come from 32 rows at a time: two groups, so that parts are half as many. */
Test(gemv_stream_plan, whatever_finishing_takes_at_a_time_is_in_one_tile) {
  for (int64_t count = 2; count <= 16; count++)
    for (int64_t multiple = 1; multiple <= 32; multiple *= 2) {
      struct gemv_problem problem = taken(RONDO_F16, count);
      problem.finishing = true, problem.row_multiple = multiple;
      struct gemv_plan plan = design_plan("stream", &problem);
      cr_assert(plan.kernel && plan.design.stream.kernel->cluster > 1);
      cr_assert_eq(plan.groups * ROWS % multiple, 0);
    }
}

/* All multiprocessors have a block, and blocks as many tiles as each other, but for a matrix's last. */
Test(gemv_stream_plan, large_matrices_fill_the_multiprocessors) {
  static const struct {
    int64_t batch, m, k, count, blocks;
  } cases[] = {{1, 7168, 16384, 16, 128},  {8, 4096, 7168, 16, 16},   {8, 4096, 7168, 8, 16},
               {1, 128256, 4096, 16, 132}, {1, 14336, 4096, 16, 128}, {1, 4096, 14336, 8, 128}};
  for (int i = 0; i < 6; i++) {
    struct gemv_problem problem = taken(RONDO_NVFP4, cases[i].count);
    problem.batch = cases[i].batch, problem.m = cases[i].m, problem.k = cases[i].k;
    cr_expect_eq(design_plan("stream", &problem).blocks, cases[i].blocks, "case %d: %d", i,
                 (int)design_plan("stream", &problem).blocks);
  }
}

/* ---- By the description -------------------------------------------------------------------------------------------
 */

static bool is_stream(struct described what) { return strstr(launch_of(what).kernel, "_stream_") != NULL; }

Test(gemv_stream_plan, descriptions_are_taken_where_their_operands_allow_it) {
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 16}));
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .written = true}));
  cr_expect(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .gap = 256}));
  cr_expect(is_stream((struct described){.vectors = RONDO_BF16, .count = 5, .norm_epsilon = 1e-6f}));
  cr_expect(is_stream((struct described){.vectors = RONDO_BF16, .count = 9, .silu_mul = 1}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 8, .gap = 64}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 16, .layout = RONDO_SCALES_128X4}));
  cr_expect_not(is_stream((struct described){.vectors = RONDO_F16, .count = 16, .one_order = 1}));
}

Test(gemv_stream_plan, only_weights_that_nobody_writes_are_copied_early) {
  struct gemv_parameters parameters;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch = launch_of((struct described){.vectors = RONDO_F16, .count = 16, .written = written});
    memcpy(&parameters, launch.parameters, sizeof parameters);
    cr_expect_eq(parameters.early, !written);
  }
}
