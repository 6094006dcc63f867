/* join.h - the operation that does nothing: a point of the graph behind many tasks and in front of many others, so that
 * not each of these has an edge from each of those. No user asks for it; the plan does. */
#ifndef RONDO_JOIN_H
#define RONDO_JOIN_H

#include "op.h"

extern const struct op op_join;

int64_t join_host_items(const struct op_task *task);
void join_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status join_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

#endif
