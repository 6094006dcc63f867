/* cluster_kernel.cuh - defines a kernel of a list that runs in clusters of blocks (launch.cuh). */
#pragma once

#include "launch.cuh"

/* As DEFINE_KERNEL. `begin` is the first statement: wait_for_predecessors(), only_wait_for_predecessors() or, if the
 * device function waits itself, let_successors_start(). */
#define DEFINE_CLUSTER_KERNEL(begin, cluster, parameters, name, threads, blocks, ...)                                  \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, blocks)                        \
      name(const __grid_constant__ parameters p) {                                                                     \
    begin;                                                                                                             \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done);                                                                                                   \
  }
