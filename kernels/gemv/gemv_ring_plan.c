/* gemv_ring_plan.c - where NVFP4 matrices of several waves go through the ring of gemv_ring.cu, and how.
 *
 * Measured on an H200, against the kernels that load straight to registers. Not here because it was no faster there, or
 * not measured: matrices of one wave with k up to 8192, k below 2048, e4m3 and 16-bit weights, several vectors in 16
 * bits, more than four in NVFP4. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"

#define RING(chips, parameters, name, threads, blocks, vectors, most, rows, part, behind, ...)                         \
  {KERNEL_ENTRY(chips, parameters, name, threads), blocks, vectors, most, rows, part, behind},
static const struct gemv_ring_variant variants[] = {GEMV_RING_KERNELS(RING)};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

/* A kernel, by its rows and its part, and when it is right. */
struct rule {
  int64_t least_count;
  int64_t least_k, most_k;
  int64_t least_bytes, most_bytes; /* of weights, in all matrices */
  int64_t rows, part;
  int64_t groups;
  int64_t passes; /* how often a group multiplies its rows of a tile */
  int64_t stages;
};

enum { ABOUT_A_WAVE = 12 << 20, SEVERAL_WAVES = 24 << 20, MANY_BYTES = 100 << 20 };

/* The first that fits is taken. */
static const struct rule rules_of_16_bits[] = {
    {1, 2048, 3072, SEVERAL_WAVES, INT64_MAX, 16, 512, 2, 1, 2},
    {1, 3073, 4096, SEVERAL_WAVES, MANY_BYTES, 16, 512, 1, 1, 2},
    {1, 3073, 4096, MANY_BYTES, INT64_MAX, 16, 512, 1, 2, 2},
    {1, 4097, 7168, SEVERAL_WAVES, INT64_MAX, 16, 512, 1, 1, 2},
    {1, 7169, 8192, SEVERAL_WAVES, INT64_MAX, 2, 2048, 2, 1, 2},
    {1, 8193, 13312, ABOUT_A_WAVE, INT64_MAX, 2, 1024, 1, 2, 2},
    {1, 13313, 14336, SEVERAL_WAVES, INT64_MAX, 2, 2048, 1, 1, 2},
    {1, 14337, 16384, SEVERAL_WAVES, INT64_MAX, 2, 2048, 1, 2, 2},
    {0},
};

/* The classes of counts are the kernels' most vectors. */
static const struct rule nvfp4_rules[] = {
    {1, 3073, 4096, MANY_BYTES, INT64_MAX, 1, 4096, 12, 1, 3},
    {1, 6145, 7168, MANY_BYTES, INT64_MAX, 1, 7168, 8, 1, 2},
    {2, 8193, 14336, SEVERAL_WAVES, INT64_MAX, 4, 1024, 1, 1, 2},
    {2, 8193, 14336, SEVERAL_WAVES, INT64_MAX, 8, 1024, 1, 1, 2},
    {0},
};

static const struct gemv_ring_variant *variant_of(const struct gemv_problem *problem, const struct rule *rule) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct gemv_ring_variant *v = &variants[i];
    if (v->vectors == problem->vectors && v->rows == rule->rows && v->part == rule->part &&
        v->kernel.chips & problem->chip)
      return v;
  }
  return NULL;
}

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

enum {
  SHARED_BYTES = 228 << 10, /* of a multiprocessor, of which each block takes 1024 for itself */
  MET_BYTES = 36 << 10,     /* the most for the sums of a window, if they are several tiles */
  BARRIER_BYTES = 16,       /* of a stage: two */
  ALIGNMENT = 128,          /* of a stage */
  MOST_BLOCKS = INT32_MAX,
  MOST_BATCH = 65535,
};

/* For the most vectors of a kernel: whether a plan is right must not depend on the count within a class. */
static int64_t met_bytes(const struct gemv_ring_plan *plan, int64_t tile_rows) {
  int64_t pitch = plan->window_tiles * tile_rows + GEMV_PITCH_PADDING;
  return plan->parts * plan->variant->most * pitch * (int64_t)sizeof(float);
}

