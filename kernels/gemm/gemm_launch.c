/* gemm_launch.c - the problem of a product of many rows, and the launch of a plan: parameters and tensor maps. */
#include <assert.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemm_choose.h"

/* ---- The problem ------------------------------------------------------------------------------------------------- */

static bool has_map(const struct op_operand *operand) {
  const struct op_operand three = with_batch(operand);
  return has_tensor_map(&three);
}

/* NVFP4's codes as bytes, for their map. */
static struct op_operand bytes_of_codes(const struct op_operand *weights) {
  struct op_operand bytes = *weights;
  const uint32_t last = weights->rank - 1;
  bytes.dtype = RONDO_E4M3;
  bytes.shape[last] /= 2;
  for (uint32_t i = 0; i < last; i++) bytes.stride[i] /= 2;
  return bytes;
}

/* A slot has scales in words, for 64 of k. */
static bool fills_slots(const struct op_task *task) {
  const struct op_operand *weights = &task->operands[GEMV_WEIGHTS], *scales = &task->operands[GEMV_WEIGHT_SCALES];
  const struct op_operand bytes = bytes_of_codes(weights);
  return weights->shape[weights->rank - 1] % GEMM_DEPTH == 0 && has_map(&bytes) && op_rows_aligned(scales, 4);
}

/* A copy out writes whole pieces of 16 bytes, also past the last column. */
static bool leaves_by_map(const struct op_operand *out) {
  return out->dtype != RONDO_F32 && has_map(out) && out->shape[out->rank - 1] % 8 == 0;
}

static bool moves_in_pairs(const struct op_operand *operand) {
  return !operand->present || op_rows_aligned(operand, rondo_dtype_bits(operand->dtype) / 4);
}

/* Out, residual and second result move by boxes, with nothing else. */
static bool is_streamed(const struct op_operand *operands) {
  const struct op_operand *out = &operands[GEMV_OUT], *residual = &operands[GEMV_RESIDUAL];
  return out->dtype == RONDO_F32 && has_map(out) && out->shape[out->rank - 1] % 8 == 0 && residual->present &&
         residual->dtype == RONDO_F32 && has_map(residual) && !operands[GEMV_BIAS].present &&
         operands[GEMM_NORMED].present && has_map(&operands[GEMM_NORMED]) && op_rows_aligned(&operands[GEMV_NORM], 4);
}

/* See gemm_problem. */
static bool has_one_type(const struct op_operand *operands, bool silu_mul) {
  const rondo_dtype dtype = operands[GEMV_VECTORS].dtype;
  const struct op_operand *out = &operands[GEMV_OUT], *residual = &operands[GEMV_RESIDUAL];
  if (out->dtype != dtype || !leaves_by_map(out) || operands[GEMV_BIAS].present) return false;
  return !residual->present || (residual->dtype == dtype && has_map(residual) && !silu_mul);
}

/* The operands as their alignment is asked for. The stride of a single row leads nowhere, but with one_order it counts:
 * the row has the bits that it has among others. */
static void operands_copy(const struct op_task *task, struct op_operand operands[GEMM_OPERANDS]) {
  static const int of_rows[] = {GEMV_VECTORS, GEMV_OUT, GEMV_RESIDUAL};
  const struct gemv_attributes *attributes = op_attributes(task);
  memcpy(operands, task->operands, GEMM_OPERANDS * sizeof *operands);
  for (size_t i = 0; attributes->one_order && i < sizeof of_rows / sizeof *of_rows; i++) {
    struct op_operand *operand = &operands[of_rows[i]];
    if (operand->present && operand->shape[operand->rank - 2] == 1) operand->shape[operand->rank - 2] = 2;
  }
}

