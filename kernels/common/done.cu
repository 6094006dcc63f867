/* done.cu - the last node of a graph whose own last kernels cannot publish completion, or that ends in several: one
 * thread, behind all of them. */
#include "launch.cuh"

extern "C" __global__ void __launch_bounds__(1) rondo_done(const __grid_constant__ completion p) {
  wait_for_predecessors();
  publish(p, replay_number(p));
}
