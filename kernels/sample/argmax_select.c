/* argmax_select.c - the launch of argmax: a block for each row. */
#include "../common/launch.h"
#include "argmax.h"

ARGMAX_KERNELS(KERNEL_CONSTANT)

rondo_status argmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *x = &call->task->operands[ARGMAX_X];
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  struct argmax_parameters parameters = {
      .x = call->data[ARGMAX_X],
      .out = call->data[ARGMAX_OUT],
      .stride = x->stride[0],
      .n = (uint32_t)x->shape[1],
      .dtype = x->dtype,
      .is_aligned = op_rows_aligned(x, 16),
  };
  launch_add(launches, &rondo_argmax, x->shape[0], ARGMAX_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
