/* gemm_block_loops.h - the loops of gemm_block.h, over the lanes of gemv_lanes.h. A result is one lane's, so that its
 * sum has the order of k whatever the tile that it is in. */
#pragma once

#include "../gemv/gemv_lanes.h"
#include "gemm_block.h"

/* Sums in registers. */
enum {
#ifdef LANES_512
  TILE_VECTORS = 12,
  TILE_LANES = 2,
#else
  TILE_VECTORS = 6,
  TILE_LANES = 1,
#endif
  SMALL_TILE_VECTORS = TILE_VECTORS / 3,
  TILE_COLUMNS = TILE_LANES * PANEL_LANES
};

ALWAYS_INLINE void tile_add(const float *vectors, const float *weights, int64_t run, float *sums, int64_t count) {
  lanes held[TILE_VECTORS][TILE_LANES];
  for (int64_t v = 0; v < count; v++)
    for (int64_t i = 0; i < TILE_LANES; i++) held[v][i] = lanes_all(0);
  for (int64_t k = 0; k < run; k++, weights += BLOCK_ROWS, vectors++) {
    lanes weight[TILE_LANES];
    for (int64_t i = 0; i < TILE_LANES; i++) weight[i] = lanes_load(weights + i * PANEL_LANES);
    for (int64_t v = 0; v < count; v++) {
      const lanes vector = lanes_all(vectors[v * BLOCK_DEPTH]);
      for (int64_t i = 0; i < TILE_LANES; i++) held[v][i] = lanes_fma(vector, weight[i], held[v][i]);
    }
  }
  for (int64_t v = 0; v < count; v++)
    for (int64_t i = 0; i < TILE_LANES; i++) {
      float *sum = sums + v * BLOCK_PITCH + i * PANEL_LANES;
      lanes_store(sum, lanes_add(lanes_load(sum), held[v][i]));
    }
}

static void multiply(const struct gemm_block *block) {
  for (int64_t k = 0; k < block->depth; k += block->run)
    for (int64_t row = 0; row < BLOCK_ROWS; row += TILE_COLUMNS) {
      const int64_t run = smaller(block->run, block->depth - k);
      const float *weights = block->weights + k * BLOCK_ROWS + row;
      int64_t v = 0;
      for (; v + TILE_VECTORS <= block->count; v += TILE_VECTORS)
        tile_add(block->vectors + v * BLOCK_DEPTH + k, weights, run, block->sums + v * BLOCK_PITCH + row, TILE_VECTORS);
      for (; v < block->count; v += SMALL_TILE_VECTORS)
        tile_add(block->vectors + v * BLOCK_DEPTH + k, weights, run, block->sums + v * BLOCK_PITCH + row,
                 SMALL_TILE_VECTORS);
    }
}
