/* gemv.c - describing a product with vectors: rondo_add_gemv, its check, and how k is cut into slices. */
#include "gemv.h"

#include <inttypes.h>
#include <math.h>

#include "../../runtime/integer.h"

static const char *const operand_names[GEMV_OPERANDS] = {"weights", "weight_scales", "vectors", "vector_scales", "out"};

rondo_status rondo_add_gemv(rondo_graph *graph, const rondo_gemv_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_gemv: the description is NULL");
  struct op_argument arguments[] = {
      [GEMV_WEIGHTS] = {"weights", desc->weights, RONDO_READ, 0},
      [GEMV_WEIGHT_SCALES] = {"weight_scales", desc->weight_scales, RONDO_READ, 0},
      [GEMV_VECTORS] = {"vectors", desc->vectors, RONDO_READ, 0},
      [GEMV_VECTOR_SCALES] = {"vector_scales", desc->vector_scales, RONDO_READ, 0},
      [GEMV_OUT] = {"out", desc->out, RONDO_WRITE, 0},
  };
  struct gemv_attributes attributes = {.scale = desc->scale == 0 ? 1.0f : desc->scale};
  return graph_add(graph, &op_gemv, desc->name, arguments, GEMV_OPERANDS, &attributes, sizeof attributes);
}

/* ---- Check ------------------------------------------------------------------------------------------------------ */

static rondo_status expect(const struct op_task *task, uint32_t index, rondo_dtype dtype, uint32_t rank,
                           const int64_t *shape) {
  return op_expect(operand_names[index], &task->operands[index], dtype, rank, shape);
}

static rondo_status expect_absent(const struct op_task *task, uint32_t index, uint32_t owner) {
  if (!task->operands[index].present) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "%s is present, expected none with %s in %s", operand_names[index],
                    operand_names[owner], rondo_dtype_name(task->operands[owner].dtype));
}

static rondo_status check_dtypes(const struct op_task *task) {
  rondo_dtype weights = task->operands[GEMV_WEIGHTS].dtype, vectors = task->operands[GEMV_VECTORS].dtype;
  rondo_dtype out = task->operands[GEMV_OUT].dtype;
  const char *expected;
  bool fits;
  switch (weights) {
  case RONDO_F16:
  case RONDO_BF16:
    fits = vectors == weights, expected = rondo_dtype_name(weights);
    break;
  case RONDO_E4M3:
    fits = vectors == RONDO_F16 || vectors == RONDO_BF16, expected = "f16 or bf16";
    break;
  case RONDO_NVFP4:
    fits = vectors == RONDO_F16 || vectors == RONDO_BF16 || vectors == RONDO_NVFP4, expected = "f16, bf16 or nvfp4";
    break;
  default:
    return status_set(RONDO_INVALID_ARGUMENT, "weights are %s, expected f16, bf16, e4m3 or nvfp4",
                      rondo_dtype_name(weights));
  }
  if (!fits)
    return status_set(RONDO_INVALID_ARGUMENT, "vectors are %s, expected %s with weights in %s",
                      rondo_dtype_name(vectors), expected, rondo_dtype_name(weights));
  if (out != RONDO_F16 && out != RONDO_BF16 && out != RONDO_F32)
    return status_set(RONDO_INVALID_ARGUMENT, "out is %s, expected f16, bf16 or f32", rondo_dtype_name(out));
  return RONDO_OK;
}

/* Ranks of the three operands that are always there, and the sizes that are free. */
static rondo_status check_sizes(const struct op_task *task) {
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  if (weights->rank != 2 && weights->rank != 3)
    return status_set(RONDO_INVALID_ARGUMENT, "weights have rank %u, expected 2 or 3", weights->rank);
  if (vectors->rank != weights->rank)
    return status_set(RONDO_INVALID_ARGUMENT, "vectors have rank %u, expected %u as weights have", vectors->rank,
                      weights->rank);
  int64_t k = weights->shape[weights->rank - 1], count = vectors->shape[vectors->rank - 2];
  if (weights->dtype == RONDO_NVFP4 && k % GEMV_BLOCK)
    return status_set(RONDO_INVALID_ARGUMENT, "weights have rows of %" PRId64 ", expected a multiple of %d", k,
                      GEMV_BLOCK);
  if (count < 1 || count > GEMV_COUNT)
    return status_set(RONDO_INVALID_ARGUMENT, "vectors are %" PRId64 ", expected 1 to %d", count, GEMV_COUNT);
  const struct gemv_attributes *attributes = op_attributes(task);
  if (!isfinite(attributes->scale))
    return status_set(RONDO_INVALID_ARGUMENT, "scale is %g, expected a finite number", (double)attributes->scale);
  return RONDO_OK;
}

