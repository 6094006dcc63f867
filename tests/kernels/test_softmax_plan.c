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
  struct gemm_softmax_problem problem = {.shared_bytes = MOST_SHARED_BYTES};
  problem.is_softmax = random_between(random, 0, 1), problem.is_exact = random_between(random, 0, 1);
  problem.has_maps = random_between(random, 0, 7) != 0, problem.is_dealt = random_between(random, 0, 1);
  problem.batch = RANDOM_OF(random, batches);
  problem.m = random_between(random, 0, RANDOM_OF(random, most));
  problem.n = random_between(random, 0, RANDOM_OF(random, most));
  problem.k = random_between(random, 0, RANDOM_OF(random, depths));
  problem.multiprocessors = RANDOM_OF(random, multiprocessors);
  return problem;
}

static bool is_named(const struct gemm_softmax_choice *choice, const char *name) {
  return choice && strcmp(choice->name, name) == 0;
}

/* Whole clusters, of which at most the last has blocks without rows. */
static void check_grid(const struct gemm_softmax_plan *plan, int64_t groups, int64_t cluster) {
  cr_assert_eq(plan->grid % cluster, 0);
  cr_assert_eq(cluster % plan->row_blocks, 0);
  cr_assert(plan->grid >= groups * plan->row_blocks && plan->grid < groups * plan->row_blocks + cluster);
}

/* Each tile of rows comes to a group of blocks of its matrix; their shared memory holds all of B's columns and k. */
static void check_resident(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  cr_assert(plan->groups >= 1 && plan->groups <= plan->tiles);
  check_grid(plan, problem->batch * plan->groups, WGMMA_CLUSTER);
  cr_assert_geq(plan->row_blocks * RESIDENT_PARTS * WGMMA_COLUMNS, problem->n);
  cr_assert_leq(plan->steps, RESIDENT_MOST_STEPS);
  cr_assert(plan->a_box_rows == 64 && plan->b_box_rows == 256 && plan->p_box_rows == 64);
  if (!problem->is_softmax) { /* the maxima of the tiles that a block owns */
    const int64_t turns = (plan->tiles + plan->groups - 1) / plan->groups;
    cr_assert_leq(turns, RESIDENT_ROWMAX_TURNS * plan->row_blocks);
  }
}

static void check_staggered(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  cr_assert(problem->is_softmax && !problem->is_exact && problem->is_dealt);
  cr_assert(plan->groups >= 1 && plan->groups <= plan->tiles);
  check_grid(plan, problem->batch * plan->groups, WGMMA_CLUSTER);
  cr_assert_geq(plan->row_blocks * STAGGERED_COLUMNS, problem->n);
  cr_assert(plan->a_box_rows == 32 && plan->b_box_rows == 16 && plan->p_box_rows == (plan->steps == 1 ? 32 : 16));
  cr_assert(strstr(plan->kernel->name, plan->steps == 1 ? "_k64" : "_k128"), "%s", plan->kernel->name);
}

/* Every group of blocks has rows, and the blocks of columns that it takes cover n. A kernel that holds one makes two.
 */
static void check_streamed(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan) {
  const int64_t columns = plan->row_blocks * WGMMA_COLUMNS;
  cr_assert(plan->groups >= 1 && plan->groups <= plan->tiles * problem->batch);
  check_grid(plan, plan->groups, strstr(plan->kernel->name, "_c2") ? 2 : 4);
  cr_assert(plan->column_blocks * columns >= problem->n && (plan->column_blocks - 1) * columns < problem->n);
  cr_assert(plan->a_box_rows * plan->row_blocks == 128 && plan->b_box_rows == 256 && plan->p_box_rows == 16);
  if (strstr(plan->kernel->name, "_held_"))
    cr_assert(problem->is_softmax && !problem->is_exact && plan->column_blocks == 2);
}

/* Of all kernels of warpgroups. */
static void check_warpgroups(const struct gemm_softmax_problem *problem, const struct gemm_softmax_plan *plan,
                             int64_t rows) {
  cr_assert(problem->has_maps);
  cr_assert_eq(strstr(plan->kernel->name, "rowmax") == NULL, problem->is_softmax);
  cr_assert(plan->steps * 64 >= problem->k && (plan->steps - 1) * 64 < problem->k);
  cr_assert(plan->tiles * rows >= problem->m && (plan->tiles - 1) * rows < problem->m);
  cr_assert_leq(plan->tiles * problem->batch, INT32_MAX);
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
    int64_t row_blocks, grid;
  } cases[] = {
      {4096, 4096, 64, true, false, "rondo_gemm_softmax_staggered_k64", 8, 120},
      {4096, 4096, 64, true, true, "rondo_gemm_softmax_resident", 8, 120},
      {4096, 4096, 128, true, false, "rondo_gemm_softmax_staggered_k128", 8, 120},
      {1024, 1024, 64, true, false, "rondo_gemm_softmax_streamed_c4", 4, 64},
      {2048, 2048, 64, true, false, "rondo_gemm_softmax_staggered_k64", 4, 120},
      {4096, 4088, 64, true, false, "rondo_gemm_softmax_resident", 8, 120},
      {4096, 4096, 64, false, false, "rondo_gemm_rowmax_resident", 8, 120},
      {8192, 1024, 1024, true, false, "rondo_gemm_softmax_held_c2", 2, 132},
      {8192, 1024, 1024, true, true, "rondo_gemm_softmax_streamed_c4", 4, 120},
      {4096, 2048, 1024, true, false, "rondo_gemm_softmax_held_c4", 4, 120},
      {4096, 2048, 1024, true, true, "rondo_gemm_softmax_streamed_c4", 4, 120},
      {16384, 512, 512, true, false, "rondo_gemm_softmax_streamed_c2", 2, 132},
      {100, 200, 64, true, false, "rondo_gemm_softmax_streamed_c2", 1, 2},
      {1100, 200, 64, false, false, "rondo_gemm_rowmax_streamed", 1, 20},
      {100, 2048, 64, true, false, "rondo_gemm_softmax_staggered_k64", 4, 16},
      {33, 1152, 128, true, false, "rondo_gemm_softmax_staggered_k128", 4, 8},
      {64, 1152, 128, true, true, "rondo_gemm_softmax_resident", 4, 8},
      {100, 9000, 64, true, false, "rondo_gemm_softmax_streamed_c4", 4, 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct gemm_softmax_problem problem = {.is_softmax = cases[i].is_softmax,
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
    cr_assert_eq(plan.row_blocks, cases[i].row_blocks, "case %zu: %lld share rows", i, (long long)plan.row_blocks);
    cr_assert_eq(plan.grid, cases[i].grid, "case %zu has %lld blocks", i, (long long)plan.grid);
  }
}

Test(softmax_plan, gemm_softmax_plan_leaves_narrow_and_empty_products_to_the_portable_kernels) {
  static const int64_t sizes[][3] = {{64, 128, 64}, {64, 1, 64}, {64, 300, 0}, {0, 300, 64}, {64, 0, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const struct gemm_softmax_problem problem = {.is_softmax = true,
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
