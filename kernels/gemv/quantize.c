/* quantize.c - rondo_add_quantize_nvfp4: the check of its arguments, and its launch with a thread for each block. */
#include <inttypes.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"
#include "gemv.h"

rondo_status rondo_add_quantize_nvfp4(rondo_graph *graph, const rondo_quantize_nvfp4_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_quantize_nvfp4: the description is NULL");
  struct op_argument arguments[] = {
      [QUANTIZE_X] = {"x", desc->x, RONDO_READ, 0},
      [QUANTIZE_CODES] = {"codes", desc->codes, RONDO_WRITE, 0},
      [QUANTIZE_SCALES] = {"scales", desc->scales, RONDO_WRITE, 0},
  };
  struct quantize_attributes attributes = {.global_scale = f32_or(desc->global_scale, 1.0f)};
  return graph_add(graph, &op_quantize_nvfp4, desc->name, arguments, QUANTIZE_OPERANDS, &attributes, sizeof attributes);
}

rondo_status quantize_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[QUANTIZE_X];
  if (!x->present) return op_refuse("x is absent, expected a tensor");
  if (!rows_are_numbers(x->dtype)) return op_refuse("x is %s, expected f32, f16 or bf16", rondo_dtype_name(x->dtype));
  int64_t k = x->shape[x->rank - 1];
  if (k % GEMV_BLOCK) return op_refuse("x has rows of %" PRId64 ", expected a multiple of %d", k, GEMV_BLOCK);
  const struct quantize_attributes *attributes = op_attributes(task);
  float global_scale = attributes->global_scale;
  /* 448 is the largest scale: no divisor overflows, so no quotient is NaN. */
  if (!(global_scale > 0) || !isfinite(448.0f * global_scale))
    return op_refuse("global_scale is %g, expected a positive number, 448 times which is finite", (double)global_scale);
  OP_TRY(op_expect("codes", &task->operands[QUANTIZE_CODES], RONDO_NVFP4, x->rank, x->shape));
  int64_t scale_shape[RONDO_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) scale_shape[i] = x->shape[i];
  scale_shape[x->rank - 1] = k / GEMV_BLOCK;
  return op_expect("scales", &task->operands[QUANTIZE_SCALES], RONDO_E4M3, x->rank, scale_shape);
}

QUANTIZE_KERNELS(KERNEL_CONSTANT)

/* Is there nothing between its elements? */
static bool is_dense(const struct op_operand *operand) {
  int64_t stride = 1;
  for (uint32_t i = operand->rank; i-- > 0; stride *= operand->shape[i])
    if (operand->shape[i] != 1 && operand->stride[i] != stride) return false;
  return true;
}

static struct quantize_parameters parameters_of(const struct op_call *call) {
  const struct op_operand *x = &call->task->operands[QUANTIZE_X], *codes = &call->task->operands[QUANTIZE_CODES];
  const struct op_operand *scales = &call->task->operands[QUANTIZE_SCALES];
  const struct quantize_attributes *attributes = op_attributes(call->task);
  struct quantize_parameters parameters = {
      .x = call->data[QUANTIZE_X],
      .codes = call->data[QUANTIZE_CODES],
      .scales = call->data[QUANTIZE_SCALES],
      .extent = {1, 1, 1},
      .row_blocks = (uint32_t)(x->shape[x->rank - 1] / GEMV_BLOCK),
      .blocks = (uint32_t)(op_elements(x) / GEMV_BLOCK),
      .dtype = x->dtype,
      /* A thread takes at least 32 bytes of x and 8 of codes. */
      .aligned = op_rows_aligned(x, 16) && op_rows_aligned(codes, 8),
      .global_scale = attributes->global_scale,
      .six_global_scale = 6.0f * attributes->global_scale,
  };
  if (is_dense(x) && is_dense(codes) && is_dense(scales)) {
    parameters.row_blocks = parameters.blocks; /* as one row: no thread divides */
    return parameters;
  }
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
  launch_add(launches, &rondo_quantize_nvfp4, divide_up(parameters.blocks, QUANTIZE_THREADS), QUANTIZE_THREADS, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
