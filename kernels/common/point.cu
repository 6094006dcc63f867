/* point.cu - a kernel of one thread, which the runtime adds to graphs.
 *
 * It precedes many first tasks, stands between many tasks and many others that wait for them, and follows several last
 * tasks, or one whose kernel does not publish completion. Only there it publishes. */
#include "launch.cuh"
#include "point.h"

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    publish(p);                                                                                                        \
  }
POINT_KERNELS(DEFINE)
