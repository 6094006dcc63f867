/* gemv_ring_plan.c - how gemv_ring.cu deals NVFP4 matrices of several waves: the rules by k and bytes, and the layout.
 *
 * Measured on an H200 beside quads, which load straight to registers. The ring was no faster for matrices of one wave
 * with k up to 8192, for several vectors in 16 bits with k 4096, and with several NVFP4 vectors hardly (4096x14336, 4
 * vectors: 13.3 us, a stream 13.6). It was not measured for k below 2048, e4m3 and 16-bit weights, and more than four
 * vectors. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"

#define RING(chips, parameters, name, threads, blocks, vectors, most, rows, part, beyond, ...)                         \
  {GEMV_KERNEL(chips, parameters, name, threads, RONDO_NVFP4, vectors), blocks, most, rows, part, beyond},
static const struct gemv_ring_kernel kernels[] = {GEMV_RING_KERNELS(RING)};

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

struct rule {
  const char *kernel; /* the end of its name */
  int64_t groups;
  int64_t passes; /* a group multiplies its rows of a tile in this many steps */
  int64_t stages;
  struct size_range k, bytes;
  bool several;   /* vectors */
  bool finishing; /* only with an epilogue */
};

enum { LESS_THAN_A_WAVE = 8 << 20, ABOUT_A_WAVE = 12 << 20, SEVERAL_WAVES = 24 << 20, MANY_BYTES = 100 << 20 };
#define FROM(size)                                                                                                     \
  { .least = (size) }

/* The first that fits is taken. */
static const struct rule rules[] = {
    {"blocks_s4", 2, 1, 2, .k = {2048, 3072}, .bytes = FROM(SEVERAL_WAVES)},
    {"blocks_s4", 1, 1, 2, .k = {3073, 4096}, .bytes = {LESS_THAN_A_WAVE, ABOUT_A_WAVE}, .finishing = true},
    {"blocks_s4", 1, 1, 2, .k = {3073, 4096}, .bytes = {ABOUT_A_WAVE, MANY_BYTES}},
    {"blocks_s4", 1, 2, 2, .k = {3073, 4096}, .bytes = FROM(MANY_BYTES)},
    {"blocks_s4", 1, 1, 2, .k = {4097, 7168}, .bytes = FROM(SEVERAL_WAVES)},
    {"q8_s2", 2, 1, 2, .k = {7169, 8192}, .bytes = FROM(SEVERAL_WAVES)},
    {"pairs_s8", 1, 1, 2, .k = {8193, 13312}, .bytes = FROM(ABOUT_A_WAVE)},
    {"pairs_s8", 1, 1, 2, .k = {13313, 14336}, .bytes = FROM(SEVERAL_WAVES)},
    {"q2_s4", 1, 1, 2, .k = {13312, 14336}, .bytes = FROM(SEVERAL_WAVES), .several = true},
    {"q8_s2", 1, 2, 2, .k = {14337, 16384}, .bytes = FROM(SEVERAL_WAVES)},
    {"pairs_s8", 1, 1, 2, .k = {14337, 16384}, .bytes = FROM(SEVERAL_WAVES)},
    {"nvfp4_s4", 12, 1, 3, .k = {3073, 4096}, .bytes = FROM(MANY_BYTES)},
    {"nvfp4_s7", 8, 1, 2, .k = {6145, 7168}, .bytes = FROM(MANY_BYTES)},
    {0},
};

/* ---- A plan by a rule ------------------------------------------------------------------------------------------- */

enum {
  SHARED_BYTES = 228 << 10, /* of a multiprocessor, of which each block takes 1024 for itself */
  BARRIER_BYTES = 16,       /* of a stage: two */
  SQUARES_BYTES = GEMV_MOST_PARTS * (int)sizeof(float),
  NORM_ROWS = 8,           /* at least, that kernels with an RMS norm multiply at a time */
  ALONE_BYTES = 116 << 10, /* more than half of a multiprocessor's */
};