struct gemm_problem gemm_problem_of(const struct op_call *call, const struct chip *chip) {
  struct op_operand operands[GEMM_OPERANDS];
  operands_copy(call->task, operands);
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct gemv_shape shape = gemv_shape_of(call->task);
  const bool in_pairs = shape.m % 2 == 0 && moves_in_pairs(&operands[GEMV_OUT]) &&
                        moves_in_pairs(&operands[GEMV_BIAS]) && moves_in_pairs(&operands[GEMV_RESIDUAL]);
  const bool is_e4m3 = operands[GEMV_VECTORS].dtype == RONDO_E4M3;
  const bool has_codes = operands[GEMV_WEIGHTS].dtype == RONDO_NVFP4;
  const bool scales_in_pairs = !is_e4m3 || moves_in_pairs(&operands[GEMV_WEIGHT_SCALES]);
  const bool maps_weights = has_codes ? fills_slots(call->task) : has_map(&operands[GEMV_WEIGHTS]) && scales_in_pairs;
  const bool streamed = is_streamed(operands), has_second = operands[GEMM_NORMED].present;
  return (struct gemm_problem){
      .has_maps = chip->version == 90 && in_pairs && maps_weights && has_map(&operands[GEMV_VECTORS]) &&
                  (streamed || !has_second),
      .has_codes = has_codes,
      .is_e4m3 = is_e4m3,
      .one_order = attributes->one_order != 0,
      .one_type = streamed || has_one_type(operands, attributes->silu_mul != 0),
      .silu_mul = attributes->silu_mul != 0,
      .has_residual = operands[GEMV_RESIDUAL].present,
      .row_factors = operands[GEMM_VECTOR_SQUARES].present,
      .streamed = streamed,
      .has_norms = gemm_has_norms(call->task),
      .batch = shape.batch,
      .rows = shape.count,
      .columns = shape.m,
      .k = shape.k,
      .most_parts = gemm_most_parts(call->task),
      .multiprocessors = chip->multiprocessors,
      .shared_bytes = chip->shared_bytes,
  };
}

static struct gemm_finish finish_of(const struct op_call *call) {
  const struct op_operand *out = &call->task->operands[GEMV_OUT], *bias = &call->task->operands[GEMV_BIAS];
  const struct op_operand *residual = &call->task->operands[GEMV_RESIDUAL];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  return (struct gemm_finish){
      .out = call->data[GEMV_OUT],
      .bias = bias->present ? call->data[GEMV_BIAS] : NULL,
      .residual = residual->present ? call->data[GEMV_RESIDUAL] : NULL,
      .out_batch = gemv_batch_stride(out),
      .out_row = out->stride[out->rank - 2],
      .bias_batch = bias->present && bias->rank == 2 ? bias->stride[0] : 0,
      .residual_batch = residual->present ? gemv_batch_stride(residual) : 0,
      .residual_row = residual->present ? residual->stride[residual->rank - 2] : 0,
      .out_dtype = out->dtype,
      .bias_dtype = bias->dtype,
      .residual_dtype = residual->dtype,
      .silu_mul = (uint32_t)attributes->silu_mul,
      .scale = attributes->scale,
  };
}

static struct gemm_norms norms_of(const struct op_call *call) {
  const struct op_operand *operands = call->task->operands, *normed = &operands[GEMM_NORMED];
  const struct op_operand *squares = &operands[GEMM_SQUARES], *vector_squares = &operands[GEMM_VECTOR_SQUARES];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  struct gemm_norms norms = {.vector_squares = call->data[GEMM_VECTOR_SQUARES], .norm = call->data[GEMV_NORM]};
  if (vector_squares->present) {
    const int64_t k = gemv_shape_of(call->task).k;
    norms.vector_squares_batch = gemv_batch_stride(vector_squares);
    norms.vector_squares_group = vector_squares->stride[vector_squares->rank - 2];
    norms.vector_groups = (uint32_t)gemm_groups(k), norms.in_fours = op_rows_aligned(vector_squares, 16);
    norms.mean_factor = 1.0f / (float)k, norms.epsilon = attributes->norm_epsilon, norms.scale = attributes->scale;
  }
  if (normed->present) {
    norms.normed = call->data[GEMM_NORMED], norms.squares = call->data[GEMM_SQUARES];
    norms.normed_batch = gemv_batch_stride(normed), norms.normed_row = normed->stride[normed->rank - 2];
    norms.squares_batch = gemv_batch_stride(squares), norms.squares_group = squares->stride[squares->rank - 2];
  }
  return norms;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

rondo_status gemm_few_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                             const struct gemm_plan *plan, struct op_launches *launches) {
  (void)plan;
  const rondo_status status = gemv_select(call, chip, launches);
  launches->choice = choice->name, launches->why = choice->why;
  return status;
}

