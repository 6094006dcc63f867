/* rope.c - rondo_add_rope: the check of its arguments, the frequencies of a base, and the launch. */
#include "rope.h"

#include <inttypes.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"

rondo_status rondo_add_rope(rondo_graph *graph, const rondo_rope_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_rope: the description is NULL");
  struct op_argument arguments[] = {
      [ROPE_X] = {"x", desc->x, RONDO_READ, 0},
      [ROPE_POSITION] = {"position", desc->position, RONDO_READ, 0},
      [ROPE_FREQUENCIES] = {"frequencies", desc->frequencies, RONDO_READ, 0},
      [ROPE_OUT] = {"out", desc->out, RONDO_WRITE, ROPE_X + 1},
  };
  struct rope_attributes attributes = {
      .layout = (int32_t)desc->layout, .pairing = (int32_t)desc->pairing, .base = f32_or(desc->base, 10000.0f)};
  return graph_add(graph, &op_rope, desc->name, arguments, ROPE_OPERANDS, &attributes, sizeof attributes);
}

void rope_frequencies(float base, int64_t pairs, float *frequencies) {
  for (int64_t i = 0; i < pairs; i++) frequencies[i] = (float)pow((double)base, -(double)i / (double)pairs);
}

static rondo_status check_fields(float base, int32_t pairing) {
  OP_TRY(op_expect_not_negative("base", base));
  if (pairing == RONDO_ROPE_INTERLEAVED || pairing == RONDO_ROPE_HALVES) return RONDO_OK;
  return op_refuse("pairing is %" PRId32 ", expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES", pairing);
}

rondo_status rope_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[ROPE_X], *position = &task->operands[ROPE_POSITION];
  const struct op_operand *frequencies = &task->operands[ROPE_FREQUENCIES];
  const struct rope_attributes *attributes = op_attributes(task);
  if (attributes->layout != RONDO_BHSD && attributes->layout != RONDO_BSHD)
    return op_refuse("layout is %" PRId32 ", expected RONDO_BHSD or RONDO_BSHD", attributes->layout);
  OP_TRY(check_fields(attributes->base, attributes->pairing));
  if (!x->present || x->rank != 4 || !rows_are_numbers(x->dtype))
    return op_unexpected(
        "x", x, "[batch, heads, sequence, d] f32, f16 or bf16 (layout RONDO_BSHD: [batch, sequence, heads, d])");
  int64_t d = x->shape[3], pairs = d / 2;
  if (d % 2 || pairs > ROPE_MOST_PAIRS)
    return op_refuse("x has rows of %" PRId64 ", expected an even number up to %d", d, 2 * ROPE_MOST_PAIRS);
  if (frequencies->present) OP_TRY(op_expect("frequencies", frequencies, RONDO_F32, 1, &pairs));
  OP_TRY(op_expect("out", &task->operands[ROPE_OUT], x->dtype, 4, x->shape));
  return op_expect_list("position", position, RONDO_I32, x->shape[0]);
}

ROPE_KERNELS(KERNEL_CONSTANT)

enum { THREADS_AT_ONCE = 2048 }; /* of a multiprocessor */

/* One thread for every four pairs of a head. If these are more threads than run at once, a thread takes the pairs of
 * four heads, which share the sines and cosines. */
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
