/* gemv_short_plan.c - where NVFP4 matrices of many short rows go to gemv_short.cu, and how.
 *
 * Measured on an H200 at 49152 x 576 alone: 6.6 us with an NVFP4 vector and 7.2 us with one in 16 bits, where the
 * kernels of gemv_plan.c take 8.2 and 9.9 us. Matrices of several waves are not taken: a block has a multiprocessor for
 * itself, and its first bytes and its tail hide behind no other. */
#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"

#define SHORT(chips, parameters, name, threads, blocks, vectors, of_lane)                                              \
  {KERNEL_ENTRY(chips, parameters, name, threads), vectors, of_lane},
/* Of each type of vectors those with fewer blocks first. */
static const struct gemv_short_variant variants[] = {GEMV_SHORT_KERNELS(SHORT)};

enum {
  MOST_SHARED_BYTES = 227 << 10, /* of a block */
  LEAST_K = 384,                 /* below, more than a third of what the lanes multiply would be zeros */
  LANES = 4,                     /* of a row */
  COPIED = 2 * GEMV_BLOCK,       /* elements in 16 bytes */
  MOST_GROUPS = GEMV_SHORT_WARPS * GEMV_SHORT_TURNS,
};

static const struct gemv_short_variant *variant_of(const struct gemv_problem *problem) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
    if (variants[i].vectors == problem->vectors && LANES * variants[i].blocks * GEMV_BLOCK >= problem->k &&
        variants[i].kernel.chips & problem->chip)
      return &variants[i];
  return NULL;
}

static bool is_possible(const struct gemv_problem *problem) {
  return problem->weights == RONDO_NVFP4 && problem->wide_loads && problem->packed_weights &&
         !problem->blocked_scales && !problem->norm && !problem->one_order && problem->count == 1 &&
         problem->k >= LEAST_K && problem->k % COPIED == 0;
}

/* What gemv_short.cu lays out: the vector, rows, scales, sums. */
static int64_t shared_bytes(const struct gemv_problem *problem, const struct gemv_short_plan *plan) {
  const int64_t row_bytes = GEMV_SHORT_PITCH(plan->variant->blocks) + problem->k / GEMV_BLOCK +
                            (problem->finishing ? (int64_t)sizeof(float) : 0);
  return GEMV_SHORT_VECTOR_BYTES + plan->groups * GEMV_SHORT_ROWS * row_bytes + GEMV_SHORT_BEHIND;
}

struct gemv_short_plan gemv_short_plan_of(const struct gemv_problem *problem) {
  const struct gemv_short_plan none = {0};
  struct gemv_short_plan plan = {0};
  if (!is_possible(problem) || problem->batch > problem->multiprocessors) return none;
  plan.variant = variant_of(problem);
  if (!plan.variant) return none;
  const int64_t rows_multiple = larger(problem->row_multiple, GEMV_SHORT_ROWS);
  const int64_t share = divide_up(problem->m, problem->multiprocessors / problem->batch);
  const int64_t rows = round_up(share, rows_multiple);
  plan.groups = rows / GEMV_SHORT_ROWS;
  plan.blocks = divide_up(problem->m, rows);
  plan.shared_bytes = shared_bytes(problem, &plan);
  /* Of smaller matrices warps would have nothing, and others are as fast there. */
  if (plan.groups < GEMV_SHORT_WARPS || plan.groups > MOST_GROUPS) return none;
  if (plan.shared_bytes > MOST_SHARED_BYTES) return none;
  /* Or multiprocessors. */
  return plan.blocks * problem->batch * 10 >= problem->multiprocessors * 9 ? plan : none;
}
