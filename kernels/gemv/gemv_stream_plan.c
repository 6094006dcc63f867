/* gemv_stream_plan.c - where several vectors with NVFP4 matrices go through the rings of gemv_stream.cuh, and how.
 *
 * Measured on an H200, against the kernels that load straight to registers and the ring of bulk copies. Not here
 * because it was no faster there, or not measured: matrices of less than a wave or two with k up to 4096, k below 1536,
 * blocked scales. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"

#define STREAM(chips, parameters, name, threads, vectors, operands, slices, stages, cluster, in_bf16)                  \
  {KERNEL_ENTRY(chips, parameters, name, threads), vectors, operands, slices, stages, cluster, in_bf16},
static const struct gemv_stream_variant variants[] = {GEMV_STREAM_KERNELS(STREAM)};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

/* A kernel, by its operands B and the blocks of its clusters, and when it is right. */
struct rule {
  int64_t least_count, most_count;
  int64_t least_k, most_k;
  int64_t least_bytes; /* of weights, in all matrices */
  int64_t vectors;     /* a rondo_dtype, or ANY */
  int64_t operands, cluster;
  bool in_bf16;
};

enum {
  ANY = -1,
  LESS_THAN_A_WAVE = 8 << 20,
  ABOUT_A_WAVE = 16 << 20,
  SEVERAL_WAVES = 24 << 20,
  MANY_BYTES = 100 << 20
};

/* The first that fits is taken. Clusters of four leave multiprocessors over, where clusters of two take their tiles
 * twice, one chunk of k after the other: only sixteen vectors in bf16, which take longest to convert, are faster so.
 * With few tiles a block bf16 vectors meet the weights in bf16: these take longer to decode, but vectors are only
 * reordered.
 */
static const struct rule rules[] = {
    {9, 16, 8193, INT64_MAX, 0, ANY, 2, 4, false},
    {9, 16, 4097, INT64_MAX, 0, ANY, 2, 2, false},
    {9, 16, 1537, 4096, ABOUT_A_WAVE, ANY, 2, 1, false},
    {9, 16, 3073, 4096, LESS_THAN_A_WAVE, RONDO_BF16, 2, 1, true},
    {2, 8, 8193, INT64_MAX, 0, ANY, 1, 2, false},
    {2, 8, 4097, 8192, SEVERAL_WAVES, ANY, 1, 1, false},
    {2, 8, 2048, 4096, MANY_BYTES, ANY, 1, 1, false},
    {2, 8, 2048, 3072, SEVERAL_WAVES, ANY, 1, 1, false},
    {2, 8, 3073, 4096, SEVERAL_WAVES, RONDO_NVFP4, 1, 1, false},
};
enum { RULES = sizeof rules / sizeof *rules };

static bool is_right(const struct rule *rule, const struct gemv_problem *problem) {
  const int64_t bytes = problem->batch * problem->m * problem->k / 2;
  return problem->count >= rule->least_count && problem->count <= rule->most_count && problem->k >= rule->least_k &&
         problem->k <= rule->most_k && bytes >= rule->least_bytes &&
         (rule->vectors == ANY || problem->vectors == (rondo_dtype)rule->vectors);
}

/* Only the kernels with clusters can do more than multiply results with a factor. */
static const struct gemv_stream_variant *variant_of(const struct gemv_problem *problem, const struct rule *rule) {
  const int64_t cluster = problem->finishing ? larger(rule->cluster, 2) : rule->cluster;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct gemv_stream_variant *v = &variants[i];
    if (v->vectors == problem->vectors && v->operands == rule->operands && v->cluster == cluster &&
        v->in_bf16 == (rule->in_bf16 && cluster == 1) && v->kernel.chips & problem->chip)
      return v;
  }
  return NULL;
}

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