/* With so many blocks, or one more or less: each has the same rows, but for a matrix's last. */
static void deal_rows(const struct gemv_problem *problem, const struct rule *rule, int64_t blocks,
                      struct gemv_ring_plan *plan) {
  const int64_t tile_rows = plan->groups * plan->group_rows;
  plan->block_rows = round_up(divide_up(problem->m, blocks), problem->row_multiple);
  plan->blocks = divide_up(problem->m, plan->block_rows);
  plan->tiles = divide_up(plan->block_rows, tile_rows);
  plan->stages = smaller(rule->stages, plan->tiles);
  plan->window_tiles = plan->tiles;
  while (plan->window_tiles > 1 && met_bytes(plan, tile_rows) > MET_BYTES)
    plan->window_tiles = divide_up(plan->window_tiles, 2);
  plan->window_pitch = plan->window_tiles * tile_rows + GEMV_PITCH_PADDING;
  plan->held_pitch = plan->window_tiles < plan->tiles ? plan->tiles * tile_rows : 0;
  const int64_t held_bytes = plan->variant->most * plan->held_pitch * (int64_t)sizeof(float);
  plan->first_stage = round_up(BARRIER_BYTES * plan->stages + met_bytes(plan, tile_rows) + held_bytes, ALIGNMENT);
  plan->shared_bytes = plan->first_stage + plan->stages * plan->stage_bytes;
}

/* Blocks are equally long, so that a last wave of few is time lost. */
static bool fills_waves(int64_t blocks, int64_t at_once) {
  return blocks * 10 >= divide_up(blocks, at_once) * at_once * 9;
}

static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_ring_plan *plan) {
  const struct gemv_ring_variant *variant = variant_of(problem, rule);
  if (!variant || problem->count > variant->most) return false;
  plan->variant = variant;
  plan->parts = divide_up(problem->k, variant->part);
  if (plan->parts * variant->part - problem->k >= variant->behind) return false;
  plan->groups = rule->groups;
  plan->group_rows = variant->rows * rule->passes;
  const int64_t warps = plan->parts * plan->groups + 1; /* the last one copies */
  plan->threads = 32 * warps;
  if (plan->threads > variant->kernel.threads || warps < variant->most) return false;
  plan->stage_bytes = round_up(plan->groups * plan->group_rows * (problem->k / 2 + problem->k / GEMV_BLOCK), ALIGNMENT);

  const int64_t at_once = problem->multiprocessors * variant->blocks;
  const int64_t most_bytes = SHARED_BYTES / variant->blocks - 1024;
  int64_t blocks = larger(at_once / problem->batch, 1);
  for (deal_rows(problem, rule, blocks, plan); plan->shared_bytes > most_bytes; blocks *= 2) {
    if (plan->tiles == 1) return false;
    deal_rows(problem, rule, 2 * blocks, plan);
  }
  return plan->blocks <= MOST_BLOCKS && fills_waves(plan->blocks * problem->batch, at_once);
}

/* Copies of whole rows to addresses that are multiples of 16 bytes. */
static bool is_possible(const struct gemv_problem *problem) {
  return problem->weights == RONDO_NVFP4 && problem->wide_loads && problem->dense_weights && !problem->blocked_scales &&
         !problem->norm && !problem->one_order && problem->k % GEMV_BLOCK == 0 && problem->k / GEMV_BLOCK % 16 == 0 &&
         problem->batch <= MOST_BATCH;
}

struct gemv_ring_plan gemv_ring_plan_of(const struct gemv_problem *problem) {
  struct gemv_ring_plan plan = {0};
  if (!is_possible(problem)) return plan;
  if (problem->vectors != RONDO_NVFP4 && problem->count > 1) return plan;
  const int64_t bytes = problem->batch * problem->m * problem->k / 2;
  for (const struct rule *rule = problem->vectors == RONDO_NVFP4 ? nvfp4_rules : rules_of_16_bits; rule->rows; rule++) {
    if (problem->k < rule->least_k || problem->k > rule->most_k || problem->count < rule->least_count) continue;
    if (bytes < rule->least_bytes || bytes > rule->most_bytes) continue;
    if (plan_by(problem, rule, &plan)) return plan;
  }
  return (struct gemv_ring_plan){0};
}
