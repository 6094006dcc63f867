/* argmax.c - rondo_add_argmax and the check of its arguments. */
#include "argmax.h"

#include "../common/rows.h"

rondo_status rondo_add_argmax(rondo_graph *graph, const rondo_argmax_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_argmax: the description is NULL");
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
  if (x->shape[1] < 1) return status_set(RONDO_INVALID_ARGUMENT, "x has rows of 0, expected at least 1 column");
  return op_expect("out", &task->operands[ARGMAX_OUT], RONDO_I32, 1, x->shape);
}
