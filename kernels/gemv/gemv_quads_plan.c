/* gemv_quads_plan.c - how quads and integer deal rows and k: the rules by type and class of n, and the layout by a
 * rule.
 *
 * A class of n (1, 2 to 4, 5 to 8, 9 to 16) has a list of rules, of which the first that fits is taken. Of n only its
 * class counts, so that all n of a class have one order of sums. The rules were measured on an H200 (README.md) for the
 * shapes of small and large language models. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"

#define INTEGER(chips, parameters, name, threads, blocks, rows, slices, half, cut)                                     \
  {GEMV_KERNEL(chips, parameters, name, threads, RONDO_NVFP4, RONDO_NVFP4), blocks, 0, 1, rows, slices, half, cut, 1},
#define QUADS(chips, parameters, name, threads, blocks, W, V, quads, operands, rows, slices, half, cut)                \
  {GEMV_KERNEL(chips, parameters, name, threads, W, V), blocks, quads, operands, rows, slices, half, cut, 1},
#define CLUSTER(chips, parameters, name, threads, blocks, W, V, quads, operands, rows, slices, cluster)                \
  QUADS_OF(GEMV_KERNEL(chips, parameters, name, threads, W, V), blocks, quads, operands, rows, slices, cluster)
#define QUADS_OF(kernel, blocks, quads, operands, rows, slices, cluster)                                               \
  {kernel, blocks, quads, operands, rows, slices, false, GEMV_EXACT, cluster},
static const struct gemv_quads_kernel integer_kernels[] = {GEMV_INTEGER_KERNELS(INTEGER)};
static const struct gemv_quads_kernel quads_kernels[] = {
    GEMV_QUADS_NVFP4_KERNELS(QUADS)     /**/
    GEMV_QUADS_E4M3_KERNELS(QUADS)      /**/
    GEMV_QUADS_16_KERNELS(QUADS)        /**/
    GEMV_ROWS_16_KERNELS(QUADS)         /**/
    GEMV_NEWER_NVFP4_KERNELS(QUADS)     /**/
    GEMV_NEWER_E4M3_KERNELS(QUADS)      /**/
    GEMV_CLUSTERS_E4M3_KERNELS(CLUSTER) /**/
    GEMV_CLUSTERS_16_KERNELS(CLUSTER)   /**/
};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

enum placement {
  WAVE,  /* a block for every tile; the rule does not fit unless all blocks fit on the GPU at once */
  ONCE,  /* a block for every tile */
  STAYS, /* as many blocks as fit, which take tile after tile */
};

struct rule {
  const char *kernel; /* the end of its name */
  enum placement placement;
  int64_t parts;      /* of k in a block, at most */
  int64_t warps;      /* of a block; more where k has more parts */
  int64_t from_bytes; /* of weights */
  int64_t waves;      /* of tiles, at most; 0: any number */
};

enum {
  MANY_BYTES = 100 << 20,
  QUADS_SHARED_BYTES = 96 << 10, /* of a block, on every chip */
};

/* One NVFP4 vector: integer. */
static const struct rule integer_rules[] = {
    {.kernel = "r1_s1", .placement = WAVE, .parts = 2, .warps = 4},
    {.kernel = "r4_s1_half", .placement = WAVE, .parts = 4, .warps = 8},
    {.kernel = "r8_s1", .placement = STAYS, .parts = 1, .warps = 4},
    {.kernel = "r8_s1", .placement = ONCE, .parts = 8, .warps = 4, .from_bytes = MANY_BYTES},
    {.kernel = "r2_s2", .placement = STAYS, .parts = 7, .warps = 4},
    {.kernel = "r8_s1", .placement = ONCE, .parts = 8, .warps = 4},
    {.kernel = "r4_s2", .placement = STAYS, .parts = 8, .warps = 8},
    {.kernel = "r4_s2_chunked", .placement = STAYS, .parts = 8, .warps = 8},
    {.kernel = "r1_s1", .placement = ONCE, .parts = 4, .warps = 4},
    {0},
};

enum { MOST_RULES = 12 };

