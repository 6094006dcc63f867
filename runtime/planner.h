/* planner.h - makes the plan of a graph. */
#pragma once

#include "plan.h"

/* The graph's plan. It is made if the graph has none, and kept until the description changes. Errors: an element that
 * is read before any task writes it, an output that is not written whole, out of memory. */
rondo_status plan_of(rondo_graph *graph, const struct plan **plan);
