/* gemv_select.c - a product's launch: the problem that gemv_choose.c is asked about, and the chosen kernel's
 * parameters.
 */
#include "../../runtime/integer.h"
#include "../exchange/exchanges.h"
#include "gemv_plan.h"
#include "gemv_scalar.h"

enum { WIDE_LOAD = 16 }; /* bytes */

static uint64_t bytes_of(const struct op_operand *operand, int64_t elements) {
  return (uint64_t)(elements * (int64_t)rondo_dtype_bits(operand->dtype) / 8);
}

static int64_t row_stride(const struct op_operand *operand) { return operand->stride[operand->rank - 2]; }

/* [batch, m], or [m] for all matrices; in elements. */
static int64_t rows_batch(const struct op_operand *operand) { return operand->rank == 2 ? operand->stride[0] : 0; }

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

/* Blocked scales are tiles of 128 rows x 4, in which rows 32 apart lie side by side. */
struct gemv_scale_strides gemv_scale_strides_of(const struct op_operand *scales, int32_t layout) {
  uint32_t row = (uint32_t)row_stride(scales);
  if (layout == RONDO_SCALES_128X4)
    return (struct gemv_scale_strides){
        .row = 16, .more_32 = 4u - 32 * 16, .more_128 = GEMV_SCALE_ROWS * row - 4 * 4, .four = 512};
  return (struct gemv_scale_strides){.row = row, .four = 4};
}

static void set_scales(struct gemv_parameters *p, const struct op_call *call) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *weights = &call->task->operands[GEMV_WEIGHT_SCALES];
  const struct op_operand *vectors = &call->task->operands[GEMV_VECTOR_SCALES];
  p->weight_scales = call->data[GEMV_WEIGHT_SCALES];
  p->vector_scales = call->data[GEMV_VECTOR_SCALES];
  if (weights->present && p->weight_dtype == RONDO_NVFP4) {
    p->weight_scale_batch = (uint32_t)gemv_batch_stride(weights);
    p->weight_scale_strides = gemv_scale_strides_of(weights, attributes->weight_scale_layout);
  } else if (weights->present) {
    p->weight_scale_batch = (uint32_t)rows_batch(weights);
  }
  if (vectors->present) {
    const struct gemv_scale_strides strides = gemv_scale_strides_of(vectors, attributes->vector_scale_layout);
    p->vector_scale_batch = (uint32_t)gemv_batch_stride(vectors);
    p->vector_scale_row = strides.row, p->vector_scale_four = strides.four;
  }
}

static void set_epilogue(struct gemv_parameters *p, const struct op_call *call) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operands = call->task->operands;
  const struct op_operand *bias = &operands[GEMV_BIAS], *residual = &operands[GEMV_RESIDUAL];
  const struct op_operand *out_scales = &operands[GEMV_OUT_SCALES];
  const float global_scale = attributes->out_global_scale == 0 ? 1.0f : attributes->out_global_scale;
  p->finishing = attributes->silu_mul || bias->present || residual->present || out_scales->present;
  p->epilogue = (struct gemv_epilogue){
      .silu_mul = (uint32_t)attributes->silu_mul,
      .bias_dtype = bias->dtype,
      .residual_dtype = residual->dtype,
      .bias = call->data[GEMV_BIAS],
      .residual = call->data[GEMV_RESIDUAL],
      .bias_batch = bias->present ? rows_batch(bias) : 0,
      .residual_batch = residual->present ? gemv_batch_stride(residual) : 0,
      .residual_row = residual->present ? row_stride(residual) : 0,
      .out_scales = call->data[GEMV_OUT_SCALES],
      .out_scale_batch = out_scales->present ? gemv_batch_stride(out_scales) : 0,
      .out_scale_row = out_scales->present ? row_stride(out_scales) : 0,
      .out_global_scale = global_scale,
      .six_out_global_scale = 6.0f * global_scale,
  };
}

