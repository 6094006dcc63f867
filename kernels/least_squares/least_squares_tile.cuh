/* least_squares_tile.cuh - least squares, min |b - A x|, in the register tile that factors A.
 *
 * Right-hand right-hand sides ride along with the steps, or take a column's place, and become Q^T b
 * (least_squares_rhs.cuh). Then R goes to shared memory and is substituted back; the rows below R have the
 * residual. A and b are scaled as columns of extreme size are (qr_tile.cuh), and x and the norm of the residual get the
 * powers of two back. */
#ifndef RONDO_LEAST_SQUARES_TILE_CUH
#define RONDO_LEAST_SQUARES_TILE_CUH

#include "../qr/qr_launch.cuh"
#include "least_squares.h"
#include "least_squares_rhs.cuh"

/* A matrix, and of its right-hand sides those from `first_rhs` on. Threads after the last matrix take it again, to keep
 * in step with the others of their warp, and are not wanted. */
struct least_squares_place {
  int64_t item;
  int first_rhs;
  bool wanted;
  __device__ __forceinline__ least_squares_place(const least_squares_parameters &p, int64_t place, int rhs_at_a_time)
      : wanted(place < p.tile.batch * p.passes) {
    if (!wanted) place = p.tile.batch * p.passes - 1;
    item = p.passes == 1 ? place : place / p.passes;
    first_rhs = (int)(place - item * p.passes) * rhs_at_a_time;
  }
};

/* Blocks of several warps, each with matrices of its own: half as many blocks or fewer start faster (H200, 1000 of 32 x
 * 32 in f32: 9.2 us against 9.95). */
template <typename Shape, int WARPS> struct of_warps : Shape {
  static constexpr int MATRICES = Shape::MATRICES * WARPS, THREADS = Shape::THREADS * WARPS;
  static_assert(WARPS == 1 || (Shape::LANES <= 32 && Shape::STAGED));
  static constexpr int SHARED_BYTES =
      MATRICES * (Shape::PIVOTS + Shape::COLUMNS + Shape::STAGE + Shape::FACTORS) * (int)sizeof(typename Shape::T) +
      (Shape::BULK ? 16 + least_squares_triangle(Shape::COLUMNS) * (int)sizeof(typename Shape::T) : 0);
  static_assert(SHARED_BYTES == WARPS * least_squares_shared_bytes((int)sizeof(typename Shape::T), Shape::ROWS,
                                                                   Shape::COLUMNS, Shape::ROW_LANES,
                                                                   Shape::COLUMN_LANES, Shape::OPTIONS));
};

template <typename Shape>
using rhs_of = std::conditional_t<Shape::ROW_LANES == 1, rhs_as_column<Shape>, rhs_by_rows<Shape>>;

