/* attention_append.c - new rows of K and V, and the rotary embedding of an attention: their check, and the frequencies.
 */
#include "attention_append.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static rondo_status rope_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const struct op_operand *frequencies = &task->operands[ATTENTION_ROPE_FREQUENCIES];
  const int64_t pairs = task->operands[ATTENTION_Q].shape[3] / 2;
  if (!(attributes->rope_base >= 0.0f) || isinf(attributes->rope_base))
    return status_set(RONDO_INVALID_ARGUMENT, "rope_base is %g, expected a finite number that is not negative",
                      (double)attributes->rope_base);
  if (attributes->rope_pairing != RONDO_ROPE_INTERLEAVED && attributes->rope_pairing != RONDO_ROPE_HALVES)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "rope_pairing is %" PRId32 ", expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES",
                      attributes->rope_pairing);
  if (frequencies->present) {
    rondo_status status = op_expect("rope_frequencies", frequencies, RONDO_F32, 1, &pairs);
    if (status != RONDO_OK) return status;
  }
  if ((attributes->rope_base > 0.0f || frequencies->present) && task->operands[ATTENTION_Q].dtype == RONDO_E4M3)
    return status_set(RONDO_INVALID_ARGUMENT, "q is e4m3, expected f16 or bf16 beside a rotary embedding");
  return RONDO_OK;
}

static rondo_status new_rows_check(const struct op_task *task) {
  const struct op_operand *q = &task->operands[ATTENTION_Q], *k = &task->operands[ATTENTION_K];
  const struct attention_attributes *attributes = op_attributes(task);
  if (k->dtype == RONDO_E4M3) return status_set(RONDO_INVALID_ARGUMENT, "k is e4m3, expected f16 or bf16 beside new_k");
  if (task->operands[ATTENTION_KV_LENGTHS].present)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "kv_lengths is there beside new_k, expected none: position and query length give them");
  const int head = attributes->layout == RONDO_BHSD ? 1 : 2;
  int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], q->shape[3]};
  shape[head] = k->shape[head];
  rondo_status status = op_expect("new_k", &task->operands[ATTENTION_NEW_K], k->dtype, 4, shape);
  return status == RONDO_OK ? op_expect("new_v", &task->operands[ATTENTION_NEW_V], k->dtype, 4, shape) : status;
}

static rondo_status position_check(const struct op_task *task) {
  const struct op_operand *position = &task->operands[ATTENTION_POSITION];
  const int64_t batch = task->operands[ATTENTION_Q].shape[0];
  const bool is_list = position->present && position->dtype == RONDO_I32 && position->rank == 1;
  if (is_list && (position->shape[0] == 1 || position->shape[0] == batch)) return RONDO_OK;
  char expected[64] = "[1] i32";
  if (batch != 1) snprintf(expected, sizeof expected, "[1] or [%" PRId64 "] i32", batch);
  return op_unexpected("position", position, expected);
}

rondo_status attention_append_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const bool appends = task->operands[ATTENTION_NEW_K].present || task->operands[ATTENTION_NEW_V].present;
  rondo_status status = rope_check(task);
  if (status == RONDO_OK && appends) status = new_rows_check(task);
  if (status != RONDO_OK) return status;
  if (appends || attributes->rope_base > 0.0f || task->operands[ATTENTION_ROPE_FREQUENCIES].present)
    return position_check(task);
  if (!task->operands[ATTENTION_POSITION].present) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT,
                    "position is there without new_k, rope_base and rope_frequencies, which alone use it");
}

const float *attention_frequencies(const struct op_call *call, float room[ATTENTION_MOST_PAIRS]) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  const int64_t pairs = call->task->operands[ATTENTION_Q].shape[3] / 2;
  if (call->task->operands[ATTENTION_ROPE_FREQUENCIES].present) return call->data[ATTENTION_ROPE_FREQUENCIES];
  for (int64_t i = 0; i < pairs; i++) room[i] = (float)pow((double)attributes->rope_base, -(double)i / (double)pairs);
  return room;
}