/* What a kernel may read before its predecessors end. */
static uint16_t early_of(const struct op_call *call) {
  uint32_t weights = 1u << GEMV_WEIGHTS;
  if (call->task->operands[GEMV_WEIGHT_SCALES].present) weights |= 1u << GEMV_WEIGHT_SCALES;
  if ((call->settled_operands & weights) != weights) return 0;
  const bool norm = call->task->operands[GEMV_NORM].present && op_is_settled(call, GEMV_NORM);
  return norm ? GEMV_READS_EARLY | GEMV_NORM_EARLY : GEMV_READS_EARLY;
}

static struct gemv_parameters parameters_of(const struct op_call *call, const struct gemv_shape *shape) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operands = call->task->operands;
  const struct op_operand *weights = &operands[GEMV_WEIGHTS], *vectors = &operands[GEMV_VECTORS];
  const struct op_operand *out = &operands[GEMV_OUT];
  struct gemv_parameters parameters = {
      .weights = call->data[GEMV_WEIGHTS],
      .vectors = call->data[GEMV_VECTORS],
      .out = call->data[GEMV_OUT],
      .norm = call->data[GEMV_NORM],
      .weight_row = (uint32_t)bytes_of(weights, row_stride(weights)),
      .vector_row = (uint32_t)bytes_of(vectors, row_stride(vectors)),
      .out_batch = gemv_batch_stride(out),
      .out_row = row_stride(out),
      .m = (uint32_t)shape->m,
      .k = (uint32_t)shape->k,
      .count = (uint32_t)shape->count,
      .weight_dtype = weights->dtype,
      .vector_dtype = (uint16_t)vectors->dtype,
      .out_dtype = out->dtype,
      .scale = attributes->scale,
      .norm_epsilon = attributes->norm_epsilon,
      .mean_factor = 1.0f / (float)larger(shape->k, 1),
  };
  /* Wide loads only; scalar has bytes. Both fit, as a tensor has at most 2^31 elements. */
  parameters.weight_batch = (uint32_t)(bytes_of(weights, gemv_batch_stride(weights)) / WIDE_LOAD);
  parameters.vector_batch = (uint32_t)(bytes_of(vectors, gemv_batch_stride(vectors)) / WIDE_LOAD);
  parameters.early = early_of(call);
  set_scales(&parameters, call);
  set_epilogue(&parameters, call);
  return parameters;
}

/* ---- The problem ------------------------------------------------------------------------------------------------ */

/* Rows of whole 16-byte loads. */
static bool has_wide_rows(const struct op_operand *operand) {
  return bytes_of(operand, operand->shape[operand->rank - 1]) % WIDE_LOAD == 0 && op_rows_aligned(operand, WIDE_LOAD);
}

/* Rows of NVFP4 weights, and of their scales, lie without gaps, and begin at multiples of 16 bytes. */
static bool has_dense_weights(const struct op_operand *operands) {
  const struct op_operand *weights = &operands[GEMV_WEIGHTS], *scales = &operands[GEMV_WEIGHT_SCALES];
  return weights->dtype == RONDO_NVFP4 && row_stride(weights) == weights->shape[weights->rank - 1] &&
         row_stride(scales) == scales->shape[scales->rank - 1] && op_rows_aligned(weights, 16) &&
         op_rows_aligned(scales, 16);
}

/* Matrices begin at a multiple of so many bytes. */
static bool has_aligned_matrices(const struct op_operand *operand, uint64_t bytes) {
  return (operand->offset_bytes | bytes_of(operand, gemv_batch_stride(operand))) % bytes == 0;
}

/* Rows have no gaps; those of NVFP4's scales need not begin so, other than those of a matrix. */
static bool has_packed_weights(const struct op_operand *operands) {
  const struct op_operand *weights = &operands[GEMV_WEIGHTS], *scales = &operands[GEMV_WEIGHT_SCALES];
  if (row_stride(weights) != weights->shape[weights->rank - 1] || !op_rows_aligned(weights, 16)) return false;
  return weights->dtype != RONDO_NVFP4 ||
         (row_stride(scales) == scales->shape[scales->rank - 1] && has_aligned_matrices(scales, 16));
}

