/* spin.h - a task that takes a known time and no memory's bandwidth. */
#ifndef RONDO_SPIN_H
#define RONDO_SPIN_H

#include "../command.h"

enum { SPIN_THREADS = 1024 };

/* `blocks` blocks of SPIN_THREADS threads that do nothing for `ns` nanoseconds each. On the host one thread does, for
 * `host_ns`. */
void spin_add(rondo_graph *graph, uint32_t blocks, uint64_t ns, uint64_t host_ns);

#endif
