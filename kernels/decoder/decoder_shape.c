/* decoder_shape.c - the sizes of a layer half, and where its operands lie. */
#include <assert.h>

#include "decoder.h"

enum { ALIGNMENT = 16 };

rondo_dtype decoder_dtype_of(const struct op_task *task) {
  const struct op_operand *x = &task->operands[DECODER_X], *norm = &task->operands[DECODER_NORM];
  if (x->dtype != RONDO_F32) return x->dtype;
  return norm->present ? norm->dtype : RONDO_BF16;
}

struct decoder_shape decoder_shape_of(const struct op_task *task) {
  const struct op_operand *operands = task->operands, *x = &operands[DECODER_X], *parts = &operands[DECODER_X_PARTS];
  const struct decoder_attributes *attributes = op_attributes(task);
  struct decoder_shape shape = {
      .rows = x->shape[0],
      .hidden = x->shape[1],
      .x_parts = parts->present ? parts->shape[0] : 0,
      .out_parts = operands[DECODER_OUT_PARTS].shape[0],
      .stream = x->dtype,
      .dtype = decoder_dtype_of(task),
      .weights = operands[DECODER_OPERANDS].dtype, /* of the first matrix */
      .as_tokens = attributes->one_sequence == ROWS_AS_TOKENS,
  };
  if (task->op == &op_feed_forward) {
    shape.columns = operands[FEED_FORWARD_GATE_UP].shape[0] / 2;
    shape.last_part_is_late = attributes->last_part_is_late;
    return shape;
  }
  const int64_t *k = operands[ATTENTION_BLOCK_K].shape;
  const struct op_operand *pages = &operands[ATTENTION_BLOCK_KV_PAGES];
  shape.capacity = pages->present ? k[1] * pages->shape[1] : k[1];
  shape.kv_heads = k[2], shape.head_dimension = k[3];
  shape.query_heads = operands[ATTENTION_BLOCK_OUTPUT].shape[1] / shape.head_dimension;
  shape.group = shape.query_heads / shape.kv_heads;
  shape.has_rope = attributes->rope_base > 0 || operands[ATTENTION_BLOCK_ROPE_FREQUENCIES].present;
  shape.rope_is_halves = attributes->rope_pairing == RONDO_ROPE_HALVES;
  shape.position_of_each_row = operands[ATTENTION_BLOCK_POSITION].shape[0] > 1;
  shape.one_sequence = attributes->one_sequence;
  return shape;
}

static bool rows_are_dense(const struct op_operand *matrix) {
  return !matrix->present || matrix->rank == 1 || matrix->shape[0] == 1 || matrix->stride[0] == matrix->shape[1];
}

bool decoder_weights_are_dense(const struct op_task *task) {
  const struct op_operand *matrix = &task->operands[DECODER_OPERANDS]; /* two, each with its scales after it */
  for (int i = 0; i < 4; i++)
    if (!rows_are_dense(&matrix[i])) return false;
  for (int i = 0; i < 4; i += 2)
    if (!op_rows_aligned(&matrix[i], ALIGNMENT) || matrix[i + 1].offset_bytes % ALIGNMENT) return false;
  return true;
}

static bool is_dense(const struct op_operand *operand) {
  int64_t step = 1;
  for (uint32_t i = operand->rank; i-- > 0; step *= operand->shape[i])
    if (operand->shape[i] != 1 && operand->stride[i] != step) return false;
  return op_rows_aligned(operand, ALIGNMENT);
}

bool decoder_operands_are_dense(const struct op_task *task) {
  for (uint32_t i = DECODER_X; i < DECODER_OPERANDS; i++)
    if (task->operands[i].present && !is_dense(&task->operands[i])) return false;
  return true;
}

bool decoder_are_settled(const struct op_call *call, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last; i++)
    if (call->task->operands[i].present && !op_is_settled(call, i)) return false;
  return true;
}

static_assert((int)ATTENTION_BLOCK_OUTPUT_SCALES == (int)DECODER_OPERANDS + 3 &&
                  (int)FEED_FORWARD_DOWN_SCALES == (int)DECODER_OPERANDS + 3,
              "both halves have two matrices, each with its scales, after the common operands");
bool decoder_weights_are_settled(const struct op_call *call) {
  return decoder_are_settled(call, DECODER_NORM, DECODER_NORM + 1) &&
         decoder_are_settled(call, DECODER_OPERANDS, DECODER_OPERANDS + 4);
}
