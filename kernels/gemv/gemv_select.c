/* gemv_select.c - which kernel multiplies: 16-byte loads where everything is aligned for them, else one element at a
 * time; one vector or four in a pass; a second launch where k is cut. */
#include <string.h>

#include "gemv.h"

/* The kernels with 16-byte loads, for one vector and for four in a pass. */
struct variant {
  rondo_dtype weights, vectors;
  const char *kernels[2];
};

static const struct variant variants[] = {
    {RONDO_F16, RONDO_F16, {"rondo_gemv_f16_x1", "rondo_gemv_f16_x4"}},
    {RONDO_BF16, RONDO_BF16, {"rondo_gemv_bf16_x1", "rondo_gemv_bf16_x4"}},
    {RONDO_E4M3, RONDO_F16, {"rondo_gemv_e4m3_f16_x1", "rondo_gemv_e4m3_f16_x4"}},
    {RONDO_E4M3, RONDO_BF16, {"rondo_gemv_e4m3_bf16_x1", "rondo_gemv_e4m3_bf16_x4"}},
    {RONDO_NVFP4, RONDO_F16, {"rondo_gemv_nvfp4_f16_x1", "rondo_gemv_nvfp4_f16_x4"}},
    {RONDO_NVFP4, RONDO_BF16, {"rondo_gemv_nvfp4_bf16_x1", "rondo_gemv_nvfp4_bf16_x4"}},
    {RONDO_NVFP4, RONDO_NVFP4, {"rondo_gemv_nvfp4_nvfp4_x1", "rondo_gemv_nvfp4_nvfp4_x4"}},
};

static int64_t bytes_of(const struct op_operand *operand, int64_t elements) {
  return elements * (int64_t)rondo_dtype_bits(operand->dtype) / 8;
}

/* Does every row begin at a multiple of `bytes`? Tensors begin at multiples of 256. */
static bool rows_aligned(const struct op_operand *operand, int64_t bytes) {
  int64_t all = (int64_t)operand->offset_bytes | bytes_of(operand, operand->stride[operand->rank - 2]) |
                bytes_of(operand, gemv_batch_stride(operand));
  return all % bytes == 0;
}

/* A lane reads 16 bytes of weights, the same elements of the vector, and two scales at once where there are any. */
static bool vector_loads_possible(const struct op_task *task, const struct gemv_shape *shape) {
  const struct op_operand *operands = task->operands;
  if (shape->k == 0 || bytes_of(&operands[GEMV_WEIGHTS], shape->k) % GEMV_LOAD_BYTES) return false;
  if (operands[GEMV_WEIGHTS].dtype == RONDO_NVFP4 && shape->k % (INT64_C(2) * GEMV_BLOCK)) return false;
  if (!rows_aligned(&operands[GEMV_WEIGHTS], 16) || !rows_aligned(&operands[GEMV_VECTORS], 16)) return false;
  if (operands[GEMV_WEIGHTS].dtype == RONDO_NVFP4 && !rows_aligned(&operands[GEMV_WEIGHT_SCALES], 2)) return false;
  return operands[GEMV_VECTORS].dtype != RONDO_NVFP4 || rows_aligned(&operands[GEMV_VECTOR_SCALES], 2);
}

static const char *kernel_of(const struct op_task *task, const struct gemv_shape *shape, uint32_t *rows) {
  rondo_dtype weights = task->operands[GEMV_WEIGHTS].dtype, vectors = task->operands[GEMV_VECTORS].dtype;
  if (vector_loads_possible(task, shape)) {
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
      if (variants[i].weights != weights || variants[i].vectors != vectors) continue;
      bool one = shape->count == 1 && (weights != RONDO_NVFP4 || shape->m >= GEMV_ROWS_NVFP4_X1);
      *rows = one && weights == RONDO_NVFP4 ? GEMV_ROWS_NVFP4_X1 : GEMV_ROWS;
      return variants[i].kernels[!one];
    }
  }
  *rows = 1;
  return "rondo_gemv_scalar";
}

