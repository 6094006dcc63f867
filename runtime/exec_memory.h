/* exec_memory.h - takes the memory of an exec from the runtime's pools, and gives it back. */
#pragma once

#include "exec.h"
#include "plan.h"

/* Makes an exec with memory of all pools, its nodes and its owners, and puts it among the group's execs. If a pool is
 * too small, the error names each pool that is. */
rondo_status exec_make(rondo_exec **exec_out, rondo_runtime *runtime, const rondo_graph *graph, const struct plan *plan,
                       const rondo_exec_options *options);

/* Gives back all that exec_make took. The group's lock is held. */
void exec_give_back(rondo_exec *exec);
