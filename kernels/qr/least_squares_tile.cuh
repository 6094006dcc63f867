/* least_squares_tile.cuh - least squares, min |b - A x|, in the register tile that factors A.
 *
 * Right-hand sides ride along with the steps and become Q^T b (least_squares_side.cuh). Then R goes to shared memory
 * and is substituted back; rows behind those of R have the residual. A and b are scaled as columns of extreme size are
 * (qr_tile.cuh), and x and the norm of the residual get the powers of two back. */
#ifndef RONDO_LEAST_SQUARES_TILE_CUH
#define RONDO_LEAST_SQUARES_TILE_CUH

#include "least_squares.h"
#include "least_squares_side.cuh"

/* x 2^exponent, for exponents of up to twice the range: rounded twice only where the result is denormal. */
template <typename T> __device__ __forceinline__ T times_power(T x, int exponent) {
  constexpr int BIAS = tile_number<T>::BIAS, MANTISSA = tile_number<T>::MANTISSA;
  T half, rest;
  from_high_word((uint32_t)(BIAS + exponent / 2) << MANTISSA, &half);
  from_high_word((uint32_t)(BIAS + exponent - exponent / 2) << MANTISSA, &rest);
  return x * half * rest;
}

/* Of a power of two that is a normal number. */
template <typename T> __device__ __forceinline__ int exponent_of_power(T power) {
  return (int)(high_word(power) >> tile_number<T>::MANTISSA) - tile_number<T>::BIAS;
}

/* No normal number: rcp takes it as zero. */
template <typename T> __device__ __forceinline__ bool is_zero(T x) {
  return (high_word(x) & 0x7fffffffu) >> tile_number<T>::MANTISSA == 0;
}

template <typename T> __device__ __forceinline__ T not_a_number() {
  T result;
  from_high_word(0x7fffffffu, &result);
  return result;
}

/* A matrix, and of its right-hand sides those from `first_side` on. Threads behind the last take it again, to keep in
 * step with the others of their warp, and are not wanted. */
struct least_squares_place {
  int64_t item;
  int first_side;
  bool wanted;
  __device__ __forceinline__ least_squares_place(const least_squares_parameters &p, int64_t place, int sides_at_a_time)
      : wanted(place < p.tile.batch * p.passes) {
    if (!wanted) place = p.tile.batch * p.passes - 1;
    item = p.passes == 1 ? place : place / p.passes;
    first_side = (int)(place - item * p.passes) * sides_at_a_time;
  }
};

/* Blocks of several warps, each with matrices of its own: half as many blocks or fewer start faster (H200, 1000 of 32 x
 * 32 in f32: 9.2 us against 9.95). */
template <typename Shape, int WARPS> struct of_warps : Shape {
  static constexpr int MATRICES = Shape::MATRICES * WARPS, THREADS = Shape::THREADS * WARPS;
  static_assert(WARPS == 1 || (Shape::LANES <= 32 && Shape::STAGED));
  static constexpr int SHARED_BYTES =
      MATRICES * (Shape::PIVOTS + Shape::COLUMNS + Shape::STAGE + Shape::FACTORS) * (int)sizeof(typename Shape::T) +
      (Shape::BULK ? 16 + Shape::COLUMNS * (Shape::COLUMNS + 1) / 2 * (int)sizeof(typename Shape::T) : 0);
  static_assert(SHARED_BYTES == WARPS * least_squares_shared_bytes((int)sizeof(typename Shape::T), Shape::ROWS,
                                                                   Shape::COLUMNS, Shape::ROW_LANES,
                                                                   Shape::COLUMN_LANES, Shape::OPTIONS));
};

