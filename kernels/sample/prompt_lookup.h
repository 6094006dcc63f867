/* prompt_lookup.h - rondo_add_prompt_lookup, which accepts drafted tokens and drafts the next ones: the operation. Its
 * kernel is in recent.h. */
#pragma once

#include "../../runtime/kernels.h"

enum {
  LOOKUP_CHOSEN,
  LOOKUP_TOKENS,
  LOOKUP_POSITION,
  LOOKUP_LAST,
  LOOKUP_HISTORY,
  LOOKUP_STOPS,
  LOOKUP_LIMIT,
  LOOKUP_ACCEPTED,
  LOOKUP_MATCHED,
  LOOKUP_OPERANDS
}; /* operands */

extern const struct op op_prompt_lookup;
OP_FUNCTIONS(prompt_lookup);
