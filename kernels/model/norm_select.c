/* norm_select.c - chooses the number of threads of a row. It depends on the row's length alone, so that the same row
 * has the same bits in any tensor. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"
#include "norm.h"

RMS_NORM_KERNELS(KERNEL_CONSTANT)

enum { WARP = 32 };

static uint32_t row_threads_of(int64_t k) {
  uint32_t threads = RMS_NORM_FEWEST;
  while (threads < RMS_NORM_THREADS && (int64_t)threads * RMS_NORM_HELD * 8 < k) threads *= 2;
  return threads;
}

rondo_status rms_norm_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *x = &call->task->operands[RMS_NORM_X], *norm = &call->task->operands[RMS_NORM_NORM];
  const struct op_operand *out = &call->task->operands[RMS_NORM_OUT];
  const struct op_operand *parts = &call->task->operands[RMS_NORM_X_PARTS];
  const struct rms_norm_attributes *attributes = op_attributes(call->task);
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  struct rms_norm_parameters parameters = {
      .x = call->data[RMS_NORM_X],
      .norm = call->data[RMS_NORM_NORM],
      .out = call->data[RMS_NORM_OUT],
      .extent = {1, 1, 1},
      .rows = (uint32_t)rows_count(x),
      .k = (uint32_t)x->shape[x->rank - 1],
      .row_threads = row_threads_of(x->shape[x->rank - 1]),
      .parts = call->data[RMS_NORM_X_PARTS],
      .part = parts->stride[0],
      .part_count = parts->present ? (uint32_t)parts->shape[0] : 0,
      .x_dtype = x->dtype,
      .norm_dtype = norm->present ? norm->dtype : 0,
      .out_dtype = out->dtype,
      .x_is_aligned = op_rows_aligned(x, 16),
      .norm_is_aligned = op_rows_aligned(norm, 16),
      .out_is_aligned = op_rows_aligned(out, 16),
      .epsilon = attributes->epsilon,
  };
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    uint32_t outer = RMS_NORM_OUTER - (x->rank - 1) + i;
    parameters.extent[outer] = (uint32_t)x->shape[i];
    parameters.x_stride[outer] = x->stride[i];
    parameters.out_stride[outer] = out->stride[i];
    if (parts->present) parameters.parts_stride[outer] = parts->stride[i + 1];
  }
  int64_t threads = larger(parameters.row_threads, RMS_NORM_BLOCK);
  if (parts->present)
    launch_add(launches, &rondo_rms_norm_parts, parameters.rows,
               smaller(round_up(parameters.k, WARP), RMS_NORM_THREADS), 0, &parameters, sizeof parameters);
  else
    launch_add(launches, &rondo_rms_norm, divide_up(parameters.rows, threads / parameters.row_threads), threads, 0,
               &parameters, sizeof parameters);
  return RONDO_OK;
}