static void map_add(struct op_launch *launch, size_t offset, const struct op_call *call, int which, int rows,
                    int columns) {
  struct op_operand operand = with_batch(&call->task->operands[which]);
  if (operand.dtype == RONDO_NVFP4) operand = bytes_of_codes(&operand);
  launch_map(launch, offset, &operand, call->data[which], (const uint32_t[]){1, (uint32_t)rows, (uint32_t)columns});
}

/* How a residual comes and results leave: see the parameters of the same names. */
struct gemm_moves {
  bool streamed, by_map, boxed;
  int box_rows;
  uint32_t columns; /* of a box of the residual: 128 bytes; 0: it has no map, or not the columns of the sums */
};

static struct gemm_moves moves_of(const struct op_call *call, const struct gemm_tile *tile) {
  const struct op_operand *operands = call->task->operands, *residual = &operands[GEMV_RESIDUAL];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const bool gates_by_box =
      tile->swapped ? has_one_type(operands, true) : gemm_tile_gates_by_box(*tile) && !residual->present;
  const bool streamed = is_streamed(operands);
  const bool is_fetched = residual->present && !attributes->silu_mul && has_map(residual);
  struct gemm_moves moves = {
      .streamed = streamed,
      .by_map = streamed || (leaves_by_map(&operands[GEMV_OUT]) && (!attributes->silu_mul || gates_by_box)),
      .columns = is_fetched ? 1024 / rondo_dtype_bits(residual->dtype) : 0,
      .box_rows = tile->swapped ? (int)smaller(gemm_tile_stored(*tile), 64) : 64,
  };
  moves.boxed = streamed || (moves.by_map && moves.columns && residual->dtype != RONDO_F32);
  return moves;
}

static int depth_of(const struct gemm_choice *choice) {
  return choice->kernel->types == GEMM_E4M3 ? GEMM_E4M3_DEPTH : GEMM_DEPTH;
}

struct gemm_divisor gemm_divisor_of(int64_t by) {
  uint32_t shift = 0;
  while ((int64_t)1 << shift < by) shift++;
  return (struct gemm_divisor){(uint32_t)by, (uint32_t)divide_up((int64_t)1 << (31 + shift), by), shift};
}

static enum gemm_scale_copies scale_copies_of(const struct op_call *call) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  if (attributes->weight_scale_layout == RONDO_SCALES_128X4) return GEMM_SCALES_BLOCKED;
  return op_rows_aligned(&call->task->operands[GEMV_WEIGHT_SCALES], 16) ? GEMM_SCALES_IN_SIXTEEN : GEMM_SCALES_BY_ROW;
}

