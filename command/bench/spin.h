/* spin.h - a task of a known duration that uses no memory bandwidth. */
#pragma once

#include "../command.h"

enum { SPIN_THREADS = 1024 };

/* Adds a task of `blocks` blocks of SPIN_THREADS threads; each block waits for `ns` nanoseconds. On the host one thread
 * waits for `host_ns` nanoseconds. */
void spin_add(rondo_graph *graph, uint32_t blocks, uint64_t ns, uint64_t host_ns);
