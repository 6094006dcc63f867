/* bench_scale.h - how long large graphs take from their description to an exec, and how much memory. */
#ifndef RONDO_BENCH_SCALE_H
#define RONDO_BENCH_SCALE_H

#include "timing.h"

/* A line a graph, on the host backend. */
void bench_scale(struct report *report);

#endif
