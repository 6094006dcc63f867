/* test_gemv_plan.c - which kernel multiplies, and how rows and k are dealt to its blocks and warps: what the kernels
 * ask of a plan (gemv_integer.cu, gemv_quads.cuh) holds for every plan, and what rondo.h promises of the order of sums.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../oracles/gemv_oracle.h"
#include "test_gemv_problem.h"

enum { MOST_SHARED_BYTES = 96 << 10, SHAPES = 20000 };

static const uint32_t chips[] = {CHIP_SM_80, CHIP_SM_90A, CHIP_SM_100A};
static const int64_t multiprocessors[] = {1, 108, 132, 148};
/* Rows that finishing takes at a time: one, gate and up, a block of NVFP4 results, or both. */
static const int64_t row_multiples[] = {1, 2, 16, 32};

/* ---- Problems ---------------------------------------------------------------------------------------------------- */

/* Dense operands, as gemv_select.c describes them. */
static struct gemv_problem problem_of(struct pair pair, int64_t batch, int64_t m, int64_t k, int64_t count) {
  struct gemv_problem problem = {.weights = pair.weights,
                                 .vectors = pair.vectors,
                                 .batch = batch,
                                 .m = m,
                                 .k = k,
                                 .count = count,
                                 .chip = CHIP_SM_90A,
                                 .multiprocessors = 132,
                                 .row_multiple = 1,
                                 .scale_bytes = 8,
                                 .wide_loads = true};
  while (pair.weights == RONDO_NVFP4 && k / 16 % problem.scale_bytes) problem.scale_bytes /= 2;
  return problem;
}

/* The size of a weight, or of a step of k that wide loads allow. */
static int64_t step_of(rondo_dtype weights) { return weights == RONDO_NVFP4 ? 32 : weights == RONDO_E4M3 ? 16 : 8; }

/* 1 to `most`, small numbers as often as large ones. */
static int64_t random_size(struct random *random, double most) {
  return (int64_t)exp(random_uniform(random) * log(most + 1));
}

static uint64_t random_of(struct random *random, uint64_t count) { return random_bits(random) % count; }

static struct gemv_problem random_problem(struct random *random) {
  struct pair pair = pairs[random_of(random, PAIRS)];
  int64_t multiple = row_multiples[random_of(random, 4)];
  int64_t m = random_size(random, 200000), k = random_size(random, 4096) * step_of(pair.weights);
  struct gemv_problem problem = problem_of(pair, random_size(random, 300), (m + multiple - 1) / multiple * multiple, k,
                                           1 + (int64_t)random_of(random, 16));
  problem.chip = chips[random_of(random, 3)];
  problem.multiprocessors = multiprocessors[random_of(random, 4)];
  problem.row_multiple = multiple;
  problem.finishing = multiple > 1 || random_of(random, 2);
  problem.one_order = random_of(random, 4) == 0;
  if (pair.weights == RONDO_NVFP4) {
    problem.blocked_scales = random_of(random, 2);
    if (random_of(random, 8) == 0) problem.scale_bytes = 2;
  }
  return problem;
}

static const char *text_of(const struct gemv_problem *p) {
  static char text[256];
  snprintf(
      text, sizeof text, "%s x %s, %d x [%d, %d], %d vectors, chip %d of %d multiprocessors, %d rows at a time%s%s%s",
      rondo_dtype_name(p->weights), rondo_dtype_name(p->vectors), (int)p->batch, (int)p->m, (int)p->k, (int)p->count,
      (int)p->chip, (int)p->multiprocessors, (int)p->row_multiple, p->finishing ? ", finishing" : "",
      p->one_order ? ", one order" : "", p->blocked_scales ? ", blocked scales" : "");
  return text;
}

/* Elements of k that a warp has at once: wide loads of all lanes, of which quads share rows. */
static int64_t part_elements(const struct gemv_quads_kernel *kernel) {
  int64_t lanes = kernel->quads ? 4 * kernel->quads : 32;
  return lanes * 128 / (int64_t)rondo_dtype_bits(kernel->of.weights) * kernel->slices;
}

static struct gemv_plan quads_plan_of(const struct gemv_problem *problem) {
  const struct gemv_plan integer = design_plan("integer", problem);
  return integer.kernel ? integer : design_plan("quads", problem);
}

/* ---- What kernels ask of a plan ---------------------------------------------------------------------------------- */

#define REQUIRE_PLAN(condition) cr_assert((condition), "%s: %s", plan->kernel->name, text_of(p))

