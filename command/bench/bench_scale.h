/* bench_scale.h - measures large graphs: the time from the description to an exec, and the memory. */
#ifndef RONDO_BENCH_SCALE_H
#define RONDO_BENCH_SCALE_H

#include "timing.h"

/* Writes a line for each graph, on the host backend. */
void bench_scale(struct report *report);

#endif
