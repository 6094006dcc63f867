/* least_squares_tile.cuh - least squares, min |b - A x|, in the register tile that factors A (qr_tile.cuh).
 *
 * One or more warps hold a matrix, and each carries one right-hand side through the steps (least_squares_rhs.cuh): b
 * becomes Q^T b. Then R goes to shared memory, each warp substitutes back, and the rows below R give the residual. A
 * and b are scaled as the tile scales columns of extreme size; x and the norm of the residual get the powers of two
 * back. Bound as H and tau are: by the chain of steps. */
#pragma once

#include "../common/launch.cuh"
#include "least_squares.h"
#include "least_squares_rhs.cuh"

/* Blocks of several warps, each with its own matrices: fewer blocks start faster (H200, 1000 of 32 x 32 in f32: 9.2 us
 * instead of 9.95). */
template <typename Shape, int WARPS> struct of_warps : Shape {
  static constexpr int MATRICES = Shape::MATRICES * WARPS, THREADS = Shape::THREADS * WARPS;
  static_assert(WARPS == 1 || Shape::LANES <= 32);
  static constexpr int SHARED_BYTES = Shape::SHARED_BYTES * WARPS;
};

template <typename Shape> struct solving_tile : register_tile<Shape, carried_rhs<Shape>> {
  using tile = register_tile<Shape, carried_rhs<Shape>>;
  using T = typename tile::T;
  using tile::COLUMNS, tile::GR, tile::GC, tile::Q;
  using tile::p, tile::scales, tile::stage, tile::lane, tile::row, tile::column, tile::rider;
  static_assert(Shape::STAGED && COLUMNS % GR == 0);

  DEVICE solving_tile(const least_squares_parameters &parameters, T *shared) : tile(parameters.tile, shared) {
    rider.lane = lane % rider.WIDTH;
  }

  DEVICE void clear_scales() {
    unrolled_for (int q = 0; q < Q; q++)
      if (row == 0) scales[q * GC + column] = T(1);
    __syncwarp();
  }

  DEVICE void factor_and_solve(const least_squares_parameters &out, int64_t item, bool wanted, int rhs) {
    clear_scales();
    rider.start();
    this->take_steps(0, false, true);
    rider.end();
    this->sync();
    this->stage_r(
        [](int) { return [](int, T number) { return number; }; }); /* numbers below the diagonal are never read */
    this->sync();
    if (Shape::LANES > 32 && rhs >= out.rhs_count) return; /* a whole warp */
    if (out.residual.data) rider.write_residual(out, item, wanted, rhs);
    rider.solve(out, stage, scales, item, wanted, rhs);
  }
};

/* A place is a matrix with as many right-hand sides as its warps carry. Threads after the last place take it again, to
 * keep in step with their warp, and write nothing. */
template <typename OneShape, int THREADS> DEVICE void least_squares(const least_squares_parameters &out) {
  static_assert(THREADS % OneShape::THREADS == 0);
  using Shape = of_warps<OneShape, THREADS / OneShape::THREADS>;
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int RHS = least_squares_tile_rhs(Shape::ROW_LANES, Shape::COLUMN_LANES);
  solving_tile<Shape> tile(out, (typename Shape::T *)shared);
  const int64_t own = (int64_t)blockIdx.x * Shape::MATRICES + threadIdx.x / Shape::LANES;
  const bool wanted = own < out.tile.batch * out.passes;
  const int64_t place = wanted ? own : out.tile.batch * out.passes - 1,
                item = out.passes == 1 ? place : place / out.passes;
  /* By a shuffle, for the compiler to see that it is the same in the warp. */
  const int warp = Shape::LANES > 32 ? __shfl_sync(0xffffffffu, tile.lane / 32, 0) : 0;
  const int rhs = (int)(place - item * out.passes) * RHS + warp;
  if (tile.read_whole(item)) {
    tile.rider.read(out, item, rhs);
  } else {
    tile.fetch(item);
    tile.rider.read(out, item, rhs);
    wait_for_copies();
    tile.sync();
    tile.read_stage();
  }
  tile.factor_and_solve(out, item, wanted, rhs);
}

/* For the lists of least_squares.h. */
#define DEFINE_LEAST_SQUARES_KERNEL(chips, parameters, name, threads, blocks, ...)                                     \
  DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, least_squares<tile_shape<__VA_ARGS__>, threads>)