template <typename Shape> struct solving_tile : register_tile<Shape, side_by_rows<Shape>> {
  using tile = register_tile<Shape, side_by_rows<Shape>>;
  using side_type = side_by_rows<Shape>;
  using T = typename tile::T;
  using vector = typename tile::vector;
  using tile::p, tile::a, tile::scales, tile::stage, tile::lane, tile::row, tile::column, tile::rider;
  using tile::ROWS, tile::COLUMNS, tile::GR, tile::GC, tile::P, tile::Q, tile::VECTOR;
  static constexpr int WIDTH = side_type::WIDTH, SOLVED = side_type::SOLVED, HELD = side_type::HELD;
  static_assert(Shape::STAGED && (!Shape::BULK || Shape::MATRICES == 1));
  static_assert(COLUMNS % GR == 0);

  const least_squares_parameters &out;
  tile_triangle<Shape> triangle;

  __device__ __forceinline__ solving_tile(const least_squares_parameters &parameters, T *shared)
      : tile(parameters.tile, shared), out(parameters) {
    triangle.data = Shape::BULK ? stage + Shape::STAGE + 16 / (int)sizeof(T) : stage;
    rider.lane = lane % WIDTH;
  }

  /* The right-hand side of this warp, `side` of the matrix: zeros where there is none. */
  __device__ __forceinline__ void read_side(int64_t item, int side) {
    const T *from = (const T *)out.b.data + item * out.b.batch_stride + side * out.b.column_stride;
    const bool present = side < out.sides;
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
      const int i = rider.row_of(k) - p.offset;
      rider.b[k] = present && (uint32_t)i < (uint32_t)p.m ? from[i * out.b.row_stride] : T(0);
      most = max(most, high_word(rider.b[k]) & 0x7fffffffu);
    }
    rider.exponent = 0;
    if (!__any_sync(0xffffffffu, is_extreme<T>(most))) return;
    constexpr int BIAS = tile_number<T>::BIAS, MANTISSA = tile_number<T>::MANTISSA;
    most = rider.over_rows(most, true);
    if (is_extreme<T>(most)) rider.exponent = max(1 - BIAS, min(BIAS - 1, (int)(most >> MANTISSA) - BIAS));
    T factor;
    from_high_word((uint32_t)(BIAS - rider.exponent) << MANTISSA, &factor);
#pragma unroll
    for (int k = 0; k < HELD; k++) rider.b[k] *= factor;
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
      const int k = q * GC + column;
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

  /* The inverses of the diagonal, of a warp's lanes, WIDTH rows at a time. Returns LAPACK's info: the first zero there,
   * counted from one, or 0. */
  __device__ __forceinline__ int invert_diagonal(T (&inverse)[SOLVED]) const {
    int first = 0;
#pragma unroll
    for (int k = SOLVED - 1; k >= 0; k--) {
      const int r = rider.row_of(k);
      const T diagonal = (uint32_t)(r - p.offset) < (uint32_t)p.n ? triangle.column(r)[r] : T(1);
      inverse[k] = inverse_of(diagonal);
      const uint32_t zeros = __ballot_sync(0xffffffffu, is_zero(diagonal)) >> this->item_lane;
      const uint32_t own = WIDTH == 32 ? zeros : zeros & ((1u << (WIDTH & 31)) - 1);
      if (own) first = k * WIDTH + __ffs((int)own) - p.offset;
    }
    return first;
  }

  /* Of rows behind R. */
  __device__ __forceinline__ void write_residual(int64_t item, bool wanted, int side) {
    T part[2] = {};
    if (p.m > p.n) {
#pragma unroll
      for (int k = 0; k < HELD; k++) {
        const T value = rider.row_of(k) >= p.offset + p.n ? rider.b[k] : T(0);
        part[k & 1] = fused(value, value, part[k & 1]);
      }
      part[0] = sqrt(rider.over_rows(part[0] + part[1]));
      if (rider.exponent) part[0] = times_power(part[0], rider.exponent);
    }
    if (wanted && rider.lane == 0 && side < out.sides)
      ((T *)out.residual.data)[item * out.residual.batch_stride + side] = part[0];
  }

  __device__ __forceinline__ void write_solution(int64_t item, bool wanted, int side, int info) {
    if (!wanted || side >= out.sides) return;
    if (out.info.data && rider.lane == 0 && side == 0) ((int32_t *)out.info.data)[item * out.info.batch_stride] = info;
#pragma unroll
    for (int k = 0; k < SOLVED; k++) /* unscaled always: a branch costs more than the work */
      rider.b[k] =
          times_power(rider.b[k], rider.exponent - exponent_of_power(scales[min(rider.row_of(k), COLUMNS - 1)]));
    T *to = (T *)out.x.data + item * out.x.batch_stride + side * out.x.column_stride;
#pragma unroll
    for (int k = 0; k < SOLVED; k++) {
      const int i = rider.row_of(k) - p.offset;
      if ((uint32_t)i < (uint32_t)p.n) to[i * out.x.row_stride] = info ? not_a_number<T>() : rider.b[k];
    }
  }

  __device__ __forceinline__ void factor_and_solve(int64_t item, bool wanted, int side) {
    clear_scales();
    this->factor_only();
    this->sync();
    keep_triangle();
    this->sync();
    if (Shape::LANES > 32 && side >= out.sides) return; /* a whole warp */
    T inverse[SOLVED];
    const int info = invert_diagonal(inverse);
    if (out.residual.data) write_residual(item, wanted, side);
#pragma unroll
    for (int k = 0; k < SOLVED; k++) rider.b[k] *= inverse[k];
    rider.template substitute<SOLVED - 1>(triangle, inverse, p.offset, p.offset + p.n);
    write_solution(item, wanted, side, info);
  }
};