template <typename Shape> struct solving_tile : register_tile<Shape, rhs_of<Shape>> {
  using rhs_type = rhs_of<Shape>;
  using tile = register_tile<Shape, rhs_type>;
  using T = typename tile::T;
  using vector = typename tile::vector;
  using tile::p, tile::a, tile::pivots, tile::scales, tile::stage, tile::lane, tile::row, tile::column, tile::rider;
  using tile::ROWS, tile::COLUMNS, tile::GR, tile::GC, tile::P, tile::Q, tile::VECTOR;
  static constexpr int WIDTH = rhs_type::WIDTH;
  static_assert(Shape::STAGED && (!Shape::BULK || Shape::MATRICES == 1));
  static_assert(COLUMNS % GR == 0);

  const least_squares_parameters &out;
  tile_triangle<Shape> triangle;

  __device__ __forceinline__ solving_tile(const least_squares_parameters &parameters, T *shared)
      : tile(parameters.tile, shared), out(parameters) {
    triangle.data = Shape::BULK ? stage + Shape::STAGE + 16 / (int)sizeof(T) : stage;
    rider.lane = lane % WIDTH;
  }

  __device__ __forceinline__ void clear_scales() {
#pragma unroll
    for (int q = 0; q < Q; q++)
      if (row == 0) scales[q * GC + column] = T(1);
    __syncwarp();
  }

  /* The upper triangle; what is below the diagonal is never read. */
  __device__ __forceinline__ void keep_triangle() {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int k = GR == 1 ? lane : q * GC + column;
      T *to = triangle.column(k) + row;
#pragma unroll
      for (int i = 0; i < COLUMNS / GR; i += GR == 1 ? VECTOR : 1) {
        if (i * GR >= (q + 1) * GC) continue;
        if constexpr (GR == 1) {
          vector v;
#pragma unroll
          for (int e = 0; e < VECTOR; e++) ((T *)&v)[e] = a[i + e][q];
          *(vector *)(to + i) = v;
        } else if (!triangle.IS_DENSE || (i + 1) * GR <= q * GC || i * GR + row <= k)
          to[i * GR] = a[i][q];
      }
    }
  }

  /* ---- R divided by its diagonal, by all warps, for the one that waits for each x in turn ---- */

  static constexpr bool DIVIDED = COLUMNS >= 128;

  __device__ __forceinline__ void keep_diagonal() {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int k = q * GC + column;
#pragma unroll
      for (int i = q * GC / GR; i * GR < (q + 1) * GC; i++)
        if (i * GR + row == k) triangle.column(k)[k] = a[i][q];
    }
  }

  /* Behind a barrier: the inverses, where pivot columns stood. */
  __device__ __forceinline__ void invert_diagonal() {
    static_assert(!DIVIDED || COLUMNS <= Shape::LANES);
    if (lane >= COLUMNS) return; /* a whole warp */
    const bool is_of_r = (uint32_t)(lane - p.offset) < (uint32_t)p.n;
    pivots[lane] = is_of_r ? inverse_of(triangle.column(lane)[lane]) : T(1);
  }

  /* Behind another. */
  __device__ __forceinline__ void keep_divided() {
    T inverse[COLUMNS / GR];
#pragma unroll
    for (int i = 0; i < COLUMNS / GR; i++) inverse[i] = pivots[i * GR + row];
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int k = q * GC + column;
      T *to = triangle.column(k) + row;
#pragma unroll
      for (int i = 0; i * GR < (q + 1) * GC; i++)
        if ((i + 1) * GR <= q * GC || i * GR + row < k) to[i * GR] = a[i][q] * inverse[i];
    }
  }

  /* ---- a lane a column ---- */

  /* Behind step J, the first: the right-hand side is reflected as the columns were, and takes the place of column J,
   * which is final, in its lane, which has no further pivot. The slice of step J is free. */
  template <int J> __device__ __forceinline__ void take_rhs() {
    T *free = this->slice(J);
    free[lane] = rider.reflected(J, free[lane]);
    __syncwarp();
    if (column != J) return;
    rider.corner = a[J][0];
#pragma unroll
    for (int i = 0; i < P; i += VECTOR) this->take_vector(free + i, i, 0);
    column = COLUMNS;
  }

  template <int J> __device__ __forceinline__ void steps_with_rhs(int first, int last) {
    if (J < first || J >= last) return;
    this->template steps<J>(first, last);
    if (J == first) take_rhs<J>();
    this->template steps<J + 1>(first, last);
    this->template steps<J + 2>(first, last);
    this->template steps<J + 3>(first, last);
  }
  template <int... B>
  __device__ __forceinline__ void all_steps_with_rhs(std::integer_sequence<int, B...>, int first, int last) {
    (steps_with_rhs<4 * B>(first, last), ...);
  }

  /* R and the right-hand side as a column of it come from shared memory, and the diagonal of that column goes there. */
  __device__ __forceinline__ void part_rhs(int first) {
    T *place = triangle.column(first);
    rider.b[0] = place[lane];
    if (lane == first) place[lane] = rider.corner;
    __syncwarp();
  }

  __device__ __forceinline__ void factor_and_solve(int64_t item, bool wanted, int rhs) {
    clear_scales();
    const int first = p.offset, last = p.offset + min(p.m - 1, p.n);
    if constexpr (GR == 1) {
      this->scale_columns();
      all_steps_with_rhs(std::make_integer_sequence<int, COLUMNS / 4>{}, first, last);
    } else {
      rider.start();
      this->take_steps(0, false, true);
      rider.end();
    }
    if constexpr (DIVIDED) {
      keep_diagonal();
      this->sync();
      invert_diagonal();
      this->sync();
      keep_divided();
    } else {
      this->sync();
      keep_triangle();
    }
    this->sync();
    if constexpr (GR == 1)
      if (first < last) part_rhs(first);
    if (Shape::LANES > 32 && rhs >= out.rhs_count) return; /* a whole warp */
    if (out.residual.data) rider.write_residual(out, item, wanted, rhs);
    if constexpr (DIVIDED)
      rider.solve_divided(out, triangle, pivots, scales, item, rhs);
    else
      rider.solve(out, triangle, scales, item, wanted, rhs);
  }
};

template <typename OneShape, int THREADS>
__device__ __forceinline__ void least_squares(const least_squares_parameters &out) {
  static_assert(THREADS % OneShape::THREADS == 0);
  using Shape = of_warps<OneShape, THREADS / OneShape::THREADS>;
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int RHS = least_squares_tile_rhs(Shape::ROW_LANES, Shape::COLUMN_LANES);
  const qr_tile_parameters &p = out.tile;
  solving_tile<Shape> tile(out, (typename Shape::T *)shared);
  /* By a shuffle, for the compiler to see that it is one of a warp. */
  const int own_rhs = Shape::LANES > 32 ? __shfl_sync(0xffffffffu, tile.lane / 32, 0) : tile.lane / tile.WIDTH;
  if constexpr (Shape::BULK) { /* blocks walk over matrices, and the next one is fetched while one is factored */
    const int64_t places = p.batch * out.passes;
    matrices_ahead<solving_tile<Shape>> ahead(tile, least_squares_place(out, blockIdx.x, RHS).item);
    for (int64_t at = blockIdx.x; at < places; at += gridDim.x) {
      const least_squares_place place(out, at, RHS);
      const int rhs = place.first_rhs + own_rhs;
      tile.rider.load(out, place.item, rhs);
      ahead.wait();
      tile.read_stage();
      tile.sync();
      if (at + gridDim.x < places) {
        const least_squares_place next(out, at + gridDim.x, RHS);
        ahead.fetch(next.item);
        tile.rider.prefetch(out, next.item, next.first_rhs + own_rhs);
      }
      tile.rider.scale();
      tile.factor_and_solve(place.item, true, rhs);
    }
  } else {
    const least_squares_place place(out, (int64_t)blockIdx.x * Shape::MATRICES + threadIdx.x / Shape::LANES, RHS);
    const int rhs = place.first_rhs + own_rhs;
    if (tile.read_whole(place.item)) {
      tile.rider.read(out, place.item, rhs);
    } else {
      tile.fetch(place.item);
      tile.rider.read(out, place.item, rhs);
      wait_for_copies();
      tile.sync();
      tile.read_stage();
    }
    tile.factor_and_solve(place.item, place.wanted, rhs);
  }
}

/* For the lists of least_squares.h. */
#define DEFINE_LEAST_SQUARES_KERNEL(chips, parameters, name, threads, blocks, ...)                                     \
  DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, least_squares<tile_shape<__VA_ARGS__>, threads>)

#endif
