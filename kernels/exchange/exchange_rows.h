/* exchange_rows.h - the sum over all ranks of a vector of f32 whose parts the blocks of a kernel compute: the kernel's
 * last step (kernels/gemv). Then an exchange is no task of its own.
 *
 * A block stores its numbers into the states of all ranks, its own rank's too, and ends. A few more blocks of the same
 * grid wait for the numbers of all ranks and add them up. They wait for no block that could lack room on account of
 * them, as long as each rank has a device of its own.
 *
 * Numbers are their own flags, and lie where rondo_add_all_reduce's would (exchanges.h): the same slots and counters.
 * The numbers of this rank have the first slot of its row in its own state, and need no second one: they come and go
 * within one kernel. A block that adds up has a counter. A block that sends reads the counters of those that add up its
 * numbers. They advance it only when these have come. */
#pragma once

#include <stdint.h>

/* What a kernel is told. */
struct exchange_rows {
  uint64_t *fault; /* runtime/fault.h */
  uint64_t fault_number, timeout_ns;
  unsigned char *here;     /* row 0 of this rank's state */
  unsigned char *there[8]; /* the row of this rank in the state of rank r */
  uint64_t row_bytes, slot_bytes;
  uint32_t blocks;  /* that compute numbers: the first of the grid */
  uint32_t vectors; /* of 16 bytes: one for each thread of a block that adds up */
  uint32_t rank, ranks;
};