template <typename Shape> __device__ __forceinline__ void least_squares(const least_squares_parameters &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int SIDES = least_squares_tile_sides(Shape::ROW_LANES, Shape::COLUMN_LANES);
  const qr_tile_parameters &p = out.tile;
  solving_tile<Shape> tile(out, (typename Shape::T *)shared);
  const int own_side = tile.lane / tile.WIDTH;
  if constexpr (Shape::BULK) { /* blocks walk over matrices, and the next one is fetched while one is factored */
    const int64_t places = p.batch * out.passes;
    const bool whole = p.a_access == QR_TILE_DENSE && tile.full();
    const auto fetch = [&](int64_t at) {
      const int64_t item = least_squares_place(out, at, SIDES).item;
      if (whole)
        tile.fetch_ahead(item);
      else
        tile.fetch(item);
    };
    uint32_t phase = 0;
    tile.start_fetching();
    fetch(blockIdx.x);
    for (int64_t at = blockIdx.x; at < places; at += gridDim.x, phase ^= 1) {
      const least_squares_place place(out, at, SIDES);
      const int side = place.first_side + own_side;
      tile.read_side(place.item, side);
      if (whole) {
        tile.wait_for_fetch(phase);
      } else {
        wait_for_copies();
        tile.sync();
      }
      tile.read_stage();
      tile.sync();
      if (at + gridDim.x < places) fetch(at + gridDim.x);
      tile.factor_and_solve(place.item, true, side);
    }
  } else {
    const least_squares_place place(out, (int64_t)blockIdx.x * Shape::MATRICES + threadIdx.x / Shape::LANES, SIDES);
    const int side = place.first_side + own_side;
    if (tile.read_whole(place.item)) {
      tile.read_side(place.item, side);
    } else {
      tile.fetch(place.item);
      tile.read_side(place.item, side);
      wait_for_copies();
      tile.sync();
      tile.read_stage();
    }
    tile.factor_and_solve(place.item, place.wanted, side);
  }
}

/* For the lists of least_squares.h. */
#define DEFINE_LEAST_SQUARES_KERNEL(chips, parameters, name, threads, blocks, ...)                                     \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    static_assert(threads % tile_shape<__VA_ARGS__>::THREADS == 0);                                                    \
    only_wait_for_predecessors();                                                                                      \
    least_squares<of_warps<tile_shape<__VA_ARGS__>, threads / tile_shape<__VA_ARGS__>::THREADS>>(p);                   \
    let_successors_start();                                                                                            \
    publish(p.done);                                                                                                   \
  }

#endif
