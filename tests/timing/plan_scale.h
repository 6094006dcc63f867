/* plan_scale.h - how long large graphs take from their description to an exec, and how much memory. */
#ifndef RONDO_PLAN_SCALE_H
#define RONDO_PLAN_SCALE_H

#include <stdint.h>

/* Prints the table, a line a graph, on the host backend. Returns how many of its lines are beyond what is asked for. */
uint32_t scale_table(void);

#endif
