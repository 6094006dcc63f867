/* test_gemv_ring_plan.c - whatever the problem, a plan for the ring keeps what its kernels rely on (gemv_ring.cu), and
 * what cannot go through the ring is not sent there. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/gemv/gemv_ring.h"
#include "../../runtime/plan.h"
#include "../support.h"
#include "test_gemv_launch.h"
#include "test_gemv_problem.h"

enum { MULTIPROCESSOR_BYTES = 228 << 10, BLOCK_BYTES = 1 << 10 };

/* Mostly one that the ring could take. */
static struct gemv_problem random_problem(struct random *random) {
  static const int64_t vectors[] = {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, RONDO_BF16},
                       counts[] = {1, 1, 2, 3, 4, 6, 8, 9};
  static const int64_t batches[] = {1, 1, 1, 2, 4, 8, 37, 132, 300};
  static const int64_t sizes[] = {1 << 22, 1 << 25, 1 << 27, 1 << 30, INT64_C(1) << 34};
  struct gemv_problem problem = problem_begin(random);
  problem.vectors = (rondo_dtype)one_of(random, vectors, 4);
  problem.batch = one_of(random, batches, 9);
  problem.k = random_between(random, 0, 3) ? 512 * random_between(random, 1, 36) : 32 * random_between(random, 1, 600);
  problem.count = one_of(random, counts, 8);
  problem.scale_bytes = 8;
  problem.dense_weights = true;
  int64_t rows = random_between(random, 1, one_of(random, sizes, 5)) * 2 / problem.k / problem.batch;
  problem_finish(&problem, rows);
  return problem;
}

static void check_memory(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  int64_t tile_rows = plan->groups * plan->design.ring.group_rows, number = sizeof(float);
  cr_assert_eq(problem->k / 2 % 16, 0); /* copies are multiples of rows */
  cr_assert_eq(problem->k / 16 % 16, 0);
  cr_assert_eq(plan->design.ring.stage_bytes % 128, 0);
  cr_assert_eq(plan->design.ring.first_stage % 128, 0);
  cr_assert_geq(plan->design.ring.stage_bytes, tile_rows * (problem->k / 2 + problem->k / 16));
  cr_assert(plan->design.ring.window_tiles >= 1 && plan->design.ring.window_tiles <= plan->tiles);
  cr_assert_geq(plan->design.ring.window_pitch, plan->design.ring.window_tiles * tile_rows);
  if (plan->design.ring.window_tiles < plan->tiles)
    cr_assert_geq(plan->design.ring.held_pitch, plan->design.ring.block_rows);
  int64_t sums =
      plan->parts * problem->count * plan->design.ring.window_pitch + problem->count * plan->design.ring.held_pitch;
  cr_assert_geq(plan->design.ring.first_stage, 16 * plan->design.ring.stages + sums * number);
  cr_assert_geq(plan->shared_bytes,
                plan->design.ring.first_stage + plan->design.ring.stages * plan->design.ring.stage_bytes);
  cr_assert_leq(plan->design.ring.kernel->blocks * (plan->shared_bytes + BLOCK_BYTES), MULTIPROCESSOR_BYTES);
}

static void check_rows(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  int64_t tile_rows = plan->groups * plan->design.ring.group_rows;
  cr_assert_eq(plan->design.ring.block_rows % problem->row_multiple, 0);
  cr_assert(plan->blocks * plan->design.ring.block_rows >= problem->m &&
            (plan->blocks - 1) * plan->design.ring.block_rows < problem->m);
  cr_assert(plan->tiles * tile_rows >= plan->design.ring.block_rows &&
            (plan->tiles - 1) * tile_rows < plan->design.ring.block_rows);
  cr_assert(plan->design.ring.stages >= 1 && plan->design.ring.stages <= plan->tiles);
  cr_assert_eq(plan->design.ring.group_rows % plan->design.ring.kernel->rows, 0);
}

static void check_warps(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_ring_kernel *kernel = plan->design.ring.kernel;
  int64_t beyond = plan->parts * kernel->part - problem->k;
  cr_assert(beyond >= 0 && beyond < kernel->beyond);
  cr_assert_eq(plan->threads, 32 * (plan->parts * plan->groups + 1));
  cr_assert_leq(plan->threads, kernel->of.kernel.threads);
  cr_assert_gt(plan->threads / 32, problem->count);
  cr_assert_leq(problem->count, kernel->most);
  cr_assert_eq(kernel->of.vectors, problem->vectors);
  cr_assert(kernel->of.kernel.chips & problem->chip);
}

