/* quantize.c - describing a quantisation to NVFP4: rondo_add_quantize_nvfp4 and its check. */
#include <inttypes.h>
#include <math.h>

#include "../common/number.h"
#include "gemv.h"

rondo_status rondo_add_quantize_nvfp4(rondo_graph *graph, const rondo_quantize_nvfp4_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_quantize_nvfp4: the description is NULL");
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
  if (!x->present) return status_set(RONDO_INVALID_ARGUMENT, "x is absent, expected a tensor");
  if (x->dtype != RONDO_F32 && x->dtype != RONDO_F16 && x->dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT, "x is %s, expected f32, f16 or bf16", rondo_dtype_name(x->dtype));
  int64_t k = x->shape[x->rank - 1];
  if (k % GEMV_BLOCK)
    return status_set(RONDO_INVALID_ARGUMENT, "x has rows of %" PRId64 ", expected a multiple of %d", k, GEMV_BLOCK);
  const struct quantize_attributes *attributes = op_attributes(task);
  float global_scale = attributes->global_scale;
  /* 448 is the largest scale: no divisor overflows, so no quotient is NaN. */
  if (!(global_scale > 0) || !isfinite(448.0f * global_scale))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "global_scale is %g, expected a positive number, 448 times which is finite",
                      (double)global_scale);
  rondo_status status = op_expect("codes", &task->operands[QUANTIZE_CODES], RONDO_NVFP4, x->rank, x->shape);
  if (status != RONDO_OK) return status;
  int64_t scale_shape[RONDO_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) scale_shape[i] = x->shape[i];
  scale_shape[x->rank - 1] = k / GEMV_BLOCK;
  return op_expect("scales", &task->operands[QUANTIZE_SCALES], RONDO_E4M3, x->rank, scale_shape);
}