/* Bytes of NVFP4's scales that may be loaded at once. */
static int64_t scale_bytes(const struct op_operand *scales) {
  for (uint64_t bytes = 16; bytes > 1; bytes /= 2)
    if (op_rows_aligned(scales, bytes)) return (int64_t)bytes;
  return 1;
}

static struct gemv_problem problem_of(const struct op_task *task, const struct gemv_shape *shape,
                                      const struct chip *chip) {
  const struct gemv_attributes *attributes = op_attributes(task);
  const struct op_operand *operands = task->operands;
  const bool is_quantised = operands[GEMV_OUT].dtype == RONDO_NVFP4;
  struct gemv_problem problem = {
      .weights = operands[GEMV_WEIGHTS].dtype,
      .vectors = operands[GEMV_VECTORS].dtype,
      .batch = shape->batch,
      .m = shape->m,
      .k = shape->k,
      .count = shape->count,
      .chip = launch_chip(chip),
      .multiprocessors = chip->multiprocessors,
      .row_multiple = (is_quantised ? INT64_C(1) * GEMV_BLOCK : 1) * (attributes->silu_mul ? 2 : 1),
      .scale_bytes = 8,
      .wide_loads = shape->k > 0 && has_wide_rows(&operands[GEMV_WEIGHTS]) && has_wide_rows(&operands[GEMV_VECTORS]),
      .dense_weights = has_dense_weights(operands),
      .packed_weights = has_packed_weights(operands),
      .norm = attributes->norm_epsilon > 0,
      .finishing =
          attributes->silu_mul || operands[GEMV_BIAS].present || operands[GEMV_RESIDUAL].present || is_quantised,
      .one_order = attributes->one_order,
  };
  if (problem.weights == RONDO_NVFP4) problem.scale_bytes = scale_bytes(&operands[GEMV_WEIGHT_SCALES]);
  problem.blocked_scales = attributes->weight_scale_layout == RONDO_SCALES_128X4;
  if (problem.scale_bytes < 2 || shape->k % (problem.weights == RONDO_NVFP4 ? 2 * GEMV_BLOCK : 1))
    problem.wide_loads = false;
  if (operands[GEMV_VECTOR_SCALES].present && !op_rows_aligned(&operands[GEMV_VECTOR_SCALES], 2))
    problem.wide_loads = false;
  if (operands[GEMV_NORM].present && !op_rows_aligned(&operands[GEMV_NORM], 16)) problem.wide_loads = false;
  return problem;
}

/* ---- The launch ------------------------------------------------------------------------------------------------- */

/* How the plan deals rows and k. */
static struct gemv_parameters dealt(const struct gemv_plan *plan, const struct gemv_parameters *of_problem) {
  struct gemv_parameters p = *of_problem;
  p.parts = (uint32_t)plan->parts, p.groups = (uint32_t)plan->groups;
  p.chunks = (uint32_t)plan->chunks, p.tiles = (uint32_t)plan->tiles;
  p.part_reciprocal = (uint32_t)divide_up(1 << 16, plan->parts);
  if (plan->starts_one) p.early |= GEMV_STARTS_ONE;
  return p;
}

static void add(const struct op_call *call, const struct gemv_plan *plan, const void *parameters, size_t bytes,
                struct op_launches *launches) {
  struct op_launch *launch =
      launch_add(launches, plan->kernel, plan->blocks, plan->threads, (uint64_t)plan->shared_bytes, parameters, bytes);
  launch->grid[1] = (uint32_t)gemv_shape_of(call->task).batch;
}

void gemv_launch(const struct op_call *call, const struct gemv_plan *plan, const struct gemv_parameters *parameters,
                 struct op_launches *launches) {
  union gemv_told told = plan->told;
  told.rows.common = dealt(plan, parameters); /* which all kernels' parameters begin with */
  add(call, plan, &told, plan->kernel->parameter_bytes, launches);
}

