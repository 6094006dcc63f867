/* decoder_ranks.h - a layer half whose x_parts are one rank's terms of a sum over all ranks (struct layer_exchange in
 * runtime/layer_form.h).
 *
 * Where each rank has a device of its own, kernels of halves that follow each other give and take the parts themselves
 * (kernels/exchange/exchange_gather.h). Elsewhere, and on the host, the sum is a step before the half, to scratch,
 * since kernels that wait would take the room of another rank's. */
#pragma once

#include "../exchange/exchanges.h"
#include "decoder.h"

/* The first operand that is a rank's state. */
static inline uint32_t decoder_states(const struct op_task *task) {
  return task->op == &op_feed_forward ? (uint32_t)FEED_FORWARD_STATES : (uint32_t)ATTENTION_BLOCK_STATES;
}

static inline uint32_t decoder_rank_count(const struct op_task *task) {
  const struct decoder_attributes *attributes = op_attributes(task);
  return attributes->ranks;
}

/* Does it begin with a sum over ranks? The first half of a graph only gives. */
static inline bool decoder_has_sum(const struct op_task *task) {
  return decoder_rank_count(task) && task->operands[DECODER_X_PARTS].present;
}

rondo_status decoder_ranks_check(const struct op_task *task);
/* Scratch that the sum takes, after `bytes` of the half. */
uint64_t decoder_scratch_with_sum(const struct op_task *task, uint64_t bytes);
/* The sum over all ranks, to scratch. */
void decoder_sum_over_ranks(const struct op_call *call, struct op_step *sum);
/* The half as one rank has it, with the sum in scratch as its one part. */
void decoder_half_after_sum(const struct op_call *call, struct op_step *half);
/* What a kernel is told that takes or gives parts. */
struct exchange_gather decoder_gather_of(const struct op_call *call);
