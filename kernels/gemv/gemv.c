/* gemv.c - describing a product with vectors: rondo_add_gemv and its check. */
#include "gemv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/rows.h"

static const char *const operand_names[GEMV_OPERANDS] = {
    "weights", "weight_scales", "vectors", "vector_scales", "out", "norm", "bias", "residual", "out_scales",
};

void gemv_describe(const rondo_gemv_desc *desc, struct op_argument *arguments, struct gemv_attributes *attributes) {
  const struct op_argument described[GEMV_OPERANDS] = {
      [GEMV_WEIGHTS] = {"weights", desc->weights, RONDO_READ, 0},
      [GEMV_WEIGHT_SCALES] = {"weight_scales", desc->weight_scales, RONDO_READ, 0},
      [GEMV_VECTORS] = {"vectors", desc->vectors, RONDO_READ, 0},
      [GEMV_VECTOR_SCALES] = {"vector_scales", desc->vector_scales, RONDO_READ, 0},
      [GEMV_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [GEMV_NORM] = {"norm", desc->norm, RONDO_READ, 0},
      [GEMV_BIAS] = {"bias", desc->bias, RONDO_READ, 0},
      [GEMV_RESIDUAL] = {"residual", desc->residual, RONDO_READ, GEMV_OUT + 1},
      [GEMV_OUT_SCALES] = {"out_scales", desc->out_scales, RONDO_WRITE, 0},
  };
  memcpy(arguments, described, sizeof described);
  *attributes = (struct gemv_attributes){.scale = f32_or(desc->scale, 1.0f),
                                         .norm_epsilon = desc->norm_epsilon,
                                         .out_global_scale = desc->out_global_scale,
                                         .weight_scale_layout = (int32_t)desc->weight_scale_layout,
                                         .vector_scale_layout = (int32_t)desc->vector_scale_layout,
                                         .one_order = desc->one_order != 0,
                                         .silu_mul = desc->silu_mul != 0};
}

rondo_status rondo_add_gemv(rondo_graph *graph, const rondo_gemv_desc *desc) {
  struct op_argument arguments[GEMV_OPERANDS];
  struct gemv_attributes attributes;
  if (!desc) return op_refuse("describe: rondo_add_gemv: the description is NULL");
  gemv_describe(desc, arguments, &attributes);
  return graph_add(graph, &op_gemv, desc->name, arguments, GEMV_OPERANDS, &attributes, sizeof attributes);
}

/* ---- Check ------------------------------------------------------------------------------------------------------ */

static rondo_status expect(const struct op_task *task, uint32_t index, rondo_dtype dtype, uint32_t rank,
                           const int64_t *shape) {
  return op_expect(operand_names[index], &task->operands[index], dtype, rank, shape);
}

static rondo_status expect_absent(const struct op_task *task, uint32_t index, uint32_t owner) {
  if (!task->operands[index].present) return RONDO_OK;
  return op_refuse("%s is present, expected none with %s in %s", operand_names[index], operand_names[owner],
                   rondo_dtype_name(task->operands[owner].dtype));
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
    return op_refuse("weights are %s, expected f16, bf16, e4m3 or nvfp4", rondo_dtype_name(weights));
  }
  if (!fits)
    return op_refuse("vectors are %s, expected %s with weights in %s", rondo_dtype_name(vectors), expected,
                     rondo_dtype_name(weights));
  if (!rows_are_numbers(out) && out != RONDO_NVFP4)
    return op_refuse("out is %s, expected f16, bf16, f32 or nvfp4", rondo_dtype_name(out));
  return RONDO_OK;
}

rondo_status gemv_check_matrices(const struct op_task *task, int most_vectors) {
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  static const uint32_t needed[] = {GEMV_WEIGHTS, GEMV_VECTORS, GEMV_OUT};
  for (uint32_t i = 0; i < 3; i++)
    if (!task->operands[needed[i]].present)
      return op_refuse("%s is absent, expected a tensor", operand_names[needed[i]]);
  if (weights->rank != 2 && weights->rank != 3)
    return op_refuse("weights have rank %u, expected 2 or 3", weights->rank);
  if (vectors->rank != weights->rank)
    return op_refuse("vectors have rank %u, expected %u as weights have", vectors->rank, weights->rank);
  const int64_t k = weights->shape[weights->rank - 1];
  if (weights->dtype == RONDO_NVFP4 && k % GEMV_BLOCK)
    return op_refuse("weights have rows of %" PRId64 ", expected a multiple of %d", k, GEMV_BLOCK);
  const int64_t count = vectors->shape[vectors->rank - 2];
  if (count < 1 || count > most_vectors)
    return op_refuse("vectors are %" PRId64 ", expected 1 to %d", count, most_vectors);
  return RONDO_OK;
}

