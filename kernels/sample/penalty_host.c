/* penalty_host.c - penalties on recently drawn columns, on the host. An item is a row. */
#include "../common/rows.h"
#include "penalty.h"
#include "setting.h"

int64_t penalty_host_items(const struct op_task *task) { return task->operands[PENALTY_X].shape[0]; }

static void penalize_row(const struct op_call *call, int64_t row) {
  const struct op_operand *x = &call->task->operands[PENALTY_X], *list = &call->task->operands[PENALTY_IDS];
  const int32_t *ids = (const int32_t *)call->data[PENALTY_IDS] + row * list->stride[0];
  float repetition = setting_real(call, PENALTY_REPETITION, row, 1),
        frequency = setting_real(call, PENALTY_FREQUENCY, row, 0);
  float presence = setting_real(call, PENALTY_PRESENCE, row, 0);
  for (int64_t i = 0; i < list->shape[1]; i++) {
    int64_t earlier = 0, times = 0;
    if (ids[i] < 0 || ids[i] >= x->shape[1]) continue;
    while (ids[earlier] != ids[i]) earlier++;
    if (earlier < i) continue; /* the id's first occurrence has changed the column */
    for (int64_t j = i; j < list->shape[1]; j++) times += ids[j] == ids[i];
    float value;
    rows_load(x->dtype, call->data[PENALTY_X], row * x->stride[0] + ids[i], 1, &value);
    value = value > 0 ? value / repetition : value * repetition;
    value = value - (float)times * frequency - presence;
    rows_store(x->dtype, call->data[PENALTY_X], row * x->stride[0] + ids[i], 1, &value);
  }
}

void penalty_host_run(const struct op_call *call, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; row++) penalize_row(call, row);
}
