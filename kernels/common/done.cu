/* done.cu - the nodes of one thread that Rondo adds to a graph: rondo_begin in front of many tasks that wait for
 * nothing, rondo_done behind several that nothing waits for, or behind one that does not publish completion itself. */
#include "launch.cuh"

extern "C" __global__ void __launch_bounds__(1) rondo_begin(const __grid_constant__ completion p) {
  wait_for_predecessors();
  publish(p);
}

extern "C" __global__ void __launch_bounds__(1) rondo_done(const __grid_constant__ completion p) {
  wait_for_predecessors();
  publish(p);
}
