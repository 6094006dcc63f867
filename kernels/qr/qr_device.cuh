/* qr_device.cuh - the Householder steps of the kernels that keep a matrix in shared or global memory.
 *
 * A team, the threads of a block, works on one matrix. Each warp is LANES row lanes by 32 / LANES column lanes. Row i
 * belongs to row lane i mod LANES, and within a step a column belongs to one column lane, so one thread reads and
 * writes each element. Threads share the pivot column alone. No thread writes it in its own step: it becomes v after
 * the next barrier, when no thread reads it any more. So a column costs one barrier.
 *
 * A column has one reduction. The dot products with the unscaled column x do not depend on its norm:
 *
 *   y = a_j + (x . a) / (alpha - beta),  w = tau y,  a_j -= w,  a -= v w,  v = x / (alpha - beta).
 *
 * If the products leave the range of numbers, they are summed again with v, whose numbers are at most 1 (LAPACK's
 * order). If w is still no number, the column is made smaller for that step: its norm is in the range of numbers, and
 * so is the result. Each thread computes norm, beta and tau from the same sums in the same order: no exchange. */
#pragma once

#include <cfloat>
#include <cmath>

#include "../common/launch.cuh"
#include "qr.h"
#include "qr_tile_numbers.cuh"

template <typename T> struct range_of;
template <> struct range_of<float> {
  static constexpr float smallest = FLT_MIN, epsilon = FLT_EPSILON, largest = FLT_MAX;
};
template <> struct range_of<double> {
  static constexpr double smallest = DBL_MIN, epsilon = DBL_EPSILON, largest = DBL_MAX;
};

/* The exponent of a positive number, within those whose power of two and its inverse are normal. */
template <typename T> DEVICE int exponent_of(T x) {
  constexpr int LIMIT = tile_number<T>::BIAS - 1;
  return max(-LIMIT, min(LIMIT, ilogb(x)));
}

/* Less than the smallest normal number over eps. Integers are compared faster than f64. */
DEVICE bool is_tiny(float x) { return fabsf(x) < FLT_MIN / FLT_EPSILON; }
DEVICE bool is_tiny(double x) { return (__double2hiint(x) & 0x7fffffff) < (1023 - 970) << 20; }

