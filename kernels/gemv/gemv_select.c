/* gemv_select.c - what a kernel is told that gemv_short_plan.c, gemv_rows_plan.c, gemv_ring_plan.c,
 * gemv_stream_plan.c, gemv_tall_plan.c or gemv_plan.c chose. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemv_plan.h"

GEMV_OTHER_KERNELS(KERNEL_CONSTANT)

enum { WIDE_LOAD = 16 }; /* bytes */

static uint64_t bytes_of(const struct op_operand *operand, int64_t elements) {
  return (uint64_t)(elements * (int64_t)rondo_dtype_bits(operand->dtype) / 8);
}

static int64_t row_stride(const struct op_operand *operand) { return operand->stride[operand->rank - 2]; }

/* [batch, m], or [m] for all matrices; in elements. */
static int64_t rows_batch(const struct op_operand *operand) { return operand->rank == 2 ? operand->stride[0] : 0; }

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

/* Blocked scales are tiles of 128 rows x 4, in which rows 32 apart lie side by side. */
static struct gemv_scale_strides scale_strides(const struct op_operand *scales, int32_t layout) {
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
    p->batch_bytes.weight_scales = (uint64_t)gemv_batch_stride(weights);
    p->weight_scale_strides = scale_strides(weights, attributes->weight_scale_layout);
  } else if (weights->present) {
    p->batch_bytes.weight_scales = bytes_of(weights, rows_batch(weights));
  }
  if (vectors->present) {
    const struct gemv_scale_strides strides = scale_strides(vectors, attributes->vector_scale_layout);
    p->batch_bytes.vector_scales = (uint64_t)gemv_batch_stride(vectors);
    p->vector_scale_row = strides.row, p->vector_scale_four = strides.four;
  }
}

static void set_finish(struct gemv_parameters *p, const struct op_call *call) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operands = call->task->operands;
  const struct op_operand *bias = &operands[GEMV_BIAS], *residual = &operands[GEMV_RESIDUAL];
  const struct op_operand *out_scales = &operands[GEMV_OUT_SCALES];
  p->silu_mul = (uint32_t)attributes->silu_mul;
  p->finishing = p->silu_mul || bias->present || residual->present || out_scales->present;
  p->bias = call->data[GEMV_BIAS];
  p->bias_dtype = bias->dtype;
  p->residual = call->data[GEMV_RESIDUAL];
  p->residual_dtype = residual->dtype;
  p->out_scales = call->data[GEMV_OUT_SCALES];
  p->out_global_scale = attributes->out_global_scale == 0 ? 1.0f : attributes->out_global_scale;
  p->six_out_global_scale = 6.0f * p->out_global_scale;
  if (bias->present) p->bias_batch = rows_batch(bias);
  if (residual->present) p->residual_batch = gemv_batch_stride(residual), p->residual_row = row_stride(residual);
  if (out_scales->present)
    p->out_scale_batch = gemv_batch_stride(out_scales), p->out_scale_row = row_stride(out_scales);
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
      .batch = (uint32_t)shape->batch,
      .m = (uint32_t)shape->m,
      .k = (uint32_t)shape->k,
      .count = (uint32_t)shape->count,
      .weight_dtype = weights->dtype,
      .vector_dtype = vectors->dtype,
      .out_dtype = out->dtype,
      .scale = attributes->scale,
      .norm_epsilon = attributes->norm_epsilon,
      .mean_factor = 1.0f / (float)larger(shape->k, 1),
  };
  parameters.batch_bytes.weights = bytes_of(weights, gemv_batch_stride(weights));
  parameters.batch_bytes.vectors = bytes_of(vectors, gemv_batch_stride(vectors));
  set_scales(&parameters, call);
  set_finish(&parameters, call);
  /* For all but the kernel for everything, which need rows of whole loads. What they use fits, as a tensor has at most
   * 2^31 elements; f32 scales have batch_bytes alone. */
  parameters.weight_batch = (uint32_t)(parameters.batch_bytes.weights / WIDE_LOAD);
  parameters.vector_batch = (uint32_t)(parameters.batch_bytes.vectors / WIDE_LOAD);
  parameters.weight_scale_batch = (uint32_t)parameters.batch_bytes.weight_scales;
  parameters.vector_scale_batch = (uint32_t)parameters.batch_bytes.vector_scales;
  return parameters;
}

