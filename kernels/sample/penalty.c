/* penalty.c - rondo_add_penalty: the check of its arguments, and its launch with a block for each row. */
#include "penalty.h"

#include <inttypes.h>
#include <stdio.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"
#include "recent.h"
#include "setting.h"

rondo_status rondo_add_penalty(rondo_graph *graph, const rondo_penalty_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_penalty: the description is NULL");
  struct op_argument arguments[] = {
      [PENALTY_X] = {"x", desc->x, RONDO_READ_WRITE, 0},
      [PENALTY_IDS] = {"ids", desc->ids, RONDO_READ, 0},
      [PENALTY_REPETITION] = {"repetition", desc->repetition, RONDO_READ, 0},
      [PENALTY_FREQUENCY] = {"frequency", desc->frequency, RONDO_READ, 0},
      [PENALTY_PRESENCE] = {"presence", desc->presence, RONDO_READ, 0},
  };
  return graph_add(graph, &op_penalty, desc->name, arguments, PENALTY_OPERANDS, NULL, 0);
}

rondo_status penalty_check(const struct op_task *task) {
  static const char *const names[PENALTY_OPERANDS] = {"x", "ids", "repetition", "frequency", "presence"};
  const struct op_operand *x = &task->operands[PENALTY_X], *ids = &task->operands[PENALTY_IDS];
  if (!x->present || x->rank != 2 || !rows_are_numbers(x->dtype))
    return op_unexpected("x", x, "[count, n] f32, f16 or bf16");
  if (!ids->present || ids->dtype != RONDO_I32 || ids->rank != 2 || ids->shape[0] != x->shape[0] ||
      ids->shape[1] > PENALTY_MOST_IDS) {
    char expected[64];
    snprintf(expected, sizeof expected, "[%" PRId64 ", up to %d] i32", x->shape[0], PENALTY_MOST_IDS);
    return op_unexpected("ids", ids, expected);
  }
  for (uint32_t i = PENALTY_REPETITION; i < PENALTY_OPERANDS; i++)
    if (task->operands[i].present) OP_TRY(op_expect_list(names[i], &task->operands[i], RONDO_F32, x->shape[0]));
  return RONDO_OK;
}

/* Of x at most one number for each id. */
int64_t penalty_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  (void)access;
  int64_t all = op_elements(&task->operands[operand]);
  return operand == PENALTY_X ? smaller(all, op_elements(&task->operands[PENALTY_IDS])) : all;
}

RECENT_KERNELS(KERNEL_CONSTANT)

rondo_status penalty_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *x = &task->operands[PENALTY_X], *ids = &task->operands[PENALTY_IDS];
  (void)chip;
  launches->count = 0;
  if (op_elements(x) == 0 || op_elements(ids) == 0) return RONDO_OK;
  struct recent_parameters parameters = {.penalty = {
                                             .x = call->data[PENALTY_X],
                                             .ids = call->data[PENALTY_IDS],
                                             .repetition = call->data[PENALTY_REPETITION],
                                             .frequency = call->data[PENALTY_FREQUENCY],
                                             .presence = call->data[PENALTY_PRESENCE],
                                             .stride = x->stride[0],
                                             .ids_stride = ids->stride[0],
                                             .n = (uint32_t)x->shape[1],
                                             .length = (uint32_t)ids->shape[1],
                                             .dtype = x->dtype,
                                             .many_repetitions = setting_is_of_each_row(task, PENALTY_REPETITION),
                                             .many_frequencies = setting_is_of_each_row(task, PENALTY_FREQUENCY),
                                             .many_presences = setting_is_of_each_row(task, PENALTY_PRESENCE),
                                         }};
  OP_TRY(launch_check_blocks("x", x->shape[0]));
  launch_add(launches, &rondo_recent, x->shape[0], PENALTY_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
