/* penalty_select.c - the launch of penalties: one block for each row. */
#include "../common/launch.h"
#include "penalty.h"
#include "setting.h"

PENALTY_KERNELS(KERNEL_CONSTANT)

rondo_status penalty_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *x = &task->operands[PENALTY_X], *ids = &task->operands[PENALTY_IDS];
  (void)chip;
  launches->count = 0;
  if (op_elements(x) == 0 || op_elements(ids) == 0) return RONDO_OK;
  struct penalty_parameters parameters = {
      .x = call->data[PENALTY_X],
      .ids = call->data[PENALTY_IDS],
      .repetition = call->data[PENALTY_REPETITION],
      .frequency = call->data[PENALTY_FREQUENCY],
      .presence = call->data[PENALTY_PRESENCE],
      .stride = x->stride[0],
      .ids_stride = ids->stride[0],
      .n = (uint32_t)x->shape[1],
      .length = (uint32_t)ids->shape[1],
      .dtype = x->dtype,
      .many_repetitions = setting_is_of_each_row(task, PENALTY_REPETITION),
      .many_frequencies = setting_is_of_each_row(task, PENALTY_FREQUENCY),
      .many_presences = setting_is_of_each_row(task, PENALTY_PRESENCE),
  };
  launch_add(launches, &rondo_penalty, x->shape[0], PENALTY_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