/* What is no tensor. */
static rondo_status check_attributes(const struct op_task *task) {
  const struct gemv_attributes *attributes = op_attributes(task);
  OP_TRY(op_expect_finite("scale", attributes->scale));
  return op_expect_not_negative("norm_epsilon", attributes->norm_epsilon);
}

/* `blocks` is [batch, rows, k / 16] of the operand whose scales these are, cut to its rank. */
static rondo_status check_blocked(const struct op_task *task, uint32_t index, uint32_t rank, const int64_t *blocks) {
  const struct op_operand *scales = &task->operands[index];
  int64_t shape[3] = {blocks[0]}, dense = 1;
  shape[rank - 2] = round_up(blocks[rank - 2], GEMV_SCALE_ROWS);
  shape[rank - 1] = round_up(blocks[rank - 1], GEMV_SCALE_COLUMNS);
  OP_TRY(expect(task, index, RONDO_E4M3, rank, shape));
  if (op_elements(scales) == 0) return RONDO_OK;
  for (uint32_t i = rank; i-- > 0; dense *= shape[i])
    if (shape[i] > 1 && scales->stride[i] != dense)
      return op_refuse("%s has a stride of %" PRId64 " in dimension %u, expected %" PRId64
                       ": RONDO_SCALES_128X4 is dense",
                       operand_names[index], scales->stride[i], i, dense);
  return RONDO_OK;
}

rondo_status gemv_check_scales(const struct op_task *task, uint32_t index, int32_t layout, uint32_t rank,
                               const int64_t *blocks) {
  const struct op_operand *owner = &task->operands[index - 1];
  const char *layout_name = index == GEMV_WEIGHT_SCALES ? "weight_scale_layout" : "vector_scale_layout";
  if (layout != RONDO_SCALES_BY_ROW && layout != RONDO_SCALES_128X4)
    return op_refuse("%s is %d, expected RONDO_SCALES_BY_ROW or RONDO_SCALES_128X4", layout_name, (int)layout);
  if (owner->dtype == RONDO_NVFP4)
    return layout == RONDO_SCALES_128X4 ? check_blocked(task, index, rank, blocks)
                                        : expect(task, index, RONDO_E4M3, rank, blocks);
  if (layout != RONDO_SCALES_BY_ROW)
    return op_refuse("%s is RONDO_SCALES_128X4, expected RONDO_SCALES_BY_ROW with %s in %s", layout_name,
                     operand_names[index - 1], rondo_dtype_name(owner->dtype));
  if (owner->dtype != RONDO_E4M3) return expect_absent(task, index, index - 1);
  return task->operands[index].present ? expect(task, index, RONDO_F32, rank - 1, blocks) : RONDO_OK;
}

static rondo_status check_norm(const struct op_task *task, const struct gemv_shape *shape) {
  const struct gemv_attributes *attributes = op_attributes(task);
  rondo_dtype vectors = task->operands[GEMV_VECTORS].dtype;
  bool present = task->operands[GEMV_NORM].present;
  if (attributes->norm_epsilon > 0 && vectors == RONDO_NVFP4)
    return op_refuse("norm_epsilon is %g, expected 0 with vectors in nvfp4", (double)attributes->norm_epsilon);
  if (present && attributes->norm_epsilon == 0)
    return op_refuse("norm is present, expected none where norm_epsilon is 0");
  return present ? expect(task, GEMV_NORM, vectors, 1, &shape->k) : RONDO_OK;
}

/* NVFP4 out has scales, whose factor is the quantiser's. */
static rondo_status check_quantised(const struct op_task *task, uint32_t rank, const int64_t *out_shape) {
  const struct gemv_attributes *attributes = op_attributes(task);
  float global_scale = attributes->out_global_scale;
  rondo_dtype out = task->operands[GEMV_OUT].dtype;
  int64_t columns = out_shape[rank - 1], shape[3] = {out_shape[0], out_shape[1]};
  if (out != RONDO_NVFP4 && global_scale != 0)
    return op_refuse("out_global_scale is %g, expected 0 with out in %s", (double)global_scale, rondo_dtype_name(out));
  if (out != RONDO_NVFP4) return expect_absent(task, GEMV_OUT_SCALES, GEMV_OUT);
  if (columns % GEMV_BLOCK)
    return op_refuse("out has rows of %" PRId64 ", expected a multiple of %d in nvfp4", columns, GEMV_BLOCK);
  if (global_scale != 0 && (!(global_scale > 0) || !isfinite(448.0f * global_scale)))
    return op_refuse("out_global_scale is %g, expected 0 or a positive number, 448 times which is finite",
                     (double)global_scale);
  shape[rank - 1] = columns / GEMV_BLOCK;
  return expect(task, GEMV_OUT_SCALES, RONDO_E4M3, rank, shape);
}

