/* test_softmax_plan.c - plans of the gemm_softmax kernels of sm_90a keep what the kernels rely on, for random
 * problems, and problems that these cannot do get no plan. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/gemm_softmax/gemm_softmax_choose.h"
#include "../support.h"

enum { PROBLEMS = 200000, MOST_SHARED_BYTES = 227 << 10 };

static struct gemm_softmax_problem random_problem(struct random *random) {
  static const int64_t most[] = {1, 64, 300, 5000, 100000, (int64_t)1 << 31}, batches[] = {1, 1, 2, 7, 300, 1 << 20};
  static const int64_t depths[] = {1, 64, 65, 128, 129, 512, 100000}, multiprocessors[] = {1, 78, 132, 148};
  return (struct gemm_softmax_problem){.dtype = random_between(random, 0, 1) ? RONDO_F16 : RONDO_BF16,
                                       .is_softmax = random_between(random, 0, 1),
                                       .is_exact = random_between(random, 0, 1),
                                       .has_maps = random_between(random, 0, 7) != 0,
                                       .is_dealt = random_between(random, 0, 1),
                                       .batch = RANDOM_OF(random, batches),
                                       .m = random_between(random, 0, RANDOM_OF(random, most)),
                                       .n = random_between(random, 0, RANDOM_OF(random, most)),
                                       .k = random_between(random, 0, RANDOM_OF(random, depths)),
                                       .multiprocessors = RANDOM_OF(random, multiprocessors),
                                       .shared_bytes = MOST_SHARED_BYTES};
}

static bool is_named(const struct gemm_softmax_choice *choice, const char *name) {
  return choice && strcmp(choice->name, name) == 0;
}

/* One tile of rows after the other comes to a cluster of its matrix; shared memory holds all of B's columns and k. */
static void check_resident(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  cr_assert(plan->clusters >= 1 && plan->clusters <= plan->tiles);
  cr_assert_eq(plan->grid, problem->batch * plan->clusters * plan->cluster);
  cr_assert_geq(plan->cluster * RESIDENT_PARTS * WGMMA_COLUMNS, problem->n);
  cr_assert_leq(plan->steps, RESIDENT_MOST_STEPS);
  cr_assert(plan->a_box_rows == 64 && plan->b_box_rows == 256 && plan->p_box_rows == 64);
  if (!problem->is_softmax) { /* the maxima of the tiles that a block owns */
    const int64_t turns = (plan->tiles + plan->clusters - 1) / plan->clusters;
    cr_assert_leq(turns, RESIDENT_ROWMAX_TURNS * plan->cluster);
  }
}

static void check_staggered(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  cr_assert(problem->is_softmax && !problem->is_exact && problem->is_dealt);
  cr_assert(plan->clusters >= 1 && plan->clusters <= plan->tiles);
  cr_assert_eq(plan->grid, problem->batch * plan->clusters * plan->cluster);
  cr_assert_geq(plan->cluster * STAGGERED_COLUMNS, problem->n);
  cr_assert(plan->a_box_rows == 32 && plan->b_box_rows == 16 && plan->p_box_rows == (plan->steps == 1 ? 32 : 16));
  cr_assert(strstr(plan->kernel->name, plan->steps == 1 ? "_k64_" : "_k128_"), "%s", plan->kernel->name);
}

/* Every cluster has rows, and the blocks of columns that it takes cover n. A kernel that holds one makes two. */
static void check_streamed(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  const int64_t columns = plan->cluster * WGMMA_COLUMNS;
  cr_assert(plan->clusters >= 1 && plan->clusters <= plan->tiles * problem->batch);
  cr_assert_eq(plan->grid, plan->clusters * plan->cluster);
  cr_assert(plan->column_blocks * columns >= problem->n && (plan->column_blocks - 1) * columns < problem->n);
  cr_assert(plan->a_box_rows * plan->cluster == 128 && plan->b_box_rows == 256 && plan->p_box_rows == 16);
  if (strstr(plan->kernel->name, "_held_"))
    cr_assert(problem->is_softmax && !problem->is_exact && plan->column_blocks == 2);
}