/* NVFP4 weights; one vector in 16 bits, 2 to 4, 5 to 8, 9 to 16 in any type. */
static const struct rule nvfp4_rules[][MOST_RULES] = {
    {
        {.kernel = "q8_r2_s1", .placement = WAVE, .parts = 2, .warps = 4},
        {.kernel = "q8_r8_s1_half", .placement = WAVE, .parts = 4, .warps = 8},
        {.kernel = "q1_r16_s1", .placement = STAYS, .parts = 5, .warps = 1},
        {.kernel = "q8_r4_s1", .placement = STAYS, .parts = 8, .warps = 4},
        {.kernel = "q8_r4_s1_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q8_r2_s1", .placement = ONCE, .parts = 4, .warps = 4},
        {0},
    },
    {
        {.kernel = "q2_r8_s1", .placement = WAVE, .parts = 6, .warps = 1},
        {.kernel = "q2_r16_s2_half", .placement = WAVE, .parts = 16, .warps = 8},
        {.kernel = "q1_r16_s1", .placement = STAYS, .parts = 8, .warps = 1},
        {.kernel = "q1_r16_s2", .placement = STAYS, .parts = 8, .warps = 8},
        {.kernel = "q1_r16_s1_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q2_r8_s1", .placement = ONCE, .parts = 8, .warps = 4},
        {0},
    },
    {
        {.kernel = "q1_r16_s1", .placement = WAVE, .parts = 12, .warps = 1},
        {.kernel = "q1_r32_s2_half", .placement = WAVE, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s1", .placement = STAYS, .parts = 8, .warps = 1},
        {.kernel = "q1_r16_s2", .placement = STAYS, .parts = 16, .warps = 8},
        {.kernel = "q1_r16_s1_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {0},
    },
    {
        {.kernel = "q1x2_r16_s1", .placement = WAVE, .parts = 12, .warps = 1},
        {.kernel = "q1x2_r16_s1", .placement = STAYS, .parts = 10, .warps = 1},
        {.kernel = "q1x2_r16_s2", .placement = STAYS, .parts = 16, .warps = 8},
        {.kernel = "q1x2_r16_s1_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {0},
    },
};

static const struct rule e4m3_rules[][MOST_RULES] = {
    {
        {.kernel = "q8_r2_s2", .placement = WAVE, .parts = 4, .warps = 4},
        {.kernel = "q8_r4_s1", .placement = STAYS, .parts = 8, .warps = 8, .from_bytes = 256 << 20},
        {.kernel = "q8_r4_s2", .placement = STAYS, .parts = 16, .warps = 16, .from_bytes = 32 << 20},
        {.kernel = "q8_r4_s1", .placement = STAYS, .parts = 8, .warps = 8},
        {.kernel = "q8_r4_s2", .placement = STAYS, .parts = 16, .warps = 8},
        {.kernel = "q8_r4_s1_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q8_r2_s2", .placement = ONCE, .parts = 4, .warps = 4},
        {0},
    },
    {
        {.kernel = "q2_r8_s4", .placement = WAVE, .parts = 4, .warps = 1},
        {.kernel = "q1_r16_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q2_r8_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q2_r8_s4_c2", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s2_chunked", .placement = STAYS, .parts = 16, .warps = 8},
        {0},
    },
    {
        {.kernel = "q1_r16_s4", .placement = WAVE, .parts = 8, .warps = 1},
        {.kernel = "q1_r16_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s4_c4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s2_chunked", .placement = STAYS, .parts = 16, .warps = 8},
        {0},
    },
    {
        {.kernel = "q1x2_r16_s4", .placement = WAVE, .parts = 8, .warps = 1},
        {.kernel = "q1x2_r16_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1x2_r16_s4_c4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1x2_r16_s2_chunked", .placement = STAYS, .parts = 16, .warps = 8},
        {0},
    },
};

/* f16 and bf16. */
static const struct rule rules_of_16_bits[][MOST_RULES] = {
    {
        {.kernel = "q8_r2_s3", .placement = WAVE, .parts = 2, .warps = 4},
        {.kernel = "q8_r2_s3", .placement = STAYS, .parts = 1, .warps = 4},
        {.kernel = "q8_r4_s4", .placement = STAYS, .parts = 7, .warps = 4, .from_bytes = 4 << 20, .waves = 4},
        {.kernel = "q8_r4_s4", .placement = ONCE, .parts = 7, .warps = 4, .from_bytes = 4 << 20},
        {.kernel = "q2_r8_s4", .placement = STAYS, .parts = 16, .warps = 16, .from_bytes = 48 << 20},
        {.kernel = "q8_r4_s4", .placement = STAYS, .parts = 16, .warps = 8},
        {.kernel = "q8_r4_s1", .placement = STAYS, .parts = 16, .warps = 8},
        {.kernel = "q8_r4_s2_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q8_r2_s3", .placement = ONCE, .parts = 4, .warps = 4},
        {0},
    },
    {
        {.kernel = "q2_r8_s3", .placement = STAYS, .parts = 8, .warps = 3},
        {.kernel = "q2_r8_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q2_r8_s4_c2", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q2_r8_s4_c4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s4_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {0},
    },
    {
        {.kernel = "q1_r16_s3", .placement = STAYS, .parts = 16, .warps = 6},
        {.kernel = "q1_r16_s8", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1_r16_s4_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {0},
    },
    {
        {.kernel = "q1x2_r16_s3", .placement = WAVE, .parts = 16, .warps = 1},
        {.kernel = "q1x2_r16_s4", .placement = STAYS, .parts = 16, .warps = 16},
        {.kernel = "q1x2_r16_s4_chunked", .placement = STAYS, .parts = 16, .warps = 16},
        {0},
    },
};

static const struct rule *rules_of(const struct gemv_problem *problem) {
  int64_t of_count = problem->count == 1 ? 0 : problem->count <= 4 ? 1 : problem->count <= 8 ? 2 : 3;
  if (problem->one_order && of_count < 2) of_count = 2;
  if (problem->weights == RONDO_E4M3) return e4m3_rules[of_count];
  return problem->weights == RONDO_NVFP4 ? nvfp4_rules[of_count] : rules_of_16_bits[of_count];
}

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

/* Elements of k that a warp has at once. */
static int64_t part_elements(const struct gemv_quads_kernel *kernel) {
  const int64_t lanes = kernel->quads ? 4 * kernel->quads : 32;
  const rondo_dtype weights = kernel->of.weights == GEMV_16_BITS ? RONDO_F16 : kernel->of.weights;
  return lanes * 128 / (int64_t)rondo_dtype_bits(weights) * kernel->slices;
}

/* On sm_100a the kernels of which three would fit are compiled for two (gemv_quads.cuh). */
static int64_t blocks_at_once(const struct gemv_problem *problem, const struct gemv_quads_kernel *kernel,
                              int64_t threads) {
  int64_t of_most_threads = problem->chip == CHIP_SM_100A ? smaller(kernel->blocks, 2) : kernel->blocks;
  return smaller(larger(of_most_threads * kernel->of.kernel.threads / threads, 1), 32);
}

/* The most of a kernel. */
static int64_t vectors_of(const struct gemv_quads_kernel *kernel) {
  return kernel->quads ? 8 / kernel->quads * kernel->operands : 1;
}

/* See the kernels for what lies there: with chunks or clusters, the sums of all of a block's tiles too, for `count`
 * vectors. */
static int64_t shared_bytes(const struct gemv_plan *plan, int64_t count, int64_t tiles) {
  const struct gemv_quads_kernel *v = plan->of.quads;
  int64_t rows = plan->groups * v->rows;
  int64_t floats =
      v->quads ? plan->parts * vectors_of(v) * (2 * (rows + GEMV_PITCH_PADDING) + 1) : 2 * plan->parts * rows;
  if (v->cut == GEMV_CHUNKED || v->cluster > 1) floats += tiles * count * rows;
  return floats * (int64_t)sizeof(float);
}

/* With any count, as all counts of a class are to have the same plan. */
static bool fits(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->of.quads;
  return plan->groups * kernel->rows <= problem->m && 32 * plan->parts * plan->groups <= kernel->of.kernel.threads &&
         shared_bytes(plan, vectors_of(kernel), 1) <= QUADS_SHARED_BYTES;
}

/* The warps of a block: k to its parts, as many groups as the rule would have and finishing can do with. */
static bool deal(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->of.quads;
  const int64_t steps = divide_up(problem->k, part_elements(kernel)), most_warps = kernel->of.kernel.threads / 32;
  const int64_t groups_multiple = larger(problem->row_multiple / kernel->rows, 1);
  int64_t most_parts = smaller(rule->parts, most_warps);
  if (kernel->cut == GEMV_CHUNKED) most_parts = larger(most_parts / groups_multiple, 1); /* more chunks, but it fits */
  plan->chunks = divide_up(steps, most_parts * kernel->cluster);
  plan->parts = divide_up(steps, plan->chunks * kernel->cluster);
  if (plan->chunks > 1 && kernel->cut != GEMV_CHUNKED) return false;
  int64_t groups = larger(smaller(rule->warps, most_warps) / plan->parts, 1);
  plan->groups = round_up(groups, groups_multiple);
  while (plan->groups > groups_multiple && !fits(problem, plan)) plan->groups -= groups_multiple;
  return fits(problem, plan);
}

/* A block for every tile, or as many blocks as fit; twice as many where their sums find no room. */
static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, const struct gemv_quads_kernel *kernel,
                    struct gemv_plan *plan) {
  if (kernel->cut == GEMV_EXACT && problem->k % part_elements(kernel)) return false;
  /* A lane loads the scales of its slices at once, four at most. */
  if (problem->weights == RONDO_NVFP4 && kernel->quads &&
      (problem->scale_bytes < smaller(2 * kernel->slices, 4) || problem->k % (32 * kernel->slices)))
    return false;
  /* Within 32 rows, blocked scales are as far apart as others are; so these must not begin just anywhere. */
  if (problem->blocked_scales && problem->m % kernel->rows) return false;
  plan->of.quads = kernel;
  if (!deal(problem, rule, plan)) return false;

  plan->tiles = divide_up(problem->m, plan->groups * kernel->rows);
  const int64_t cluster = kernel->cluster;
  int64_t at_once =
      problem->multiprocessors * blocks_at_once(problem, kernel, 32 * plan->parts * plan->groups) / cluster;
  if (cluster > 1) at_once = at_once * 7 / 8; /* they lie within parts of a chip: of four, 29 fit on an H200's 132 */
  int64_t teams = plan->tiles;                /* clusters, or blocks where there are none */
  if (rule->waves && plan->tiles * problem->batch > rule->waves * at_once) return false;
  if ((rule->placement == WAVE || kernel->half) && plan->tiles * problem->batch > at_once) return false;
  if (rule->placement == STAYS && (!problem->finishing || kernel->cut == GEMV_CHUNKED || cluster > 1))
    teams = smaller(plan->tiles, larger(at_once / problem->batch, 1));
  while (teams < plan->tiles && shared_bytes(plan, problem->count, divide_up(plan->tiles, teams)) > QUADS_SHARED_BYTES)
    teams = smaller(2 * teams, plan->tiles);
  plan->shared_bytes = shared_bytes(plan, problem->count, divide_up(plan->tiles, teams));
  plan->blocks = teams * cluster;
  /* Blocks that take several tiles leave no room for a crowd. One vector is not faster so beside 16-bit weights. */
  plan->starts_one = teams == plan->tiles && rondo_dtype_bits(problem->weights) < 16;
  plan->threads = 32 * plan->parts * plan->groups;
  plan->kernel = &kernel->of.kernel;
  return plan->blocks <= GEMV_MOST_BLOCKS;
}

/* One order for all counts: the last rules of 5 to 8 and of 9 to 16 vectors, which cut k alike. */
static bool keeps_one_order(const struct gemv_quads_kernel *kernel) {
  return kernel->quads == 1 && kernel->cut == GEMV_CHUNKED;
}

static bool plan_by_first(const struct gemv_problem *problem, const struct rule *rule,
                          const struct gemv_quads_kernel *kernels, size_t count, struct gemv_plan *plan) {
  const int64_t bytes = gemv_weight_bytes(problem);
  for (; rule->kernel; rule++) {
    const struct gemv_quads_kernel *kernel = gemv_kernel_for(problem, rule->kernel, kernels, count, sizeof *kernels);
    if (!kernel || bytes < rule->from_bytes || (problem->one_order && !keeps_one_order(kernel))) continue;
    if (plan_by(problem, rule, kernel, plan)) return true;
  }
  return false;
}

bool gemv_integer_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  return plan_by_first(problem, integer_rules, integer_kernels, sizeof integer_kernels / sizeof *integer_kernels, plan);
}

/* One NVFP4 vector has integer, or else scalar: no class of n has rules for it here. */
bool gemv_quads_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  if (problem->count == 1 && problem->vectors == RONDO_NVFP4 && !problem->one_order) return false;
  return plan_by_first(problem, rules_of(problem), quads_kernels, sizeof quads_kernels / sizeof *quads_kernels, plan);
}
