/* gemm_rows.cuh - what warps that neither copy W or X nor multiply do for RMS norms, for gemm_wgmma.cuh and
 * gemm_slices.cu: they make the factors of a tile's rows, from the sums of squares of X, while the tile is multiplied,
 * and the numbers of a norm come near. */
#pragma once

#include "../common/shared_words.cuh"
#include "gemm_copies.cuh"

namespace {

/* Four rows from `row` on, of every fourth group from `group` on. Of four past the last row no squares are loaded; if
 * some are past it, the last row's are taken. */
DEVICE float4 four_squares(const gemm_norms &norms, int matrix, uint32_t row, uint32_t rows, uint32_t group) {
  const float *from = norms.vector_squares + matrix * norms.vector_squares_batch + group * norms.vector_squares_group;
  const int64_t step = 4 * norms.vector_squares_group;
  float4 sum = make_float4(0, 0, 0, 0);
  if (norms.in_fours && row + 3 < rows) {
    from += row;
#pragma unroll 4
    for (uint32_t i = group; i < norms.vector_groups; i += 4, from += step) {
      const float4 more = *(const float4 *)from;
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
  } else if (row < rows) {
    rolled_for (uint32_t i = group; i < norms.vector_groups; i += 4, from += step) {
      sum.x += from[min(row, rows - 1)], sum.y += from[min(row + 1, rows - 1)];
      sum.z += from[min(row + 2, rows - 1)], sum.w += from[min(row + 3, rows - 1)];
    }
  }
  return sum;
}

DEVICE float add_lanes(float sum) {
  sum += __shfl_xor_sync(0xffffffffu, sum, 8);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 16);
}

/* The factors of 32 rows from `first` on, by a warp: each lane has four of them, of a fourth of the groups. A sum has
 * the same order in every tile. */
DEVICE void store_factors(const gemm_norms &norms, int matrix, uint32_t first, uint32_t rows, uint32_t to) {
  const uint32_t lane = threadIdx.x % 32, begin = lane % 8 * 4;
  const float4 four = four_squares(norms, matrix, first + begin, rows, lane / 8);
  const float x = add_lanes(four.x), y = add_lanes(four.y), z = add_lanes(four.z), w = add_lanes(four.w);
  const float sum = lane < 16 ? lane < 8 ? x : y : lane < 24 ? z : w;
  store_number(to + (begin + lane / 8) * 4, norms.scale * rsqrtf(fmaf(sum, norms.mean_factor, norms.epsilon)));
}

template <typename D> DEVICE void make_factors(const gemm_wgmma_parameters &p, const gemm_block<D> &at, uint32_t turn) {
  const gemm_place place = gemm_place_of(p, at, turn);
  const uint32_t slot = turn % 2, first = (uint32_t)(D::SWAPPED ? place.q : place.p);
  only_wait_for_predecessors(); /* after the first turn it returns at once */
  if (turn >= 2) warps_meet(GEMM_EMPTY_BARRIER + slot, D::FACTOR_THREADS);
  rolled_for (uint32_t row = threadIdx.x % GEMM_ROW_THREADS / 32 * 32; row < D::X_ROWS; row += GEMM_ROW_THREADS)
    store_factors(p.norms, place.matrix, first + row, p.rows, at.factors + (slot * D::X_ROWS + row) * 4);
  warps_arrive(GEMM_FULL_BARRIER + slot, D::FACTOR_THREADS);
}

/* Loads the norm of the tiles' columns, so that the threads that need it find it in L1. */
template <typename D> DEVICE void touch_norm(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  constexpr uint32_t COLUMNS = D::SWAPPED ? D::P_ROWS : D::COLUMNS, LINE = 16; /* numbers */
  rolled_for (uint32_t turn = 0; turn < at.tiles; turn++) {
    const gemm_place place = gemm_place_of(p, at, turn);
    const uint32_t column = (D::SWAPPED ? place.p : place.q) + threadIdx.x % GEMM_ROW_THREADS * LINE;
    if (threadIdx.x % GEMM_ROW_THREADS >= COLUMNS / LINE || column >= p.columns) continue;
    keep_early(p.steps == 0, *((const uint16_t *)p.norms.norm + column));
  }
}

template <typename D> DEVICE void tend_rows(const gemm_wgmma_parameters &p, const void *shared) {
  if (D::IS_WIDE || (!p.row_factors && !p.streamed)) return;
  const gemm_block<D> at(p, shared);
  if (D::STREAMS && p.streamed) {
    only_wait_for_predecessors();
    touch_norm(p, at);
  }
  if (!p.row_factors) return;
  rolled_for (uint32_t turn = 0; turn < at.tiles; turn++) make_factors(p, at, turn);
}

} // namespace
