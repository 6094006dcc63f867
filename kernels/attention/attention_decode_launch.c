/* attention_decode_launch.c - the problem of attention_decode_plan.c from a task, and the parameters of a kernel of
 * attention_decode.cu. */
#include <float.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_choose.h"

static enum decode_kind kind_of(const struct op_task *task, const struct attention_shape *shape) {
  if (task->operands[ATTENTION_K].dtype == RONDO_E4M3) return DECODE_E4M3;
  return shape->plain ? DECODE_PLAIN : DECODE_GENERAL;
}

bool attention_decode_choice_plan(const struct attention_problem *problem, struct attention_plan *plan) {
  const struct op_task *task = problem->task;
  const struct attention_shape *shape = &problem->shape;
  const struct attention_attributes *attributes = op_attributes(task);
  const struct attention_decode_problem decode = {.kind = kind_of(task, shape),
                                                  .dtype = task->operands[ATTENTION_Q].dtype,
                                                  .dimension = shape->head_dimension,
                                                  .batch = shape->batch,
                                                  .kv_heads = shape->kv_heads,
                                                  .rows = shape->rows,
                                                  .capacity = shape->capacity,
                                                  .splits = attributes->splits,
                                                  .new_rows = shape->appends ? shape->query_length : 0,
                                                  .aligned = attention_rows_aligned(task),
                                                  .chip = launch_chip(problem->chip),
                                                  .multiprocessors = problem->chip->multiprocessors,
                                                  .shared_bytes = problem->chip->shared_bytes};
  plan->decode = attention_decode_plan_of(&decode);
  plan->splits = plan->decode.splits;
  return plan->decode.variant;
}

/* A tensor has at most 2^31 elements, so do strides between the elements that there are. */
static struct attention_decode_stride stride_of(const struct attention_stride *stride) {
  return (struct attention_decode_stride){(uint32_t)stride->batch, (uint32_t)stride->head, (uint32_t)stride->position};
}

/* What only kernels that are not plain read. Without pages, an item is a page as large as any. */
static void extend(struct attention_decode_parameters *parameters, const struct op_call *call,
                   const struct attention_shape *shape) {
  parameters->kv_pages = call->data[ATTENTION_KV_PAGES];
  parameters->pages_stride = (uint32_t)shape->pages_stride;
  parameters->pool_pages = (uint32_t)(shape->paged ? shape->pool_pages : shape->batch);
  parameters->page_shift = shape->paged ? (uint32_t)log2_of(shape->page_rows) : 31;
  parameters->window = shape->window ? (int32_t)shape->window : DECODE_NO_WINDOW;
  parameters->v_scale = shape->v_scale;
  parameters->bf16 = call->task->operands[ATTENTION_O].dtype == RONDO_BF16;
  if (shape->soft_cap != 0.0f) {
    parameters->cap_log2 = shape->soft_cap * 1.44269504f;
    parameters->cap_inverse = fminf(1.0f / parameters->cap_log2, FLT_MAX);
  }
}

static void append(struct attention_decode_parameters *parameters, const struct op_call *call,
                   const struct attention_shape *shape) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  const struct attention_stride new_k = attention_stride_of(call->task, ATTENTION_NEW_K),
                                new_v = attention_stride_of(call->task, ATTENTION_NEW_V);
  parameters->rotates = shape->rotates;
  parameters->by_halves = shape->by_halves;
  parameters->new_k = call->data[ATTENTION_NEW_K];
  parameters->new_v = call->data[ATTENTION_NEW_V];
  parameters->positions = call->data[ATTENTION_POSITION];
  parameters->new_k_stride = stride_of(&new_k);
  parameters->new_v_stride = stride_of(&new_v);
  parameters->position_step = call->task->operands[ATTENTION_POSITION].shape[0] > 1;
  parameters->frequencies = call->data[ATTENTION_ROPE_FREQUENCIES];
  if (attributes->rope_base > 0.0f)
    parameters->frequency_step = -log2((double)attributes->rope_base) * 2.0 / (double)shape->head_dimension;
}

void attention_decode_launch(const struct op_call *call, const struct attention_problem *problem,
                             const struct attention_plan *plan, struct op_launches *launches) {
  const struct attention_shape *shape = &problem->shape;
  const int64_t *lse_stride = call->task->operands[ATTENTION_LSE].stride;
  struct attention_decode_parameters parameters = {
      .q = call->data[ATTENTION_Q],
      .k = call->data[ATTENTION_K],
      .v = call->data[ATTENTION_V],
      .kv_lengths = call->data[ATTENTION_KV_LENGTHS],
      .k_stride = stride_of(&shape->k_stride),
      .v_stride = stride_of(&shape->v_stride),
      .capacity = (uint32_t)shape->capacity,
      .query_length = (uint32_t)shape->query_length,
      .q_stride = stride_of(&shape->q_stride),
      .group = (uint32_t)shape->group,
      .group_reciprocal = (uint32_t)divide_up(1 << 16, shape->group),
      .rows = (uint32_t)shape->rows,
      .causal = shape->causal,
      .most_length = (int32_t)shape->most_length,
      .scale_log2 = shape->scale * 1.44269504f,
      .o = call->data[ATTENTION_O],
      .o_stride = stride_of(&shape->o_stride),
      .lse = call->data[ATTENTION_LSE],
      .lse_batch_stride = (uint32_t)lse_stride[0],
      .lse_head_stride = (uint32_t)lse_stride[1],
      .batch = (uint32_t)shape->batch,
  };
  extend(&parameters, call, shape);
  if (shape->appends) append(&parameters, call, shape);
  if (plan->splits > 1 && call->scratch) {
    parameters.partial_o = call->scratch;
    parameters.partial_lse = (float *)((unsigned char *)call->scratch + attention_partial_o_bytes(shape));
  }
  const struct attention_decode_variant *variant = plan->decode.variant;
  struct op_launch *launch =
      launch_add(launches, &variant->kernel, shape->kv_heads * variant->cluster, variant->kernel.threads,
                 (uint64_t)plan->decode.shared_bytes, &parameters, sizeof parameters);
  launch->grid[1] = (uint32_t)shape->batch;
  launch->grid[2] = (uint32_t)plan->splits;
}
