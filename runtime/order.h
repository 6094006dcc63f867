/* order.h - a legal order of tasks and joins, as close to the order of adding as rondo_after allows. */
#pragma once

#include "cutter.h"
#include "dependencies.h"

struct order_work {
  uint32_t *begin, *successors; /* of a unit; unit_count + 1 */
  uint32_t *waits;              /* by unit: predecessors that are not placed yet */
  uint32_t *heap;               /* units that wait for nothing any more */
};

void order_cut(struct order_work *work, struct cutter *cutter, uint32_t unit_count, uint64_t edge_count);

/* Tasks in program order where rondo_after allows it: always the lowest-numbered task whose predecessors are all
 * placed, and a join right before the first task that may need it. */
void order_find(struct order_work *work, const rondo_graph *graph, const struct dependencies *dependencies,
                uint32_t *order);