/* To this many blocks, or one more or less: each has the same rows, except for a matrix's last. */
static void deal_rows(const struct gemv_problem *problem, const struct rule *rule, int64_t blocks,
                      struct gemv_plan *plan) {
  struct gemv_ring_parameters *layout = &plan->told.ring;
  const int64_t tile_rows = plan->groups * layout->group_rows;
  layout->block_rows = (uint32_t)round_up(divide_up(problem->m, blocks), problem->row_multiple);
  plan->blocks = divide_up(problem->m, layout->block_rows);
  plan->tiles = divide_up(layout->block_rows, tile_rows);
  layout->stages = (uint32_t)smaller(rule->stages, plan->tiles);
  layout->early_stages = problem->vectors == RONDO_NVFP4 ? layout->stages : 1;
  layout->pitch = (uint32_t)(plan->tiles * tile_rows + GEMV_PITCH_PADDING);
  /* Of the most vectors: whether a plan is right must not depend on their count. */
  const int64_t sums = plan->parts * plan->of.ring->most * layout->pitch * (int64_t)sizeof(float);
  layout->first_stage =
      (uint32_t)round_up(BARRIER_BYTES * layout->stages + SQUARES_BYTES + sums, GEMV_SHARED_ALIGNMENT);
  layout->own_memory = layout->first_stage + layout->stages * layout->stage_bytes;
  layout->own_bytes = problem->vectors == RONDO_NVFP4 ? 0 : (uint32_t)plan->of.ring->part * 2;
  plan->shared_bytes = layout->own_memory + (plan->parts * plan->groups + 1) * layout->own_bytes;
  /* Blocks that start early do not share a multiprocessor beside an idle one. */
  if (problem->vectors != RONDO_NVFP4 && plan->of.ring->blocks == 1 &&
      plan->blocks * problem->batch <= problem->multiprocessors)
    plan->shared_bytes = larger(plan->shared_bytes, ALONE_BYTES);
}

/* Blocks are equally long, so that a last wave of few is time lost. */
static bool fills_waves(int64_t blocks, int64_t at_once) {
  return blocks * 10 >= divide_up(blocks, at_once) * at_once * 9;
}

/* The warps of a block, and a stage. */
static bool deal_warps(const struct gemv_problem *problem, const struct rule *rule,
                       const struct gemv_ring_kernel *kernel, struct gemv_plan *plan) {
  struct gemv_ring_parameters *layout = &plan->told.ring;
  plan->of.ring = kernel;
  layout->group_rows = (uint32_t)(kernel->rows * rule->passes);
  plan->kernel = &kernel->of.kernel;
  plan->parts = divide_up(problem->k, kernel->part);
  plan->groups = rule->groups, plan->chunks = 1;
  const int64_t warps = plan->parts * plan->groups + 1; /* the last one copies */
  plan->threads = 32 * warps;
  const int64_t row_bytes = problem->k / 2 + problem->k / GEMV_BLOCK;
  layout->stage_bytes = (uint32_t)round_up(plan->groups * layout->group_rows * row_bytes, GEMV_SHARED_ALIGNMENT);
  return plan->parts * kernel->part - problem->k < kernel->beyond && plan->threads <= kernel->of.kernel.threads;
}

static bool plan_by(const struct gemv_problem *problem, const struct rule *rule, struct gemv_plan *plan) {
  const struct gemv_ring_kernel *kernel = GEMV_KERNEL_FOR(problem, rule->kernel, kernels);
  if (!kernel || (problem->norm && (kernel->rows < NORM_ROWS || kernel->most > 1)) ||
      !deal_warps(problem, rule, kernel, plan))
    return false;
  const int64_t at_once = problem->multiprocessors * kernel->blocks;
  const int64_t most_bytes = SHARED_BYTES / kernel->blocks - 1024;
  int64_t blocks = larger(at_once / problem->batch, 1);
  for (deal_rows(problem, rule, blocks, plan); plan->shared_bytes > most_bytes; blocks *= 2) {
    if (plan->tiles == 1) return false;
    deal_rows(problem, rule, 2 * blocks, plan);
  }
  return plan->blocks <= GEMV_MOST_BLOCKS && fills_waves(plan->blocks * problem->batch, at_once);
}

bool gemv_ring_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  for (const struct rule *rule = rules; rule->kernel; rule++)
    if (rule->several == (problem->count > 1) && rule->finishing <= problem->finishing &&
        is_in_range(problem->k, rule->k) && is_in_range(gemv_weight_bytes(problem), rule->bytes) &&
        plan_by(problem, rule, plan))
      return true;
  return false;
}
