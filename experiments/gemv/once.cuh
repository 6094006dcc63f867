/* once.cuh - pieces of the one-shot kernels: a thread block reads its rows once, all at once, and ends. */
#pragma once
#include "common.cuh"

/* A warp's sums of Rows rows, one k part of SplitK; the parts are added in order. */
template <int Rows, int SplitK, int Groups>
__device__ __forceinline__ void finish_rows(const gemv_parameters &p, float (&sums)[Rows], uint32_t part,
                                            uint32_t group, uint32_t tile, uint32_t turn) {
  const uint32_t lane = threadIdx.x % 32;
  constexpr uint32_t lanes_per_row = 32 / Rows;
  float sum = sums_over_lanes<Rows>(sums);
  uint32_t row = lane / lanes_per_row;
  if constexpr (SplitK == 1) {
    row += first_row_of<Rows>(p, tile * Groups + group);
    if (lane % lanes_per_row == 0) store_result(p, (uint64_t)blockIdx.y * p.m + row, sum);
  } else {
    __shared__ float partial[2][SplitK][Groups * Rows];
    if (lane % lanes_per_row == 0) partial[turn][part][group * Rows + row] = sum;
    __syncthreads();
    if (threadIdx.x < Groups * Rows) {
      sum = partial[turn][0][threadIdx.x];
#pragma unroll
      for (int i = 1; i < SplitK; i++) sum += partial[turn][i][threadIdx.x];
      row = first_row_of<Rows>(p, tile * Groups + threadIdx.x / Rows) + threadIdx.x % Rows;
      store_result(p, (uint64_t)blockIdx.y * p.m + row, sum);
    }
  }
}

/* The same, and what it names must have been loaded by then: without it the compiler lets half of the loads sink to
 * their uses, to save registers, and half of the bytes are not in flight. */
#define KEEP_LOADED(number, all)                                                                                       \
  if (p.never == (number)) {                                                                                           \
    ((uint32_t *)p.out)[blockIdx.x * 1024 + threadIdx.x] = all;                                                        \
    return;                                                                                                            \
  }

/* A branch that is never taken: the compiler does not move code across, which fixes the order of what lies around. */
#define KEEP_ORDER(number)                                                                                             \
  if (p.never == (number)) return

__device__ __forceinline__ uint32_t load_scale_pair_ahead(const uint8_t *address) {
  uint16_t pair;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u16 %0, [%1];" : "=h"(pair) : "l"(address));
  return pair;
}