#define NAME(chips, parameters, name, ...) #name,
static const char *const kernels[] = {GEMV_RING_KERNELS(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static const char *check_one(struct random *random) {
  struct gemv_problem problem = random_problem(random);
  struct gemv_plan plan = design_plan("ring", &problem);
  if (!plan.kernel) return NULL;
  check_memory(&problem, &plan);
  check_rows(&problem, &plan);
  check_warps(&problem, &plan);
  return plan.kernel->name;
}

Test(gemv_ring_plan, plans_keep_what_the_kernels_rely_on_and_use_all_of_them) {
  plans_check(5, check_one, kernels, KERNELS, 0);
}

/* What rondo.h says of the order of sums: 3 to 4 vectors have one. */
Test(gemv_ring_plan, counts_of_a_class_cut_k_alike) {
  struct random random = {.state = 6};
  int taken = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    struct gemv_problem problem = random_problem(&random);
    if (problem.count < 3 || problem.count > 4) continue;
    struct gemv_plan plan = design_plan("ring", &problem);
    for (problem.count = 3; problem.count <= 4; problem.count++) {
      struct gemv_plan other = design_plan("ring", &problem);
      cr_assert(other.kernel == plan.kernel && other.parts == plan.parts, "%d x [%d, %d], %d vectors",
                (int)problem.batch, (int)problem.m, (int)problem.k, (int)problem.count);
    }
    taken += plan.kernel != NULL;
  }
  cr_assert_gt(taken, 1000);
}

/* ---- What is not taken --------------------------------------------------------------------------------------------
 */

/* One that is, of 7168 x 16384; several vectors where k is 14336. */
static struct gemv_problem taken(rondo_dtype vectors, int64_t count) {
  return (struct gemv_problem){.weights = RONDO_NVFP4,
                               .vectors = vectors,
                               .batch = 1,
                               .m = 7168,
                               .k = count > 1 ? 14336 : 16384,
                               .count = count,
                               .chip = CHIP_SM_90A,
                               .multiprocessors = 132,
                               .row_multiple = 1,
                               .scale_bytes = 8,
                               .wide_loads = true,
                               .dense_weights = true};
}

static bool takes(struct gemv_problem problem) { return design_plan("ring", &problem).kernel; }

#define NOT_WITH(change)                                                                                               \
  do {                                                                                                                 \
    struct gemv_problem problem = taken(RONDO_BF16, 1);                                                                \
    problem.change;                                                                                                    \
    cr_expect_not(takes(problem), #change);                                                                            \
  } while (0)

Test(gemv_ring_plan, what_the_kernels_cannot_do_is_not_taken) {
  cr_assert(takes(taken(RONDO_BF16, 1)) && takes(taken(RONDO_F16, 1)) && takes(taken(RONDO_NVFP4, 2)));
  NOT_WITH(weights = RONDO_E4M3);
  NOT_WITH(chip = CHIP_SM_80);
  NOT_WITH(wide_loads = false);
  NOT_WITH(dense_weights = false);
  NOT_WITH(blocked_scales = true);
  NOT_WITH(norm = true);
  NOT_WITH(one_order = true);
  NOT_WITH(count = 2);
  NOT_WITH(k = 16384 - 32);
  NOT_WITH(batch = 65536);
}

Test(gemv_ring_plan, blocks_that_would_leave_multiprocessors_idle_are_not_taken) {
  struct gemv_problem problem = taken(RONDO_NVFP4, 4);
  problem.m = 1024;
  for (problem.batch = 7; problem.batch <= 500; problem.batch++) {
    struct gemv_plan plan = design_plan("ring", &problem);
    int64_t blocks = plan.blocks * problem.batch, waves = (blocks + 131) / 132;
    if (plan.kernel) cr_expect_geq(blocks * 10, waves * 132 * 9, "%d matrices", (int)problem.batch);
  }
  problem.batch = 66;
  cr_expect(takes(problem));
  problem.batch = 100;
  cr_expect_not(takes(problem));
}

/* ---- By the description -------------------------------------------------------------------------------------------
 */

static bool is_ring(struct described what) { return strstr(launch_of(what).kernel, "_ring_") != NULL; }

Test(gemv_ring_plan, descriptions_go_through_the_ring_where_their_operands_allow_it) {
  cr_expect(is_ring((struct described){.vectors = RONDO_F16}));
  cr_expect(is_ring((struct described){.vectors = RONDO_F16, .written = true}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .gap = 256}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .layout = RONDO_SCALES_128X4}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .norm_epsilon = 1e-6f}));
  cr_expect_not(is_ring((struct described){.vectors = RONDO_F16, .one_order = 1}));
}

Test(gemv_ring_plan, only_weights_that_nobody_writes_are_copied_early) {
  struct gemv_parameters parameters;
  for (int written = 0; written < 2; written++) {
    struct op_launch launch = launch_of((struct described){.vectors = RONDO_F16, .written = written});
    memcpy(&parameters, launch.parameters, sizeof parameters);
    cr_expect_eq(parameters.early, !written);
  }
}
