/* qr_launch.cuh - kernels of QR and least squares whose successors start as blocks end.
 *
 * Blocks of a successor that started early would take the places of this grid's own, and the next blocks of this grid
 * would be spread unevenly over multiprocessors (H200: x of 132 of 256 x 256 in f32 190 us after H and tau, not 52). */
#pragma once

#include "../common/launch.cuh"

/* As DEFINE_KERNEL of launch.cuh. */
#define DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, ...)                                              \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    only_wait_for_predecessors();                                                                                      \
    __VA_ARGS__(p);                                                                                                    \
    let_successors_start();                                                                                            \
    publish(p.done);                                                                                                   \
  }
