/* quantize_e4m3.c - rondo_add_quantize_e4m3: the check of its arguments, and its launch. */
#include "quantize_e4m3.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"

rondo_status rondo_add_quantize_e4m3(rondo_graph *graph, const rondo_quantize_e4m3_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_quantize_e4m3: the description is NULL");
  struct op_argument arguments[] = {
      [QUANTIZE_E4M3_X] = {"x", desc->x, RONDO_READ, 0},
      [QUANTIZE_E4M3_CODES] = {"codes", desc->codes, RONDO_WRITE, 0},
      [QUANTIZE_E4M3_SCALES] = {"scales", desc->scales, RONDO_WRITE, 0},
  };
  return graph_add(graph, &op_quantize_e4m3, desc->name, arguments, QUANTIZE_E4M3_OPERANDS, NULL, 0);
}

rondo_status quantize_e4m3_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[QUANTIZE_E4M3_X];
  if (!x->present || !rows_are_numbers(x->dtype) || x->rank < 2)
    return op_unexpected("x", x, "f32, f16 or bf16 in at least two dimensions");
  OP_TRY(op_expect("codes", &task->operands[QUANTIZE_E4M3_CODES], RONDO_E4M3, x->rank, x->shape));
  return op_expect("scales", &task->operands[QUANTIZE_E4M3_SCALES], RONDO_F32, x->rank - 1, x->shape);
}

QUANTIZE_E4M3_KERNELS(KERNEL_CONSTANT)

static uint32_t row_threads_of(int64_t k) {
  uint32_t threads = 32;
  while (threads < QUANTIZE_E4M3_THREADS && (int64_t)threads * QUANTIZE_E4M3_HELD * 8 < k) threads *= 2;
  return threads;
}

/* A row without elements has a scale, too. */
rondo_status quantize_e4m3_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *x = &call->task->operands[QUANTIZE_E4M3_X];
  const struct op_operand *codes = &call->task->operands[QUANTIZE_E4M3_CODES];
  const struct op_operand *scales = &call->task->operands[QUANTIZE_E4M3_SCALES];
  (void)chip;
  launches->count = 0;
  if (rows_count(x) == 0) return RONDO_OK;
  struct quantize_e4m3_parameters parameters = {
      .x = call->data[QUANTIZE_E4M3_X],
      .codes = call->data[QUANTIZE_E4M3_CODES],
      .scales = call->data[QUANTIZE_E4M3_SCALES],
      .extent = {1, 1, 1},
      .rows = (uint32_t)rows_count(x),
      .k = (uint32_t)x->shape[x->rank - 1],
      .row_threads = row_threads_of(x->shape[x->rank - 1]),
      .dtype = x->dtype,
      .x_is_aligned = op_rows_aligned(x, 16),
      .codes_are_aligned = op_rows_aligned(codes, 8),
  };
  if (parameters.x_is_aligned && parameters.codes_are_aligned && parameters.k % 8 == 0)
    parameters.whole_type = x->dtype;
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    const uint32_t outer = QUANTIZE_E4M3_OUTER - (x->rank - 1) + i;
    parameters.extent[outer] = (uint32_t)x->shape[i];
    parameters.x_stride[outer] = x->stride[i];
    parameters.code_stride[outer] = codes->stride[i];
    parameters.scale_stride[outer] = scales->stride[i];
  }
  const int64_t threads = larger(parameters.row_threads, QUANTIZE_E4M3_BLOCK);
  launch_add(launches, &rondo_quantize_e4m3, divide_up(parameters.rows, threads / parameters.row_threads), threads, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
