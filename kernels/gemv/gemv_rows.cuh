/* gemv_rows.cuh - a product of one vector that ends with the sum over all ranks of its results (exchange_rows.h). */
#pragma once

#include "../exchange/exchange_rows.cuh"
#include "gemv_finish.cuh"
#include "gemv_quads.h"

DEVICE bool is_over_ranks(const gemv_parameters &p) { return p.early & GEMV_OVER_RANKS; }

DEVICE const exchange_rows &exchange_of(const gemv_parameters &p) {
  return static_cast<const gemv_rows_parameters &>(p).exchange;
}

/* The blocks that have tiles, and whether this is one of the others. */
DEVICE uint32_t blocks_of_tiles(const gemv_parameters &p) { return exchange_of(p).blocks; }
DEVICE bool adds_up(const gemv_parameters &p) { return is_over_ranks(p) && blockIdx.x >= exchange_of(p).blocks; }

/* What send_tile needs of memory, as bits; in the first warp. */
DEVICE float count_before_tile(const gemv_parameters &p, uint32_t first_row) {
  return threadIdx.x < 32 ? __uint_as_float(count_before_rows(exchange_of(p), first_row)) : 0.0f;
}

/* A tile's results, of up to 16 rows, to all ranks. */
template <typename Sum, typename Factor>
DEVICE void send_tile(const gemv_parameters &p, const tile_rows &tile, float count, const Sum &sum_of,
                      const Factor &factor_of) {
  if (threadIdx.x >= 32) return;
  const bool sends = threadIdx.x < tile.rows;
  const float factor = p.norm_epsilon > 0 ? factor_of(0) * p.scale : p.scale;
  send_row(exchange_of(p), __float_as_uint(count), tile.first_row, sends,
           sends ? sum_of(0, threadIdx.x) * factor : 0.0f);
}

/* By the other blocks: the sums of all ranks, and the residual. */
DEVICE void add_up_rows(const gemv_parameters &p) {
  const exchange_rows &e = exchange_of(p);
  const uint32_t block = blockIdx.x - e.blocks, vector = block * blockDim.x + threadIdx.x;
  float residual[4] = {};
  if (p.epilogue.residual && vector < e.vectors)
    load_numbers(p.epilogue.residual_dtype, true, p.epilogue.residual, 4 * vector, 4, residual);
  sum_rows(e, block, gridDim.x - e.blocks, [&](uint32_t first, float(&sums)[4]) {
    if (p.epilogue.residual)
      unrolled_for (int k = 0; k < 4; k++) sums[k] += residual[k];
    store_numbers(p.out_dtype, true, p.out, first, 4, sums);
  });
}