/* A matrix in shared (Index int, row_stride 1) or global memory (Index int64_t). */
template <typename T, typename Index> struct matrix_in {
  T *data;
  Index row_stride, column_stride;
  DEVICE T &operator()(Index row, Index column) const { return data[row * row_stride + column * column_stride]; }
  DEVICE matrix_in part(Index row, Index column) const {
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
};

template <typename T> DEVICE matrix_in<T, int64_t> matrix_at(const qr_matrix &matrix, int64_t item) {
  return {(T *)matrix.data + item * matrix.batch_stride, matrix.row_stride, matrix.column_stride};
}

template <typename T> DEVICE T *vector_at(const qr_vector &vector, int64_t item) {
  return (T *)vector.data + item * vector.batch_stride;
}

/* The threads of a block. */
template <int LANES_> struct team {
  static constexpr int LANES = LANES_;
  int thread, threads;
  int row, column, columns; /* lanes */
  int warp_column;          /* the first column lane of this warp */
  DEVICE team() {
    thread = (int)threadIdx.x;
    threads = (int)blockDim.x;
    row = thread & (LANES - 1);
    column = thread / LANES;
    columns = threads / LANES;
    warp_column = (thread & ~31) / LANES;
  }
  DEVICE void sync() const { __syncthreads(); }
  /* The first row from `row_from` on that belongs to this thread. */
  template <typename Index> DEVICE Index first_row(Index row_from) const {
    return row_from + (Index)((row - (int)(row_from & (LANES - 1))) & (LANES - 1));
  }
};

/* Over the row lanes. Every lane gets the same bits. */
template <int LANES, typename T> DEVICE T sum_over_rows(T value) {
  unrolled_for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

template <int LANES, typename T> DEVICE T largest_over_rows(T value) {
  unrolled_for (int offset = LANES / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

/* v_i = (x_i scale) inverse. scale is a power of two, and 1 except for columns of extreme size. */
template <typename T> struct reflector { T tau, beta, scale, inverse; };

/* LAPACK larfg for the column under alpha = a(j, j), from the sum of squares below it. All threads of the team agree.
 */
template <typename Team, typename T, typename Index>
DEVICE reflector<T> make_reflector(const Team &team, const matrix_in<T, Index> &a, Index m, Index j, T sum) {
  constexpr T low = range_of<T>::smallest / (range_of<T>::epsilon * range_of<T>::epsilon), high = T(1) / low;
  T alpha = a(j, j);
  reflector<T> result = {T(0), alpha, T(1), T(1)};
  if (!(sum > low && sum + alpha * alpha < high)) { /* rare; NaN comes here too */
    T largest = T(0), poison = T(0);                /* x - x is zero unless x is infinite or not a number */
    for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) {
      const T x = a(i, j), magnitude = magnitude_of(x);
      largest = magnitude > largest ? magnitude : largest;
      poison += x - x;
    }
    largest = largest_over_rows<Team::LANES>(largest);
    poison = sum_over_rows<Team::LANES>(poison);
    if (largest == T(0) && poison == T(0)) return result; /* H = I; alpha is kept, whatever its sign */
    poison += alpha - alpha;
    const T magnitude = magnitude_of(alpha);
    largest = magnitude > largest ? magnitude : largest;
    if (poison == T(0)) result.scale = power_of_two<T>(-exponent_of(largest));
    sum = T(0);
    for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) {
      const T x = a(i, j) * result.scale;
      sum += x * x;
    }
    sum = sum_over_rows<Team::LANES>(sum);
    alpha *= result.scale;
  }
  const T norm = sqrt(alpha * alpha + sum), beta = signbit(alpha) ? norm : -norm;
  result.tau = T(1) + magnitude_of(alpha) / norm;
  result.inverse = T(1) / (alpha - beta);
  result.beta = beta / result.scale;
  return result;
}

/* The columns that this thread updates together. Columns beyond the last count as zeros and are never written. */
template <typename T, typename Index> struct column_tile {
  Index column[QR_TILE_COLUMNS];
  bool valid[QR_TILE_COLUMNS];
  template <typename Team> DEVICE column_tile(const Team &team, Index base, Index end) {
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) {
      column[q] = base + (Index)(team.column + q * team.columns);
      valid[q] = column[q] < end;
    }
  }
};

/* c(row of the one, columns of the tile) from the lane that owns the row. `target` may be another matrix than v's. */
template <typename Team, typename T, typename Index>
DEVICE void pivot_row(const Team &team, const matrix_in<T, Index> &target, const column_tile<T, Index> &tile, Index j,
                      T (&pivot)[QR_TILE_COLUMNS]) {
  const int owner = (int)(j & (Team::LANES - 1));
  unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) {
    pivot[q] = team.row == owner && tile.valid[q] ? target(j, tile.column[q]) : T(0);
    pivot[q] = __shfl_sync(0xffffffffu, pivot[q], owner, Team::LANES);
  }
}

/* C := C - v w for the tile: w in the row of the one, v_i w below it. Here and below v is a matrix of one column. */
template <typename Team, typename T, typename Index>
DEVICE void subtract(const Team &team, const matrix_in<T, Index> &v, const matrix_in<T, Index> &target,
                     const column_tile<T, Index> &tile, Index m, Index j, T scale, T inverse,
                     const T (&w)[QR_TILE_COLUMNS], const T (&pivot)[QR_TILE_COLUMNS]) {
  if (team.row == (int)(j & (Team::LANES - 1))) {
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++)
      if (tile.valid[q]) target(j, tile.column[q]) = pivot[q] - w[q];
  }
#pragma unroll 2
  for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) {
    const T v_i = v(i, 0) * scale * inverse;
    T c[QR_TILE_COLUMNS]; /* all are read before one is written: the compiler does not know that they differ */
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) c[q] = tile.valid[q] ? target(i, tile.column[q]) : T(0);
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++)
      if (tile.valid[q]) target(i, tile.column[q]) = c[q] - v_i * w[q];
  }
}

/* v . c for the tile, below the one. */
template <typename Team, typename T, typename Index>
DEVICE void dot_with_v(const Team &team, const matrix_in<T, Index> &v, const matrix_in<T, Index> &target,
                       const column_tile<T, Index> &tile, Index m, Index j, T scale, T inverse,
                       T (&dot)[QR_TILE_COLUMNS]) {
  unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) dot[q] = T(0);
#pragma unroll 2
  for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) {
    T c[QR_TILE_COLUMNS];
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) c[q] = tile.valid[q] ? target(i, tile.column[q]) : T(0);
    const T v_i = v(i, 0) * scale * inverse;
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) dot[q] += v_i * c[q];
  }
  unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) dot[q] = sum_over_rows<Team::LANES>(dot[q]);
}

