/* gemv_stream_plan.c - how gemv_stream.cu deals NVFP4 matrices to several vectors: the rules, and the layout.
 *
 * Measured on an H200 beside quads, which load straight to registers, and the ring of bulk copies. The stream was no
 * faster, or not measured, for k below 1536, blocked scales, and with k up to 4096 matrices of less than these bytes.
 */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"

#define STREAM(chips, parameters, name, threads, vectors, operands, slices, stages, cluster)                           \
  {GEMV_KERNEL(chips, parameters, name, threads, RONDO_NVFP4, vectors), operands, slices, stages, cluster},
static const struct gemv_stream_kernel kernels[] = {GEMV_STREAM_KERNELS(STREAM)};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

struct rule {
  const char *kernel;   /* the end of its name */
  const char *finishes; /* the same for results that clusters finish */
  uint32_t vectors;     /* types, as bits; 0: any */
  struct size_range count, k;
  int64_t from_bytes; /* of weights */
};

enum {
  FEW_BYTES = 2 << 20,
  LESS_THAN_A_WAVE = 8 << 20,
  ABOUT_A_WAVE = 12 << 20,
  SEVERAL_WAVES = 24 << 20,
  MANY_BYTES = 100 << 20,
  SIXTEEN_BITS = 1 << RONDO_F16 | 1 << RONDO_BF16, /* types of vectors */
  NVFP4 = 1 << RONDO_NVFP4,
};
#define SIXTEEN "q1x2_s2"
#define EIGHT   "q1_s4"
#define SHORT   "q1_s2"

/* The first that fits is taken. With 16-bit vectors, parts of two slices have half of the conversions before the first
 * product; with most bytes those count for less than the longer copies of four slices. */
static const struct rule rules[] = {
    {SIXTEEN "_c2", SIXTEEN "_c2", .count = {9, 16}, .k = {.least = 4097}},
    {SIXTEEN, SIXTEEN "_c2", .vectors = NVFP4, .count = {9, 16}, .k = {1537, 4096}, .from_bytes = 16 << 20},
    {SIXTEEN, SIXTEEN "_c2", .vectors = SIXTEEN_BITS, .count = {9, 16}, .k = {1537, 4096}, .from_bytes = FEW_BYTES},
    {EIGHT "_c2", EIGHT "_c2", .count = {2, 8}, .k = {.least = 8193}},
    {EIGHT, EIGHT "_c2", .vectors = NVFP4, .count = {2, 8}, .k = {2048, 8192}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {2, 8}, .k = {3073, 4096}, .from_bytes = MANY_BYTES},
    {SHORT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {2, 8}, .k = {2048, 4096}, .from_bytes = ABOUT_A_WAVE},
    {SHORT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {2, 4}, .k = {3073, 4096}, .from_bytes = LESS_THAN_A_WAVE},
    {SHORT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {1, 1}, .k = {2048, 4096}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {2, 4}, .k = {4097, 8192}, .from_bytes = SEVERAL_WAVES},
    {EIGHT, EIGHT "_c2", .vectors = SIXTEEN_BITS, .count = {5, 8}, .k = {4097, 8192}, .from_bytes = LESS_THAN_A_WAVE},
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
  SHORT_K = 3072,
  ALONE_BYTES = 116 << 10, /* more than half of a multiprocessor's */
};

/* See gemv_stream.cu for what lies there: with clusters, the sums of all of a block's tiles too. */
static void set_memory(const struct gemv_problem *problem, int64_t tiles, struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->of.stream;
  const int64_t sums = kernel->operands * 2 * 16 * GEMV_STREAM_SLOT_BYTES;
  const int64_t held = kernel->cluster > 1 ? tiles * problem->count * plan->groups * ROWS * (int64_t)sizeof(float) : 0;
  const int64_t piece = ROWS * gemv_stream_part(kernel) / 16 * 9;
  const int64_t first_stage = round_up(sums + GEMV_STREAM_FIXED_BYTES + held, GEMV_SHARED_ALIGNMENT);
  const int64_t norm =
      problem->vectors != RONDO_NVFP4 && kernel->cluster == 1 && kernel->operands == 1 ? 256 * kernel->slices : 0;
  plan->told.stream.first_stage = (uint32_t)first_stage;
  plan->shared_bytes = first_stage + plan->parts * plan->groups * (kernel->stages * piece + norm);
}

static void deal_rows(const struct gemv_problem *problem, struct gemv_plan *plan) {
  const int64_t cluster = plan->of.stream->cluster;
  plan->tiles = divide_up(problem->m, plan->groups * ROWS);
  int64_t clusters = smaller(plan->tiles, larger(problem->multiprocessors / cluster / problem->batch, 1));
  for (;; clusters = smaller(2 * clusters, plan->tiles)) {
    const int64_t tiles = divide_up(plan->tiles, clusters);
    set_memory(problem, tiles, plan);
    if (plan->shared_bytes > GEMV_MOST_SHARED_BYTES && tiles > 1) continue;
    plan->blocks = divide_up(plan->tiles, tiles) * cluster; /* as long as each other */
    /* Blocks that start early do not share a multiprocessor beside an idle one. */
    if (plan->blocks * problem->batch <= problem->multiprocessors)
      plan->shared_bytes = larger(plan->shared_bytes, ALONE_BYTES);
    return;
  }
}

/* A warp of one block has 16 rows of a tile, too few for gate and up in NVFP4. */
static bool clusters_finish(const struct gemv_problem *problem) {
  return problem->vectors == RONDO_NVFP4 ? problem->finishing : problem->row_multiple >= ROWS;
}

/* Vectors in 16 bits wait behind weights that were asked for before them. */
static int64_t early_stages(const struct gemv_problem *problem, const struct gemv_stream_kernel *kernel) {
  const int64_t all = kernel->stages - 1;
  if (problem->vectors == RONDO_NVFP4) return all;
  return kernel->operands > 1 || problem->k > SHORT_K ? 1 : smaller(all, 2);
}

/* k by the rule alone, so that its cut is that of all counts and of any rows. */
static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel =
      GEMV_KERNEL_FOR(problem, clusters_finish(problem) ? rule->finishes : rule->kernel, kernels);
  if (!kernel) return false;
  const int64_t part = gemv_stream_part(kernel), least_groups = larger(problem->row_multiple / ROWS, 1);
  if (problem->scale_bytes < part / 32 || problem->k % (part / 2)) return false; /* copies of half of a row's scales */
  const int64_t pieces = divide_up(problem->k, part), most_parts = GEMV_MOST_PARTS / least_groups;
  plan->of.stream = kernel;
  plan->kernel = &kernel->of.kernel;
  plan->chunks = divide_up(pieces, most_parts * kernel->cluster);
  plan->parts = divide_up(pieces, plan->chunks * kernel->cluster);
  if (kernel->cluster == 1 && plan->chunks > 1) return false;
  /* Two groups convert two operands in half of the time, which is worth some idle multiprocessors. */
  const bool converts = kernel->operands > 1 && kernel->cluster == 1 && problem->vectors != RONDO_NVFP4;
  const bool is_large = problem->m * problem->batch * 10 >= MOST_ROWS * problem->multiprocessors * (converts ? 7 : 10);
  plan->told.stream.early_stages = (uint32_t)early_stages(problem, kernel);
  plan->groups = plan->parts * MOST_GROUPS <= GEMV_MOST_PARTS && is_large ? MOST_GROUPS : least_groups;
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