static struct gemv_parameters parameters_of(const struct op_call *call, const struct gemv_shape *shape, uint32_t rows) {
  const struct op_operand *operands = call->task->operands;
  const struct op_operand *weights = &operands[GEMV_WEIGHTS], *weight_scales = &operands[GEMV_WEIGHT_SCALES];
  const struct op_operand *vectors = &operands[GEMV_VECTORS], *vector_scales = &operands[GEMV_VECTOR_SCALES];
  const struct op_operand *out = &operands[GEMV_OUT];
  uint32_t row = weights->rank - 2; /* the dimension that counts rows */
  struct gemv_parameters parameters = {
      .weights = call->data[GEMV_WEIGHTS],
      .weight_scales = call->data[GEMV_WEIGHT_SCALES],
      .vectors = call->data[GEMV_VECTORS],
      .vector_scales = call->data[GEMV_VECTOR_SCALES],
      .out = call->data[GEMV_OUT],
      .partials = call->scratch,
      .weight_batch = bytes_of(weights, gemv_batch_stride(weights)),
      .weight_row = bytes_of(weights, weights->stride[row]),
      .vector_batch = bytes_of(vectors, gemv_batch_stride(vectors)),
      .vector_row = bytes_of(vectors, vectors->stride[row]),
      .out_batch = gemv_batch_stride(out),
      .out_row = out->stride[row],
      .batch = (uint32_t)shape->batch,
      .m = (uint32_t)shape->m,
      .k = (uint32_t)shape->k,
      .count = (uint32_t)shape->count,
      .row_groups = (uint32_t)((shape->m + rows - 1) / rows),
      .slice = (uint32_t)shape->slice,
      .slices = (uint32_t)shape->slices,
      .weight_dtype = weights->dtype,
      .vector_dtype = vectors->dtype,
      .out_dtype = out->dtype,
      .scale = ((const struct gemv_attributes *)(const void *)call->task->attributes)->scale,
  };
  parameters.warps = parameters.batch * parameters.row_groups;
  if (weights->dtype == RONDO_NVFP4) {
    parameters.weight_scale_batch = gemv_batch_stride(weight_scales);
    parameters.weight_scale_row = weight_scales->stride[row];
  } else if (weight_scales->present) { /* f32 [batch, m] */
    parameters.weight_scale_batch = weight_scales->rank == 2 ? weight_scales->stride[0] : 0;
    parameters.weight_scale_row = 1;
  }
  if (shape->m == 1) parameters.weight_row = parameters.weight_scale_row = 0; /* a warp's second row is the first */
  if (vector_scales->present) {
    parameters.vector_scale_batch = gemv_batch_stride(vector_scales);
    parameters.vector_scale_row = vector_scales->stride[row];
  }
  return parameters;
}

rondo_status gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  struct gemv_shape shape = gemv_shape_of(call->task);
  launches->count = 0;
  if (shape.batch == 0 || shape.m == 0) return RONDO_OK;
  uint32_t rows;
  const char *kernel = kernel_of(call->task, &shape, &rows);
  struct gemv_parameters parameters = parameters_of(call, &shape, rows);
  struct op_launch *launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = kernel,
                               .grid = {(parameters.warps + GEMV_WARPS - 1) / GEMV_WARPS, parameters.slices, 1},
                               .block = {32 * GEMV_WARPS, 1, 1},
                               .parameter_bytes = sizeof parameters,
                               .completion_offset = offsetof(struct gemv_parameters, done)};
  memcpy(launch->parameters, &parameters, sizeof parameters);
  if (shape.slices == 1) return RONDO_OK;
  uint32_t results = (uint32_t)(shape.batch * shape.count * shape.m);
  launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = "rondo_gemv_reduce",
                               .grid = {(results + GEMV_REDUCE_THREADS - 1) / GEMV_REDUCE_THREADS, 1, 1},
                               .block = {GEMV_REDUCE_THREADS, 1, 1},
                               .parameter_bytes = sizeof parameters,
                               .completion_offset = offsetof(struct gemv_parameters, done)};
  memcpy(launch->parameters, &parameters, sizeof parameters);
  return RONDO_OK;
}
