/* placement_problem.h - the problem that placement.h solves: an offset for each buffer, such that no two buffers in
 * conflict share a byte and the end of the highest buffer, the peak, is low. Pure arithmetic, without graph and device.
 */
#pragma once

#include "bits.h"

/* A buffer of 0 bytes gets offset 0 and conflicts with nothing. The bytes of all buffers together stay below 2^63. */
struct placement_problem {
  uint32_t count;
  const uint64_t *bytes;        /* already rounded to the alignment wanted */
  const uint32_t *first, *last; /* positions of the first and last use, in one legal order */
  /* Row b has a bit for each buffer that must not share a byte with buffer b. The matrix is symmetric; its diagonal is
   * not read. Two buffers whose [first, last] have a position in common must conflict. Others may conflict too, since
   * tasks that no path orders may run at the same time. */
  struct bit_matrix conflicts;
  uint64_t lower_bound_bytes; /* a peak this low ends the search; 0: not known */
  uint64_t step_limit;        /* most buffers that the search puts down; 0: PLACEMENT_DEFAULT_WORK / count */
  uint64_t *steps;            /* NULL, or where to write the number of steps taken */
};
