/* done.cu - the last node of a graph that ends in too many blocks, or in work that is not Rondo's: one thread, behind
 * all of it. */
#include "launch.cuh"

extern "C" __global__ void __launch_bounds__(1) rondo_done(const __grid_constant__ completion p) {
  wait_for_predecessors();
  publish(p);
}
