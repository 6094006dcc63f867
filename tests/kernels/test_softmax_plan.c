/* test_softmax_plan.c - plans of the gemm_softmax kernels of sm_90a keep what the kernels rely on, for random
 * problems, and problems that these cannot do get no plan. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemm_softmax/gemm_softmax_plan.h"
#include "../support.h"

enum { PROBLEMS = 200000, MOST_SHARED_BYTES = 227 << 10 };

static int64_t one_of(struct random *random, const int64_t *values, int64_t count) {
  return values[random_between(random, 0, count - 1)];
}

static struct gemm_softmax_problem random_problem(struct random *random) {
  static const int64_t most[] = {1, 64, 300, 5000, 100000, (int64_t)1 << 31}, batches[] = {1, 1, 2, 7, 300, 1 << 20};
  static const int64_t depths[] = {1, 64, 65, 128, 129, 512, 100000}, multiprocessors[] = {1, 78, 132, 148};
  return (struct gemm_softmax_problem){.dtype = random_between(random, 0, 1) ? RONDO_F16 : RONDO_BF16,
                                       .is_softmax = random_between(random, 0, 1),
                                       .is_exact = random_between(random, 0, 1),
                                       .is_dealt = random_between(random, 0, 1),
                                       .batch = one_of(random, batches, 6),
                                       .m = random_between(random, 0, one_of(random, most, 6)),
                                       .n = random_between(random, 0, one_of(random, most, 6)),
                                       .k = random_between(random, 0, one_of(random, depths, 7)),
                                       .multiprocessors = one_of(random, multiprocessors, 4)};
}

static bool has_teams(const struct gemm_softmax_problem *problem) {
  return problem->is_softmax && !problem->is_exact && problem->is_dealt;
}

/* One tile of rows after the other comes to a cluster of its matrix; all of B's columns and k are in shared memory. */
static void check_resident(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  const int64_t cluster = plan->variant->cluster;
  cr_assert(plan->clusters >= 1 && plan->clusters <= plan->tiles);
  cr_assert_eq(plan->grid, problem->batch * plan->clusters * cluster);
  cr_assert_eq(plan->variant->steps > 0, has_teams(problem));
  if (has_teams(problem)) {
    cr_assert_geq(cluster * TEAM_COLUMNS, problem->n);
    cr_assert_eq(plan->variant->steps, plan->steps);
    cr_assert(plan->a_box_rows == 32 && plan->b_box_rows == 16 && plan->p_box_rows == (plan->steps == 1 ? 32 : 16));
    return;
  }
  cr_assert_geq(cluster * RESIDENT_PARTS * WGMMA_COLUMNS, problem->n);
  cr_assert_leq(plan->steps, RESIDENT_MOST_STEPS);
  cr_assert(plan->a_box_rows == 64 && plan->b_box_rows == 256 && plan->p_box_rows == 64);
  if (!problem->is_softmax) { /* the maxima of the tiles that a block owns */
    const int64_t turns = (plan->tiles + plan->clusters - 1) / plan->clusters;
    cr_assert_leq(turns, RESIDENT_ROWMAX_TURNS * cluster);
  }
}

/* Every cluster has rows, and blocks of columns cover n, no more of them than it takes. Who holds one makes two. */
static void check_streamed(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  const int64_t cluster = plan->variant->cluster, columns = cluster * WGMMA_COLUMNS;
  cr_assert(plan->clusters >= 1 && plan->clusters <= plan->tiles * problem->batch);
  cr_assert_eq(plan->grid, plan->clusters * cluster);
  cr_assert(plan->column_blocks * columns >= problem->n && (plan->column_blocks - 1) * columns < problem->n);
  cr_assert(plan->a_box_rows * cluster == 128 && plan->b_box_rows == 256 && plan->p_box_rows == 16);
  if (plan->variant->held) cr_assert(problem->is_softmax && !problem->is_exact && plan->column_blocks == 2);
}

