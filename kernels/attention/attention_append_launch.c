/* attention_append_launch.c - the launch before an attention that writes new rows or rotates its queries, and the
 * attention that is left: its queries are rotated and lie in scratch, and so do its lengths. */
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_append.h"

ATTENTION_APPEND_KERNELS(KERNEL_CONSTANT)

static void *after(void *scratch, uint64_t bytes) { return scratch ? (unsigned char *)scratch + bytes : NULL; }

static void rest_make(const struct op_call *call, const struct attention_shape *shape, struct attention_rest *rest) {
  struct attention_attributes attributes;
  memcpy(&attributes, call->task->attributes, sizeof attributes);
  memcpy(rest->operands, call->task->operands, sizeof rest->operands);
  memcpy(rest->data, call->data, sizeof rest->data);
  struct op_operand *q = &rest->operands[ATTENTION_Q];
  const struct attention_scratch scratch = attention_scratch_of(call->task);
  if (shape->rotates) {
    rest->data[ATTENTION_Q] = after(call->scratch, scratch.rotated);
    q->offset_bytes = 0;
    const int head = attributes.layout == RONDO_BHSD ? 1 : 2;
    q->stride[3] = 1;
    q->stride[head] = shape->head_dimension;
    q->stride[3 - head] = shape->query_heads * shape->head_dimension;
    q->stride[0] = shape->query_length * q->stride[3 - head];
  }
  if (shape->appends) {
    rest->data[ATTENTION_KV_LENGTHS] = after(call->scratch, scratch.lengths);
    rest->operands[ATTENTION_KV_LENGTHS] =
        (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 1, .shape = {shape->batch}, .stride = {1}};
  }
  for (uint32_t i = ATTENTION_NEW_K; i < ATTENTION_OPERANDS; i++) {
    rest->operands[i] = (struct op_operand){0};
    rest->data[i] = NULL;
  }
  rest->task = *call->task;
  rest->task.operands = rest->operands;
  attributes.rope_base = 0.0f;
  attributes.has_ends = shape->appends;
  memcpy(rest->task.attributes, &attributes, sizeof attributes);
  rest->call = *call;
  rest->call.task = &rest->task;
  rest->call.data = rest->data;
}

void attention_append_launch(const struct op_call *call, struct attention_rest *rest, struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands;
  const struct attention_shape shape = attention_shape_of(call->task);
  rest_make(call, &shape, rest);
  struct attention_append_parameters parameters = {
      .q = call->data[ATTENTION_Q],
      .new_k = call->data[ATTENTION_NEW_K],
      .new_v = call->data[ATTENTION_NEW_V],
      .rotated = rest->data[ATTENTION_Q],
      .k = call->data[ATTENTION_K],
      .v = call->data[ATTENTION_V],
      .lengths = shape.appends ? rest->data[ATTENTION_KV_LENGTHS] : NULL,
      .positions = call->data[ATTENTION_POSITION],
      .frequencies = call->data[ATTENTION_ROPE_FREQUENCIES],
      .kv_pages = call->data[ATTENTION_KV_PAGES],
      .q_stride = shape.q_stride,
      .new_k_stride = attention_stride_of(call->task, ATTENTION_NEW_K),
      .new_v_stride = attention_stride_of(call->task, ATTENTION_NEW_V),
      .k_stride = shape.k_stride,
      .v_stride = shape.v_stride,
      .pages_stride = shape.pages_stride,
      .batch = (uint32_t)shape.batch,
      .query_length = (uint32_t)shape.query_length,
      .rotated_heads = shape.rotates ? (uint32_t)shape.query_heads : 0,
      .new_heads = shape.appends ? (uint32_t)shape.kv_heads : 0,
      .row_pairs = (uint32_t)shape.head_dimension / 2,
      .pool_pages = (uint32_t)(shape.paged ? shape.pool_pages : shape.batch),
      .page_shift = shape.paged ? (uint32_t)log2_of(shape.page_rows) : 31,
      .capacity = (int32_t)shape.capacity,
      .most_length = (int32_t)shape.most_length,
      .rotates = shape.rotates,
      .by_halves = shape.by_halves,
      .bf16 = operands[ATTENTION_Q].dtype == RONDO_BF16,
      .per_item = operands[ATTENTION_POSITION].shape[0] > 1,
  };
  const int64_t heads = (int64_t)parameters.rotated_heads + 2 * (int64_t)parameters.new_heads;
  parameters.pairs = shape.batch * shape.query_length * heads * (shape.head_dimension / 2);
  if (shape.rotates && !operands[ATTENTION_ROPE_FREQUENCIES].present)
    attention_frequencies(call, parameters.base_frequencies);
  /* At least a thread for each item's length. */
  const int64_t threads = larger(parameters.pairs, shape.appends ? shape.batch : 0);
  if (!threads) return;
  launch_add(launches, &rondo_attention_append, divide_up(threads, ATTENTION_APPEND_THREADS), ATTENTION_APPEND_THREADS,
             0, &parameters, sizeof parameters);
}