/* Operands that weights' side of the product is made of, which early kernels read before they wait. */
enum { EARLY_OPERANDS = 1 << GEMV_WEIGHTS | 1 << GEMV_WEIGHT_SCALES };

static bool may_read_early(const struct op_call *call) {
  uint32_t needed = EARLY_OPERANDS;
  if (!call->task->operands[GEMV_WEIGHT_SCALES].present) needed &= ~(1u << GEMV_WEIGHT_SCALES);
  return (call->settled_operands & needed) == needed;
}

static void set_parts(struct gemv_parameters *p, int64_t parts, int64_t groups, int64_t chunks, int64_t tiles) {
  p->parts = (uint32_t)parts, p->groups = (uint32_t)groups;
  p->chunks = (uint32_t)chunks, p->tiles = (uint32_t)tiles;
  p->part_reciprocal = (uint32_t)divide_up(1 << 16, parts);
}

/* ---- The kernel for everything ---------------------------------------------------------------------------------- */

enum { ENOUGH_BLOCKS = 264, MOST_GRID_Y = 65535 };

/* Fewer rows a block, and more of its warps along k, where there would be few blocks; but a block of NVFP4 results is
 * written by one block. */
static void add_scalar(struct op_launches *launches, struct gemv_parameters *p) {
  const int64_t warps = GEMV_SCALAR_THREADS / 32, steps = divide_up(p->k, GEMV_SCALAR_STEP);
  int64_t groups = warps;
  while (p->out_dtype != RONDO_NVFP4 && groups > 1 && warps / groups * 2 <= steps &&
         divide_up(p->m, groups * GEMV_SCALAR_ROWS) * p->batch < ENOUGH_BLOCKS)
    groups /= 2;
  set_parts(p, warps / groups, groups, divide_up(steps, warps / groups), divide_up(p->m, groups * GEMV_SCALAR_ROWS));
  struct op_launch *launch = launch_add(launches, &rondo_gemv_scalar, p->tiles, GEMV_SCALAR_THREADS, 0, p, sizeof *p);
  launch->grid[1] = (uint32_t)smaller(p->batch, MOST_GRID_Y);
  launch->grid[2] = (uint32_t)divide_up(p->batch, launch->grid[1]);
}

