/* sum_parts.c - the launch of x + a sum of parts. */
#include "sum_parts.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

SUM_PARTS_KERNELS(KERNEL_CONSTANT)

rondo_status sum_parts_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *operands = call->task->operands, *x = &operands[SUM_PARTS_X];
  const struct op_operand *parts = &operands[SUM_PARTS_PARTS], *zeros = &operands[SUM_PARTS_ZEROS];
  const struct sum_parts_parameters parameters = {
      .x = call->data[SUM_PARTS_X],
      .parts = call->data[SUM_PARTS_PARTS],
      .out = call->data[SUM_PARTS_OUT],
      .zeros = call->data[SUM_PARTS_ZEROS],
      .x_row = x->stride[0],
      .out_row = operands[SUM_PARTS_OUT].stride[0],
      .part = parts->stride[0],
      .part_row = parts->stride[1],
      .zero = zeros->stride[0],
      .zero_row = zeros->stride[1],
      .elements = (uint32_t)op_elements(x),
      .columns = (uint32_t)x->shape[1],
      .part_count = parts->present ? (uint32_t)parts->shape[0] : 0,
      .zero_count = zeros->present ? (uint32_t)zeros->shape[0] : 0,
      .dtype = x->dtype,
  };
  launches->count = 0;
  launch_add(launches, &rondo_sum_parts, divide_up(parameters.elements, SUM_PARTS_THREADS), SUM_PARTS_THREADS, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
