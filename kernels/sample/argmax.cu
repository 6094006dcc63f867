/* argmax.cu - finds the column of each row's largest number. Of equal numbers it takes the first; NaN counts as the
 * largest. Bound by memory.
 *
 * A row has one block, or a cluster of eight if there are few rows. A number and its column form one integer key, which
 * grows with the number and falls with the column (sample_number.h). The largest key does not depend on the order of
 * the comparisons. */
#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/ptx.cuh"
#include "argmax.h"
#include "sample_number.h"

DEVICE uint64_t largest_of_warp(uint64_t key, int lanes = 32) {
  unrolled_for (int step = 16; step; step /= 2)
    if (step < lanes) key = max(key, __shfl_xor_sync(0xffffffffu, key, step));
  return key;
}

template <int Blocks> DEVICE void argmax_row(const argmax_parameters &p) {
  __shared__ uint64_t warps[ARGMAX_THREADS / 32], blocks[Blocks];
  const uint32_t rank = blockIdx.x % Blocks, row = blockIdx.x / Blocks;
  if constexpr (Blocks > 1) arrive_at_cluster(); /* wait_for_cluster() below: the first block has started by then */
  float best = -INFINITY;
  uint32_t at = (rank * ARGMAX_THREADS + threadIdx.x) * 8;
  uint64_t key = 0;
  const bool has_columns = at < p.n;
#pragma unroll 2
  for (uint32_t column = (rank * ARGMAX_THREADS + threadIdx.x) * 8; column < p.n;
       column += Blocks * ARGMAX_THREADS * 8) {
    const uint32_t count = min(p.n - column, 8u);
    float values[8];
    load_numbers(p.dtype, p.is_aligned, p.x, row * p.stride + column, count, values);
    unrolled_for (uint32_t i = 0; i < 8; i++)
      if (i < count && sample_is_larger(values[i], best)) best = values[i], at = column + i;
  }
  if constexpr (Blocks > 1) let_successors_start();
  if (has_columns) key = sample_key(best, at);
  key = largest_of_warp(key);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = key;
  __syncthreads();
  if constexpr (Blocks > 1) {
    wait_for_cluster();
    if (threadIdx.x < 32) key = largest_of_warp(warps[threadIdx.x]);
    if (threadIdx.x == 0) store_in_block(address_in_block(shared_address(&blocks[rank]), 0), key);
    meet_cluster();
    if (rank == 0 && threadIdx.x < 32) key = largest_of_warp(blocks[threadIdx.x % Blocks], Blocks);
  } else if (threadIdx.x < 32) {
    key = largest_of_warp(warps[threadIdx.x]);
  }
  if (rank == 0 && threadIdx.x == 0) p.out[row] = (int32_t)sample_column_of_key(key);
}

ARGMAX_KERNELS(DEFINE_SHORT_KERNEL)

#if __CUDA_ARCH__ >= 900
#define DEFINE_CLUSTER(chips, parameters, name, threads, ...)                                                          \
  extern "C" __global__ void __cluster_dims__(ARGMAX_CLUSTER, 1, 1) __launch_bounds__(threads)                         \
      name(const __grid_constant__ parameters p) {                                                                     \
    only_wait_for_predecessors();                                                                                      \
    const uint64_t count = replay_count(p.done);                                                                       \
    __VA_ARGS__(p);                                                                                                    \
    publish(p.done, count);                                                                                            \
  }
ARGMAX_CLUSTER_KERNELS(DEFINE_CLUSTER)
#endif
