/* least_squares_rhs.cuh - a right-hand side that a warp carries through the steps of a register tile (qr_tile.cuh), and
 * its back substitution.
 *
 * A warp, or a matrix of less than a warp, deals the rows of one right-hand side to its lanes. Each step shows its
 * pivot column anyway, and the lanes read their rows of it: a few instructions, whose sums over lanes overlap the
 * tile's own. A right-hand side is reflected one step late, where the tile waits for its pivot column, and not between
 * that and the barrier (H200, 1000 of 128 x 128 in f64: 530 us instead of 540). All warps of a matrix carry one, even
 * if there are fewer right-hand sides: a branch would lengthen each step by its latency (H200, 1000 of 128 x 128: f32
 * 265 us instead of 214, f64 686 instead of 543). */
#pragma once

#include "../qr/qr_tile.cuh"
#include "least_squares.h"

/* x 2^exponent, for exponents of up to twice the range. Only a denormal result is rounded twice. */
template <typename T> DEVICE T times_power(T x, int exponent) {
  return x * power_of_two<T>(exponent / 2) * power_of_two<T>(exponent - exponent / 2);
}

/* `power` is a power of two and a normal number. */
template <typename T> DEVICE int exponent_of_power(T power) {
  return (int)(high_word(power) >> tile_number<T>::MANTISSA) - tile_number<T>::BIAS;
}

/* Zero or denormal: rcp takes both as zero. */
template <typename T> DEVICE bool is_zero(T x) { return (high_word(x) & 0x7fffffffu) >> tile_number<T>::MANTISSA == 0; }

template <typename T> DEVICE T not_a_number() {
  T result;
  from_high_word(0x7fffffffu, &result);
  return result;
}

