/* setting.h - settings of sampling and penalties: operands with one number for all rows, or one for each row. */
#pragma once

#include <inttypes.h>
#include <stdio.h>

#include "../../runtime/op.h"

/* Checks that the setting is present with this type and the shape [1] or [count]. */
static inline rondo_status setting_check(const struct op_task *task, uint32_t index, const char *name,
                                         rondo_dtype dtype, int64_t count) {
  const struct op_operand *setting = &task->operands[index];
  if (setting->present && setting->dtype == dtype && setting->rank == 1 &&
      (setting->shape[0] == 1 || setting->shape[0] == count))
    return RONDO_OK;
  char expected[64];
  snprintf(expected, sizeof expected, "[1] or [%" PRId64 "] %s", count, rondo_dtype_name(dtype));
  return op_unexpected(name, setting, expected);
}

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
