/* done.cu - two kernels of one thread, which the runtime adds to graphs.
 *
 * rondo_begin precedes the first tasks of a graph with many of them. rondo_done follows the last tasks of a graph if
 * there are several, or if the last task's kernel does not publish completion. */
#include "done.h"
#include "launch.cuh"

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    publish(p);                                                                                                        \
  }
DONE_KERNELS(DEFINE)
