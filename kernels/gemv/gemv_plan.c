/* gemv_plan.c - see gemv_plan.h. The choices were measured (README.md) on an H200, for the shapes of small
 * and large language models; between these the first rule that fits is taken. */
#include "gemv_plan.h"

#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

#define INTEGER(chips, parameters, name, threads, blocks, rows, slices, half, cut)                                     \
  {KERNEL_ENTRY(chips, parameters, name, threads), blocks, RONDO_NVFP4, RONDO_NVFP4, 0, 1, rows, slices, half, cut, 1},
#define QUADS(chips, parameters, name, threads, blocks, W, V, quads, operands, rows, slices, half, cut)                \
  {KERNEL_ENTRY(chips, parameters, name, threads), blocks, W, V, quads, operands, rows, slices, half, cut, 1},
#define CLUSTER(chips, parameters, name, threads, blocks, W, V, quads, operands, rows, slices, cluster)                \
  {KERNEL_ENTRY(chips, parameters, name, threads),                                                                     \
   blocks,                                                                                                             \
   W,                                                                                                                  \
   V,                                                                                                                  \
   quads,                                                                                                              \
   operands,                                                                                                           \
   rows,                                                                                                               \
   slices,                                                                                                             \
   false,                                                                                                              \
   GEMV_EXACT,                                                                                                         \
   cluster},
static const struct gemv_variant variants[] = {
    GEMV_INTEGER_KERNELS(INTEGER)       /**/
    GEMV_QUADS_NVFP4_KERNELS(QUADS)     /**/
    GEMV_QUADS_E4M3_KERNELS(QUADS)      /**/
    GEMV_QUADS_16_KERNELS(QUADS)        /**/
    GEMV_LARGE_NVFP4_KERNELS(QUADS)     /**/
    GEMV_LARGE_E4M3_KERNELS(QUADS)      /**/
    GEMV_CLUSTERS_E4M3_KERNELS(CLUSTER) /**/
    GEMV_CLUSTERS_16_KERNELS(CLUSTER)   /**/
};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

enum placement {
  WAVE,  /* a block for every tile, if all of them fit at once; else the rule does not */
  ONCE,  /* a block for every tile */
  STAYS, /* as many blocks as fit, which take tile after tile */
};

/* A kernel of the types in question, and when it is right. */
struct rule {
  int64_t quads, operands, rows, slices;
  bool half;
  enum gemv_cut cut;
  enum placement placement;
  int64_t most_parts; /* into which k is cut in a block */
  int64_t warps;      /* of a block; more where k has more parts */
  int64_t from_bytes; /* of weights */
  int64_t cluster;    /* blocks that split k */
};

enum { MANY_BYTES = 100 << 20 };

/* One NVFP4 vector. */
static const struct rule integer_rules[] = {
    {0, 1, 1, 1, false, GEMV_MASKED, WAVE, 2, 4, 0, 1},  {0, 1, 4, 1, true, GEMV_MASKED, WAVE, 4, 8, 0, 1},
    {0, 1, 8, 1, false, GEMV_MASKED, STAYS, 1, 4, 0, 1}, {0, 1, 8, 1, false, GEMV_MASKED, ONCE, 8, 4, MANY_BYTES, 1},
    {0, 1, 2, 2, false, GEMV_EXACT, STAYS, 7, 4, 0, 1},  {0, 1, 8, 1, false, GEMV_MASKED, ONCE, 8, 4, 0, 1},
    {0, 1, 4, 2, false, GEMV_EXACT, STAYS, 8, 8, 0, 1},  {0, 1, 4, 2, false, GEMV_CHUNKED, STAYS, 8, 8, 0, 1},
    {0, 1, 1, 1, false, GEMV_MASKED, ONCE, 4, 4, 0, 1},  {0},
};

enum { MOST_RULES = 12 };

