/* least_squares_side.cuh - a right-hand side that rides along with the steps of a register tile (qr_tile.cuh), and its
 * back substitution.
 *
 * A warp, or a matrix of less than a warp, holds one, dealt by rows to its lanes, and reads those rows of the pivot
 * column that the step shows anyway: a few instructions a step, whose sums over lanes hide behind the tile's own. Where
 * a matrix has several warps all do so, whether there are as many sides or not: in a branch it would lengthen every
 * step by its latency (H200, 1000 of 128 x 128: f32 265 us against 214, f64 686 against 543). */
#ifndef RONDO_LEAST_SQUARES_SIDE_CUH
#define RONDO_LEAST_SQUARES_SIDE_CUH

#include "qr_tile.cuh"

/* R in shared memory, one column after the other: as the matrix stood, or packed where the next matrix stands there. */
template <typename Shape> struct tile_triangle {
  using T = typename Shape::T;
  static constexpr bool IS_DENSE = Shape::BULK;
  static constexpr int LEADING = Shape::COLUMNS + Shape::VECTOR;
  T *data;
  __device__ __forceinline__ T *column(int j) const { return data + (IS_DENSE ? j * (j + 1) / 2 : j * LEADING); }
};

template <typename Shape> struct side_by_rows {
  using T = typename Shape::T;
  static constexpr int GR = Shape::ROW_LANES, WIDTH = tile_smaller(Shape::LANES, 32), HELD = Shape::ROWS / WIDTH;
  static constexpr int SOLVED = (Shape::COLUMNS + WIDTH - 1) / WIDTH, BLOCK = Shape::BLOCK;
  static_assert(HELD * WIDTH == Shape::ROWS && !Shape::SHUFFLED && !Shape::HALVES && !Shape::PACKED &&
                WIDTH % BLOCK == 0);

  T b[HELD], x[HELD], d, above;
  int exponent; /* of the power of two that was taken off b */
  int lane;     /* of WIDTH */

  __device__ __forceinline__ int row_of(int k) const { return k * WIDTH + lane; }

  template <typename Value> static __device__ __forceinline__ Value over_rows(Value value, bool largest = false) {
#pragma unroll
    for (int offset = 1; offset < WIDTH; offset *= 2) {
      const Value other = __shfl_xor_sync(0xffffffffu, value, offset);
      value = largest ? max(value, other) : value + other;
    }
    return value;
  }
  static __device__ __forceinline__ T from_row(T value, int row) {
    return __shfl_sync(0xffffffffu, value, row & (WIDTH - 1), WIDTH);
  }

  /* ---- the steps ---- */

  /* `seen` is the slice of this thread's row lane. Where its rows are those of the lane, x is what the tile has. */
  static constexpr bool SAME_ROWS = GR == WIDTH;
  template <int B, int P> __device__ __forceinline__ void meet(int j, const T *seen, const T (&own)[P]) {
    constexpr int J = B * BLOCK, FIRST = J / WIDTH;
    seen += lane / GR;
    T part[2] = {};
#pragma unroll
    for (int k = FIRST; k < HELD; k++) {
      if constexpr (SAME_ROWS) {
        x[k] = own[k];
      } else {
        x[k] = seen[k * (WIDTH / GR)];
        if (k * WIDTH < J + BLOCK) x[k] = row_of(k) > j ? x[k] : T(0);
      }
      part[k & 1] = fused(x[k], b[k], part[k & 1]);
    }
    d = over_rows(HELD - FIRST > 1 ? part[0] + part[1] : part[FIRST & 1]);
    above = from_row(b[FIRST], j);
  }

  template <int B, int P> __device__ __forceinline__ void reflect(int j, T u, T g, const T (&own)[P]) {
    constexpr int FIRST = B * BLOCK / WIDTH;
    if (lane == (j & (WIDTH - 1))) x[FIRST] = u;
    const T y = g * fused(u, above, d);
#pragma unroll
    for (int k = FIRST; k < HELD; k++) {
      if constexpr (SAME_ROWS)
        b[k] = fused(-own[k], y, b[k]);
      else
        b[k] = fused(-x[k], y, b[k]);
    }
  }

  /* ---- back substitution ---- */

  /* Rows divided by their diagonal, then columns two at a time from the last up: one broadcast is waited for where two
   * numbers of x are found. */
  template <int K>
  __device__ __forceinline__ void substitute(const tile_triangle<Shape> &r, const T (&inverse)[SOLVED], int first,
                                             int last) {
    const int begin = max(first, K * WIDTH);
    const auto row_of_r = [&](int k, int j) {
      return k < K || row_of(K) < j ? r.column(j)[row_of(k)] * inverse[k] : T(0);
    };
    int j = min(last, (K + 1) * WIDTH) - 1;
#pragma unroll 4
    for (; j > begin; j -= 2) {
      T left[K + 1], right[K + 1];
#pragma unroll
      for (int k = 0; k <= K; k++) right[k] = row_of_r(k, j), left[k] = row_of_r(k, j - 1);
      const T between = from_row(right[K], j - 1), x_right = from_row(b[K], j);
      const T x_left = fused(-between, x_right, from_row(b[K], j - 1));
#pragma unroll
      for (int k = 0; k <= K; k++) {
        const T value = fused(-left[k], x_left, fused(-right[k], x_right, b[k]));
        if (k < K || row_of(K) < j) b[k] = value;
      }
    }
    if (j == begin) {
      const T x_j = from_row(b[K], j);
#pragma unroll
      for (int k = 0; k <= K; k++) {
        const T value = fused(-row_of_r(k, j), x_j, b[k]);
        if (k < K || row_of(K) < j) b[k] = value;
      }
    }
    if constexpr (K > 0) substitute<K - 1>(r, inverse, first, last);
  }
};

#endif