static void check_k(const struct gemv_problem *p, const struct gemv_plan *plan) {
  int64_t part = part_elements(plan->design.quads), chunk = plan->parts * part * plan->design.quads->cluster;
  enum gemv_cut cut = plan->design.quads->cut;
  REQUIRE_PLAN(plan->parts >= 1 && plan->parts <= GEMV_MOST_PARTS && plan->chunks >= 1);
  REQUIRE_PLAN(plan->chunks * chunk >= p->k);      /* all of it */
  REQUIRE_PLAN((plan->chunks - 1) * chunk < p->k); /* and no chunk too many */
  REQUIRE_PLAN(plan->chunks == 1 || cut == GEMV_CHUNKED);
  /* Each warp has something, in the first block of a cluster at least. */
  REQUIRE_PLAN(plan->chunks > 1 || (plan->parts - 1) * part < p->k);
  REQUIRE_PLAN(cut != GEMV_EXACT || p->k % part == 0);
}

static void check_rows(const struct gemv_problem *p, const struct gemv_plan *plan) {
  int64_t rows = plan->groups * plan->design.quads->rows;
  REQUIRE_PLAN(plan->groups >= 1 && rows <= p->m && rows % p->row_multiple == 0);
  REQUIRE_PLAN(plan->tiles * rows >= p->m && (plan->tiles - 1) * rows < p->m);
  const int64_t cluster = plan->design.quads->cluster;
  REQUIRE_PLAN(plan->blocks >= 1 && plan->blocks <= plan->tiles * cluster && plan->blocks % cluster == 0);
  if (plan->design.quads->half || plan->design.quads->cut == GEMV_SINGLE ||
      (p->finishing && plan->design.quads->cut != GEMV_CHUNKED && cluster == 1))
    REQUIRE_PLAN(plan->blocks == plan->tiles); /* the kernel takes one tile and ends */
}

static void check_kernel(const struct gemv_problem *p, const struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->design.quads;
  REQUIRE_PLAN(kernel->of.weights == p->weights && kernel->of.vectors == p->vectors);
  REQUIRE_PLAN(kernel->of.kernel.chips & p->chip);
  REQUIRE_PLAN(kernel->quads ? p->count <= 8 / kernel->quads * kernel->operands : p->count == 1);
  if (kernel->of.weights == RONDO_NVFP4 && kernel->quads)
    REQUIRE_PLAN(p->scale_bytes >= (kernel->slices > 1 ? 4 : 2) && p->k % (32 * kernel->slices) == 0);
  if (p->blocked_scales) REQUIRE_PLAN(p->m % kernel->rows == 0);
}

static void check_limits(const struct gemv_problem *p, const struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->design.quads;
  REQUIRE_PLAN(32 * plan->parts * plan->groups <= kernel->of.kernel.threads);
  REQUIRE_PLAN(plan->shared_bytes > 0 && plan->shared_bytes <= MOST_SHARED_BYTES);
  /* A warp's sums of each of the tile's rows and vectors, at least, and in chunks those of all of a block's tiles. */
  int64_t teams = plan->blocks / kernel->cluster, tiles = (plan->tiles + teams - 1) / teams,
          rows = plan->groups * kernel->rows;
  int64_t sums = plan->parts * rows + (kernel->cut == GEMV_CHUNKED || kernel->cluster > 1 ? tiles * rows : 0);
  REQUIRE_PLAN(plan->shared_bytes >= sums * p->count * (int64_t)sizeof(float));
  REQUIRE_PLAN(p->batch <= 65535 && plan->blocks <= INT32_MAX);
}

static void check_plan(const struct gemv_problem *p, const struct gemv_plan *plan) {
  check_kernel(p, plan);
  check_k(p, plan);
  check_rows(p, plan);
  check_limits(p, plan);
}

Test(gemv_plan, every_plan_covers_rows_and_k_once_within_the_limits_of_its_kernel) {
  struct random random = {.state = 41};
  int planned = 0;
  for (int i = 0; i < SHAPES; i++) {
    struct gemv_problem problem = random_problem(&random);
    struct gemv_plan plan = quads_plan_of(&problem);
    if (!plan.kernel) continue;
    check_plan(&problem, &plan);
    planned++;
  }
  cr_assert_gt(planned, SHAPES / 2);
}

/* ---- Which problems have one ------------------------------------------------------------------------------------- */

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

/* On every chip, whatever is done to the results. */
static void check_fast(struct gemv_problem p) {
  for (int i = 0; i < 3 * 4 * 4; i++) {
    p.chip = chips[i % 3], p.multiprocessors = multiprocessors[i / 3 % 4], p.row_multiple = row_multiples[i / 12];
    p.finishing = p.row_multiple > 1;
    struct gemv_plan plan = quads_plan_of(&p);
    cr_assert(plan.kernel, "%s", text_of(&p));
    check_plan(&p, &plan);
  }
}

