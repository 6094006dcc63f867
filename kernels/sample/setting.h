/* setting.h - settings of sampling and penalties: operands with one number for all rows, or one for each row. Also the
 * choice of clusters for rows. */
#pragma once

#include "../common/launch.h"

static inline bool setting_is_of_each_row(const struct op_task *task, uint32_t index) {
  return task->operands[index].shape[0] > 1;
}

/* On the host: the row's number, or `absent` if the setting is absent. */
static inline float setting_real(const struct op_call *call, uint32_t index, int64_t row, float absent) {
  if (!call->task->operands[index].present) return absent;
  return ((const float *)call->data[index])[setting_is_of_each_row(call->task, index) ? row : 0];
}

static inline int32_t setting_whole(const struct op_call *call, uint32_t index, int64_t row, int32_t absent) {
  if (!call->task->operands[index].present) return absent;
  return ((const int32_t *)call->data[index])[setting_is_of_each_row(call->task, index) ? row : 0];
}

/* Has each row of x a cluster of `cluster` blocks? Only if all of them run at once and a row has more than 4096
 * columns: half of what one block of argmax loads at once, and four numbers for each thread of sampling. */
static inline bool row_has_cluster(const struct op_operand *x, int64_t cluster, const struct chip *chip) {
  return launch_chip(chip) != CHIP_SM_80 && x->shape[1] > 4096 && x->shape[0] * cluster <= chip->multiprocessors;
}
