/* fault.h - a word in pinned memory, one for each device: the task that waited for a rank in vain, and the rank. The
 * task stores it before it ends. For a kernel that is a trap, and the driver's error names neither. The first cause of
 * the device's loss quotes the word. Shared by host code and kernels. */
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
