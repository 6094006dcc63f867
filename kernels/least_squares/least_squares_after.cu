/* least_squares_after.cu - the second of two kernels for least squares, for more rows than the threads of a block hold
 * (least_squares_block.cu): x = R^-1 Q^T b from the H and tau that qr has left.
 *
 * A warp has up to four right-hand sides of one matrix. Each lane has every 32nd row of them, in shared memory or, if
 * they are too long, in the task's scratch. No lane reads another lane's rows, so there is no barrier. Bound by the
 * latency of reading H from L2, column by column, forward once and backward once. */
#include "least_squares_sums.cuh"

/* The state of a block, which is one warp. */
template <typename T> struct rhs_of_warp {
  team<32> lanes;
  matrix_in<T, int64_t> h, held;
  T *tau;
  int64_t m, n;
  int count;

  /* The largest number of each right-hand side from row `first` on; NaN does not count. */
  DEVICE T largest_from(int64_t first, int rhs) const {
    T largest = T(0);
    for (int64_t i = lanes.first_row(first); i < m; i += 32) {
      const T magnitude = magnitude_of(held(i, rhs));
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest_over_rows<32>(largest);
  }

  /* Returns the exponent that is taken off. */
  DEVICE int read(const matrix_in<T, int64_t> &b, int rhs) const {
    for (int64_t i = lanes.row; i < m; i += 32) held(i, rhs) = b(i, rhs);
    if (!is_near_largest(largest_from(0, rhs))) return 0;
    for (int64_t i = lanes.row; i < m; i += 32) held(i, rhs) *= power_of_two<T>(-TAKEN_EXPONENT);
    return TAKEN_EXPONENT;
  }

  /* Q^T b. */
  DEVICE void apply() const {
    for (int64_t j = 0; j < n; j++) reflect(lanes, h.part(0, j), held, m, j, tau[j], (int64_t)0, (int64_t)count);
  }

  /* R^-1 Q^T b, from the last row up. */
  DEVICE void substitute() const {
    const column_tile<T, int64_t> tile(lanes, 0, count);
    for (int64_t j = n - 1; j >= 0; j--) {
      T x[QR_TILE_COLUMNS];
      pivot_row(lanes, held, tile, j, x);
      const T diagonal = h(j, j);
      unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++) x[q] /= diagonal;
#pragma unroll 2
      for (int64_t i = lanes.row; i < j; i += 32) {
        const T r = h(i, j);
        unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++)
          if (tile.valid[q]) held(i, tile.column[q]) -= r * x[q];
      }
      if (lanes.row == (int)(j & 31)) {
        unrolled_for (int q = 0; q < QR_TILE_COLUMNS; q++)
          if (tile.valid[q]) held(j, tile.column[q]) = x[q];
      }
    }
  }

  /* Of the rows below R. */
  DEVICE T norm(int rhs) const {
    const int exponent = norm_exponent(largest_from(n, rhs));
    const T scale = power_of_two<T>(-exponent);
    T sum = T(0);
    for (int64_t i = lanes.first_row(n); i < m; i += 32) {
      const T x = held(i, rhs) * scale;
      sum += x * x;
    }
    return sqrt(sum_over_rows<32>(sum)) * power_of_two<T>(exponent);
  }

  /* LAPACK's info: the first zero on R's diagonal, counted from one, or 0. */
  DEVICE int64_t first_zero() const {
    uint32_t first = UINT32_MAX;
    for (int64_t j = lanes.row; j < n && first == UINT32_MAX; j += 32)
      if (h(j, j) == T(0)) first = (uint32_t)j;
    return (int64_t)(int32_t)__reduce_min_sync(0xffffffffu, first) + 1;
  }
};

template <typename T> DEVICE void least_squares_after(const least_squares_after_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  rhs_of_warp<T> warp;
  warp.m = p.m;
  warp.n = p.n;
  for (int64_t place = blockIdx.x; place < p.batch * p.groups; place += gridDim.x) {
    const int64_t item = place / p.groups, first = place % p.groups * p.group;
    warp.count = p.rhs_count - first < p.group ? (int)(p.rhs_count - first) : p.group;
    warp.h = matrix_at<T>(p.h, item);
    warp.tau = vector_at<T>(p.tau, item);
    warp.held = {(T *)shared, 1, p.leading};
    if (p.work.data) warp.held = matrix_at<T>(p.work, item).part(0, first);
    const matrix_in<T, int64_t> b = matrix_at<T>(p.b, item).part(0, first), x = matrix_at<T>(p.x, item).part(0, first);
    int taken[QR_TILE_COLUMNS];
    unrolled_for (int rhs = 0; rhs < QR_TILE_COLUMNS; rhs++) taken[rhs] = rhs < warp.count ? warp.read(b, rhs) : 0;
    warp.apply();
    const int64_t info = warp.first_zero();
    if (p.info.data && first == 0 && warp.lanes.row == 0) *vector_at<int32_t>(p.info, item) = (int32_t)info;
    if (!info) warp.substitute();
    unrolled_for (int rhs = 0; rhs < QR_TILE_COLUMNS; rhs++) {
      if (rhs >= warp.count) continue;
      const T unscale = power_of_two<T>(taken[rhs]);
      const T norm = p.residual.data ? warp.norm(rhs) * unscale : T(0);
      if (p.residual.data && warp.lanes.row == 0) vector_at<T>(p.residual, item)[first + rhs] = norm;
      for (int64_t i = warp.lanes.row; i < p.n; i += 32) x(i, rhs) = info ? T(NAN) : warp.held(i, rhs) * unscale;
    }
  }
}

LEAST_SQUARES_AFTER_KERNELS(DEFINE_KERNEL)
