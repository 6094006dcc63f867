/* bench_attention_steps.h - measures the kernels of attention_steps.cu one after the other. */
#pragma once

#include "bench_softmax.h"
#include "timing.h"

/* The label of a case. False if there is no case of this index. */
bool attention_steps_label(size_t index, char label[SOFTMAX_LABEL_BYTES]);

/* Writes a line for each step, with a column for each of the two cases whose labels have all words of `only`. Returns
 * the number of wrong results. */
uint32_t attention_steps_measure(struct softmax_memory *memory, struct report *report, const char *only,
                                 uint32_t samples);
