/* rope_select.c - the launch of a rotary embedding: one thread for every four pairs of a head. If these are more
 * threads than run at once, a thread takes the pairs of four heads, which share the sines and cosines. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "rope.h"

ROPE_KERNELS(KERNEL_CONSTANT)

enum { THREADS_AT_ONCE = 2048 }; /* of a multiprocessor */

rondo_status rope_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *x = &call->task->operands[ROPE_X], *out = &call->task->operands[ROPE_OUT];
  const struct rope_attributes *attributes = op_attributes(call->task);
  uint32_t head = attributes->layout == RONDO_BSHD ? 2 : 1, row = 3 - head;
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  int64_t pairs = x->shape[3] / 2, row_parts = divide_up(pairs, ROPE_PAIRS);
  int64_t heads = x->shape[head], parts = x->shape[0] * x->shape[row] * heads * row_parts;
  bool many = parts > THREADS_AT_ONCE * larger(chip->multiprocessors, 1);
  int64_t head_parts = many ? divide_up(heads, ROPE_HEADS) : heads;
  bool by_halves = attributes->pairing == RONDO_ROPE_HALVES;
  uint64_t vector = by_halves && x->dtype != RONDO_F32 ? 8 : 16; /* bytes */
  struct rope_parameters parameters = {
      .x = call->data[ROPE_X],
      .out = call->data[ROPE_OUT],
      .positions = call->data[ROPE_POSITION],
      .frequencies = call->data[ROPE_FREQUENCIES],
      .x_batch = x->stride[0],
      .x_head = x->stride[head],
      .x_row = x->stride[row],
      .out_batch = out->stride[0],
      .out_head = out->stride[head],
      .out_row = out->stride[row],
      .batch = (uint32_t)x->shape[0],
      .heads = (uint32_t)heads,
      .sequence = (uint32_t)x->shape[row],
      .pairs = (uint32_t)pairs,
      .row_parts = (uint32_t)row_parts,
      .head_parts = (uint32_t)head_parts,
      .parts = (uint32_t)(parts / heads * head_parts),
      .dtype = x->dtype,
      .by_halves = by_halves,
      .is_aligned = pairs % ROPE_PAIRS == 0 && op_rows_aligned(x, vector) && op_rows_aligned(out, vector),
      .per_item = call->task->operands[ROPE_POSITION].shape[0] > 1,
  };
  if (!call->task->operands[ROPE_FREQUENCIES].present)
    rope_frequencies(attributes->base, pairs, parameters.base_frequencies);
  launch_add(launches, many ? &rondo_rope_heads : &rondo_rope, divide_up(parameters.parts, ROPE_THREADS), ROPE_THREADS,
             0, &parameters, sizeof parameters);
  return RONDO_OK;
}
