/* quantize_select.c - the launch of the NVFP4 quantiser: a thread for every eight elements. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv.h"

QUANTIZE_KERNELS(KERNEL_CONSTANT)

static struct quantize_parameters parameters_of(const struct op_call *call) {
  const struct op_operand *x = &call->task->operands[QUANTIZE_X], *codes = &call->task->operands[QUANTIZE_CODES];
  const struct op_operand *scales = &call->task->operands[QUANTIZE_SCALES];
  const struct quantize_attributes *attributes = op_attributes(call->task);
  struct quantize_parameters parameters = {
      .x = call->data[QUANTIZE_X],
      .codes = call->data[QUANTIZE_CODES],
      .scales = call->data[QUANTIZE_SCALES],
      .extent = {1, 1, 1},
      .row_parts = (uint32_t)(x->shape[x->rank - 1] / QUANTIZE_ELEMENTS),
      .parts = (uint32_t)(op_elements(x) / QUANTIZE_ELEMENTS),
      .dtype = x->dtype,
      /* A thread takes at least 16 bytes of x and 4 of codes. */
      .aligned = op_rows_aligned(x, 16) && op_rows_aligned(codes, 4),
      .global_scale = attributes->global_scale,
      .six_global_scale = 6.0f * attributes->global_scale,
  };
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    uint32_t outer = QUANTIZE_OUTER - (x->rank - 1) + i;
    parameters.extent[outer] = (uint32_t)x->shape[i];
    parameters.x_stride[outer] = x->stride[i];
    parameters.code_stride[outer] = codes->stride[i] / 2;
    parameters.scale_stride[outer] = scales->stride[i];
  }
  return parameters;
}

rondo_status quantize_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  launches->count = 0;
  if (op_elements(&call->task->operands[QUANTIZE_X]) == 0) return RONDO_OK;
  struct quantize_parameters parameters = parameters_of(call);
  launch_add(launches, &rondo_quantize_nvfp4, divide_up(parameters.parts, QUANTIZE_THREADS), QUANTIZE_THREADS, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