template <typename Shape> struct carried_rhs {
  using T = typename Shape::T;
  static constexpr int GR = Shape::ROW_LANES, WIDTH = tile_smaller(Shape::LANES, 32), HELD = Shape::ROWS / WIDTH;
  static constexpr int SOLVED = (Shape::COLUMNS + WIDTH - 1) / WIDTH, BLOCK = Shape::BLOCK;
  static constexpr int LEADING = register_tile<Shape, carried_rhs>::R_LEADING;
  static_assert(HELD * WIDTH == Shape::ROWS && !Shape::SHUFFLED && !Shape::HALVES && !Shape::PACKED &&
                WIDTH % BLOCK == 0);

  T b[HELD], x[HELD], d, above, u, g; /* from x on: of a step */
  int pivot_row;                      /* of that step */
  int exponent;                       /* of the power of two that divides b */
  int lane;                           /* of WIDTH */

  DEVICE int row_of(int k) const { return k * WIDTH + lane; }

  /* ---- from memory ---- */

  DEVICE void read(const least_squares_parameters &out, int64_t item, int rhs) {
    const T *from = (const T *)out.b.data + item * out.b.batch_stride + rhs * out.b.column_stride;
    const bool present = rhs < out.rhs_count;
    uint32_t most = 0;
    unrolled_for (int k = 0; k < HELD; k++) {
      const int i = row_of(k) - out.tile.offset;
      b[k] = present && (uint32_t)i < (uint32_t)out.tile.m ? from[i * out.b.row_stride] : T(0);
    }
    unrolled_for (int k = 0; k < HELD; k++) most = max(most, high_word(b[k]) & 0x7fffffffu);
    exponent = 0;
    if (!__any_sync(0xffffffffu, is_extreme<T>(most))) return;
    exponent = exponent_to_take<T>(over_rows(most, true));
    const T factor = power_of_two<T>(-exponent);
    unrolled_for (int k = 0; k < HELD; k++) b[k] *= factor;
  }

  /* ---- sums ---- */

  template <typename Value> static DEVICE Value over_rows(Value value, bool largest = false) {
    unrolled_for (int offset = 1; offset < WIDTH; offset *= 2) {
      const Value other = __shfl_xor_sync(0xffffffffu, value, offset);
      value = largest ? max(value, other) : value + other;
    }
    return value;
  }
  static DEVICE T from_row(T value, int row) { return __shfl_sync(0xffffffffu, value, row & (WIDTH - 1), WIDTH); }

  /* ---- the steps ---- */

  /* If a lane has the same rows of the tile and of the right-hand side, it uses the tile's x. That is gone a step
   * later, so there is no delay. */
  static constexpr bool SAME_ROWS = GR == WIDTH;

  /* Before the first step. */
  DEVICE void start() {
    d = above = u = g = T(0);
    pivot_row = 0;
    unrolled_for (int k = 0; k < HELD; k++) x[k] = T(0);
  }

  /* The reflection of the step before. Its pivot is one of the local rows FIRST to LAST. */
  template <int FIRST, int LAST> DEVICE void catch_up() {
    const T y = g * fused(u, above, d);
    unrolled_for (int k = FIRST; k <= LAST; k++)
      if (row_of(k) == pivot_row) x[k] = u;
    unrolled_for (int k = FIRST; k < HELD; k++) b[k] = fused(-x[k], y, b[k]);
  }

  /* After the last step. */
  DEVICE void end() {
    if constexpr (!SAME_ROWS) catch_up<0, HELD - 1>();
  }

  /* `seen` is the slice of this thread's row lane. */
  template <int B, int P> DEVICE void meet(int j, const T *seen, const T (&own)[P]) {
    constexpr int J = B * BLOCK, FIRST = J / WIDTH, BEFORE = J > 0 ? (J - 1) / WIDTH : 0;
    if constexpr (!SAME_ROWS) {
      catch_up<BEFORE, FIRST>();
      if (BEFORE < FIRST) x[BEFORE] = T(0);
    }
    seen += lane / GR;
    T part[2] = {};
    unrolled_for (int k = FIRST; k < HELD; k++) {
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

  template <int B, int P> DEVICE void reflect(int j, T u_of_step, T g_of_step, const T (&own)[P]) {
    if constexpr (SAME_ROWS) {
      const T y = g_of_step * fused(u_of_step, above, d);
      unrolled_for (int k = B * BLOCK / WIDTH; k < HELD; k++) b[k] = fused(-own[k], y, b[k]);
    } else {
      u = u_of_step;
      g = g_of_step;
      pivot_row = j;
    }
  }

  /* ---- back substitution ---- */

  /* Rows are divided by their diagonal. Then columns come two at a time from the last up, so two numbers of x wait for
   * one broadcast. The last rows that column j meets are those from K * WIDTH on. */
  template <int K> DEVICE T part_of_column(const T *r, const T (&inverse)[SOLVED], int k, int j) const {
    return k < K || row_of(K) < j ? r[j * LEADING + row_of(k)] * inverse[k] : T(0);
  }
  template <int K> DEVICE void substitute_two(const T *r, const T (&inverse)[SOLVED], int j) {
    T left[K + 1], right[K + 1];
    unrolled_for (int k = 0; k <= K; k++)
      right[k] = part_of_column<K>(r, inverse, k, j), left[k] = part_of_column<K>(r, inverse, k, j - 1);
    const T between = from_row(right[K], j - 1), x_right = from_row(b[K], j);
    const T x_left = fused(-between, x_right, from_row(b[K], j - 1));
    unrolled_for (int k = 0; k <= K; k++) {
      if (k < K || row_of(K) < j) b[k] = fused(-right[k], x_right, b[k]);
      if (k < K || row_of(K) < j - 1) b[k] = fused(-left[k], x_left, b[k]);
    }
  }
  template <int K> DEVICE void substitute(const T *r, const T (&inverse)[SOLVED], int first, int last) {
    const int begin = max(first, K * WIDTH);
    int j = min(last, (K + 1) * WIDTH) - 1;
#pragma unroll 4
    for (; j > begin; j -= 2) substitute_two<K>(r, inverse, j);
    if (j == begin) {
      const T x_j = from_row(b[K], j);
      unrolled_for (int k = 0; k <= K; k++) {
        const T value = fused(-part_of_column<K>(r, inverse, k, j), x_j, b[k]);
        if (k < K || row_of(K) < j) b[k] = value;
      }
    }
    if constexpr (K > 0) substitute<K - 1>(r, inverse, first, last);
  }

  /* All columns of a small tile, at constant places: numbers outside the matrix are zero (H200, 10,000 of 16 x 16 in
   * f32: 11.4 us instead of 12.3). */
  DEVICE void substitute_small(const T *r, const T (&inverse)[SOLVED]) {
    unrolled_for (int j = Shape::COLUMNS - 1; j > 0; j -= 2) substitute_two<0>(r, inverse, j);
  }

  /* The inverses of the diagonal, WIDTH rows at a time. Returns LAPACK's info: the first zero there, counted from one,
   * or 0. */
  DEVICE int invert_diagonal(const qr_tile_parameters &p, const T *r, T (&inverse)[SOLVED]) const {
    int first = 0;
    unrolled_for (int k = SOLVED - 1; k >= 0; k--) {
      const int i = row_of(k);
      const T diagonal = (uint32_t)(i - p.offset) < (uint32_t)p.n ? r[i * LEADING + i] : T(1);
      inverse[k] = inverse_of(diagonal);
      const uint32_t zeros = __ballot_sync(0xffffffffu, is_zero(diagonal)) >> ((int)(threadIdx.x & 31) - lane);
      const uint32_t own = WIDTH == 32 ? zeros : zeros & ((1u << (WIDTH & 31)) - 1);
      if (own) first = k * WIDTH + __ffs((int)own) - p.offset;
    }
    return first;
  }

  /* ---- to memory ---- */

  /* The norm of the rows below R. */
  DEVICE void write_residual(const least_squares_parameters &out, int64_t item, bool wanted, int rhs) const {
    const qr_tile_parameters &p = out.tile;
    T part[2] = {};
    if (p.m > p.n) {
      unrolled_for (int k = 0; k < HELD; k++) {
        const T value = row_of(k) >= p.offset + p.n ? b[k] : T(0);
        part[k & 1] = fused(value, value, part[k & 1]);
      }
      part[0] = sqrt(over_rows(part[0] + part[1]));
      if (exponent) part[0] = times_power(part[0], exponent);
    }
    if (wanted && lane == 0 && rhs < out.rhs_count)
      ((T *)out.residual.data)[item * out.residual.batch_stride + rhs] = part[0];
  }

  DEVICE void write_solution(const least_squares_parameters &out, const T *scales, int64_t item, bool wanted, int rhs,
                             int info) {
    const qr_tile_parameters &p = out.tile;
    if (!wanted || rhs >= out.rhs_count) return;
    if (out.info.data && lane == 0 && rhs == 0) ((int32_t *)out.info.data)[item * out.info.batch_stride] = info;
    unrolled_for (int k = 0; k < SOLVED; k++) /* always unscaled: a branch costs more */
      b[k] = times_power(b[k], exponent - exponent_of_power(scales[min(row_of(k), Shape::COLUMNS - 1)]));
    T *to = (T *)out.x.data + item * out.x.batch_stride + rhs * out.x.column_stride;
    unrolled_for (int k = 0; k < SOLVED; k++) {
      const int i = row_of(k) - p.offset;
      if ((uint32_t)i < (uint32_t)p.n) to[i * out.x.row_stride] = info ? not_a_number<T>() : b[k];
    }
  }

  /* From Q^T b to x. `scales` has the powers of two by which A's columns were divided. */
  DEVICE void solve(const least_squares_parameters &out, const T *r, const T *scales, int64_t item, bool wanted,
                    int rhs) {
    const qr_tile_parameters &p = out.tile;
    T inverse[SOLVED];
    const int info = invert_diagonal(p, r, inverse);
    unrolled_for (int k = 0; k < SOLVED; k++) b[k] *= inverse[k];
    if constexpr (SOLVED == 1) {
      if ((uint32_t)(row_of(0) - p.offset) >= (uint32_t)p.n) b[0] = T(0);
      substitute_small(r, inverse);
    } else
      substitute<SOLVED - 1>(r, inverse, p.offset, p.offset + p.n);
    write_solution(out, scales, item, wanted, rhs, info);
  }
};