enum {
  MOST_SHARED_BYTES = 227 << 10,
  ALIGNMENT = 128, /* of the rings */
  ROWS = 16,       /* of a piece */
  MOST_GROUPS = 2,
  MOST_ROWS = MOST_GROUPS * ROWS,
  MOST_BLOCKS = INT32_MAX,
  MOST_BATCH = 65535,
};

/* See gemv_stream.cuh for what lies there: with clusters, the sums of all of a block's tiles too. */
static void set_memory(const struct gemv_problem *problem, int64_t tiles, struct gemv_stream_plan *plan) {
  const struct gemv_stream_variant *variant = plan->variant;
  const int64_t sums = variant->operands * 2 * 16 * GEMV_STREAM_SLOT_BYTES;
  const int64_t held = variant->cluster > 1 ? tiles * problem->count * plan->groups * ROWS * (int64_t)sizeof(float) : 0;
  const int64_t piece = ROWS * gemv_stream_part(variant) / 16 * 9;
  plan->first_stage = round_up(sums + GEMV_STREAM_FIXED_BYTES + held, ALIGNMENT);
  plan->shared_bytes = plan->first_stage + plan->parts * plan->groups * variant->stages * piece;
}

/* Clusters lie within parts of a chip: those of two fill it, of four 29 fit on an H200's 132 multiprocessors. */
static int64_t clusters_at_once(const struct gemv_problem *problem, int64_t cluster) {
  const int64_t at_once = problem->multiprocessors / cluster;
  return cluster > 2 ? at_once * 7 / 8 : at_once;
}

static void deal_rows(const struct gemv_problem *problem, struct gemv_stream_plan *plan) {
  const int64_t cluster = plan->variant->cluster;
  plan->tiles = divide_up(problem->m, plan->groups * ROWS);
  int64_t teams = smaller(plan->tiles, larger(clusters_at_once(problem, cluster) / problem->batch, 1));
  for (;; teams = smaller(2 * teams, plan->tiles)) {
    const int64_t tiles = divide_up(plan->tiles, teams);
    set_memory(problem, tiles, plan);
    if (plan->shared_bytes > MOST_SHARED_BYTES && tiles > 1) continue;
    plan->blocks = divide_up(plan->tiles, tiles) * cluster; /* as long as each other */
    return;
  }
}

/* k by the rule alone, so that its cut is that of all counts and of any rows. */
static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_stream_plan *plan) {
  const struct gemv_stream_variant *variant = variant_of(problem, rule);
  if (!variant) return false;
  const int64_t part = gemv_stream_part(variant), least_groups = larger(problem->row_multiple / ROWS, 1);
  if (problem->scale_bytes < part / 32 || problem->k % (part / 2)) return false; /* copies of half of a row's scales */
  const int64_t pieces = divide_up(problem->k, part), most_parts = GEMV_MOST_PARTS / least_groups;
  plan->variant = variant;
  plan->chunks = divide_up(pieces, most_parts * variant->cluster);
  plan->parts = divide_up(pieces, plan->chunks * variant->cluster);
  if (variant->cluster == 1 && plan->chunks > 1) return false;
  plan->groups = plan->parts * MOST_GROUPS <= GEMV_MOST_PARTS ? MOST_GROUPS : 1;
  if (problem->m < plan->groups * ROWS) return false;
  plan->threads = 32 * plan->parts * plan->groups;
  deal_rows(problem, plan);
  return plan->blocks <= MOST_BLOCKS;
}

struct gemv_stream_plan gemv_stream_plan_of(const struct gemv_problem *problem) {
  struct gemv_stream_plan plan = {0};
  if (problem->weights != RONDO_NVFP4 || !problem->wide_loads || problem->blocked_scales || problem->one_order ||
      problem->batch > MOST_BATCH || problem->row_multiple > MOST_ROWS)
    return plan;
  for (int i = 0; i < RULES; i++)
    if (is_right(&rules[i], problem) && plan_by(problem, &rules[i], &plan)) return plan;
  return (struct gemv_stream_plan){0};
}
