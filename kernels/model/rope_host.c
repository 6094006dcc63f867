/* rope_host.c - rotary embedding on the host. An item is a row of one head. */
#include "../common/rows.h"
#include "rope.h"

int64_t rope_host_items(const struct op_task *task) {
  const struct op_operand *x = &task->operands[ROPE_X];
  return op_elements(x) ? rows_count(x) : 0;
}

/* The dimension of x that counts the rows of a sequence. */
static uint32_t sequence_dimension(const struct op_task *task) {
  const struct rope_attributes *attributes = op_attributes(task);
  return attributes->layout == RONDO_BSHD ? 1 : 2;
}

static int64_t position_of(const struct op_call *call, int64_t row) {
  const struct op_operand *x = &call->task->operands[ROPE_X];
  const int32_t *positions = call->data[ROPE_POSITION];
  int64_t inner = row / x->shape[2], item = inner / x->shape[1];
  int64_t at = sequence_dimension(call->task) == 1 ? inner % x->shape[1] : row % x->shape[2];
  return at + positions[call->task->operands[ROPE_POSITION].shape[0] > 1 ? item : 0];
}

void rope_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *x = &call->task->operands[ROPE_X], *out = &call->task->operands[ROPE_OUT];
  const struct rope_attributes *attributes = op_attributes(call->task);
  int64_t pairs = x->shape[3] / 2;
  bool by_halves = attributes->pairing == RONDO_ROPE_HALVES;
  float of_base[ROPE_MOST_PAIRS], values[2 * ROPE_MOST_PAIRS] = {0};
  const float *frequencies = call->data[ROPE_FREQUENCIES];
  if (!frequencies) rope_frequencies(attributes->base, pairs, of_base), frequencies = of_base;
  for (int64_t row = first; row < last; row++) {
    float position = (float)position_of(call, row);
    rows_load(x->dtype, call->data[ROPE_X], rows_begin(x, row), 2 * pairs, values);
    for (int64_t i = 0; i < pairs; i++) {
      float angle = position * frequencies[i];
      float cosine = (float)cos((double)angle), sine = (float)sin((double)angle);
      float *low = &values[by_halves ? i : 2 * i], *high = &values[by_halves ? i + pairs : 2 * i + 1];
      float turned = *low * cosine - *high * sine;
      *high = *high * cosine + *low * sine;
      *low = turned;
    }
    rows_store(out->dtype, call->data[ROPE_OUT], rows_begin(out, row), 2 * pairs, values);
  }
}
