/* prompt_lookup.c - rondo_add_prompt_lookup: the check of its arguments, and its launch of one block. */
#include "prompt_lookup.h"

#include <inttypes.h>
#include <stdio.h>

#include "../common/launch.h"
#include "recent.h"

rondo_status rondo_add_prompt_lookup(rondo_graph *graph, const rondo_prompt_lookup_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_prompt_lookup: the description is NULL");
  struct op_argument arguments[] = {
      [LOOKUP_CHOSEN] = {"chosen", desc->chosen, RONDO_READ, 0},
      [LOOKUP_TOKENS] = {"tokens", desc->tokens, RONDO_READ_WRITE, 0},
      [LOOKUP_POSITION] = {"position", desc->position, RONDO_READ_WRITE, 0},
      [LOOKUP_LAST] = {"last", desc->last, RONDO_READ, 0},
      [LOOKUP_HISTORY] = {"history", desc->history, RONDO_READ_WRITE, 0},
      [LOOKUP_STOPS] = {"stops", desc->stops, RONDO_READ, 0},
      [LOOKUP_LIMIT] = {"limit", desc->limit, RONDO_READ, 0},
      [LOOKUP_ACCEPTED] = {"accepted", desc->accepted, RONDO_WRITE, 0},
      [LOOKUP_MATCHED] = {"matched", desc->matched, RONDO_WRITE, 0},
  };
  return graph_add(graph, &op_prompt_lookup, desc->name, arguments, LOOKUP_OPERANDS, NULL, 0);
}

static bool is_list(const struct op_operand *operand, int64_t least, int64_t most) {
  return operand->present && operand->dtype == RONDO_I32 && operand->rank == 1 && operand->shape[0] >= least &&
         operand->shape[0] <= most;
}

/* One number. */
static rondo_status one_check(const struct op_task *task, uint32_t index, const char *name) {
  return op_expect(name, &task->operands[index], RONDO_I32, 1, (int64_t[]){1});
}

static rondo_status chosen_check(const struct op_task *task) {
  const struct op_operand *chosen = &task->operands[LOOKUP_CHOSEN];
  const int64_t tokens = task->operands[LOOKUP_TOKENS].shape[0];
  char expected[64];
  if (is_list(chosen, 1, 1) || is_list(chosen, tokens, tokens)) return RONDO_OK;
  snprintf(expected, sizeof expected, "i32 [1] or, as tokens, [%" PRId64 "]", tokens);
  return op_unexpected("chosen", chosen, expected);
}

rondo_status prompt_lookup_check(const struct op_task *task) {
  const struct op_operand *operands = task->operands, *chosen = &operands[LOOKUP_CHOSEN],
                          *last = &operands[LOOKUP_LAST];
  if (!is_list(&operands[LOOKUP_TOKENS], 1, LOOKUP_MOST_ROWS))
    return op_unexpected("tokens", &operands[LOOKUP_TOKENS], "i32 [1 to 128]");
  OP_TRY(chosen_check(task));
  OP_TRY(one_check(task, LOOKUP_POSITION, "position"));
  if (last->present && chosen->shape[0] > 1)
    return op_refuse("last is there, expected none with %" PRId64 " rows", chosen->shape[0]);
  if (last->present) OP_TRY(one_check(task, LOOKUP_LAST, "last"));
  if (!is_list(&operands[LOOKUP_HISTORY], 1, INT32_MAX))
    return op_unexpected("history", &operands[LOOKUP_HISTORY], "i32 [1 or more]");
  if (operands[LOOKUP_STOPS].present && !is_list(&operands[LOOKUP_STOPS], 0, LOOKUP_MOST_STOPS))
    return op_unexpected("stops", &operands[LOOKUP_STOPS], "i32 [up to 16]");
  if (operands[LOOKUP_LIMIT].present) OP_TRY(one_check(task, LOOKUP_LIMIT, "limit"));
  OP_TRY(op_expect("accepted", &operands[LOOKUP_ACCEPTED], RONDO_I32, 1, chosen->shape));
  return one_check(task, LOOKUP_MATCHED, "matched");
}

RECENT_KERNELS(KERNEL_CONSTANT)

rondo_status prompt_lookup_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands;
  const struct recent_parameters parameters = {.lookup = {.chosen = call->data[LOOKUP_CHOSEN],
                                                          .tokens = call->data[LOOKUP_TOKENS],
                                                          .position = call->data[LOOKUP_POSITION],
                                                          .history = call->data[LOOKUP_HISTORY],
                                                          .accepted = call->data[LOOKUP_ACCEPTED],
                                                          .matched = call->data[LOOKUP_MATCHED],
                                                          .last = call->data[LOOKUP_LAST],
                                                          .stops = call->data[LOOKUP_STOPS],
                                                          .limit = call->data[LOOKUP_LIMIT],
                                                          .rows = (uint32_t)operands[LOOKUP_CHOSEN].shape[0],
                                                          .drafts = (uint32_t)operands[LOOKUP_TOKENS].shape[0] - 1,
                                                          .stop_count = (uint32_t)operands[LOOKUP_STOPS].shape[0],
                                                          .capacity = (uint32_t)operands[LOOKUP_HISTORY].shape[0]},
                                               .is_lookup = 1};
  (void)chip;
  launches->count = 0;
  launch_add(launches, &rondo_recent, 1, LOOKUP_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
