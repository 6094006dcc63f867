/* fault.c - see fault.h. */
#include "fault.h"

#include <stdio.h>

void fault_describe(uint64_t word, const char *cause, char *text, size_t bytes) {
  const char *name = (const char *)(uintptr_t)(word >> FAULT_RANK_BITS), *colon = cause[0] ? ": " : "";
  const uint32_t rank = (uint32_t)(word & ((1u << FAULT_RANK_BITS) - 1)) - 1;
  if (word)
    snprintf(text, bytes, "replay: task '%s': rank %u did not come in time%s%s", name, rank, colon, cause);
  else
    snprintf(text, bytes, "%s", cause);
}