static struct gemm_wgmma_parameters wgmma_parameters_of(const struct op_call *call, const struct gemm_choice *choice,
                                                        const struct gemm_plan *plan, const struct gemm_moves *moves) {
  const struct op_operand *operands = call->task->operands;
  const struct op_operand *out = &operands[GEMV_OUT], *scales = &operands[GEMV_WEIGHT_SCALES];
  const struct op_operand *vector_scales = &operands[GEMV_VECTOR_SCALES];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct gemv_shape shape = gemv_shape_of(call->task);
  const struct gemm_finish finish = finish_of(call);
  const bool has_codes = choice->kernel->tile.slots > 0, is_e4m3 = choice->kernel->types == GEMM_E4M3;
  const bool row_factors = operands[GEMM_VECTOR_SQUARES].present, has_residual = operands[GEMV_RESIDUAL].present;
  const int64_t clusters = plan->grid / gemm_tile_cluster(choice->kernel->tile);
  const int64_t group = smaller(plan->group, plan->p_units);
  struct gemm_wgmma_parameters parameters = {
      .of_matrix = gemm_divisor_of(plan->p_units * plan->q_units),
      .of_group = gemm_divisor_of(group * plan->q_units),
      .along = gemm_divisor_of(group),
      .last_along = gemm_divisor_of(larger(plan->p_units % group, 1)),
      .groups = (uint32_t)(plan->p_units / group),
      .least = (uint32_t)(plan->units / clusters),
      .more = (uint32_t)(plan->units % clusters),
      .steps = (uint32_t)divide_up(shape.k, depth_of(choice)),
      .rows = (uint32_t)shape.count,
      .columns = (uint32_t)shape.m,
      .is_bf16 = operands[GEMV_VECTORS].dtype == RONDO_BF16,
      .weights_early = op_is_settled(call, GEMV_WEIGHTS) && (!has_codes || op_is_settled(call, GEMV_WEIGHT_SCALES)),
      .by_map = moves->by_map,
      .in_fours = out->dtype != RONDO_F32 && op_rows_aligned(out, 8) && shape.m % 8 == 0 && !has_residual,
      .finishing =
          has_codes || is_e4m3 || finish.scale != 1 || row_factors || operands[GEMV_BIAS].present || has_residual,
      .fetched = moves->boxed ? 0 : moves->columns,
      .boxed = moves->boxed,
      .row_factors = row_factors,
      .streamed = moves->streamed,
      .scales = call->data[GEMV_WEIGHT_SCALES],
      .finish = finish,
      .norms = norms_of(call),
      .row_scales = call->data[GEMV_VECTOR_SCALES],
      .row_scales_batch = vector_scales->present && vector_scales->rank == 2 ? vector_scales->stride[0] : 0,
  };
  if (has_codes) {
    parameters.scale_batch = (uint32_t)gemv_batch_stride(scales);
    parameters.scale_strides = gemv_scale_strides_of(scales, attributes->weight_scale_layout);
    parameters.scale_copies = scale_copies_of(call);
  }
  if (is_e4m3) {
    parameters.column_scales = call->data[GEMV_WEIGHT_SCALES];
    parameters.column_scales_batch = scales->present && scales->rank == 2 ? scales->stride[0] : 0;
  }
  return parameters;
}

rondo_status gemm_wgmma_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                               const struct gemm_plan *plan, struct op_launches *launches) {
  (void)chip;
  const struct gemm_tile *tile = &choice->kernel->tile;
  const struct gemm_moves moves = moves_of(call, tile);
  const struct gemm_wgmma_parameters parameters = wgmma_parameters_of(call, choice, plan, &moves);
  /* Parts begin at slots, and two warpgroups take turns at the steps of a part. */
  assert(tile->turns != 2 || parameters.steps >= (uint32_t)(GEMM_SLOT_STEPS * tile->parts));
  const int depth = depth_of(choice), out_columns = parameters.finish.silu_mul ? gemm_tile_gated_columns(*tile) : 64;
  struct op_launch *launch = launch_add(launches, &choice->kernel->kernel, plan->grid, choice->kernel->kernel.threads,
                                        (uint64_t)plan->shared_bytes, &parameters, sizeof parameters);
  const size_t of_p = offsetof(struct gemm_wgmma_parameters, p), of_q = offsetof(struct gemm_wgmma_parameters, q);
  const int p_rows = gemm_tile_p(*tile) / tile->along_q, q_rows = tile->columns / tile->along_p;
  map_add(launch, tile->swapped ? of_q : of_p, call, GEMV_VECTORS,
          (tile->swapped ? q_rows : p_rows) - gemm_x_missing(*tile, parameters.rows), depth);
  map_add(launch, tile->swapped ? of_p : of_q, call, GEMV_WEIGHTS, tile->swapped ? p_rows : q_rows,
          tile->slots > 0 ? GEMM_CODE_BYTES : depth);
  if (moves.columns)
    map_add(launch, offsetof(struct gemm_wgmma_parameters, residual), call, GEMV_RESIDUAL, moves.box_rows,
            (int)moves.columns);
  if (moves.by_map)
    map_add(launch, offsetof(struct gemm_wgmma_parameters, out), call, GEMV_OUT, moves.box_rows,
            moves.streamed ? 32 : out_columns);
  if (moves.streamed)
    map_add(launch, offsetof(struct gemm_wgmma_parameters, normed), call, GEMM_NORMED, moves.box_rows, 64);
  return RONDO_OK;
}