/* Any number of matrices, of any alignment. */
void gemv_scalar_launch(const struct op_call *call, const struct gemv_plan *plan,
                        const struct gemv_parameters *parameters, struct op_launches *launches) {
  const struct op_operand *weights = &call->task->operands[GEMV_WEIGHTS];
  const struct op_operand *vectors = &call->task->operands[GEMV_VECTORS];
  const int64_t batch = gemv_shape_of(call->task).batch;
  const struct gemv_scalar_parameters p = {
      .common = dealt(plan, parameters),
      .weight_batch_bytes = bytes_of(weights, gemv_batch_stride(weights)),
      .vector_batch_bytes = bytes_of(vectors, gemv_batch_stride(vectors)),
      .batch = (uint32_t)batch,
  };
  struct op_launch *launch = launch_add(launches, plan->kernel, plan->blocks, plan->threads, 0, &p, sizeof p);
  launch->grid[1] = (uint32_t)smaller(batch, GEMV_MOST_BATCH);
  launch->grid[2] = (uint32_t)divide_up(batch, launch->grid[1]);
}

/* Can the kernel end with the sum, which then goes in one step? Tiles are up to 16 whole rows in fours; each block that
 * adds up has a counter. */
static bool ends_with_sum(const struct op_task *sum, const struct gemv_shape *shape, const struct gemv_plan *plan) {
  const struct op_operand *out = &sum->operands[EXCHANGE_OUT], *residual = &sum->operands[EXCHANGE_RESIDUAL];
  const int64_t rows = shape->m / plan->tiles, vectors = shape->m / 4;
  return plan->kernel->parameter_bytes == sizeof(struct gemv_rows_parameters) && shape->batch == 1 &&
         !exchange_choose(op_attributes(sum), exchange_vectors(sum)).chunk && shape->count == 1 && rows % 4 == 0 &&
         rows <= 16 && rows * plan->tiles == shape->m && vectors <= plan->threads * EXCHANGE_BLOCKS_MOST &&
         op_rows_aligned(out, WIDE_LOAD) && (!residual->present || op_rows_aligned(residual, WIDE_LOAD));
}

bool gemv_rows_select(const struct op_call *product, const struct op_call *sum, const struct chip *chip,
                      struct op_launches *launches) {
  const struct op_operand *residual = &sum->task->operands[EXCHANGE_RESIDUAL];
  const struct gemv_shape shape = gemv_shape_of(product->task);
  struct gemv_plan plan;
  launches->count = 0;
  if (shape.batch == 0 || shape.m == 0) return false;
  const struct gemv_problem problem = problem_of(product->task, &shape, chip);
  const struct gemv_choice *choice = gemv_choose(&problem, &plan);
  if (!ends_with_sum(sum->task, &shape, &plan)) return false;
  launches->choice = choice->name, launches->why = choice->why;
  struct gemv_parameters common = parameters_of(product, &shape);
  common.early |= GEMV_OVER_RANKS;
  common.out = sum->data[EXCHANGE_OUT], common.out_dtype = sum->task->operands[EXCHANGE_OUT].dtype;
  common.epilogue.residual = sum->data[EXCHANGE_RESIDUAL], common.epilogue.residual_dtype = residual->dtype;
  const struct gemv_rows_parameters p = {.common = dealt(&plan, &common),
                                         .exchange = exchange_rows_of(sum, plan.blocks, shape.m / 4)};
  plan.blocks += divide_up(shape.m / 4, plan.threads);
  add(product, &plan, &p, sizeof p, launches);
  return true;
}

rondo_status gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct gemv_shape shape = gemv_shape_of(call->task);
  launches->count = 0;
  if (shape.batch == 0 || shape.m == 0) return RONDO_OK;
  const struct gemv_problem problem = problem_of(call->task, &shape, chip);
  struct gemv_plan plan;
  const struct gemv_choice *choice = gemv_choose(&problem, &plan);
  launches->choice = choice->name, launches->why = choice->why;
  const struct gemv_parameters parameters = parameters_of(call, &shape);
  choice->launch(call, &plan, &parameters, launches);
  return RONDO_OK;
}
