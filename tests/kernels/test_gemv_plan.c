/* test_gemv_plan.c - the plans of gemv, for problems of all kinds and every design. A plan gives each row and each
 * element of k to a warp once, stays within the limits of its chip and kernel, lays out what the kernel relies on, and
 * cuts k alike for all counts of vectors of a class, as rondo.h promises. Problems
 * that a design cannot do get no plan of it. Needs no GPU. Faults that would show: a row that no block has, shared
 * memory that overlaps or is too large, an order of sums that changes with the neighbours. */
#include <criterion/criterion.h>
#include <string.h>

#include "../oracles/gemv_designs.h"

enum { PROBLEMS = 200000, CLASS_PROBLEMS = 50000 };

#define REQUIRE(condition)                                                                                             \
  cr_assert((condition), "%s, %s for %s: %s", design->name, plan->kernel->name, gemv_problem_text(problem), #condition)

/* ---- Every design ------------------------------------------------------------------------------------------------ */

Test(gemv_plan, each_choice_of_the_table_is_of_one_design_here) {
  size_t count;
  const struct gemv_choice *choices = gemv_choices(&count);
  for (size_t i = 0; i < count; i++) {
    int designs = 0;
    for (int d = 0; d < GEMV_DESIGNS; d++) designs += gemv_design_has(&gemv_designs[d], &choices[i]);
    cr_expect_eq(designs, 1, "%s is of %d designs", choices[i].name, designs);
  }
}

static void check_cover(const struct gemv_design *design, const struct gemv_problem *problem,
                        const struct gemv_plan *plan, const struct gemv_share *share) {
  const int64_t chunks = plan->chunks ? plan->chunks : 1, chunk = plan->parts * share->part * share->cluster;
  REQUIRE(share->pieces * share->rows >= problem->m && (share->pieces - 1) * share->rows < problem->m);
  REQUIRE(!problem->finishing || share->rows % problem->row_multiple == 0);
  REQUIRE(!share->part || (chunks * chunk >= problem->k && (chunks - 1) * chunk < problem->k));
  REQUIRE(plan->blocks >= share->cluster && plan->blocks <= share->pieces * share->cluster);
  REQUIRE(plan->blocks % share->cluster == 0);
}

static void check_limits(const struct gemv_design *design, const struct gemv_problem *problem,
                         const struct gemv_plan *plan, const struct gemv_share *share) {
  REQUIRE(plan->kernel->chips & problem->chip);
  REQUIRE(plan->threads >= 32 && plan->threads % 32 == 0 && plan->threads <= plan->kernel->threads);
  REQUIRE(plan->shared_bytes >= share->least_bytes && plan->shared_bytes <= GEMV_MOST_SHARED_BYTES);
  REQUIRE(plan->blocks <= GEMV_MOST_BLOCKS);
}

static void check_design(const struct gemv_design *design, uint64_t seed) {
  enum { MOST_KERNELS = 64 };
  struct random random = {.state = seed};
  int planned = 0, taken[MOST_KERNELS] = {0};
  cr_assert_leq(design->kernel_count, MOST_KERNELS);
  for (int i = 0; i < PROBLEMS; i++) {
    const struct gemv_problem problem = design->draw(&random);
    const struct gemv_plan plan = gemv_design_plan(design, &problem);
    if (!plan.kernel) continue;
    const struct gemv_share share = design->share(&problem, &plan);
    check_limits(design, &problem, &plan, &share);
    check_cover(design, &problem, &plan, &share);
    if (design->check) design->check(&problem, &plan);
    planned++;
    for (int k = 0; k < design->kernel_count; k++) taken[k] += !strcmp(design->kernels[k], plan.kernel->name);
  }
  cr_expect_gt(planned, 1000, "%s takes %d problems", design->name, planned);
  for (int k = 0; k < design->kernel_count; k++)
    cr_expect_gt(taken[k], 0, "%s: %s is never taken", design->name, design->kernels[k]);
}

Test(gemv_plan, every_plan_covers_rows_and_k_once_within_the_limits_of_chip_and_kernel) {
  for (int d = 0; d < GEMV_DESIGNS; d++) check_design(&gemv_designs[d], 5 + (uint64_t)d);
}

/* ---- The order of sums ------------------------------------------------------------------------------------------- */

/* Whether both plans add up a row in the same order. */
static bool same_order(const struct gemv_design *design, const struct gemv_problem *a, const struct gemv_plan *of_a,
                       const struct gemv_problem *b, const struct gemv_plan *of_b) {
  if (!of_a->kernel || !of_b->kernel) return of_a->kernel == of_b->kernel;
  const struct gemv_share x = design->share(a, of_a), y = design->share(b, of_b);
  return x.part == y.part && x.order == y.order && of_a->parts == of_b->parts && of_a->chunks == of_b->chunks;
}

/* Plans for counts first to last have one order. */
static bool check_class(const struct gemv_design *design, struct gemv_problem problem, int64_t first, int64_t last) {
  problem.count = first;
  const struct gemv_problem like = problem;
  const struct gemv_plan expected = gemv_design_plan(design, &like);
  for (; problem.count <= last; problem.count++) {
    const struct gemv_plan plan = gemv_design_plan(design, &problem);
    cr_assert(same_order(design, &like, &expected, &problem, &plan), "%s: %s", design->name,
              gemv_problem_text(&problem));
  }
  return expected.kernel;
}

Test(gemv_plan, counts_of_a_class_are_taken_alike_and_have_one_order_of_sums) {
  for (int d = 0; d < GEMV_DESIGNS; d++) {
    const struct gemv_design *design = &gemv_designs[d];
    for (int c = 0; c < 3 && design->classes[c][1]; c++) {
      struct random random = {.state = 43};
      int taken = 0;
      for (int i = 0; i < CLASS_PROBLEMS; i++)
        taken += check_class(design, design->draw(&random), design->classes[c][0], design->classes[c][1]);
      cr_expect_gt(taken, 1000, "%s takes %d problems of class %d", design->name, taken, c);
    }
  }
}

Test(gemv_plan, with_one_order_any_number_of_vectors_cuts_k_alike_on_every_gpu) {
  const struct gemv_design *design = gemv_design_called("quads");
  struct random random = {.state = 44};
  for (int i = 0; i < CLASS_PROBLEMS / 2; i++) {
    struct gemv_problem problem = gemv_draw_quads(&random), other = problem;
    const struct gemv_problem drawn = gemv_draw_quads(&random);
    problem.one_order = other.one_order = true;
    check_class(design, problem, 1, 16);
    other.chip = drawn.chip, other.multiprocessors = drawn.multiprocessors;
    const struct gemv_plan plan = gemv_design_plan(design, &problem), elsewhere = gemv_design_plan(design, &other);
    cr_assert(same_order(design, &problem, &plan, &other, &elsewhere), "%s", gemv_problem_text(&problem));
  }
}

/* Neither the number of rows nor that of multiprocessors changes how the same kernel cuts k. */
Test(gemv_plan, a_streams_cut_of_k_does_not_depend_on_rows) {
  const struct gemv_design *design = gemv_design_called("stream");
  struct random random = {.state = 6};
  int compared = 0;
  for (int i = 0; i < CLASS_PROBLEMS; i++) {
    const struct gemv_problem problem = design->draw(&random);
    struct gemv_problem other = problem;
    other.m += 32 * random_between(&random, 0, 100);
    other.multiprocessors = random_between(&random, 1, 200);
    const struct gemv_plan plan = gemv_design_plan(design, &problem), of_other = gemv_design_plan(design, &other);
    if (!plan.kernel || of_other.kernel != plan.kernel) continue;
    cr_assert(same_order(design, &problem, &plan, &other, &of_other), "%s", gemv_problem_text(&problem));
    compared++;
  }
  cr_assert_gt(compared, 1000);
}

/* ---- What is taken, and what is not ------------------------------------------------------------------------------ */

static bool takes(const char *design, struct gemv_problem problem) { return gemv_plan_of(design, &problem).kernel; }

/* The problem is taken; with the change it is not. */
#define NOT(design, problem_, change)                                                                                  \
  do {                                                                                                                 \
    struct gemv_problem problem = problem_;                                                                            \
    cr_expect(takes(design, problem), "%s without %s", design, #change);                                               \
    problem.change;                                                                                                    \
    cr_expect_not(takes(design, problem), "%s takes %s", design, #change);                                             \
  } while (0)

Test(gemv_plan, what_head_codes_cannot_do_is_not_taken) {
#define EIGHT gemv_head_problem(RONDO_NVFP4, RONDO_BF16, 8)
  for (int64_t count = 1; count <= 16; count++) {
    cr_assert(takes("head_codes", gemv_head_problem(RONDO_NVFP4, RONDO_NVFP4, count)));
    cr_assert(takes("head_codes", gemv_head_problem(RONDO_NVFP4, RONDO_BF16, count)));
    cr_assert(takes("head_codes", gemv_head_problem(RONDO_E4M3, RONDO_F16, count)));
    cr_assert(takes("head_codes", gemv_head_problem(RONDO_E4M3, RONDO_BF16, count)));
  }
  NOT("head_codes", gemv_head_problem(RONDO_E4M3, RONDO_BF16, 1), k = 512); /* another design is faster */
  NOT("head_codes", EIGHT, weights = RONDO_BF16);
  NOT("head_codes", EIGHT, chip = CHIP_SM_80);
  NOT("head_codes", EIGHT, wide_loads = false);
  NOT("head_codes", EIGHT, packed_weights = false);
  NOT("head_codes", EIGHT, blocked_scales = true);
  NOT("head_codes", EIGHT, norm = true);
  NOT("head_codes", EIGHT, finishing = true);
  NOT("head_codes", EIGHT, one_order = true);
  NOT("head_codes", EIGHT, k = 592);
  NOT("head_codes", EIGHT, k = 352);
  NOT("head_codes", EIGHT, k = 1056);
  NOT("head_codes", EIGHT, batch = 133);
  NOT("head_codes", EIGHT, m = 31680); /* 240 rows a multiprocessor */
#undef EIGHT
}

/* 7168 x 16384, with one vector. */
static struct gemv_problem large(rondo_dtype vectors) {
  struct gemv_problem problem = gemv_dense_problem(RONDO_NVFP4, vectors, 1, 7168, 16384, 1);
  problem.dense_weights = true;
  return problem;
}

Test(gemv_plan, what_the_ring_cannot_do_is_not_taken) {
#define ONE large(RONDO_BF16)
  cr_assert(takes("ring", large(RONDO_F16)));
  struct gemv_problem normalised = ONE;
  normalised.norm = true;
  cr_assert(takes("ring", normalised));
  NOT("ring", ONE, weights = RONDO_E4M3);
  NOT("ring", ONE, chip = CHIP_SM_80);
  NOT("ring", ONE, wide_loads = false);
  NOT("ring", ONE, dense_weights = false);
  NOT("ring", ONE, blocked_scales = true);
  NOT("ring", ONE, one_order = true);
  NOT("ring", ONE, count = 2);
  NOT("ring", ONE, k = 16384 - 32);
  NOT("ring", ONE, batch = 65536);
#undef ONE
}

Test(gemv_plan, a_ring_that_would_leave_multiprocessors_idle_is_not_taken) {
  struct gemv_problem problem = large(RONDO_BF16);
  problem.m = 1024;
  for (problem.batch = 7; problem.batch <= 500; problem.batch++) {
    const struct gemv_plan plan = gemv_plan_of("ring", &problem);
    const int64_t blocks = plan.blocks * problem.batch, waves = (blocks + 131) / 132;
    if (plan.kernel) cr_expect_geq(blocks * 10, waves * 132 * 9, "%d matrices", (int)problem.batch);
  }
  problem.batch = 66;
  cr_expect(takes("ring", problem));
  problem.batch = 100;
  cr_expect_not(takes("ring", problem));
}

Test(gemv_plan, what_streams_cannot_do_is_not_taken) {
#define SIXTEEN gemv_dense_problem(RONDO_NVFP4, RONDO_BF16, 1, 7168, 16384, 16)
  for (int64_t count = 2; count <= 16; count++) {
    cr_assert(takes("stream", gemv_dense_problem(RONDO_NVFP4, RONDO_BF16, 1, 7168, 16384, count)));
    cr_assert(takes("stream", gemv_dense_problem(RONDO_NVFP4, RONDO_F16, 1, 7168, 16384, count)));
    cr_assert(takes("stream", gemv_dense_problem(RONDO_NVFP4, RONDO_NVFP4, 1, 7168, 16384, count)));
  }
  NOT("stream", SIXTEEN, weights = RONDO_E4M3);
  NOT("stream", SIXTEEN, chip = CHIP_SM_80);
  NOT("stream", SIXTEEN, wide_loads = false);
  NOT("stream", SIXTEEN, blocked_scales = true);
  NOT("stream", SIXTEEN, one_order = true);
  NOT("stream", SIXTEEN, scale_bytes = 4);
  NOT("stream", SIXTEEN, count = 1);
  NOT("stream", SIXTEEN, k = 16384 - 32);
  NOT("stream", SIXTEEN, m = 15);
  NOT("stream", SIXTEEN, batch = 65536);
#undef SIXTEEN
}

/* Results of gate and up in NVFP4 come from 32 rows at a time: two groups, so that parts are half as many. */
Test(gemv_plan, a_streams_tile_has_all_rows_that_the_epilogue_takes_at_a_time) {
  for (int64_t count = 2; count <= 16; count++)
    for (int64_t multiple = 1; multiple <= 32; multiple *= 2) {
      struct gemv_problem problem = gemv_dense_problem(RONDO_NVFP4, RONDO_F16, 1, 7168, 16384, count);
      problem.finishing = true, problem.row_multiple = multiple;
      const struct gemv_plan plan = gemv_plan_of("stream", &problem);
      cr_assert(plan.kernel && plan.of.stream->cluster > 1);
      cr_assert_eq(plan.groups * 16 % multiple, 0);
    }
}

/* All multiprocessors have a block, and blocks as many tiles as each other, but for a matrix's last. */
Test(gemv_plan, streams_of_large_matrices_fill_the_multiprocessors) {
  static const struct {
    int64_t batch, m, k, count, blocks;
  } cases[] = {{1, 7168, 16384, 16, 128},  {8, 4096, 7168, 16, 16},   {8, 4096, 7168, 8, 16},
               {1, 128256, 4096, 16, 132}, {1, 14336, 4096, 16, 128}, {1, 4096, 14336, 8, 128}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct gemv_problem problem =
        gemv_dense_problem(RONDO_NVFP4, RONDO_NVFP4, cases[i].batch, cases[i].m, cases[i].k, cases[i].count);
    cr_expect_eq(gemv_plan_of("stream", &problem).blocks, cases[i].blocks, "%s", gemv_problem_text(&problem));
  }
}

Test(gemv_plan, what_head_16_cannot_do_is_not_taken) {
#define SIXTEEN gemv_head_problem(RONDO_BF16, RONDO_BF16, 16)
  for (int64_t count = 1; count <= 16; count++) {
    cr_assert(takes("head_16", gemv_head_problem(RONDO_F16, RONDO_F16, count)));
    cr_assert(takes("head_16", gemv_head_problem(RONDO_BF16, RONDO_BF16, count)));
  }
  NOT("head_16", SIXTEEN, weights = RONDO_NVFP4);
  NOT("head_16", SIXTEEN, weights = RONDO_E4M3);
  NOT("head_16", SIXTEEN, chip = CHIP_SM_80);
  NOT("head_16", SIXTEEN, wide_loads = false);
  NOT("head_16", SIXTEEN, packed_weights = false);
  NOT("head_16", SIXTEEN, finishing = true);
  NOT("head_16", SIXTEEN, one_order = true);
  NOT("head_16", SIXTEEN, k = 584);
  NOT("head_16", SIXTEEN, k = 2080);
  NOT("head_16", SIXTEEN, k = 224);
  NOT("head_16", SIXTEEN, batch = 133);
  NOT("head_16", SIXTEEN, m = 594 * 16 - 16); /* less than 4.5 tiles a multiprocessor */
#undef SIXTEEN
}

/* ---- Integer and quads ------------------------------------------------------------------------------------------- */

static const struct shape {
  int64_t batch, m, k;
} language_models[] = {
    {1, 576, 576},    {1, 960, 576},    {1, 3072, 576},   {1, 576, 1536},    {1, 49152, 576},  {1, 1152, 896},
    {1, 9728, 896},   {1, 896, 4864},   {1, 2048, 2048},  {1, 16384, 2048},  {1, 2048, 8192},  {1, 4096, 4096},
    {1, 6144, 4096},  {1, 28672, 4096}, {1, 4096, 14336}, {1, 128256, 4096}, {1, 37888, 3584}, {1, 3584, 18944},
    {1, 10240, 8192}, {1, 57344, 8192}, {1, 8192, 28672}, {1, 7168, 16384},  {1, 4096, 7168},  {8, 4096, 7168},
    {4, 7168, 2048},  {9, 4096, 7168},  {1, 24576, 1536}, {128, 512, 128},   {128, 128, 512},  {16, 5760, 2880},
};
enum { LANGUAGE_MODELS = sizeof language_models / sizeof language_models[0] };

static const rondo_dtype types[][2] = {
    {RONDO_F16, RONDO_F16},   {RONDO_BF16, RONDO_BF16},  {RONDO_E4M3, RONDO_F16},    {RONDO_E4M3, RONDO_BF16},
    {RONDO_NVFP4, RONDO_F16}, {RONDO_NVFP4, RONDO_BF16}, {RONDO_NVFP4, RONDO_NVFP4},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* On every chip, with every multiple of rows that the epilogue may take at a time. */
static void check_fast(struct gemv_problem p) {
  static const uint32_t chips[] = {CHIP_SM_80, CHIP_SM_90A, CHIP_SM_100A};
  static const int64_t multiprocessors[] = {1, 108, 132, 148}, row_multiples[] = {1, 2, 16, 32};
  for (int i = 0; i < 3 * 4 * 4; i++) {
    p.chip = chips[i % 3], p.multiprocessors = multiprocessors[i / 3 % 4], p.row_multiple = row_multiples[i / 12];
    p.finishing = p.row_multiple > 1;
    cr_assert(takes("integer", p) || takes("quads", p), "%s", gemv_problem_text(&p));
  }
}

Test(gemv_plan, the_shapes_of_language_models_have_a_fast_kernel_with_any_types_and_count) {
  for (int t = 0; t < TYPES; t++)
    for (int s = 0; s < LANGUAGE_MODELS; s++)
      for (int64_t count = 1; count <= GEMV_COUNT; count++)
        for (int options = 0; options < 4; options++) {
          const struct shape *shape = &language_models[s];
          struct gemv_problem problem =
              gemv_dense_problem(types[t][0], types[t][1], shape->batch, shape->m, shape->k, count);
          problem.one_order = options & 1;
          problem.blocked_scales = options & 2 && types[t][0] == RONDO_NVFP4;
          check_fast(problem);
        }
}

Test(gemv_plan, what_wide_loads_cannot_take_is_left_to_scalar) {
  for (int t = 0; t < TYPES; t++)
    for (int64_t count = 1; count <= GEMV_COUNT; count++)
      for (int many = 0; many < 2; many++) {
        struct gemv_problem problem = gemv_dense_problem(types[t][0], types[t][1], 1, 4096, 4096, count);
        cr_assert(takes("integer", problem) || takes("quads", problem));
        if (many)
          problem.batch = 65536; /* more than a grid has in its second dimension */
        else
          problem.wide_loads = false;
        cr_assert_not(takes("integer", problem) || takes("quads", problem), "%s", gemv_problem_text(&problem));
        cr_assert(takes("scalar", problem));
      }
}