static rondo_status gemv_check(const struct op_task *task) {
  static const uint32_t needed[] = {GEMV_WEIGHTS, GEMV_VECTORS, GEMV_OUT};
  for (uint32_t i = 0; i < 3; i++)
    if (!task->operands[needed[i]].present)
      return status_set(RONDO_INVALID_ARGUMENT, "%s is absent, expected a tensor", operand_names[needed[i]]);
  rondo_status status = check_dtypes(task);
  if (status == RONDO_OK) status = check_sizes(task);
  if (status != RONDO_OK) return status;

  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  uint32_t rank = weights->rank, first = 3 - rank; /* of [batch, .., ..] */
  struct gemv_shape shape = gemv_shape_of(task);
  int64_t vector_shape[] = {shape.batch, shape.count, shape.k}, out_shape[] = {shape.batch, shape.count, shape.m};
  int64_t weight_blocks[] = {shape.batch, shape.m, shape.k / GEMV_BLOCK};
  int64_t vector_blocks[] = {shape.batch, shape.count, shape.k / GEMV_BLOCK};
  status = expect(task, GEMV_VECTORS, vectors->dtype, rank, vector_shape + first);
  if (status == RONDO_OK) status = expect(task, GEMV_OUT, task->operands[GEMV_OUT].dtype, rank, out_shape + first);
  if (status != RONDO_OK) return status;

  if (weights->dtype == RONDO_NVFP4)
    status = expect(task, GEMV_WEIGHT_SCALES, RONDO_E4M3, rank, weight_blocks + first);
  else if (weights->dtype != RONDO_E4M3)
    status = expect_absent(task, GEMV_WEIGHT_SCALES, GEMV_WEIGHTS);
  else if (task->operands[GEMV_WEIGHT_SCALES].present)
    status = expect(task, GEMV_WEIGHT_SCALES, RONDO_F32, rank - 1, weight_blocks + first);
  if (status != RONDO_OK) return status;
  return vectors->dtype == RONDO_NVFP4 ? expect(task, GEMV_VECTOR_SCALES, RONDO_E4M3, rank, vector_blocks + first)
                                       : expect_absent(task, GEMV_VECTOR_SCALES, GEMV_VECTORS);
}

/* ---- Shape ------------------------------------------------------------------------------------------------------ */

enum {
  /* Two rows a warp then make 16 warps on each of an H200's 132 multiprocessors. Fewer rows are cut along k. */
  ENOUGH_ROWS = 4096,
  MOST_SLICES = 32,
  STEPS_OF_SLICE = 2, /* at least: a warp has one step under way while it computes the one before */
};

int64_t gemv_batch_stride(const struct op_operand *operand) { return operand->rank == 3 ? operand->stride[0] : 0; }

/* Not by the number of vectors: a vector's result has the same bits whatever the others are. */
static void cut(struct gemv_shape *shape, rondo_dtype dtype) {
  int64_t step = INT64_C(32) * GEMV_LOAD_BYTES * 8 / rondo_dtype_bits(dtype);
  int64_t steps = divide_up(shape->k, step), rows = shape->batch * shape->m;
  shape->slices = rows > 0 ? ENOUGH_ROWS / rows : 1;
  if (shape->slices > steps / STEPS_OF_SLICE) shape->slices = steps / STEPS_OF_SLICE;
  if (shape->slices > MOST_SLICES) shape->slices = MOST_SLICES;
  if (shape->slices < 1) shape->slices = 1;
  int64_t steps_of_slice = divide_up(steps, shape->slices);
  shape->slice = steps_of_slice * step;
  if (steps) shape->slices = divide_up(steps, steps_of_slice);
}

struct gemv_shape gemv_shape_of(const struct op_task *task) {
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  uint32_t rank = weights->rank;
  struct gemv_shape shape = {
      .batch = rank == 3 ? weights->shape[0] : 1,
      .m = weights->shape[rank - 2],
      .k = weights->shape[rank - 1],
      .count = vectors->shape[rank - 2],
  };
  cut(&shape, weights->dtype);
  return shape;
}

static uint64_t gemv_scratch_bytes(const struct op_task *task) {
  struct gemv_shape shape = gemv_shape_of(task);
  if (shape.slices == 1) return 0;
  return (uint64_t)(shape.slices * shape.batch * shape.count * shape.m) * sizeof(float);
}

const struct op op_gemv = {
    .name = "gemv",
    .once_operands = 1u << GEMV_OUT,
    .launches_most = 2,
    .check = gemv_check,
    .scratch_bytes = gemv_scratch_bytes,
    .host_items = gemv_host_items,
    .host_run = gemv_host_run,
    .select = gemv_select,
};
