/* decoder_ranks.c - see decoder_ranks.h. */
#include "decoder_ranks.h"

#include <string.h>

#include "../../runtime/integer.h"

enum { ALIGNMENT = 256 };

static int64_t sum_bytes(const struct op_task *task) {
  const struct op_operand *x = &task->operands[DECODER_X];
  return x->shape[0] * x->shape[1] * (int64_t)sizeof(float);
}

uint64_t decoder_scratch_with_sum(const struct op_task *task, uint64_t bytes) {
  if (!decoder_has_sum(task)) return bytes;
  return (uint64_t)round_up((int64_t)bytes, ALIGNMENT) + (uint64_t)sum_bytes(task);
}

/* The sum's place, in the end of scratch. */
static void *sum_place(const struct op_call *call) {
  return op_after(call->scratch, call->task->op->scratch_bytes(call->task) - (uint64_t)sum_bytes(call->task));
}

static struct op_operand sum_operand(const struct op_task *task, rondo_access access) {
  const int64_t rows = task->operands[DECODER_X].shape[0], hidden = task->operands[DECODER_X].shape[1];
  return (struct op_operand){
      .present = true, .access = access, .dtype = RONDO_F32, .rank = 2, .shape = {rows, hidden}, .stride = {hidden, 1}};
}

void decoder_sum_over_ranks(const struct op_call *call, struct op_step *sum) {
  const struct op_task *task = call->task;
  const struct decoder_attributes *attributes = op_attributes(task);
  exchange_sum_step(call, decoder_states(task), attributes->rank, attributes->ranks, sum);
  sum->operands[EXCHANGE_IN] = task->operands[DECODER_X_PARTS], sum->data[EXCHANGE_IN] = call->data[DECODER_X_PARTS];
  sum->operands[EXCHANGE_OUT] = sum_operand(task, RONDO_WRITE), sum->data[EXCHANGE_OUT] = sum_place(call);
}

void decoder_half_after_sum(const struct op_call *call, struct op_step *half) {
  const struct op_task *task = call->task;
  const uint32_t states = decoder_states(task);
  struct decoder_attributes attributes;
  memcpy(&attributes, task->attributes, sizeof attributes);
  attributes.rank = attributes.ranks = attributes.gives = attributes.takes = 0;
  op_step_begin(call, task->op, states, half);
  memcpy(half->task.attributes, &attributes, sizeof attributes);
  half->call.settled_operands = call->settled_operands & ~(1u << DECODER_X_PARTS);
  memcpy(half->operands, task->operands, states * sizeof *half->operands);
  memcpy(half->data, call->data, states * sizeof *half->data);
  struct op_operand *part = &half->operands[DECODER_X_PARTS];
  *part = sum_operand(task, RONDO_READ);
  part->rank = 3;
  for (int i = 2; i > 0; i--) part->shape[i] = part->shape[i - 1], part->stride[i] = part->stride[i - 1];
  part->shape[0] = 1, part->stride[0] = part->shape[1] * part->shape[2];
  half->data[DECODER_X_PARTS] = sum_place(call);
}

struct exchange_gather decoder_gather_of(const struct op_call *call) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct op_operand *parts = &call->task->operands[DECODER_X_PARTS];
  struct exchange_gather gather =
      exchange_gather_of(call, decoder_states(call->task), attributes->rank, attributes->ranks);
  gather.parts = attributes->takes && parts->present ? (uint32_t)parts->shape[0] : 0;
  gather.before = attributes->before;
  gather.gives = attributes->gives;
  return gather;
}

rondo_status decoder_ranks_check(const struct op_task *task) {
  struct op_step sum;
  const struct decoder_attributes *attributes = op_attributes(task);
  const struct op_operand *parts = &task->operands[DECODER_X_PARTS];
  if (!decoder_rank_count(task) || (!parts->present && attributes->gives && !attributes->takes)) return RONDO_OK;
  if (!parts->present) return op_unexpected("x_parts", parts, "a rank's terms of a sum over ranks");
  decoder_sum_over_ranks(&(struct op_call){.task = task, .data = op_nowhere}, &sum);
  return op_all_reduce.check(&sum.task);
}