Test(softmax_plan, gemm_softmax_plan_keeps_what_its_kernels_rely_on) {
  struct random random = {1};
  int64_t residents = 0, streams = 0, held = 0, portable = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const struct gemm_softmax_problem problem = random_problem(&random);
    const struct gemm_softmax_plan plan = gemm_softmax_plan_of(&problem);
    if (!plan.variant) {
      portable++;
      continue;
    }
    cr_assert(plan.variant->dtype == problem.dtype && plan.variant->is_softmax == problem.is_softmax);
    cr_assert(plan.steps * 64 >= problem.k && (plan.steps - 1) * 64 < problem.k);
    const int64_t rows = plan.resident && has_teams(&problem) ? TEAM_ROWS : 64;
    cr_assert(plan.tiles * rows >= problem.m && (plan.tiles - 1) * rows < problem.m);
    cr_assert(plan.tiles * problem.batch <= INT32_MAX && plan.grid <= INT32_MAX);
    cr_assert_leq(plan.shared_bytes, MOST_SHARED_BYTES);
    cr_assert_eq(plan.grid % plan.variant->cluster, 0);
    if (plan.resident) {
      check_resident(&problem, &plan);
      residents++;
    } else {
      check_streamed(&problem, &plan);
      streams++;
      held += plan.variant->held;
    }
  }
  cr_assert(residents > 1000 && streams > 1000 && held > 100 && portable > 1000,
            "%lld resident, %lld streamed, %lld of them held, %lld portable", (long long)residents, (long long)streams,
            (long long)held, (long long)portable);
}

/* What was measured. */
Test(softmax_plan, gemm_softmax_plan_takes_what_was_fastest) {
  struct {
    int64_t m, n, k;
    bool is_softmax, is_exact;
    const char *name;
    int64_t grid;
  } cases[] = {
      {4096, 4096, 64, true, false, "rondo_gemm_softmax_teams_bf16_k64_c8", 120},
      {4096, 4096, 64, true, true, "rondo_gemm_softmax_resident_bf16_c8", 120},
      {4096, 4096, 128, true, false, "rondo_gemm_softmax_teams_bf16_k128_c8", 120},
      {1024, 1024, 64, true, false, "rondo_gemm_softmax_streamed_bf16_c4", 64},
      {2048, 2048, 64, true, false, "rondo_gemm_softmax_teams_bf16_k64_c4", 120},
      {4096, 4088, 64, true, false, "rondo_gemm_softmax_resident_bf16_c8", 120},
      {4096, 4096, 64, false, false, "rondo_gemm_rowmax_resident_bf16_c8", 120},
      {8192, 1024, 1024, true, false, "rondo_gemm_softmax_held_bf16_c2", 132},
      {8192, 1024, 1024, true, true, "rondo_gemm_softmax_streamed_bf16_c4", 120},
      {4096, 2048, 1024, true, false, "rondo_gemm_softmax_held_bf16_c4", 120},
      {4096, 2048, 1024, true, true, "rondo_gemm_softmax_streamed_bf16_c4", 120},
      {16384, 512, 512, true, false, "rondo_gemm_softmax_streamed_bf16_c2", 132},
      {100, 200, 64, true, false, "rondo_gemm_softmax_streamed_bf16_c1", 2},
      {100, 9000, 64, true, false, "rondo_gemm_softmax_streamed_bf16_c4", 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct gemm_softmax_problem problem = {.dtype = RONDO_BF16,
                                                 .is_softmax = cases[i].is_softmax,
                                                 .is_exact = cases[i].is_exact,
                                                 .is_dealt = cases[i].n % TEAM_GROUP == 0,
                                                 .batch = 1,
                                                 .m = cases[i].m,
                                                 .n = cases[i].n,
                                                 .k = cases[i].k,
                                                 .multiprocessors = 132};
    const struct gemm_softmax_plan plan = gemm_softmax_plan_of(&problem);
    cr_assert(plan.variant && strcmp(plan.variant->kernel.name, cases[i].name) == 0, "case %zu takes %s", i,
              plan.variant ? plan.variant->kernel.name : "a portable kernel");
    cr_assert_eq(plan.grid, cases[i].grid, "case %zu has %lld blocks", i, (long long)plan.grid);
  }
}

Test(softmax_plan, gemm_softmax_plan_leaves_narrow_and_empty_products_to_the_portable_kernels) {
  static const int64_t sizes[][3] = {{64, 128, 64}, {64, 1, 64}, {64, 300, 0}, {0, 300, 64}, {64, 0, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const struct gemm_softmax_problem problem = {.dtype = RONDO_F16,
                                                 .is_softmax = true,
                                                 .batch = 1,
                                                 .m = sizes[i][0],
                                                 .n = sizes[i][1],
                                                 .k = sizes[i][2],
                                                 .multiprocessors = 132};
    cr_assert_null(gemm_softmax_plan_of(&problem).variant, "case %zu", i);
  }
}