/* NVFP4 weights; one vector in 16 bits, 2 to 4, 5 to 8, 9 to 16 in any type. */
static const struct rule nvfp4_rules[][MOST_RULES] = {
    {
        {8, 1, 2, 1, false, GEMV_MASKED, WAVE, 2, 4, 0, 1},
        {8, 1, 8, 1, true, GEMV_MASKED, WAVE, 4, 8, 0, 1},
        {1, 1, 16, 1, false, GEMV_MASKED, STAYS, 5, 1, 0, 1},
        {8, 1, 8, 1, false, GEMV_MASKED, ONCE, 2, 4, 0, 1},
        {8, 1, 4, 2, false, GEMV_EXACT, STAYS, 2, 4, MANY_BYTES, 1},
        {8, 1, 4, 1, false, GEMV_MASKED, STAYS, 7, 4, 0, 1},
        {8, 1, 4, 2, false, GEMV_EXACT, STAYS, 8, 8, 0, 1},
        {8, 1, 4, 1, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {8, 1, 2, 1, false, GEMV_MASKED, ONCE, 4, 4, 0, 1},
        {0},
    },
    {
        {2, 1, 8, 1, false, GEMV_SINGLE, WAVE, 6, 1, 0, 1},
        {2, 1, 16, 2, true, GEMV_EXACT, WAVE, 16, 8, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 8, 8, MANY_BYTES, 1},
        {1, 1, 16, 1, false, GEMV_MASKED, STAYS, 8, 1, 0, 1},
        {1, 1, 16, 2, false, GEMV_EXACT, STAYS, 8, 8, 0, 1},
        {2, 1, 8, 2, false, GEMV_EXACT, STAYS, 8, 4, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {1, 1, 16, 1, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {2, 1, 8, 1, false, GEMV_SINGLE, ONCE, 8, 4, 0, 1},
        {0},
    },
    {
        {1, 1, 16, 1, false, GEMV_SINGLE, WAVE, 12, 1, 0, 1},
        {1, 1, 32, 2, true, GEMV_EXACT, WAVE, 16, 16, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 8, 8, MANY_BYTES, 1},
        {1, 1, 16, 1, false, GEMV_MASKED, STAYS, 8, 1, 0, 1},
        {1, 1, 16, 2, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {1, 1, 16, 1, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {0},
    },
    {
        {1, 2, 16, 1, false, GEMV_SINGLE, WAVE, 12, 1, 0, 1},
        {1, 2, 16, 1, false, GEMV_MASKED, STAYS, 10, 1, 0, 1},
        {1, 2, 16, 2, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {1, 2, 16, 1, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {0},
    },
};

static const struct rule e4m3_rules[][MOST_RULES] = {
    {
        {8, 1, 2, 2, false, GEMV_EXACT, WAVE, 4, 4, 0, 1},
        {8, 1, 4, 1, false, GEMV_MASKED, STAYS, 8, 8, 256 << 20, 1},
        {8, 1, 4, 2, false, GEMV_EXACT, STAYS, 16, 16, 32 << 20, 1},
        {8, 1, 4, 1, false, GEMV_MASKED, STAYS, 8, 8, 0, 1},
        {8, 1, 4, 2, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {8, 1, 4, 1, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {8, 1, 2, 2, false, GEMV_EXACT, ONCE, 4, 4, 0, 1},
        {0},
    },
    {
        {2, 1, 32, 2, true, GEMV_EXACT, WAVE, 16, 16, 8 << 20, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, WAVE, 4, 1, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 2},
        {1, 1, 16, 2, false, GEMV_CHUNKED, STAYS, 16, 8, 0, 1},
        {0},
    },
    {
        {1, 1, 32, 4, true, GEMV_EXACT, WAVE, 16, 16, 8 << 20, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, WAVE, 8, 1, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {1, 1, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 4},
        {1, 1, 16, 2, false, GEMV_CHUNKED, STAYS, 16, 8, 0, 1},
        {0},
    },
    {
        {1, 2, 16, 4, false, GEMV_EXACT, WAVE, 8, 1, 0, 1},
        {1, 2, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {1, 2, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 4},
        {1, 2, 16, 2, false, GEMV_CHUNKED, STAYS, 16, 8, 0, 1},
        {0},
    },
};

/* f16 and bf16. */
static const struct rule rules_of_16_bits[][MOST_RULES] = {
    {
        {8, 1, 2, 3, false, GEMV_MASKED, WAVE, 2, 4, 0, 1},
        {8, 1, 2, 3, false, GEMV_MASKED, STAYS, 1, 4, 0, 1},
        {8, 1, 4, 4, false, GEMV_EXACT, ONCE, 7, 4, 4 << 20, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 48 << 20, 1},
        {8, 1, 4, 4, false, GEMV_EXACT, STAYS, 16, 8, 0, 1},
        {8, 1, 4, 1, false, GEMV_MASKED, STAYS, 16, 8, 0, 1},
        {8, 1, 4, 2, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {8, 1, 2, 3, false, GEMV_MASKED, ONCE, 4, 4, 0, 1},
        {0},
    },
    {
        {2, 1, 8, 3, false, GEMV_MASKED, STAYS, 8, 3, 0, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 2},
        {2, 1, 8, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 4},
        {1, 1, 16, 4, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {2, 1, 8, 3, false, GEMV_MASKED, ONCE, 8, 1, 0, 1},
        {0},
    },
    {
        {1, 1, 16, 3, false, GEMV_MASKED, STAYS, 16, 6, 0, 1},
        {1, 1, 16, 8, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {1, 1, 16, 4, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {0},
    },
    {
        {1, 2, 16, 3, false, GEMV_MASKED, WAVE, 16, 1, 0, 1},
        {1, 2, 16, 4, false, GEMV_EXACT, STAYS, 16, 16, 0, 1},
        {1, 2, 16, 4, false, GEMV_CHUNKED, STAYS, 16, 16, 0, 1},
        {0},
    },
};

/* One order for all counts: the last rules of 5 to 8 and of 9 to 16 vectors, which cut k alike. */
static bool keeps_one_order(const struct rule *rule) { return rule->quads == 1 && rule->cut == GEMV_CHUNKED; }

static const struct rule *rules_of(const struct gemv_problem *problem) {
  int64_t of_count = problem->count == 1 ? 0 : problem->count <= 4 ? 1 : problem->count <= 8 ? 2 : 3;
  if (problem->one_order && of_count < 2) of_count = 2;
  if (problem->weights == RONDO_E4M3) return e4m3_rules[of_count];
  if (problem->weights != RONDO_NVFP4) return rules_of_16_bits[of_count];
  return of_count == 0 && problem->vectors == RONDO_NVFP4 ? integer_rules : nvfp4_rules[of_count];
}

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

static const struct gemv_variant *variant_of(const struct gemv_problem *problem, const struct rule *rule) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct gemv_variant *v = &variants[i];
    if (v->weights == problem->weights && v->vectors == problem->vectors && v->quads == rule->quads &&
        v->operands == rule->operands && v->rows == rule->rows && v->slices == rule->slices && v->half == rule->half &&
        v->cut == rule->cut && v->cluster == rule->cluster && v->kernel.chips & problem->chip)
      return v;
  }
  return NULL;
}

/* Elements of k that a warp has at once. */
static int64_t part_elements(const struct gemv_variant *variant) {
  int64_t lanes = variant->quads ? 4 * variant->quads : 32;
  return lanes * 128 / (int64_t)rondo_dtype_bits(variant->weights) * variant->slices;
}

/* On sm_100a the kernels of which three would fit are compiled for two (gemv_quads.cuh). */
static int64_t blocks_at_once(const struct gemv_problem *problem, const struct gemv_variant *variant, int64_t threads) {
  int64_t of_most_threads = problem->chip == CHIP_SM_100A ? smaller(variant->blocks, 2) : variant->blocks;
  return smaller(larger(of_most_threads * variant->kernel.threads / threads, 1), 32);
}

/* The most of a kernel. */
static int64_t vectors_of(const struct gemv_variant *variant) {
  return variant->quads ? 8 / variant->quads * variant->operands : 1;
}

/* See the kernels for what lies there: with chunks or clusters, the sums of all of a block's tiles too, for `count`
 * vectors. */
static int64_t shared_bytes(const struct gemv_plan *plan, int64_t count, int64_t tiles) {
  const struct gemv_variant *v = plan->variant;
  int64_t rows = plan->groups * v->rows;
  int64_t floats =
      v->quads ? plan->parts * vectors_of(v) * (2 * (rows + GEMV_PITCH_PADDING) + 1) : 2 * plan->parts * rows;
  if (v->cut == GEMV_CHUNKED || v->cluster > 1) floats += tiles * count * rows;
  return floats * (int64_t)sizeof(float);
}

enum { MOST_SHARED_BYTES = 96 << 10, MOST_BLOCKS = INT32_MAX };

/* With any count, as all counts of a class are to have the same plan. */
static bool fits(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_variant *variant = plan->variant;
  return plan->groups * variant->rows <= problem->m && 32 * plan->parts * plan->groups <= variant->kernel.threads &&
         shared_bytes(plan, vectors_of(variant), 1) <= MOST_SHARED_BYTES;
}

/* The warps of a block: k to its parts, as many groups as the rule would have and finishing can do with. */
static bool deal(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_variant *variant = plan->variant;
  const int64_t steps = divide_up(problem->k, part_elements(variant)), most_warps = variant->kernel.threads / 32;
  const int64_t groups_multiple = larger(problem->row_multiple / variant->rows, 1);
  int64_t most_parts = smaller(rule->most_parts, most_warps);
  if (variant->cut == GEMV_CHUNKED) most_parts = larger(most_parts / groups_multiple, 1); /* more chunks, but it fits */
  plan->chunks = divide_up(steps, most_parts * variant->cluster);
  plan->parts = divide_up(steps, plan->chunks * variant->cluster);
  if (plan->chunks > 1 && variant->cut != GEMV_CHUNKED) return false;
  int64_t groups = larger(smaller(rule->warps, most_warps) / plan->parts, 1);
  plan->groups = round_up(groups, groups_multiple);
  while (plan->groups > groups_multiple && !fits(problem, plan)) plan->groups -= groups_multiple;
  return fits(problem, plan);
}

static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_variant *variant = variant_of(problem, rule);
  if (!variant) return false;
  if (variant->cut == GEMV_EXACT && problem->k % part_elements(variant)) return false;
  /* A lane loads the scales of its slices at once, four at most. */
  if (problem->weights == RONDO_NVFP4 && variant->quads &&
      (problem->scale_bytes < smaller(2 * variant->slices, 4) || problem->k % (32 * variant->slices)))
    return false;
  /* Within 32 rows, blocked scales are as far apart as others are; so these must not begin just anywhere. */
  if (problem->blocked_scales && problem->m % variant->rows) return false;
  plan->variant = variant;
  if (!deal(problem, rule, plan)) return false;

  plan->tiles = divide_up(problem->m, plan->groups * variant->rows);
  const int64_t cluster = variant->cluster;
  int64_t at_once =
      problem->multiprocessors * blocks_at_once(problem, variant, 32 * plan->parts * plan->groups) / cluster;
  if (cluster > 1) at_once = at_once * 7 / 8; /* they lie within parts of a chip: of four, 29 fit on an H200's 132 */
  int64_t teams = plan->tiles;                /* clusters, or blocks where there are none */
  if ((rule->placement == WAVE || variant->half) && plan->tiles * problem->batch > at_once) return false;
  if (rule->placement == STAYS && (!problem->finishing || variant->cut == GEMV_CHUNKED || cluster > 1))
    teams = smaller(plan->tiles, larger(at_once / problem->batch, 1));
  while (teams < plan->tiles && shared_bytes(plan, problem->count, divide_up(plan->tiles, teams)) > MOST_SHARED_BYTES)
    teams = smaller(2 * teams, plan->tiles);
  plan->shared_bytes = shared_bytes(plan, problem->count, divide_up(plan->tiles, teams));
  plan->blocks = teams * cluster;
  /* Blocks that take several tiles leave no room for a crowd. One vector is not faster so beside 16-bit weights. */
  plan->starts_one = teams == plan->tiles && rondo_dtype_bits(problem->weights) < 16;
  return plan->blocks <= MOST_BLOCKS;
}

enum { MOST_BATCH = 65535 };

struct gemv_plan gemv_plan_of(const struct gemv_problem *problem) {
  struct gemv_plan plan = {0};
  if (!problem->wide_loads || problem->batch > MOST_BATCH) return plan;
  int64_t bytes = problem->batch * problem->m * problem->k * (int64_t)rondo_dtype_bits(problem->weights) / 8;
  for (const struct rule *rule = rules_of(problem); rule->rows; rule++) {
    if (bytes < rule->from_bytes || (problem->one_order && !keeps_one_order(rule))) continue;
    if (plan_by(problem, rule, &plan)) return plan;
  }
  return (struct gemv_plan){0};
}