rondo_status gemv_check_results(const struct op_task *task) {
  const struct op_operand *operands = task->operands, *bias = &operands[GEMV_BIAS];
  const struct gemv_attributes *attributes = op_attributes(task);
  const struct gemv_shape shape = gemv_shape_of(task);
  const uint32_t rank = operands[GEMV_WEIGHTS].rank;
  int64_t out_shape[] = {shape.batch, shape.count, shape.columns}, bias_shape[] = {shape.batch, shape.m};
  const int64_t *out = out_shape + 3 - rank;
  if (attributes->silu_mul && shape.m % 2)
    return op_refuse("weights have %" PRId64 " row%s, expected an even number with silu_mul", shape.m, PLURAL(shape.m));
  for (uint32_t i = GEMV_BIAS; i <= GEMV_RESIDUAL; i++)
    if (operands[i].present && !rows_are_numbers(operands[i].dtype))
      return op_refuse("%s is %s, expected f16, bf16 or f32", operand_names[i], rondo_dtype_name(operands[i].dtype));
  OP_TRY(expect(task, GEMV_OUT, operands[GEMV_OUT].dtype, rank, out));
  OP_TRY(check_quantised(task, rank, out));
  if (bias->present) { /* one for all matrices, or one for each */
    uint32_t bias_rank = rank == 3 && bias->rank == 2 ? 2 : 1;
    OP_TRY(expect(task, GEMV_BIAS, bias->dtype, bias_rank, bias_shape + 2 - bias_rank));
  }
  if (operands[GEMV_RESIDUAL].present) OP_TRY(expect(task, GEMV_RESIDUAL, operands[GEMV_RESIDUAL].dtype, rank, out));
  return RONDO_OK;
}

rondo_status gemv_check(const struct op_task *task) {
  OP_TRY(gemv_check_matrices(task, GEMV_COUNT));
  OP_TRY(check_dtypes(task));
  OP_TRY(check_attributes(task));
  const struct gemv_attributes *attributes = op_attributes(task);
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  uint32_t rank = weights->rank, first = 3 - rank; /* of [batch, .., ..] */
  struct gemv_shape shape = gemv_shape_of(task);
  int64_t vector_shape[] = {shape.batch, shape.count, shape.k};
  int64_t weight_blocks[] = {shape.batch, shape.m, shape.k / GEMV_BLOCK};
  int64_t vector_blocks[] = {shape.batch, shape.count, shape.k / GEMV_BLOCK};
  OP_TRY(expect(task, GEMV_VECTORS, vectors->dtype, rank, vector_shape + first));
  OP_TRY(gemv_check_scales(task, GEMV_WEIGHT_SCALES, attributes->weight_scale_layout, rank, weight_blocks + first));
  OP_TRY(gemv_check_scales(task, GEMV_VECTOR_SCALES, attributes->vector_scale_layout, rank, vector_blocks + first));
  OP_TRY(check_norm(task, &shape));
  return gemv_check_results(task);
}

/* ---- Shape ------------------------------------------------------------------------------------------------------ */

int64_t gemv_batch_stride(const struct op_operand *operand) { return operand->rank == 3 ? operand->stride[0] : 0; }

struct gemv_shape gemv_shape_of(const struct op_task *task) {
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *vectors = &task->operands[GEMV_VECTORS];
  const struct gemv_attributes *attributes = op_attributes(task);
  uint32_t rank = weights->rank;
  int64_t m = weights->shape[rank - 2];
  return (struct gemv_shape){
      .batch = rank == 3 ? weights->shape[0] : 1,
      .m = m,
      .k = weights->shape[rank - 1],
      .count = vectors->shape[rank - 2],
      .columns = attributes->silu_mul ? m / 2 : m,
  };
}

int64_t gemv_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  const bool is_scales = operand == GEMV_WEIGHT_SCALES || operand == GEMV_VECTOR_SCALES;
  if (!is_scales || access != RONDO_READ || task->operands[operand - 1].dtype != RONDO_NVFP4)
    return op_elements(&task->operands[operand]);
  return op_elements(&task->operands[operand - 1]) / GEMV_BLOCK;
}
