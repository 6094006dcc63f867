/* rope.c - rondo_add_rope, the check of its arguments, and the frequencies of a base. */
#include "rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "../common/rows.h"

rondo_status rondo_add_rope(rondo_graph *graph, const rondo_rope_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_rope: the description is NULL");
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

rondo_status rope_check_fields(const char *prefix, float base, int32_t pairing) {
  if (!(base >= 0) || isinf(base))
    return status_set(RONDO_INVALID_ARGUMENT, "%sbase is %g, expected a finite number that is not negative", prefix,
                      (double)base);
  if (pairing == RONDO_ROPE_INTERLEAVED || pairing == RONDO_ROPE_HALVES) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT,
                    "%spairing is %" PRId32 ", expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES", prefix, pairing);
}

rondo_status rope_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[ROPE_X], *position = &task->operands[ROPE_POSITION];
  const struct op_operand *frequencies = &task->operands[ROPE_FREQUENCIES];
  const struct rope_attributes *attributes = op_attributes(task);
  if (attributes->layout != RONDO_BHSD && attributes->layout != RONDO_BSHD)
    return status_set(RONDO_INVALID_ARGUMENT, "layout is %" PRId32 ", expected RONDO_BHSD or RONDO_BSHD",
                      attributes->layout);
  rondo_status status = rope_check_fields("", attributes->base, attributes->pairing);
  if (status != RONDO_OK) return status;
  if (!x->present || x->rank != 4 || !rows_are_numbers(x->dtype))
    return op_unexpected(
        "x", x, "[batch, heads, sequence, d] f32, f16 or bf16 (layout RONDO_BSHD: [batch, sequence, heads, d])");
  int64_t d = x->shape[3], pairs = d / 2;
  if (d % 2 || pairs > ROPE_MOST_PAIRS)
    return status_set(RONDO_INVALID_ARGUMENT, "x has rows of %" PRId64 ", expected an even number up to %d", d,
                      2 * ROPE_MOST_PAIRS);
  if (frequencies->present) status = op_expect("frequencies", frequencies, RONDO_F32, 1, &pairs);
  if (status == RONDO_OK) status = op_expect("out", &task->operands[ROPE_OUT], x->dtype, 4, x->shape);
  if (status != RONDO_OK) return status;
  bool is_list = position->present && position->dtype == RONDO_I32 && position->rank == 1;
  if (is_list && (position->shape[0] == 1 || position->shape[0] == x->shape[0])) return RONDO_OK;
  char expected[64] = "[1] i32";
  if (x->shape[0] != 1) snprintf(expected, sizeof expected, "[1] or [%" PRId64 "] i32", x->shape[0]);
  return op_unexpected("position", position, expected);
}
