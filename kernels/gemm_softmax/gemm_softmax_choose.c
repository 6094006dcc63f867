/* gemm_softmax_choose.c - which kernel reduces the rows of a product: a table of choices in the order in which they are
 * tried, and the launch of the first that takes the task. README.md has the same table. */
#include "gemm_softmax_choose.h"

#include "../../runtime/integer.h"

enum {
  MOST = 1 << 30,       /* rows and columns: both, and their difference, are coordinates */
  WIDEST_STREAM = 1024, /* columns of a cluster that streams, and makes a row once */
  WIDEST_RESIDENT = 8 * RESIDENT_COLUMNS,
  SHORT_K = RESIDENT_MOST_STEPS * WGMMA_DEPTH
};

static const struct gemm_softmax_choice choices[] = {
    {.name = "staggered",
     .needs_maps = true,
     .needs_deal = true,
     .n = {WIDEST_STREAM + 1, WIDEST_RESIDENT},
     .k = {1, SHORT_K},
     .plan = gemm_softmax_staggered_plan,
     .launch = gemm_softmax_staggered_launch,
     .why = "B stays in shared memory; of three warpgroups one multiplies, one takes exponentials and one stores"},
    {.name = "resident",
     .needs_maps = true,
     .n = {WIDEST_STREAM + 1, WIDEST_RESIDENT},
     .k = {1, SHORT_K},
     .plan = gemm_softmax_resident_plan,
     .launch = gemm_softmax_wgmma_launch,
     .why = "B stays in shared memory, and a cluster holds whole rows: the product is made once"},
    {.name = "streamed",
     .needs_maps = true,
     .n = {129, MOST}, /* for fewer columns half of a warpgroup would be idle */
     .k = {1, MOST},
     .plan = gemm_softmax_streamed_plan,
     .launch = gemm_softmax_wgmma_launch,
     .why = "panels of A and B pass through a ring while warpgroups multiply: any k, any number of columns"},
    {.name = "portable",
     .plan = gemm_softmax_portable_plan,
     .launch = gemm_softmax_portable_launch,
     .why = "mma.sync with online normalisation: every chip, every alignment"},
};

const struct gemm_softmax_choice *gemm_softmax_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

static bool may_take(const struct gemm_softmax_choice *choice, const struct gemm_softmax_problem *problem) {
  if (choice->needs_deal && (!problem->is_dealt || !problem->is_softmax || problem->is_exact)) return false;
  if (choice->needs_maps && (!problem->has_maps || problem->m < 1 || problem->m > MOST || problem->batch < 1 ||
                             problem->batch > MOST / divide_up(problem->m, WGMMA_TILE)))
    return false;
  return is_in_range(problem->n, choice->n) && is_in_range(problem->k, choice->k);
}

const struct gemm_softmax_choice *gemm_softmax_choose(const struct gemm_softmax_problem *problem,
                                                      struct gemm_softmax_plan *plan) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    *plan = (struct gemm_softmax_plan){0};
    if (may_take(&choices[i], problem) && choices[i].plan(problem, plan) && plan->grid <= INT32_MAX &&
        plan->shared_bytes <= problem->shared_bytes)
      return &choices[i];
  }
  return NULL;
}

rondo_status gemm_softmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  launches->count = 0;
  if (op_elements(&call->task->operands[GEMM_OUT]) == 0) return RONDO_OK;
  const struct gemm_softmax_problem problem = gemm_softmax_problem_of(call, chip);
  struct gemm_softmax_plan plan;
  const struct gemm_softmax_choice *choice = gemm_softmax_choose(&problem, &plan);
  if (!choice && plan.grid > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a has %lld tiles of %d rows, expected at most 2^31 - 1", (long long)plan.grid,
                      GEMM_SOFTMAX_ROWS);
  if (!choice)
    return status_set(RONDO_UNSUPPORTED, "a block needs %lld bytes of shared memory, the chip has %d",
                      (long long)plan.shared_bytes, (int)chip->shared_bytes);
  launches->choice = choice->name, launches->why = choice->why;
  choice->launch(call, &plan, launches);
  return RONDO_OK;
}
