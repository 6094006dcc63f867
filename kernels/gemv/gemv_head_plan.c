/* gemv_head_plan.c - how the kernels of many short rows, such as a model's head, deal the rows.
 *
 * A block has a multiprocessor for itself, warps have whole rows, and k is not split: the order of a row's sums depends
 * on k and the types alone. Measured on an H200 beside integer and quads:
 *   NVFP4, 49152 x 576: 7.9 us with 1 vector in NVFP4 or bf16 (8.7 and 9.6), 8.2, 8.2 and 9.3 with 2, 8 and 16 in NVFP4
 *     (9.2, 9.8 and 12.3); with k 448 to 1024 and 34000 to 262144 rows quads take 0.94 to 1.59 times as long
 *   e4m3 and eight or more vectors: quads take 0.92 to 2.05 times as long (17.3 and 21.8 us, here 10.1 and 10.7)
 * One vector beside e4m3 is better off with quads where k has no remainder. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "gemv_plan.h"

#define CODES(chips, parameters, name, threads, blocks, W, operands)                                                   \
  {GEMV_KERNEL(chips, parameters, name, threads, W, GEMV_ANY_TYPE), operands},
#define SIXTEEN_BITS(chips, parameters, name, threads, blocks, operands)                                               \
  {GEMV_KERNEL(chips, parameters, name, threads, GEMV_16_BITS, GEMV_16_BITS), operands},
static const struct gemv_head_kernel kernels[] = {GEMV_HEAD_KERNELS(CODES)};
static const struct gemv_head_kernel kernels_of_16[] = {GEMV_HEAD_16_KERNELS(SIXTEEN_BITS)};

/* What a block gets if each multiprocessor has one, and every matrix as many as the others. */
static int64_t share_of(const struct gemv_problem *problem) {
  return divide_up(problem->m, problem->multiprocessors / problem->batch);
}

/* Sets what both planners share; false without a kernel, or with more matrices than multiprocessors. */
static bool begin(const struct gemv_problem *problem, const struct gemv_head_kernel *kernel, struct gemv_plan *plan) {
  if (!kernel || problem->batch > problem->multiprocessors) return false;
  plan->kernel = &kernel->of.kernel;
  plan->parts = plan->groups = plan->chunks = plan->tiles = 1;
  plan->of.head = kernel;
  return true;
}

/* ---- NVFP4 and e4m3 ---------------------------------------------------------------------------------------------- */

enum {
  COPIED = 2 * GEMV_BLOCK, /* elements of NVFP4 in 16 bytes */
  REMAINDER = 256,         /* of e4m3: what 16 lanes load, half of what a warp of quads has */
  FEWEST_WARPS = 16,       /* each converts a vector */
};

/* What gemv_head.cu lays out: the vectors, slots. */
static bool lay_out(const struct gemv_problem *problem, struct gemv_plan *plan) {
  struct gemv_head_parameters *layout = &plan->told.head;
  const int64_t k = problem->k, vectors = 8 * plan->of.head->width;
  const int64_t lane_bytes = GEMV_BLOCK * (int64_t)rondo_dtype_bits(problem->weights) / 8;
  const int64_t scales = problem->weights == RONDO_NVFP4 ? k / GEMV_BLOCK : 0;
  const int64_t groups = layout->block_rows / GEMV_HEAD_ROWS;
  layout->first_slot =
      (uint32_t)round_up(GEMV_HEAD_FACTOR_BYTES + vectors * GEMV_HEAD_VECTOR_PITCH(k), GEMV_SHARED_ALIGNMENT);
  layout->slot_bytes = (uint32_t)(GEMV_HEAD_ROWS * (GEMV_HEAD_PITCH(k, lane_bytes) + scales));
  plan->parts = k * lane_bytes / GEMV_BLOCK / 16; /* loads of 16 bytes of a row */
  const int64_t slots = (GEMV_MOST_SHARED_BYTES - layout->first_slot) / layout->slot_bytes;
  const int64_t most = smaller(slots, GEMV_HEAD_WARPS);
  if (most < FEWEST_WARPS) return false;
  const int64_t turns = divide_up(groups, most);
  layout->slots = (uint32_t)larger(divide_up(groups, turns), FEWEST_WARPS);
  plan->threads = INT64_C(32) * layout->slots;
  plan->shared_bytes = layout->first_slot + layout->slots * layout->slot_bytes;
  return true;
}

bool gemv_head_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  if (problem->weights == RONDO_NVFP4 ? problem->k % COPIED != 0 : problem->count == 1 && problem->k % REMAINDER == 0)
    return false;
  const struct gemv_head_kernel *kernel = GEMV_KERNEL_FOR(problem, problem->count > 8 ? "q1x2" : "q1", kernels);
  struct gemv_head_parameters *layout = &plan->told.head;
  if (!begin(problem, kernel, plan)) return false;
  layout->block_rows = (uint32_t)round_up(share_of(problem), GEMV_HEAD_ROWS);
  plan->blocks = divide_up(problem->m, layout->block_rows);
  return layout->block_rows / GEMV_HEAD_ROWS >= FEWEST_WARPS && lay_out(problem, plan);
}

/* ---- 16 bits ----------------------------------------------------------------------------------------------------- */

enum { COLUMNS_A_TILE = 128 /* of a block's tiles: with fewer, slots are not filled often enough to be faster */ };

/* What gemv_head_16.cu lays out. At the largest k there are two slots. */
bool gemv_head_16_plan(const struct gemv_problem *problem, struct gemv_plan *plan) {
  const struct gemv_head_kernel *kernel = GEMV_KERNEL_FOR(problem, problem->count > 8 ? "q1x2" : "q1", kernels_of_16);
  struct gemv_head_parameters *layout = &plan->told.head;
  if (!begin(problem, kernel, plan)) return false;
  const int64_t vectors = GEMV_HEAD_16_FIXED_BYTES + 8 * kernel->width * GEMV_HEAD_16_VECTOR_PITCH(problem->k);
  layout->first_slot = (uint32_t)round_up(vectors, GEMV_SHARED_ALIGNMENT);
  layout->slot_bytes = (uint32_t)(INT64_C(2) * GEMV_HEAD_ROWS * problem->k);
  layout->slots =
      (uint32_t)smaller((GEMV_MOST_SHARED_BYTES - layout->first_slot) / layout->slot_bytes, GEMV_HEAD_16_WARPS);
  layout->early_slots = (uint32_t)divide_up(layout->slots, 2);
  plan->tiles = divide_up(problem->m, GEMV_HEAD_ROWS);
  plan->blocks = problem->multiprocessors / problem->batch, plan->threads = INT64_C(32) * GEMV_HEAD_16_WARPS;
  plan->shared_bytes = layout->first_slot + layout->slots * layout->slot_bytes;
  return plan->tiles * COLUMNS_A_TILE >= plan->blocks * problem->k;
}
