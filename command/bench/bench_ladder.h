/* bench_ladder.h - the steps of ladder.cu, timed on this chip one after the other. */
#ifndef RONDO_BENCH_LADDER_H
#define RONDO_BENCH_LADDER_H

#include "bench_gemv.h"
#include "timing.h"

/* Of one of the shapes; false: so many there are not. */
bool ladder_label(size_t index, char label[KERNEL_LABEL_BYTES]);

/* A line for each step, with a column for each of the three shapes whose labels have all of the words `only`, and a
 * last one for the kernels that the library chooses. Returns how many products were wrong. */
uint32_t ladder_measure(struct gemv_memory *memory, struct report *report, const char *only, uint32_t samples);

#endif
