/* argmax.c - rondo_add_argmax: the check of its arguments, and its launch: one cluster or one block for each row. */
#include "argmax.h"

#include "../common/launch.h"
#include "../common/rows.h"
#include "setting.h"

rondo_status rondo_add_argmax(rondo_graph *graph, const rondo_argmax_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_argmax: the description is NULL");
  struct op_argument arguments[] = {
      [ARGMAX_X] = {"x", desc->x, RONDO_READ, 0},
      [ARGMAX_OUT] = {"out", desc->out, RONDO_WRITE, 0},
  };
  return graph_add(graph, &op_argmax, desc->name, arguments, ARGMAX_OPERANDS, NULL, 0);
}

rondo_status argmax_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[ARGMAX_X];
  if (!x->present || x->rank != 2 || !rows_are_numbers(x->dtype))
    return op_unexpected("x", x, "[count, n] f32, f16 or bf16");
  if (x->shape[1] < 1) return op_refuse("x has rows of 0, expected at least 1 column");
  return op_expect("out", &task->operands[ARGMAX_OUT], RONDO_I32, 1, x->shape);
}

ARGMAX_KERNELS(KERNEL_CONSTANT)
ARGMAX_CLUSTER_KERNELS(KERNEL_CONSTANT)

rondo_status argmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *x = &call->task->operands[ARGMAX_X];
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  struct argmax_parameters parameters = {
      .x = call->data[ARGMAX_X],
      .out = call->data[ARGMAX_OUT],
      .stride = x->stride[0],
      .n = (uint32_t)x->shape[1],
      .dtype = x->dtype,
      .is_aligned = op_rows_aligned(x, 16),
  };
  const bool clusters = row_has_cluster(x, ARGMAX_CLUSTER, chip);
  const int64_t blocks = x->shape[0] * (clusters ? ARGMAX_CLUSTER : 1);
  OP_TRY(launch_check_blocks("x", blocks));
  launch_add(launches, clusters ? &rondo_argmax_cluster : &rondo_argmax, blocks, ARGMAX_THREADS, 0, &parameters,
             sizeof parameters);
  return RONDO_OK;
}
