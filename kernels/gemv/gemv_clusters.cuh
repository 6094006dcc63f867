/* gemv_clusters.cuh - the end of products whose k is split over the blocks of a cluster. Their sums meet through each
 * other's shared memory (PTX ISA, mapa and barrier.cluster), in a fixed order, and become results. */
#pragma once

#include "../common/cluster.cuh"
#include "gemv_finish.cuh"

/* What block `rank` of the cluster has at this address of its shared memory. */
DEVICE float load_of_block(uint32_t address, uint32_t rank) {
  return __uint_as_float(load_from_block(address_in_block(address, rank)));
}

/* A cluster's tiles are first, first + step, ..; this block's rank in its cluster. */
struct cluster_tiles {
  uint32_t first, step, rank;
};

/* The blocks' parts of k, in order: `held` has each block's sums, [tiles][count][rows], and `squares` those of its
 * parts of k, [parts][vectors]. A block finishes every so manieth of the tiles; each warp a vector of one, since
 * another block's memory is far, and one tile after the other would wait for it. */
template <int Cluster>
DEVICE void finish_cluster(const gemv_parameters &p, const cluster_tiles &tiles, uint32_t rows, uint32_t held,
                           uint32_t squares, uint32_t vectors, float factor) {
  constexpr uint32_t number = sizeof(float);
  meet_cluster();
  const auto factor_of = [&](uint32_t vector) {
    float sum = 0;
    for (uint32_t i = 0; i < Cluster; i++)
      for (uint32_t part = 0; part < p.parts; part++)
        sum += load_of_block(squares + (part * vectors + vector) * number, i);
    return rms_factor(p, sum);
  };
  const uint32_t warps = blockDim.x / 32;
  uint32_t tile = tiles.first + tiles.rank * tiles.step, vector = threadIdx.x / 32;
  for (;; vector += warps) {
    for (; vector >= p.count; vector -= p.count) tile += Cluster * tiles.step;
    if (tile >= p.tiles) break;
    const uint32_t held_tile = held + tile / tiles.step * p.count * rows * number;
    const auto sum_of = [&](uint32_t n, uint32_t row) {
      float part[Cluster], sum = 0;
      unrolled_for (uint32_t i = 0; i < Cluster; i++) part[i] = load_of_block(held_tile + (n * rows + row) * number, i);
      unrolled_for (uint32_t i = 0; i < Cluster; i++) sum += part[i];
      return sum * factor;
    };
    finish_vector(p, tile_of(p, tile, rows), vector, sum_of, factor_of);
  }
  meet_cluster(); /* nobody may end while others read its sums */
}
