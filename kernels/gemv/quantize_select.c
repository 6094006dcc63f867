/* quantize_select.c - the launch of the NVFP4 quantiser: a thread for every eight elements. */
#include <string.h>

#include "gemv.h"

static struct quantize_parameters parameters_of(const struct op_call *call) {
  const struct op_operand *x = &call->task->operands[QUANTIZE_X], *codes = &call->task->operands[QUANTIZE_CODES];
  const struct op_operand *scales = &call->task->operands[QUANTIZE_SCALES];
  float global_scale = ((const struct quantize_attributes *)(const void *)call->task->attributes)->global_scale;
  struct quantize_parameters parameters = {
      .x = call->data[QUANTIZE_X],
      .codes = call->data[QUANTIZE_CODES],
      .scales = call->data[QUANTIZE_SCALES],
      .extent = {1, 1, 1},
      .row_parts = (uint32_t)(x->shape[x->rank - 1] / QUANTIZE_ELEMENTS),
      .parts = (uint32_t)(op_elements(x) / QUANTIZE_ELEMENTS),
      .dtype = x->dtype,
      .global_scale = global_scale,
      .six_global_scale = 6.0f * global_scale,
  };
  /* Where every row of x and of codes begins; a thread takes at least 16 bytes of x and 4 of codes. */
  int64_t element_bytes = rondo_dtype_bits(x->dtype) / 8;
  int64_t x_all = (int64_t)x->offset_bytes, codes_all = (int64_t)codes->offset_bytes;
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    uint32_t outer = QUANTIZE_OUTER - (x->rank - 1) + i;
    parameters.extent[outer] = (uint32_t)x->shape[i];
    parameters.x_stride[outer] = x->stride[i];
    parameters.code_stride[outer] = codes->stride[i] / 2;
    parameters.scale_stride[outer] = scales->stride[i];
    x_all |= x->stride[i] * element_bytes;
    codes_all |= codes->stride[i] / 2;
  }
  parameters.aligned = x_all % 16 == 0 && codes_all % 4 == 0;
  return parameters;
}

rondo_status quantize_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  launches->count = 0;
  if (op_elements(&call->task->operands[QUANTIZE_X]) == 0) return RONDO_OK;
  struct quantize_parameters parameters = parameters_of(call);
  struct op_launch *launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = "rondo_quantize_nvfp4",
                               .grid = {(parameters.parts + QUANTIZE_THREADS - 1) / QUANTIZE_THREADS, 1, 1},
                               .block = {QUANTIZE_THREADS, 1, 1},
                               .parameter_bytes = sizeof parameters,
                               .completion_offset = offsetof(struct quantize_parameters, done)};
  memcpy(launch->parameters, &parameters, sizeof parameters);
  return RONDO_OK;
}
