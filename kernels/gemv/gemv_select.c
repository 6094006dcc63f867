/* gemv_select.c - which kernel multiplies: 16-byte loads where everything is aligned for them, else one element at a
 * time; one vector or four in a pass; a second launch where k is cut. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv.h"

/* The kernels with 16-byte loads. */
struct variant {
  struct op_kernel kernel;
  rondo_dtype weights, vectors;
  int64_t rows; /* of a warp */
  int64_t pass; /* vectors */
};

#define VARIANT(chips, parameters, name, threads, weights, vectors, rows, pass, blocks)                                \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, vectors, rows, pass},
static const struct variant variants[] = {GEMV_KERNELS(VARIANT)};

GEMV_OTHER_KERNELS(KERNEL_CONSTANT)

static int64_t bytes_of(const struct op_operand *operand, int64_t elements) {
  return elements * (int64_t)rondo_dtype_bits(operand->dtype) / 8;
}

/* A lane reads 16 bytes of weights, the same elements of the vector, and two scales at once where there are any. */
static bool vector_loads_possible(const struct op_task *task, const struct gemv_shape *shape) {
  const struct op_operand *operands = task->operands;
  if (shape->k == 0 || bytes_of(&operands[GEMV_WEIGHTS], shape->k) % GEMV_LOAD_BYTES) return false;
  if (operands[GEMV_WEIGHTS].dtype == RONDO_NVFP4 && shape->k % (INT64_C(2) * GEMV_BLOCK)) return false;
  if (!op_rows_aligned(&operands[GEMV_WEIGHTS], 16) || !op_rows_aligned(&operands[GEMV_VECTORS], 16)) return false;
  if (operands[GEMV_WEIGHTS].dtype == RONDO_NVFP4 && !op_rows_aligned(&operands[GEMV_WEIGHT_SCALES], 2)) return false;
  return operands[GEMV_VECTORS].dtype != RONDO_NVFP4 || op_rows_aligned(&operands[GEMV_VECTOR_SCALES], 2);
}

static const struct variant *variant_of(const struct op_task *task, const struct gemv_shape *shape) {
  rondo_dtype weights = task->operands[GEMV_WEIGHTS].dtype, vectors = task->operands[GEMV_VECTORS].dtype;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
    const struct variant *variant = &variants[i];
    if (variant->weights != weights || variant->vectors != vectors) continue;
    /* Two rows are right for a matrix of one too: both are that row. */
    bool has_rows = shape->m >= variant->rows || variant->rows == 2;
    if (has_rows && (shape->count == 1 || variant->pass > 1)) return variant;
  }
  return NULL;
}

static struct gemv_parameters parameters_of(const struct op_call *call, const struct gemv_shape *shape, int64_t rows) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
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
      .row_groups = (uint32_t)divide_up(shape->m, rows),
      .slice = (uint32_t)shape->slice,
      .slices = (uint32_t)shape->slices,
      .weight_dtype = weights->dtype,
      .vector_dtype = vectors->dtype,
      .out_dtype = out->dtype,
      .scale = attributes->scale,
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
  const struct variant *variant = vector_loads_possible(call->task, &shape) ? variant_of(call->task, &shape) : NULL;
  struct gemv_parameters parameters = parameters_of(call, &shape, variant ? variant->rows : 1);
  const struct op_kernel *kernel = variant ? &variant->kernel : &rondo_gemv_scalar;
  struct op_launch *launch = launch_add(launches, kernel, divide_up(parameters.warps, GEMV_WARPS), GEMV_THREADS, 0,
                                        &parameters, sizeof parameters);
  launch->grid[1] = parameters.slices;
  if (shape.slices == 1) return RONDO_OK;
  int64_t results = shape.batch * shape.count * shape.m;
  launch_add(launches, &rondo_gemv_reduce, divide_up(results, GEMV_REDUCE_THREADS), GEMV_REDUCE_THREADS, 0, &parameters,
             sizeof parameters);
  return RONDO_OK;
}
