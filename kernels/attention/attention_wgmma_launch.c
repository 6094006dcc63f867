/* attention_wgmma_launch.c - the problem of attention_wgmma_plan.c from a task, and the parameters and tensor maps of a
 * kernel of attention_wgmma.cu or attention_wgmma_e4m3.cu. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_choose.h"

static struct attention_wgmma_problem problem_of(const struct op_task *task, const struct attention_shape *shape,
                                                 const struct chip *chip) {
  const struct op_operand *operands = task->operands;
  return (struct attention_wgmma_problem){
      .chip = launch_chip(chip),
      .multiprocessors = chip->multiprocessors,
      .shared_bytes = chip->shared_bytes,
      .dtype = operands[ATTENTION_Q].dtype,
      .causal = shape->causal,
      .has_maps = has_tensor_map(&operands[ATTENTION_Q]) && has_tensor_map(&operands[ATTENTION_K]) &&
                  has_tensor_map(&operands[ATTENTION_V]) && op_rows_aligned(&operands[ATTENTION_O], 16),
      .scale_log2 = shape->scale * 1.44269504f,
      .soft_cap = shape->soft_cap,
      .window = shape->window,
      .batch = shape->batch,
      .query_heads = shape->query_heads,
      .kv_heads = shape->kv_heads,
      .query_length = shape->query_length,
      .capacity = shape->capacity,
      .head_dimension = larger(shape->head_dimension, ATTENTION_WGMMA_LEAST_DIMENSION),
  };
}

bool attention_wgmma_choice_plan(const struct attention_problem *problem, struct attention_plan *plan) {
  const struct attention_wgmma_problem wgmma = problem_of(problem->task, &problem->shape, problem->chip);
  plan->wgmma = attention_wgmma_plan_of(&wgmma);
  return plan->wgmma.variant;
}

static struct attention_wgmma_parameters parameters_of(const struct op_call *call, const struct attention_shape *shape,
                                                       const struct attention_wgmma_plan *plan) {
  const int64_t *lse_stride = call->task->operands[ATTENTION_LSE].stride;
  const bool is_capped = shape->soft_cap > 0.0f;
  return (struct attention_wgmma_parameters){
      .o = call->data[ATTENTION_O],
      .lse = call->data[ATTENTION_LSE],
      .kv_lengths = call->data[ATTENTION_KV_LENGTHS],
      .o_stride = shape->o_stride,
      .lse_batch_stride = lse_stride[0],
      .lse_head_stride = lse_stride[1],
      .query_heads = (uint32_t)shape->query_heads,
      .group = (uint32_t)shape->group,
      .heads = (uint32_t)(shape->batch * shape->query_heads),
      .row_tiles = (uint32_t)plan->row_tiles,
      .heads_together = (uint32_t)plan->heads_together,
      .rounds = (uint32_t)plan->rounds,
      .query_length = (int32_t)shape->query_length,
      .capacity = (int32_t)shape->capacity,
      .most_length = (int32_t)shape->most_length,
      .head_dimension = (int32_t)shape->head_dimension,
      .scale_log2 = (is_capped ? shape->soft_cap : shape->scale) * 1.44269504f,
      .cap_scale = is_capped ? shape->scale / shape->soft_cap : 0.0f,
      .window = shape->window ? (int32_t)shape->window : ATTENTION_WGMMA_NO_WINDOW,
      .causal_length = shape->causal ? (int32_t)shape->query_length : 0,
      .v_scale = shape->v_scale,
      .bf16 = call->task->operands[ATTENTION_O].dtype == RONDO_BF16,
  };
}

/* Whichever of both layouts the operand has. */
static void map(struct op_launch *launch, size_t offset, const struct op_call *call, uint32_t index, int64_t rows,
                int64_t columns) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  struct op_operand operand = call->task->operands[index];
  if (attributes->layout == RONDO_BSHD) {
    const int64_t positions = operand.shape[1], stride = operand.stride[1];
    operand.shape[1] = operand.shape[2];
    operand.stride[1] = operand.stride[2];
    operand.shape[2] = positions;
    operand.stride[2] = stride;
  }
  launch_map(launch, offset, &operand, call->data[index], (const uint32_t[]){1, 1, (uint32_t)rows, (uint32_t)columns});
}

void attention_wgmma_launch(const struct op_call *call, const struct attention_problem *problem,
                            const struct attention_plan *plan, struct op_launches *launches) {
  const struct attention_wgmma_variant *variant = plan->wgmma.variant;
  const struct attention_wgmma_parameters parameters = parameters_of(call, &problem->shape, &plan->wgmma);
  struct op_launch *launch = launch_add(launches, &variant->kernel, plan->wgmma.blocks, variant->kernel.threads,
                                        (uint64_t)variant->shared_bytes, &parameters, sizeof parameters);
  map(launch, offsetof(struct attention_wgmma_parameters, q), call, ATTENTION_Q, ATTENTION_WGMMA_QUERY_BOX,
      variant->head_dimension);
  map(launch, offsetof(struct attention_wgmma_parameters, k), call, ATTENTION_K, variant->key_box_rows,
      variant->box_columns);
  map(launch, offsetof(struct attention_wgmma_parameters, v), call, ATTENTION_V, variant->value_box_rows,
      variant->box_columns);
}
