/* done.cu - two kernels of one thread, which the runtime adds to graphs.
 *
 * If a graph has many first tasks, rondo_begin precedes them. If a graph has several last tasks, or one whose kernel
 * does not publish completion, rondo_done follows them. */
#include "done.h"
#include "launch.cuh"

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    publish(p);                                                                                                        \
  }
DONE_KERNELS(DEFINE)
