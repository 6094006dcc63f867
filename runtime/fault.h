/* fault.h - what a task leaves behind that waited for another rank in vain. A kernel can end only by a trap then, and
 * the driver's error names neither the task nor the rank. So the task first stores both in a word of the device's, in
 * pinned memory. The first cause of the loss quotes it. Shared by host code and kernels. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FAULT_RANK_BITS = 8 };

/* The word of a task that gives up. */
static inline uint64_t fault_word(uint64_t number, uint32_t missing_rank) {
  return number << FAULT_RANK_BITS | (missing_rank + 1);
}

/* The number of a task (op_call.fault_number) is the address of its name. The exec keeps the name while its replay is
 * in flight, and on a lost device that is for ever. */
static inline uint64_t fault_number_of(const char *name) { return (uintptr_t)name; }

/* The cause of a loss into text, after what the word says. 0: nothing. */
void fault_describe(uint64_t word, const char *cause, char *text, size_t bytes);
