/* qr_tile_kernel.cuh - the kernels of the register tiles. A matrix is read, factored (qr_tile.cuh), and written as H
 * and tau or as thin Q and R (qr_tile_thin_q.cuh).
 *
 * All threads take the same branch at the end. The steps are most of the code, and are compiled once for both ends. A
 * block has one matrix or a few small ones. Large tiles have a second kernel for H of whole dense matrices: its blocks
 * walk over the matrices, and fetch the next one while they factor. Tiles of 16 columns have one for H of matrices that
 * lanes read and write in place. */
#pragma once

#include "qr_tile_thin_q.cuh"

template <typename Shape>
using tile_of_ends = std::conditional_t<Shape::H_ALONE, register_tile<Shape>, thin_tile<Shape>>;

template <typename Shape> struct ending_tile : tile_of_ends<Shape> {
  using tile = tile_of_ends<Shape>;
  using T = typename tile::T;
  using tile::p;

  const qr_tile_task &out;

  DEVICE ending_tile(const qr_tile_task &parameters, T *shared) : tile(parameters.tile, shared), out(parameters) {
    this->goes_directly = tile::WRITES_DIRECTLY && p.h.data && p.h_access <= tile::DIRECT_MOST;
  }

  DEVICE void factor_and_end(int64_t item, bool wanted) {
    this->take_steps(item, wanted, true);
    if constexpr (!Shape::H_ALONE)
      if (!p.h.data) {
        this->end(out, item, wanted);
        return;
      }
    this->finish_all(item, wanted);
    if (this->goes_directly) return;
    this->sync();
    if (wanted) this->put_h(item);
  }
};

template <typename Shape> DEVICE void qr_tile_once(const qr_tile_task &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  ending_tile<Shape> tile(out, (typename Shape::T *)shared);
  const int64_t place = (int64_t)blockIdx.x * Shape::MATRICES + threadIdx.x / Shape::LANES;
  const bool wanted = Shape::MATRICES == 1 || place < p.batch;
  const int64_t item = wanted ? place : p.batch - 1;
  if (tile.WRITES_DIRECTLY && p.a_number == QR_OWN && p.a_access <= tile.DIRECT_MOST) {
    tile.read_directly(item);
  } else if (tile.WRITES_DIRECTLY || p.a_number != QR_OWN || !tile.read_whole(item)) {
    tile.template fetch<true>(item);
    wait_for_copies();
    tile.sync();
    tile.read_stage();
  }
  tile.factor_and_end(item, wanted);
}

template <typename Shape> DEVICE void qr_tile_in_place(const qr_tile_task &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  register_tile<Shape> tile(out.tile, (typename Shape::T *)shared);
  tile.read_directly(blockIdx.x);
  tile.take_steps(blockIdx.x, true, true);
  tile.finish_all(blockIdx.x, true);
}

template <typename Shape> DEVICE void qr_tile_persistent(const qr_tile_task &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  register_tile<Shape> tile(p, (typename Shape::T *)shared);
  uint32_t phase = 0;
  tile.start_fetching();
  tile.fetch_ahead(blockIdx.x);
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x, phase ^= 1) {
    tile.wait_for_fetch(phase);
    tile.read_stage();
    tile.sync();
    if (item + gridDim.x < p.batch) tile.fetch_ahead(item + gridDim.x);
    tile.take_steps(item, true, true);
    tile.finish_all(item, true);
  }
}

/* The matrix has twice the columns of the tile. The first half is factored while the second comes to shared memory.
 * Then they change places. The second half is reflected, and factored while the first half of the next matrix comes. */
template <typename Shape> DEVICE void qr_tile_halves(const qr_tile_task &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  register_tile<Shape> tile(p, (typename Shape::T *)shared);
  const auto fetch = [&](int64_t item, int first_column) {
    tile.first_column = first_column;
    tile.fetch(item);
  };
  fetch(blockIdx.x, 0);
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    wait_for_copies();
    tile.sync();
    tile.read_stage();
    tile.sync();
    if (p.n > Shape::COLUMNS) fetch(item, Shape::COLUMNS);
    tile.first_column = 0;
    tile.take_steps(item, true, true);
    tile.finish_all(item, true);
    if (p.n > Shape::COLUMNS) tile.turn_to_second_half();
    tile.sync();
    if (item + gridDim.x < p.batch) fetch(item + gridDim.x, 0);
    if (p.n > Shape::COLUMNS) {
      tile.first_column = Shape::COLUMNS;
      tile.take_steps(item, true, false);
      tile.finish_all(item, true);
    }
  }
}

/* Blocks of a successor that started early would take the places of this grid's own. They start as blocks end. With
 * many of the shortest blocks even that costs more than it saves (H200, 10,000 of 8 x 8 in f32: 5.07 us instead
 * of 3.75). */
template <typename Shape> DEVICE void qr_tile(const qr_tile_task &out) {
  only_wait_for_predecessors();
  if constexpr (Shape::HALVES)
    qr_tile_halves<Shape>(out);
  else if constexpr (Shape::PERSISTENT)
    qr_tile_persistent<Shape>(out);
  else if constexpr (Shape::IN_PLACE)
    qr_tile_in_place<Shape>(out);
  else
    qr_tile_once<Shape>(out);
  if constexpr (Shape::ROWS > 8 || sizeof(typename Shape::T) > 4) let_successors_start();
}

/* For the lists of qr_tile.h. */
#define DEFINE_QR_TILE_KERNEL(chips, parameters, name, threads, blocks, ...)                                           \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    static_assert(tile_shape<__VA_ARGS__>::THREADS == threads);                                                        \
    qr_tile<tile_shape<__VA_ARGS__>>(p);                                                                               \
    publish(p.done);                                                                                                   \
  }