Test(gemv_plan, the_shapes_of_language_models_have_a_fast_kernel_with_any_types_and_count) {
  for (int pair = 0; pair < PAIRS; pair++)
    for (int s = 0; s < LANGUAGE_MODELS; s++)
      for (int64_t count = 1; count <= GEMV_COUNT; count++)
        for (int options = 0; options < 4; options++) {
          const struct shape *shape = &language_models[s];
          struct gemv_problem problem = problem_of(pairs[pair], shape->batch, shape->m, shape->k, count);
          problem.one_order = options & 1;
          problem.blocked_scales = options & 2 && pairs[pair].weights == RONDO_NVFP4;
          check_fast(problem);
        }
}

Test(gemv_plan, what_wide_loads_cannot_take_has_no_plan) {
  for (int pair = 0; pair < PAIRS; pair++)
    for (int64_t count = 1; count <= GEMV_COUNT; count++) {
      struct gemv_problem problem = problem_of(pairs[pair], 1, 4096, 4096, count);
      cr_assert(quads_plan_of(&problem).kernel);
      problem.wide_loads = false;
      cr_assert_null(quads_plan_of(&problem).kernel);
      problem.wide_loads = true, problem.batch = 65536; /* more than a grid has in its second dimension */
      cr_assert_null(quads_plan_of(&problem).kernel);
    }
}

/* ---- The order of sums ------------------------------------------------------------------------------------------- */

static bool same_cut(const struct gemv_plan *a, const struct gemv_plan *b) {
  if (!a->kernel || !b->kernel) return a->kernel == b->kernel;
  return part_elements(a->design.quads) == part_elements(b->design.quads) && a->parts == b->parts &&
         a->chunks == b->chunks && a->design.quads->quads == b->design.quads->quads;
}

static bool same_plan(const struct gemv_plan *a, const struct gemv_plan *b) {
  return a->kernel == b->kernel && a->parts == b->parts && a->groups == b->groups && a->chunks == b->chunks &&
         a->tiles == b->tiles && a->blocks == b->blocks && a->shared_bytes == b->shared_bytes &&
         a->starts_one == b->starts_one;
}

Test(gemv_plan, a_problem_has_the_same_plan_whatever_was_planned_before) {
  struct gemv_problem *problems = malloc(SHAPES * sizeof *problems);
  struct gemv_plan *plans = malloc(SHAPES * sizeof *plans);
  struct random random = {.state = 42};
  for (int i = 0; i < SHAPES; i++) {
    problems[i] = random_problem(&random);
    plans[i] = quads_plan_of(&problems[i]);
  }
  for (int i = SHAPES; i--;) {
    struct gemv_plan again = quads_plan_of(&problems[i]);
    cr_assert(same_plan(&plans[i], &again), "%s", text_of(&problems[i]));
  }
  free(plans);
  free(problems);
}

/* Plans for counts first .. last cut k as that for `last` does. */
static void check_counts(struct gemv_problem p, int64_t first, int64_t last) {
  p.count = last;
  struct gemv_plan expected = quads_plan_of(&p);
  for (p.count = first; p.count < last; p.count++) {
    struct gemv_plan plan = quads_plan_of(&p);
    cr_assert(same_cut(&plan, &expected), "%s", text_of(&p));
  }
}

Test(gemv_plan, two_to_four_five_to_eight_and_more_vectors_cut_k_alike_each) {
  struct random random = {.state = 43};
  for (int i = 0; i < SHAPES; i++) {
    struct gemv_problem problem = random_problem(&random);
    problem.one_order = false;
    check_counts(problem, 2, 4);
    check_counts(problem, 5, 8);
    check_counts(problem, 9, 16);
  }
}

Test(gemv_plan, with_one_order_any_number_of_vectors_cuts_k_alike_on_every_gpu) {
  struct random random = {.state = 44};
  for (int i = 0; i < SHAPES; i++) {
    struct gemv_problem problem = random_problem(&random), other = problem;
    problem.one_order = other.one_order = true;
    check_counts(problem, 1, 16);
    other.chip = chips[random_of(&random, 3)], other.multiprocessors = multiprocessors[random_of(&random, 4)];
    struct gemv_plan plan = quads_plan_of(&problem), elsewhere = quads_plan_of(&other);
    cr_assert(same_cut(&plan, &elsewhere), "%s", text_of(&problem));
  }
}