rondo_status gemm_slices_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                                const struct gemm_plan *plan, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *operands = call->task->operands, *scales = &operands[GEMV_WEIGHT_SCALES];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct gemv_shape shape = gemv_shape_of(call->task);
  const int groups = plan->groups, rows = (int)shape.count, has_one_tile = plan->units * plan->parts == plan->grid;
  const int parts = choice->kernel->parts, stages = gemm_slices_stages(groups, rows, parts, has_one_tile);
  const int stage_bytes = gemm_slices_stage_bytes(groups, rows);
  const struct gemm_slices_parameters parameters = {
      .of_matrix = gemm_divisor_of(plan->p_units),
      .tiles = (uint32_t)plan->units,
      .groups = (uint32_t)groups,
      .doubled = (uint32_t)gemm_slices_doubled(groups),
      .slices_shift = (uint32_t)gemm_slices_shift(groups),
      .readers = (uint32_t)gemm_slices_readers(groups),
      .stages = (uint32_t)stages,
      .stage_bytes = (uint32_t)stage_bytes,
      .codes_at = (uint32_t)gemm_slices_codes_at(rows),
      .scales_at = (uint32_t)gemm_slices_scales_at(groups, rows),
      .sums_at = has_one_tile ? 0 : (uint32_t)(stages * stage_bytes),
      .factors_at = (uint32_t)gemm_slices_factors_at(groups, rows, parts, has_one_tile),
      .steps = (uint32_t)divide_up(shape.k, GEMM_SLICES_DEPTH),
      .rows = (uint32_t)rows,
      .columns = (uint32_t)shape.m,
      .is_bf16 = operands[GEMV_VECTORS].dtype == RONDO_BF16,
      .weights_early = op_is_settled(call, GEMV_WEIGHTS) && op_is_settled(call, GEMV_WEIGHT_SCALES),
      .k = (uint32_t)shape.k,
      .scale_batch = (uint32_t)gemv_batch_stride(scales),
      .scale_copies = scale_copies_of(call),
      .scale_strides = gemv_scale_strides_of(scales, attributes->weight_scale_layout),
      .scales = call->data[GEMV_WEIGHT_SCALES],
      .out_whole = op_rows_aligned(&operands[GEMV_OUT], 16),
      .residual_whole = op_rows_aligned(&operands[GEMV_RESIDUAL], 16),
      .normed_whole = op_rows_aligned(&operands[GEMM_NORMED], 16),
      .norm_whole = op_rows_aligned(&operands[GEMV_NORM], 16),
      .finish = finish_of(call),
      .norms = norms_of(call),
  };
  struct op_launch *launch = launch_add(launches, &choice->kernel->kernel, plan->grid, choice->kernel->kernel.threads,
                                        (uint64_t)plan->shared_bytes, &parameters, sizeof parameters);
  map_add(launch, offsetof(struct gemm_slices_parameters, w), call, GEMV_WEIGHTS, groups * GEMM_SLICES_ROWS,
          GEMM_CODE_BYTES);
  map_add(launch, offsetof(struct gemm_slices_parameters, x), call, GEMV_VECTORS, gemm_slices_panel_rows(rows),
          GEMM_SLICES_DEPTH);
  return RONDO_OK;
}

GEMM_SUM_KERNELS(KERNEL_CONSTANT)

/* See gemm_portable_parameters. */
static bool is_plain(const struct op_call *call, const struct gemm_portable_parameters *p) {
  const struct op_operand *residual = &call->task->operands[GEMV_RESIDUAL];
  return p->finish.out_dtype != RONDO_F32 && p->out_whole && !gemm_has_norms(call->task) &&
         (!residual->present || (residual->dtype != RONDO_F32 && p->residual_whole));
}

