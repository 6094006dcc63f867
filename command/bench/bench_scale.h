/* bench_scale.h - measures large graphs: the time from the description to an exec, and the memory. */
#pragma once

#include "timing.h"

/* Writes a line for each graph, on the host backend. */
void bench_scale(struct report *report);