/* Of all kernels of warpgroups. */
static void check_warpgroups(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan,
                             int64_t rows) {
  cr_assert(problem->has_maps);
  cr_assert(strstr(plan->kernel->name, problem->dtype == RONDO_F16 ? "_f16_" : "_bf16_"), "%s", plan->kernel->name);
  cr_assert_eq(strstr(plan->kernel->name, "rowmax") == NULL, problem->is_softmax);
  cr_assert(plan->steps * 64 >= problem->k && (plan->steps - 1) * 64 < problem->k);
  cr_assert(plan->tiles * rows >= problem->m && (plan->tiles - 1) * rows < problem->m);
  cr_assert(plan->tiles * problem->batch <= INT32_MAX && plan->grid <= INT32_MAX);
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
  cr_assert_eq(plan->grid % plan->cluster, 0);
}

Test(softmax_plan, gemm_softmax_plan_keeps_what_its_kernels_rely_on) {
  struct random random = {1};
  int64_t staggered = 0, residents = 0, streams = 0, held = 0, portable = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const struct gemm_softmax_problem problem = random_problem(&random);
    struct gemm_softmax_plan plan;
    const struct gemm_softmax_choice *choice = gemm_softmax_choose(&problem, &plan);
    if (!choice || is_named(choice, "portable")) {
      portable++;
      continue;
    }
    check_warpgroups(&problem, &plan, is_named(choice, "staggered") ? STAGGERED_ROWS : 64);
    if (is_named(choice, "staggered")) {
      check_staggered(&problem, &plan);
      staggered++;
    } else if (is_named(choice, "resident")) {
      check_resident(&problem, &plan);
      residents++;
    } else {
      cr_assert(is_named(choice, "streamed"));
      check_streamed(&problem, &plan);
      streams++;
      held += strstr(plan.kernel->name, "_held_") != NULL;
    }
  }
  cr_assert(staggered > 100 && residents > 1000 && streams > 1000 && held > 100 && portable > 1000,
            "%lld staggered, %lld resident, %lld streamed, %lld of them held, %lld portable", (long long)staggered,
            (long long)residents, (long long)streams, (long long)held, (long long)portable);
}

/* The choices that were measured. */
Test(softmax_plan, gemm_softmax_plan_takes_what_was_fastest) {
  struct {
    int64_t m, n, k;
    bool is_softmax, is_exact;
    const char *name;
    int64_t grid;
  } cases[] = {
      {4096, 4096, 64, true, false, "rondo_gemm_softmax_staggered_bf16_k64_c8", 120},
      {4096, 4096, 64, true, true, "rondo_gemm_softmax_resident_bf16_c8", 120},
      {4096, 4096, 128, true, false, "rondo_gemm_softmax_staggered_bf16_k128_c8", 120},
      {1024, 1024, 64, true, false, "rondo_gemm_softmax_streamed_bf16_c4", 64},
      {2048, 2048, 64, true, false, "rondo_gemm_softmax_staggered_bf16_k64_c4", 120},
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
                                                 .has_maps = true,
                                                 .is_dealt = cases[i].n % STAGGERED_GROUP == 0,
                                                 .batch = 1,
                                                 .m = cases[i].m,
                                                 .n = cases[i].n,
                                                 .k = cases[i].k,
                                                 .multiprocessors = 132,
                                                 .shared_bytes = MOST_SHARED_BYTES};
    struct gemm_softmax_plan plan;
    cr_assert(gemm_softmax_choose(&problem, &plan), "case %zu", i);
    cr_assert_str_eq(plan.kernel->name, cases[i].name, "case %zu", i);
    cr_assert_eq(plan.grid, cases[i].grid, "case %zu has %lld blocks", i, (long long)plan.grid);
  }
}

Test(softmax_plan, gemm_softmax_plan_leaves_narrow_and_empty_products_to_the_portable_kernels) {
  static const int64_t sizes[][3] = {{64, 128, 64}, {64, 1, 64}, {64, 300, 0}, {0, 300, 64}, {64, 0, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const struct gemm_softmax_problem problem = {.dtype = RONDO_F16,
                                                 .is_softmax = true,
                                                 .has_maps = true,
                                                 .batch = 1,
                                                 .m = sizes[i][0],
                                                 .n = sizes[i][1],
                                                 .k = sizes[i][2],
                                                 .multiprocessors = 132,
                                                 .shared_bytes = MOST_SHARED_BYTES};
    struct gemm_softmax_plan plan;
    cr_assert(is_named(gemm_softmax_choose(&problem, &plan), "portable"), "case %zu", i);
  }
}
