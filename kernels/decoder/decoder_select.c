/* decoder_select.c - the launches of a decoder's halves: one kernel where it suits, else those of their steps, one
 * after the other. */
#include "decoder.h"

#include <assert.h>

enum { ALIGNMENT = 16 };

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

static rondo_status steps_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct op_step step;
  struct op_launches of_step;
  launches->count = 0;
  for (uint32_t i = 0; call->task->op->step(call, i, &step); i++) {
    rondo_status status = step.task.op->select(&step.call, chip, &of_step);
    if (status != RONDO_OK) return status;
    assert(launches->count + of_step.count <= call->task->op->launches_most);
    for (uint32_t k = 0; k < of_step.count; k++) launches->items[launches->count++] = of_step.items[k];
  }
  return RONDO_OK;
}

rondo_status attention_block_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  launches->count = 0;
  return attention_block_launch(call, chip, launches) ? RONDO_OK : steps_select(call, chip, launches);
}

rondo_status feed_forward_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  if (feed_forward_stream_launch(call, chip, launches) || feed_forward_launch(call, chip, launches)) return RONDO_OK;
  return steps_select(call, chip, launches);
}
