/* bench_attention_steps.h - the kernels of attention_steps.cu, timed on this chip one after the other. */
#ifndef RONDO_BENCH_ATTENTION_STEPS_H
#define RONDO_BENCH_ATTENTION_STEPS_H

#include "bench_softmax.h"
#include "timing.h"

/* Of one of the cases; false: so many there are not. */
bool attention_steps_label(size_t index, char label[SOFTMAX_LABEL_BYTES]);

/* A line for each step, with a column for each of four cases whose labels have all of the words `only`. Returns how
 * many results were wrong. */
uint32_t attention_steps_measure(struct softmax_memory *memory, struct report *report, const char *only,
                                 uint32_t samples);

#endif
