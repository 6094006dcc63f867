/* join.h - the operation that does nothing: a point of the graph behind many tasks and in front of many others, so that
 * not each of these has an edge from each of those. No user asks for it; the plan does. */
#ifndef RONDO_JOIN_H
#define RONDO_JOIN_H

#include "op.h"

extern const struct op op_join;

#endif
