/* attention_e4m3_select.c - the launch of attention_e4m3.cu's kernels, for many query rows of e4m3, without pages,
 * window or soft cap. Tiles are dealt as attention_wgmma_plan.c does. */
#include <math.h>

#include "../common/launch.h"
#include "attention_e4m3.h"
#include "attention_wgmma_plan.h"

#define VARIANT(chips, parameters, name, threads, dimension, causal, warpgroups, tile_rows, kv_slots, query_slots,     \
                early)                                                                                                 \
  {(causal) != 0,                                                                                                      \
   {.kernel = KERNEL_ENTRY(chips, parameters, name, threads),                                                          \
    .dtype = RONDO_E4M3,                                                                                               \
    .head_dimension = (dimension),                                                                                     \
    .rows = INT64_C(64) * (warpgroups),                                                                                \
    .tile = (tile_rows),                                                                                               \
    .cluster = 1,                                                                                                      \
    .shared_bytes = ATTENTION_E4M3_SHARED_BYTES(dimension, warpgroups, tile_rows, kv_slots, query_slots)}},
static const struct {
  bool causal;
  struct attention_wgmma_variant variant;
} variants[] = {ATTENTION_E4M3_KERNELS(VARIANT)};

enum { MOST_ROWS = 1 << 19 }; /* of K and V, whose sums lose less than rounding the weights does */

static struct attention_wgmma_plan plan_of(const struct attention_wgmma_problem *problem) {
  static const struct attention_wgmma_plan elsewhere;
  if (!attention_wgmma_is_possible(problem) || !isnormal(problem->scale_log2) || problem->capacity > MOST_ROWS)
    return elsewhere;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct attention_wgmma_variant *v = &variants[i].variant;
    if (v->kernel.chips & problem->chip && v->head_dimension == problem->head_dimension &&
        variants[i].causal == problem->causal && v->shared_bytes <= problem->shared_bytes)
      return attention_wgmma_plan_with(problem, v);
  }
  return elsewhere;
}

bool attention_e4m3_select(const struct op_call *call, const struct attention_shape *shape, const struct chip *chip,
                           struct op_launches *launches) {
  if (call->task->operands[ATTENTION_Q].dtype != RONDO_E4M3 || shape->paged || shape->window || shape->soft_cap != 0.0f)
    return false;
  const struct attention_wgmma_problem problem = attention_wgmma_problem_of(call->task, shape, chip);
  const struct attention_wgmma_plan plan = plan_of(&problem);
  const struct attention_wgmma_variant *variant = plan.variant;
  if (!variant) return false;
  struct attention_wgmma_parameters parameters = attention_wgmma_parameters_of(call, shape, &problem, &plan);
  parameters.v_scale = shape->v_scale;
  parameters.bf16 = call->task->operands[ATTENTION_O].dtype == RONDO_BF16;
  struct op_launch *launch = launch_add(launches, &variant->kernel, plan.blocks, variant->kernel.threads,
                                        (uint64_t)variant->shared_bytes, &parameters, sizeof parameters);
  attention_wgmma_map(launch, offsetof(struct attention_wgmma_parameters, q), call, ATTENTION_Q,
                      ATTENTION_WGMMA_QUERY_BOX, shape->head_dimension);
  attention_wgmma_map(launch, offsetof(struct attention_wgmma_parameters, k), call, ATTENTION_K, variant->tile,
                      shape->head_dimension);
  attention_wgmma_map(launch, offsetof(struct attention_wgmma_parameters, v), call, ATTENTION_V, variant->tile / 2,
                      shape->head_dimension);
  return true;
}
