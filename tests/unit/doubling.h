/* doubling.h - a graph of two tasks of the user's own, for tests of execs: y = 2 x + state, then state += 1. */
#pragma once

#include "../support.h"

enum { COUNT = 1000 }; /* numbers of x and y */

struct doubling {
  rondo_graph *graph;
  rondo_tensor x, y, state;
};

/* The graph, in the runtime's host pool or, of NULL, in memory of its own. */
struct doubling doubling_describe(rondo_runtime *runtime);

/* A host runtime of two threads with these pools. */
rondo_runtime *open_host_pools(uint64_t device_bytes, uint64_t pinned_bytes);