/* w = tau (row of the one + v . c) for the tile. */
template <typename T>
DEVICE void factors_of_v(T tau, const T (&pivot)[QR_TILE_COLUMNS], const T (&dot)[QR_TILE_COLUMNS],
                         T (&w)[QR_TILE_COLUMNS]) {
  unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) w[q] = tau * (pivot[q] + dot[q]);
}

/* Is one of them infinite or no number? True also if only their sum is: the caller tests each one. */
template <typename T> DEVICE bool may_be_beyond(const T (&w)[QR_TILE_COLUMNS]) {
  static_assert(QR_TILE_COLUMNS == 4);
  return !((magnitude_of(w[0]) + magnitude_of(w[1])) + (magnitude_of(w[2]) + magnitude_of(w[3])) <=
           range_of<T>::largest);
}

/* As subtract with the factors of v, but one column after the other. A column whose factor is infinite or no number is
 * made smaller meanwhile. */
template <typename Team, typename T, typename Index>
DEVICE void reflect_large(const Team &team, const matrix_in<T, Index> &v, const matrix_in<T, Index> &target, Index base,
                          Index end, Index m, Index j, const reflector<T> &step) {
  constexpr T SMALLER = T(0x1p-16);
  const int owner = (int)(j & (Team::LANES - 1));
  rolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) {
    const Index column = base + (Index)(team.column + q * team.columns);
    const Index from = column < end ? team.first_row(j + 1) : m;
    const bool has_top = column < end && team.row == owner;
    T smaller = T(1), top, w;
    for (bool beyond = true; beyond;) {
      T sum = T(0);
      rolled_for (Index i = from; i < m; i += Team::LANES)
        sum += v(i, 0) * step.scale * step.inverse * (target(i, column) * smaller);
      top = __shfl_sync(0xffffffffu, has_top ? target(j, column) * smaller : T(0), owner, Team::LANES);
      w = step.tau * (top + sum_over_rows<Team::LANES>(sum));
      const bool is_large = smaller == T(1) && !(magnitude_of(w) <= range_of<T>::largest);
      if (is_large) smaller = SMALLER;
      beyond = __any_sync(0xffffffffu, is_large);
    }
    const T larger = smaller == T(1) ? T(1) : T(1) / SMALLER;
    if (has_top) target(j, column) = (top - w) * larger;
    rolled_for (Index i = from; i < m; i += Team::LANES)
      target(i, column) = fma(v(i, 0) * step.scale * step.inverse, -w, target(i, column) * smaller) * larger;
  }
}

/* Target := (I - tau v v^T) target for its columns [begin, end). v is scaled and has its one in row j. Columns of Q are
 * never near the largest number. */
template <bool OF_Q = false, typename Team, typename T, typename Index>
DEVICE void reflect(const Team &team, const matrix_in<T, Index> &v, const matrix_in<T, Index> &target, Index m, Index j,
                    T tau, Index begin, Index end) {
  if (tau == T(0)) return;
  for (Index base = begin; base + team.warp_column < end; base += (Index)(QR_TILE_COLUMNS * team.columns)) {
    const column_tile<T, Index> tile(team, base, end);
    T pivot[QR_TILE_COLUMNS], w[QR_TILE_COLUMNS];
    dot_with_v(team, v, target, tile, m, j, T(1), T(1), w);
    pivot_row(team, target, tile, j, pivot);
    factors_of_v(tau, pivot, w, w);
    if (!OF_Q && __any_sync(0xffffffffu, may_be_beyond(w)))
      reflect_large(team, v, target, base, end, m, j, {tau, T(0), T(1), T(1)});
    else
      subtract(team, v, target, tile, m, j, T(1), T(1), w, pivot);
  }
}

/* Step j of the factorisation: makes the reflector and applies it to columns j + 1 .. n - 1. Column j stays as it is.
 */
