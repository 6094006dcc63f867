/* done.cu - the nodes of one thread that Rondo adds to a graph: rondo_begin in front of many tasks that wait for
 * nothing, rondo_done behind several that nothing waits for, or behind one that does not publish completion itself. */
#include "done.h"
#include "launch.cuh"

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    publish(p);                                                                                                        \
  }
DONE_KERNELS(DEFINE)
