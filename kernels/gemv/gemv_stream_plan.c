/* gemv_stream_plan.c - how gemv_stream.cu deals NVFP4 matrices to several vectors: the rules, and the layout.
 *
 * Measured on an H200 beside quads, which load straight to registers, and the ring of bulk copies. The stream was no
 * faster, or not measured, for k below 1536, blocked scales, and matrices of less than a wave or two with k up to 4096.
 */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"
#include "gemv_stream.h"

#define STREAM(chips, parameters, name, threads, vectors, operands, slices, stages, cluster)                           \
  {GEMV_KERNEL(chips, parameters, name, threads, RONDO_NVFP4, vectors), operands, slices, stages, cluster},
static const struct gemv_stream_kernel kernels[] = {GEMV_STREAM_KERNELS(STREAM)};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

struct rule {
  const char *kernel;   /* the end of its name */
  const char *finishes; /* the same with an epilogue, which only clusters have */
  uint32_t vectors;     /* types, as bits; 0: any */
  struct size_range count, k;
  int64_t from_bytes; /* of weights */
};

enum {
  LESS_THAN_A_WAVE = 8 << 20,
  ABOUT_A_WAVE = 16 << 20,
  SEVERAL_WAVES = 24 << 20,
  MANY_BYTES = 100 << 20,
  SIXTEEN_BITS = 1 << RONDO_F16 | 1 << RONDO_BF16, /* types of vectors */
};
#define SIXTEEN "q1x2_s2"
#define EIGHT   "q1_s4"

/* The first that fits is taken. Quads are faster with NVFP4 vectors in a matrix of less than a wave, and with 5 to 8
 * vectors in 16 bits and k from 3073 to 4096, except in a vocabulary's matrix. */
static const struct rule rules[] = {
    {SIXTEEN "_c2", SIXTEEN "_c2", .count = {9, 16}, .k = {.least = 4097}},
    {SIXTEEN, SIXTEEN "_c2", .count = {9, 16}, .k = {1537, 4096}, .from_bytes = ABOUT_A_WAVE},
    {SIXTEEN, SIXTEEN "_c2", .vectors = SIXTEEN_BITS, .count = {9, 16}, .k = {3073, 4096},
     .from_bytes = LESS_THAN_A_WAVE},
    {EIGHT "_c2", EIGHT "_c2", .count = {2, 8}, .k = {.least = 8193}},
    {EIGHT, EIGHT "_c2", .count = {2, 4}, .k = {2048, 8192}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .count = {5, 8}, .k = {2048, 3072}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {5, 8}, .k = {3073, 4096}, .from_bytes = MANY_BYTES},
    {EIGHT, EIGHT "_c2", .vectors = 1 << RONDO_NVFP4, .count = {5, 8}, .k = {3073, 4096}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .count = {5, 8}, .k = {4097, 8192}, .from_bytes = SEVERAL_WAVES},
};
enum { RULES = sizeof rules / sizeof *rules };

static bool is_right(const struct rule *rule, const struct gemv_problem *problem) {
  return is_in_range(problem->count, rule->count) && is_in_range(problem->k, rule->k) &&
         gemv_weight_bytes(problem) >= rule->from_bytes && (!rule->vectors || rule->vectors >> problem->vectors & 1);
}

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

enum {
  ROWS = 16, /* of a piece */
  MOST_GROUPS = 2,
  MOST_ROWS = MOST_GROUPS * ROWS,
};

/* See gemv_stream.cu for what lies there: with clusters, the sums of all of a block's tiles too. */
static void set_memory(const struct gemv_problem *problem, int64_t tiles, struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->design.stream.kernel;
  const int64_t sums = kernel->operands * 2 * 16 * GEMV_STREAM_SLOT_BYTES;
  const int64_t held = kernel->cluster > 1 ? tiles * problem->count * plan->groups * ROWS * (int64_t)sizeof(float) : 0;
  const int64_t piece = ROWS * gemv_stream_part(kernel) / 16 * 9;
  plan->design.stream.first_stage = round_up(sums + GEMV_STREAM_FIXED_BYTES + held, GEMV_SHARED_ALIGNMENT);
  plan->shared_bytes = plan->design.stream.first_stage + plan->parts * plan->groups * kernel->stages * piece;
}

static void deal_rows(const struct gemv_problem *problem, struct gemv_plan *plan) {
  const int64_t cluster = plan->design.stream.kernel->cluster;
  plan->tiles = divide_up(problem->m, plan->groups * ROWS);
  int64_t clusters = smaller(plan->tiles, larger(problem->multiprocessors / cluster / problem->batch, 1));
  for (;; clusters = smaller(2 * clusters, plan->tiles)) {
    const int64_t tiles = divide_up(plan->tiles, clusters);
    set_memory(problem, tiles, plan);
    if (plan->shared_bytes > GEMV_MOST_SHARED_BYTES && tiles > 1) continue;
    plan->blocks = divide_up(plan->tiles, tiles) * cluster; /* as long as each other */
    return;
  }
}

/* k by the rule alone, so that its cut is that of all counts and of any rows. */
static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel =
      GEMV_KERNEL_FOR(problem, problem->finishing ? rule->finishes : rule->kernel, kernels);
  if (!kernel) return false;
  const int64_t part = gemv_stream_part(kernel), least_groups = larger(problem->row_multiple / ROWS, 1);
  if (problem->scale_bytes < part / 32 || problem->k % (part / 2)) return false; /* copies of half of a row's scales */
  const int64_t pieces = divide_up(problem->k, part), most_parts = GEMV_MOST_PARTS / least_groups;
  plan->design.stream.kernel = kernel;
  plan->kernel = &kernel->of.kernel;
  plan->chunks = divide_up(pieces, most_parts * kernel->cluster);
  plan->parts = divide_up(pieces, plan->chunks * kernel->cluster);
  if (kernel->cluster == 1 && plan->chunks > 1) return false;
  plan->groups = plan->parts * MOST_GROUPS <= GEMV_MOST_PARTS ? MOST_GROUPS : 1;
  if (problem->m < plan->groups * ROWS) return false;
  plan->threads = 32 * plan->parts * plan->groups;
  deal_rows(problem, plan);
  return plan->blocks <= GEMV_MOST_BLOCKS;
}

bool gemv_stream_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  if (problem->row_multiple > MOST_ROWS) return false;
  for (int i = 0; i < RULES; i++)
    if (is_right(&rules[i], problem) && plan_by(problem, &rules[i], plan)) return true;
  return false;
}
