/* bench_ladder.h - measures the steps of ladder.cu one after the other. */
#pragma once

#include "bench_gemv.h"
#include "timing.h"

/* The label of a shape. False if there is no shape of this index. */
bool ladder_label(size_t index, char label[KERNEL_LABEL_BYTES]);

/* Writes a line for each step, with a column for each of the three shapes whose labels have all words of `only`, and a
 * last line for the kernels that the library chooses. Returns the number of wrong products. */
uint32_t ladder_measure(struct gemv_memory *memory, struct report *report, const char *only, uint32_t samples);
