/* penalty.h - rondo_add_penalty, which makes recently drawn columns less likely: the operation. Its kernel is in
 * recent.h. */
#pragma once

#include "../../runtime/kernels.h"

enum {
  PENALTY_X,
  PENALTY_IDS,
  PENALTY_REPETITION,
  PENALTY_FREQUENCY,
  PENALTY_PRESENCE,
  PENALTY_OPERANDS
}; /* operands */

extern const struct op op_penalty;
OP_FUNCTIONS(penalty);
int64_t penalty_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