/* ---- The choice ------------------------------------------------------------------------------------------------- */

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
                                      const struct gemv_parameters *p, const struct chip *chip) {
  const struct gemv_attributes *attributes = op_attributes(task);
  const struct op_operand *operands = task->operands;
  struct gemv_problem problem = {
      .weights = operands[GEMV_WEIGHTS].dtype,
      .vectors = operands[GEMV_VECTORS].dtype,
      .batch = shape->batch,
      .m = shape->m,
      .k = shape->k,
      .count = shape->count,
      .chip = launch_chip(chip),
      .multiprocessors = chip->multiprocessors,
      .row_multiple = (p->out_dtype == RONDO_NVFP4 ? INT64_C(1) * GEMV_BLOCK : 1) * (p->silu_mul ? 2 : 1),
      .scale_bytes = 8,
      .wide_loads = shape->k > 0 && has_wide_rows(&operands[GEMV_WEIGHTS]) && has_wide_rows(&operands[GEMV_VECTORS]),
      .dense_weights = has_dense_weights(operands),
      .packed_weights = has_packed_weights(operands),
      .norm = p->norm_epsilon > 0,
      .finishing = p->finishing,
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

static void add(struct op_launches *launches, const struct gemv_parameters *p, const struct op_kernel *kernel,
                int64_t blocks, int64_t threads, int64_t shared_bytes) {
  struct op_launch *launch = launch_add(launches, kernel, blocks, threads, (uint64_t)shared_bytes, p, sizeof *p);
  launch->grid[1] = p->batch;
}

/* A part is a load, and a group eight rows. */
static void add_short(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_short_plan *plan) {
  set_parts(p, p->k / (2 * GEMV_BLOCK), plan->groups, 1, 1);
  add(launches, p, &plan->variant->kernel, plan->blocks, INT64_C(32) * GEMV_SHORT_WARPS, plan->shared_bytes);
}

/* A part is a load of a row, and a stage a slot. */
static void add_rows(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_rows_plan *plan) {
  set_parts(p, plan->row_loads, 1, 1, 1);
  p->block_rows = (uint32_t)plan->block_rows, p->first_stage = (uint32_t)plan->first_stage;
  p->stage_bytes = (uint32_t)plan->slot_bytes;
  add(launches, p, &plan->variant->kernel, plan->blocks, 32 * plan->warps, plan->shared_bytes);
}

static void add_ring(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_ring_plan *plan) {
  set_parts(p, plan->parts, plan->groups, 1, plan->tiles);
  p->block_rows = (uint32_t)plan->block_rows, p->group_rows = (uint32_t)plan->group_rows;
  p->stages = (uint32_t)plan->stages, p->stage_bytes = (uint32_t)plan->stage_bytes;
  p->first_stage = (uint32_t)plan->first_stage;
  p->window_tiles = (uint32_t)plan->window_tiles, p->window_pitch = (uint32_t)plan->window_pitch;
  p->held_pitch = (uint32_t)plan->held_pitch;
  add(launches, p, &plan->variant->kernel, plan->blocks, plan->threads, plan->shared_bytes);
}

static void add_stream(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_stream_plan *plan) {
  set_parts(p, plan->parts, plan->groups, plan->chunks, plan->tiles);
  p->first_stage = (uint32_t)plan->first_stage;
  add(launches, p, &plan->variant->kernel, plan->blocks, plan->threads, plan->shared_bytes);
}

/* A stage is a slot, and a group one that is asked for before the vectors. */
static void add_tall(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_tall_plan *plan) {
  set_parts(p, 1, plan->first_slots, 1, plan->tiles);
  p->stages = (uint32_t)plan->slots, p->stage_bytes = (uint32_t)plan->slot_bytes;
  p->first_stage = (uint32_t)plan->first_stage;
  add(launches, p, &plan->variant->kernel, plan->blocks, plan->variant->kernel.threads, plan->shared_bytes);
}

static void add_tiles(struct op_launches *launches, struct gemv_parameters *p, const struct gemv_plan *plan) {
  set_parts(p, plan->parts, plan->groups, plan->chunks, plan->tiles);
  if (plan->starts_one) p->early |= GEMV_STARTS_ONE;
  add(launches, p, &plan->variant->kernel, plan->blocks, 32 * plan->parts * plan->groups, plan->shared_bytes);
}

rondo_status gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct gemv_shape shape = gemv_shape_of(call->task);
  launches->count = 0;
  if (shape.batch == 0 || shape.m == 0) return RONDO_OK;
  struct gemv_parameters parameters = parameters_of(call, &shape);
  struct gemv_problem problem = problem_of(call->task, &shape, &parameters, chip);
  const struct gemv_short_plan of_short = gemv_short_plan_of(&problem);
  const struct gemv_rows_plan of_rows = gemv_rows_plan_of(&problem);
  const struct gemv_ring_plan ring = gemv_ring_plan_of(&problem);
  const struct gemv_stream_plan stream = gemv_stream_plan_of(&problem);
  const struct gemv_tall_plan of_tall = gemv_tall_plan_of(&problem);
  const struct gemv_plan tiles = gemv_plan_of(&problem);
  parameters.early = may_read_early(call) ? GEMV_READS_EARLY : 0;
  if (parameters.early && parameters.norm && call->settled_operands & 1u << GEMV_NORM)
    parameters.early |= GEMV_NORM_EARLY;
  if (of_short.variant)
    add_short(launches, &parameters, &of_short);
  else if (of_rows.variant)
    add_rows(launches, &parameters, &of_rows);
  else if (ring.variant)
    add_ring(launches, &parameters, &ring);
  else if (stream.variant)
    add_stream(launches, &parameters, &stream);
  else if (of_tall.variant)
    add_tall(launches, &parameters, &of_tall);
  else if (tiles.variant)
    add_tiles(launches, &parameters, &tiles);
  else
    add_scalar(launches, &parameters);
  return RONDO_OK;
}
