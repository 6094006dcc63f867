/* join.h - the operation that does nothing: a node after many tasks and before many others. It replaces an edge from
 * each of the former to each of the latter. Only the planner adds joins. */
#pragma once

#include "op.h"

extern const struct op op_join;

int64_t join_host_items(const struct op_task *task);
void join_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status join_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