template <typename Team, typename T, typename Index>
DEVICE reflector<T> factor_step(const Team &team, const matrix_in<T, Index> &a, Index m, Index n, Index j) {
  reflector<T> step = {};
  Index base = j + 1;
  do {
    const column_tile<T, Index> tile(team, base, n);
    T dot[QR_TILE_COLUMNS] = {}, pivot[QR_TILE_COLUMNS], w[QR_TILE_COLUMNS], sum = T(0);
    pivot_row(team, a, tile, j, pivot);
#pragma unroll 2
    for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) {
      const T x = a(i, j);
      sum += x * x;
      unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) dot[q] += x * (tile.valid[q] ? a(i, tile.column[q]) : T(0));
    }
    if (base == j + 1) {
      step = make_reflector(team, a, m, j, sum_over_rows<Team::LANES>(sum));
      if (step.tau == T(0)) return step;
    }
    bool direct = step.scale != T(1);
    unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) {
      dot[q] = sum_over_rows<Team::LANES>(dot[q]);
      direct |= tile.valid[q] && is_tiny(dot[q]); /* what is too large or no number makes none of w */
      dot[q] *= step.inverse;
    }
    factors_of_v(step.tau, pivot, dot, w);
    bool is_large = false;
    if (__any_sync(0xffffffffu, direct | may_be_beyond(w))) {
      dot_with_v(team, a.part(0, j), a, tile, m, j, step.scale, step.inverse, dot);
      factors_of_v(step.tau, pivot, dot, w);
      is_large = __any_sync(0xffffffffu, may_be_beyond(w));
    }
    if (is_large)
      reflect_large(team, a.part(0, j), a, base, n, m, j, step);
    else
      subtract(team, a.part(0, j), a, tile, m, j, step.scale, step.inverse, w, pivot);
    base += (Index)(QR_TILE_COLUMNS * team.columns);
  } while (base + team.warp_column < n);
  return step;
}

/* Column j becomes (.., beta, v) after the last read of x, by the column lane that has the fewest columns left. */
template <typename Team, typename T, typename Index>
DEVICE void store_reflector(const Team &team, const matrix_in<T, Index> &a, Index m, Index j, const reflector<T> &step,
                            T *tau) {
  if (team.thread == 0) tau[j] = step.tau;
  if (step.tau == T(0) || team.column != team.columns - 1) return;
  for (Index i = team.first_row(j + 1); i < m; i += Team::LANES) a(i, j) = a(i, j) * step.scale * step.inverse;
  if (team.row == (int)(j & (Team::LANES - 1))) a(j, j) = step.beta;
}

/* geqr2: A becomes R and the reflectors below its diagonal, tau the min(m, n) factors. The team is in step at the end.
 */
template <typename Team, typename T, typename Index>
DEVICE void factor(const Team &team, const matrix_in<T, Index> &a, Index m, Index n, T *tau) {
  const Index k = m < n ? m : n;
  reflector<T> step = {};
  rolled_for (Index j = 0; j < k; j++) {
    team.sync();
    if (j > 0) store_reflector(team, a, m, j - 1, step, tau);
    step = factor_step(team, a, m, n, j);
  }
  team.sync();
  if (k > 0) store_reflector(team, a, m, k - 1, step, tau);
  team.sync();
}

/* Column j of Q from v: -tau v below the one, 1 - tau in its row, zeros above. By column lane 0, which owns the column
 * in the step that follows without a barrier. */
template <typename Team, typename T, typename Index>
DEVICE void store_column(const Team &team, const matrix_in<T, Index> &q, Index m, Index j, T tau) {
  if (team.column != 0) return;
  for (Index i = team.first_row((Index)0); i < m; i += Team::LANES)
    q(i, j) = i > j ? q(i, j) * -tau : i == j ? T(1) - tau : T(0);
}

/* org2r: the reflectors in the first k columns become the first k columns of Q. The team is in step at the end. */
template <typename Team, typename T, typename Index>
DEVICE void form(const Team &team, const matrix_in<T, Index> &q, Index m, Index k, const T *tau) {
  rolled_for (Index j = k - 2; j >= 0; j--) {
    team.sync();
    store_column(team, q, m, j + 1, tau[j + 1]);
    reflect<true>(team, q.part(0, j), q, m, j, tau[j], j + 1, k);
  }
  team.sync();
  if (k > 0) store_column(team, q, m, (Index)0, tau[0]);
  team.sync();
}

/* to(row, column) = from(row, column) for m rows and n columns. Lanes run along the unit stride of the operand in
 * global memory. */
template <typename Index, typename From, typename To>
DEVICE void copy(int thread, int threads, bool along_columns, Index m, Index n, const From &from, const To &to) {
  const Index inner_count = along_columns ? n : m, outer_count = along_columns ? m : n;
  const int shift = inner_count >= 32 ? 5 : inner_count <= 1 ? 0 : 32 - __clz((int)inner_count - 1);
  for (Index outer = thread >> shift; outer < outer_count; outer += threads >> shift)
    for (Index inner = thread & ((1 << shift) - 1); inner < inner_count; inner += 1 << shift) {
      const Index row = along_columns ? outer : inner, column = along_columns ? inner : outer;
      to(row, column) = from(row, column);
    }
}
