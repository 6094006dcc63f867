/* norm.c - rondo_add_rms_norm: the check of its arguments, and its launch. */
#include "norm.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"

rondo_status rondo_add_rms_norm(rondo_graph *graph, const rondo_rms_norm_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_rms_norm: the description is NULL");
  struct op_argument arguments[] = {
      [RMS_NORM_X] = {"x", desc->x, RONDO_READ, 0},
      [RMS_NORM_NORM] = {"norm", desc->norm, RONDO_READ, 0},
      [RMS_NORM_OUT] = {"out", desc->out, RONDO_WRITE, RMS_NORM_X + 1},
      [RMS_NORM_X_PARTS] = {"x_parts", desc->x_parts, RONDO_READ, 0},
      [RMS_NORM_SUM] = {.name = "sum", .access = RONDO_WRITE},
      [RMS_NORM_ZEROS] = {.name = "zeros", .access = RONDO_WRITE},
  };
  struct rms_norm_attributes attributes = {.epsilon = desc->epsilon};
  return graph_add(graph, &op_rms_norm, desc->name, arguments, RMS_NORM_OPERANDS, &attributes, sizeof attributes);
}

/* x_parts is f32 of shape [parts, the dimensions of x], with any number of parts. */
static rondo_status parts_check(const struct op_operand *parts, const struct op_operand *x) {
  if (!parts->present) return RONDO_OK;
  if (x->rank == RONDO_MAX_RANK)
    return op_refuse("x has rank %d, expected less: x_parts has one dimension more than x", RONDO_MAX_RANK);
  int64_t shape[RONDO_MAX_RANK] = {larger(parts->shape[0], 1)};
  memcpy(shape + 1, x->shape, x->rank * sizeof *shape);
  return op_expect("x_parts", parts, RONDO_F32, x->rank + 1, shape);
}

rondo_status rms_norm_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[RMS_NORM_X], *norm = &task->operands[RMS_NORM_NORM];
  const struct op_operand *out = &task->operands[RMS_NORM_OUT];
  const struct rms_norm_attributes *attributes = op_attributes(task);
  OP_TRY(op_expect_not_negative("epsilon", attributes->epsilon));
  if (!x->present || !rows_are_numbers(x->dtype)) return op_unexpected("x", x, "f32, f16 or bf16");
  if (norm->present && !rows_are_numbers(norm->dtype)) return op_unexpected("norm", norm, "f32, f16 or bf16");
  if (out->present && !rows_are_numbers(out->dtype)) return op_unexpected("out", out, "f32, f16 or bf16");
  if (norm->present) OP_TRY(op_expect("norm", norm, norm->dtype, 1, &x->shape[x->rank - 1]));
  OP_TRY(parts_check(&task->operands[RMS_NORM_X_PARTS], x));
  return op_expect("out", out, out->present ? out->dtype : x->dtype, x->rank, x->shape);
}

RMS_NORM_KERNELS(KERNEL_CONSTANT)
RMS_NORM_PARTS_KERNELS(KERNEL_CONSTANT)
RMS_NORM_CLUSTER_KERNELS(KERNEL_CONSTANT)

/* By the length of a row alone, so that the same row has the same bits in any tensor. */
static uint32_t row_threads_of(int64_t k) {
  uint32_t threads = RMS_NORM_FEWEST;
  while (threads < RMS_NORM_ROW_THREADS && (int64_t)threads * RMS_NORM_HELD * 8 < k) threads *= 2;
  return threads;
}

/* Here too the length of a row alone decides. */
static rondo_status add_parts_launch(const struct chip *chip, const struct rms_norm_parameters *parameters,
                                     struct op_launches *launches) {
  const bool is_shared = launch_chip(chip) != CHIP_SM_80 && parameters->k >= RMS_NORM_LONG;
  const int64_t row_blocks = is_shared ? RMS_NORM_CLUSTER : 1, blocks = parameters->rows * row_blocks;
  const int64_t threads = smaller(round_up(divide_up(parameters->k, row_blocks), 32), RMS_NORM_THREADS);
  OP_TRY(launch_check_blocks("x", blocks));
  launch_add(launches, is_shared ? &rondo_rms_norm_parts_cluster : &rondo_rms_norm_parts, blocks, threads, 0,
             parameters, sizeof *parameters);
  return RONDO_OK;
}

rondo_status rms_norm_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *x = &call->task->operands[RMS_NORM_X], *norm = &call->task->operands[RMS_NORM_NORM];
  const struct op_operand *out = &call->task->operands[RMS_NORM_OUT];
  const struct op_operand *parts = &call->task->operands[RMS_NORM_X_PARTS];
  const struct op_operand *sum = &call->task->operands[RMS_NORM_SUM], *zeros = &call->task->operands[RMS_NORM_ZEROS];
  const struct rms_norm_attributes *attributes = op_attributes(call->task);
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  struct rms_norm_parameters parameters = {
      .x = call->data[RMS_NORM_X],
      .norm = call->data[RMS_NORM_NORM],
      .out = call->data[RMS_NORM_OUT],
      .sum = sum->present ? call->data[RMS_NORM_SUM] : NULL,
      .zeros = call->data[RMS_NORM_ZEROS],
      .extent = {1, 1, 1},
      .rows = (uint32_t)rows_count(x),
      .k = (uint32_t)x->shape[x->rank - 1],
      .row_threads = row_threads_of(x->shape[x->rank - 1]),
      .parts = call->data[RMS_NORM_X_PARTS],
      .part = parts->stride[0],
      .zero = zeros->stride[0],
      .sum_row = sum->stride[0],
      .zero_row = zeros->stride[1],
      .part_count = parts->present ? (uint32_t)parts->shape[0] : 0,
      .zero_count = zeros->present ? (uint32_t)zeros->shape[0] : 0,
      .x_dtype = x->dtype,
      .norm_dtype = norm->present ? norm->dtype : 0,
      .out_dtype = out->dtype,
      .x_is_aligned = op_rows_aligned(x, 16),
      .norm_is_aligned = op_rows_aligned(norm, 16),
      .out_is_aligned = op_rows_aligned(out, 16),
      .plain = (uint32_t)attributes->plain,
      .epsilon = attributes->epsilon,
  };
  if (x->dtype != RONDO_F32 && out->dtype == x->dtype && (!norm->present || norm->dtype == x->dtype) &&
      parameters.x_is_aligned && parameters.norm_is_aligned && parameters.out_is_aligned && parameters.k % 8 == 0 &&
      parameters.k <= 8 * RMS_NORM_HELD * RMS_NORM_ROW_THREADS)
    parameters.whole_type = x->dtype;
  parameters.early = parameters.whole_type && norm->present && op_is_settled(call, RMS_NORM_NORM);
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    uint32_t outer = RMS_NORM_OUTER - (x->rank - 1) + i;
    parameters.extent[outer] = (uint32_t)x->shape[i];
    parameters.x_stride[outer] = x->stride[i];
    parameters.out_stride[outer] = out->stride[i];
    if (parts->present) parameters.parts_stride[outer] = parts->stride[i + 1];
  }
  if (parts->present || sum->present || attributes->plain) return add_parts_launch(chip, &parameters, launches);
  const int64_t threads = larger(parameters.row_threads, RMS_NORM_BLOCK);
  launch_add(launches, &rondo_rms_norm, divide_up(parameters.rows, threads / parameters.row_threads), threads, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