/* Sums of parts of k go to scratch, as numbers of f32. */
static void leave_as_parts(const struct op_call *call, struct gemm_portable_parameters *p) {
  const int64_t columns = round_up(p->columns, 8);
  p->out_whole = 1, p->plain = 0;
  p->finish = (struct gemm_finish){
      .out = call->scratch, .out_batch = p->rows * columns, .out_row = columns, .out_dtype = RONDO_F32, .scale = 1};
}

/* The stride of a single row leads nowhere, so it may be odd. Of 0 the copies of absent rows begin where the row does.
 */
static int64_t row_stride(const struct op_operand *operand) {
  return operand->shape[operand->rank - 2] > 1 ? operand->stride[operand->rank - 2] : 0;
}

rondo_status gemm_portable_launch(const struct op_call *call, const struct chip *chip, const struct gemm_choice *choice,
                                  const struct gemm_plan *plan, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *x = &call->task->operands[GEMV_VECTORS], *w = &call->task->operands[GEMV_WEIGHTS];
  const struct op_operand *scales = &call->task->operands[GEMV_WEIGHT_SCALES];
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct gemv_shape shape = gemv_shape_of(call->task);
  const bool has_codes = choice->kernel->portable.codes;
  const int64_t numbers = gemm_part_numbers(call->task);
  struct gemm_portable_parameters parameters = {
      .x = call->data[GEMV_VECTORS],
      .w = call->data[GEMV_WEIGHTS],
      .x_batch = gemv_batch_stride(x),
      .x_row = row_stride(x),
      .w_batch = gemv_batch_stride(w),
      .w_row = row_stride(w),
      .k = shape.k,
      .rows = (uint32_t)shape.count,
      .columns = (uint32_t)shape.m,
      .row_tiles = (uint32_t)plan->row_tiles,
      .column_tiles = (uint32_t)plan->column_tiles,
      .group = (uint32_t)(GEMM_PORTABLE_GROUP_ROWS / choice->kernel->portable.x),
      .parts = (uint32_t)plan->parts,
      .units = (uint32_t)(numbers / 8),
      .part_k = round_up(divide_up(shape.k, plan->parts), GEMM_PORTABLE_DEPTH),
      .part_numbers = numbers,
      .sums = plan->parts > 1 ? call->scratch : NULL,
      .is_bf16 = x->dtype == RONDO_BF16,
      .vectors = op_rows_aligned(x, 16) && (has_codes || op_rows_aligned(w, 16)),
      .code_words = has_codes && op_rows_aligned(w, 8),
      .out_whole = op_rows_aligned(&call->task->operands[GEMV_OUT], 16),
      .residual_whole = op_rows_aligned(&call->task->operands[GEMV_RESIDUAL], 16),
      .normed_whole = op_rows_aligned(&call->task->operands[GEMM_NORMED], 16),
      .norm_whole = op_rows_aligned(&call->task->operands[GEMV_NORM], 16),
      .finish = finish_of(call),
      .norms = norms_of(call),
  };
  if (has_codes) {
    parameters.scales = call->data[GEMV_WEIGHT_SCALES];
    parameters.scale_batch = (uint32_t)gemv_batch_stride(scales);
    parameters.scale_strides = gemv_scale_strides_of(scales, attributes->weight_scale_layout);
  }
  const struct op_kernel *kernel = &choice->kernel->kernel, *adding = &rondo_gemm_portable_sum;
  parameters.plain = is_plain(call, &parameters);
  struct gemm_portable_parameters of_tiles = parameters;
  if (plan->parts > 1) leave_as_parts(call, &of_tiles);
  launch_add(launches, kernel, plan->grid, kernel->threads, (uint64_t)plan->shared_bytes, &of_tiles, sizeof of_tiles);
  if (plan->parts > 1)
    launch_add(launches, adding, divide_up(parameters.units, adding->threads), adding->threads, 0, &parameters,
               sizeof parameters);
  return RONDO_OK;
}
