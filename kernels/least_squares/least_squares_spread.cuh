/* least_squares_spread.cuh - least squares with one right-hand side that is dealt to all warps of the largest tiles.
 *
 * Where each warp takes the whole side along (least_squares_side.cuh) it needs as many registers and products for it as
 * for a column: of 1024 rows a quarter of the step. Here a warp has an eighth of the rows. It leaves its part of x . b
 * in shared memory, and behind the barrier of the next step, which the tile needs anyway, all of them add the parts up
 * and reflect what they have: a step late, and so beside the tile's own chain (H200, 1000 of f32: 188 us against 200).
 *
 * f64 of 1024 x 32 goes through its tile in two halves (qr_tile_halves of qr_tile.cuh); R of both is kept as one. */
#ifndef RONDO_LEAST_SQUARES_SPREAD_CUH
#define RONDO_LEAST_SQUARES_SPREAD_CUH

#include "../qr/qr_launch.cuh"
#include "least_squares_side.cuh"

/* Lane l of warp w has rows (w TILE_ROWS / WARPS + e) 32 + l. Pivots are in the first 32 rows: of warp 0, e = 0. */
template <typename Shape> struct spread_side {
  using T = typename Shape::T;
  using vector = typename tile_number<T>::vector;
  static constexpr int WARPS = Shape::COLUMN_LANES, HELD = Shape::TILE_ROWS / WARPS, VECTOR = Shape::VECTOR;
  static constexpr int PARTIALS = LEAST_SQUARES_PARTIALS;
  static_assert(Shape::ROW_LANES == 32 && WARPS == 8 && HELD % VECTOR == 0 && WARPS + 3 <= PARTIALS);

  T b[HELD], x[HELD]; /* x: of the step before */
  T *partials;        /* of even steps, then of odd ones: the parts, the number above, u and g */
  int lane, warp, exponent;
  int begin; /* row of the diagonal where the steps begin */

  __device__ __forceinline__ int row_of(int e) const { return (warp * HELD + e) * 32 + lane; }

  __device__ __forceinline__ const T *place_of(const least_squares_parameters &out, int64_t item, int e) const {
    const int i = row_of(e) - out.tile.offset;
    const T *from = (const T *)out.b.data + item * out.b.batch_stride;
    return (uint32_t)i < (uint32_t)out.tile.m ? from + i * out.b.row_stride : nullptr;
  }
  __device__ __forceinline__ void prefetch(const least_squares_parameters &out, int64_t item) const {
#pragma unroll
    for (int e = 0; e < HELD; e++)
      if (const T *number = place_of(out, item, e)) prefetch_number(number);
  }
  __device__ __forceinline__ void load(const least_squares_parameters &out, int64_t item) {
#pragma unroll
    for (int e = 0; e < HELD; e++) {
      const T *number = place_of(out, item, e);
      b[e] = number ? *number : T(0);
    }
  }

  __device__ __forceinline__ uint32_t *largest() const { return (uint32_t *)(partials + 2 * PARTIALS); }

  /* The largest number of each warp, before a barrier; behind it, the power of two that is taken off all. */
  __device__ __forceinline__ void show_largest() {
    uint32_t most = 0;
#pragma unroll
    for (int e = 0; e < HELD; e++) most = max(most, high_word(b[e]) & 0x7fffffffu);
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) largest()[warp] = most;
  }
  __device__ __forceinline__ void scale() {
    constexpr int BIAS = tile_number<T>::BIAS, MANTISSA = tile_number<T>::MANTISSA;
    uint32_t most = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) most = max(most, largest()[w]);
    exponent = 0;
    if (!is_extreme<T>(most)) return;
    exponent = max(1 - BIAS, min(BIAS - 1, (int)(most >> MANTISSA) - BIAS));
    T factor;
    from_high_word((uint32_t)(BIAS - exponent) << MANTISSA, &factor);
#pragma unroll
    for (int e = 0; e < HELD; e++) b[e] *= factor;
  }

  /* ---- the steps ---- */

  __device__ __forceinline__ T *partials_of(int j) const { return partials + (j & 1) * PARTIALS; }

  /* Before the steps from `first` on, the first of which has nothing to catch up with. */
  __device__ __forceinline__ void start(int first, int first_row) {
    begin = first_row;
    if (threadIdx.x == 0) partials_of(first - 1)[WARPS + 2] = T(0);
#pragma unroll
    for (int e = 0; e < HELD; e++) x[e] = T(0);
  }

  template <int LANES> static __device__ __forceinline__ T sum_over_lanes(T value) {
#pragma unroll
    for (int offset = 1; offset < LANES; offset *= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
  }

  /* All lanes of a warp together. */
  __device__ __forceinline__ T sum_of_partials(const T *from) const {
    return sum_over_lanes<WARPS>(from[lane % WARPS]);
  }

  /* The reflection of step j, behind a barrier. Where g is zero the parts may be anything. */
  __device__ __forceinline__ void catch_up(int j) {
    const T *from = partials_of(j);
    const T u = from[WARPS + 1], g = from[WARPS + 2], dot = fused(u, from[WARPS], sum_of_partials(from)),
            y = g == T(0) ? T(0) : g * dot;
    if (row_of(0) == begin + j) x[0] = u;
#pragma unroll
    for (int e = 0; e < HELD; e++) b[e] = fused(-x[e], y, b[e]);
  }

  template <int B, int P> __device__ __forceinline__ void meet(int j, const T *seen, const T (&)[P]) {
    const int pivot_row = begin + j;
    catch_up(j - 1);
    T part[2] = {};
#pragma unroll
    for (int e = 0; e < HELD; e += VECTOR) {
      const vector v = *(const vector *)(seen + warp * HELD + e);
#pragma unroll
      for (int k = 0; k < VECTOR; k++) x[e + k] = ((const T *)&v)[k];
    }
    if (row_of(0) <= pivot_row) x[0] = T(0);
#pragma unroll
    for (int e = 0; e < HELD; e++) part[e & 1] = fused(x[e], b[e], part[e & 1]);
    const T sum = sum_over_lanes<32>(part[0] + part[1]);
    T *to = partials_of(j);
    if (lane == 0) to[warp] = sum;
    if (row_of(0) == pivot_row) to[WARPS] = b[0];
  }

  template <int B, int P> __device__ __forceinline__ void reflect(int j, T u, T g, const T (&)[P]) {
    if (threadIdx.x) return;
    partials_of(j)[WARPS + 1] = u;
    partials_of(j)[WARPS + 2] = g;
  }

  /* ---- the results ---- */

  /* Of rows behind R; with barriers of its own. */
  __device__ __forceinline__ void write_residual(const least_squares_parameters &out, int64_t item) const {
    const int behind = out.tile.offset + out.tile.n;
    T part[2] = {};
#pragma unroll
    for (int e = 0; e < HELD; e++) {
      const T value = row_of(e) >= behind ? b[e] : T(0);
      part[e & 1] = fused(value, value, part[e & 1]);
    }
    const T sum = sum_over_lanes<32>(part[0] + part[1]);
    __syncthreads();
    if (lane == 0) partials[warp] = sum;
    __syncthreads();
    const T norm = sqrt(sum_of_partials(partials));
    if (threadIdx.x) return;
    ((T *)out.residual.data)[item * out.residual.batch_stride] = exponent ? times_power(norm, exponent) : norm;
  }
};

/* The tile, and in shared memory behind its own what is left of a matrix. */
template <typename Shape> struct spread_tile : register_tile<Shape, spread_side<Shape>> {
  using tile = register_tile<Shape, spread_side<Shape>>;
  using T = typename tile::T;
  using tile::COLUMNS, tile::GR, tile::GC, tile::P, tile::Q;
  using tile::p, tile::a, tile::scales, tile::row, tile::column, tile::rider;
  static constexpr int SOLVED = COLUMNS * (Shape::HALVES ? 2 : 1);
  static_assert(SOLVED == 32 && GR == 32);
  /* As many rows as are substituted. */
  using triangle_shape = tile_shape<T, SOLVED, SOLVED, GR, GC, QR_TILE_STAGED | QR_TILE_BULK>;

  const least_squares_parameters &out;
  T *unscales;
  tile_triangle<triangle_shape> triangle;

  __device__ __forceinline__ spread_tile(const least_squares_parameters &parameters, unsigned char *shared)
      : tile(parameters.tile, (T *)shared), out(parameters) {
    rider.lane = row;
    rider.warp = column;
    rider.partials = (T *)(shared + Shape::SHARED_BYTES);
    unscales = rider.partials + 3 * LEAST_SQUARES_PARTIALS;
    triangle.data = unscales + SOLVED;
  }

  /* Columns of a half that no matrix has are substituted too. */
  __device__ __forceinline__ void clear_triangle() const {
    for (int i = (int)threadIdx.x; i < least_squares_triangle(SOLVED); i += Shape::THREADS) triangle.data[i] = T(0);
  }

  /* This half's columns of R: of the first local row. */
  __device__ __forceinline__ void keep_triangle() const {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int local = q * GC + column, k = this->begin() + local;
      if (row == 0) unscales[k] = this->scaled ? scales[local] : T(1);
      if (row <= k) triangle.column(k)[row] = a[0][q];
    }
  }

  __device__ __forceinline__ void factor_beside(bool scale = true) {
    rider.start(p.offset, this->begin());
    this->factor_only(scale);
    keep_triangle();
  }

  /* The reflection of the last of the steps, behind a barrier. */
  __device__ __forceinline__ void catch_up() {
    const int count = min(p.m - 1 - this->begin(), this->columns());
    if (count > 0) rider.catch_up(p.offset + count - 1);
  }

  /* The reflectors of this half, for exchange(), and their factors. */
  __device__ __forceinline__ void make_reflectors() {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const T inverse = this->inverse_of_u(q);
#pragma unroll
      for (int i = 0; i < P; i++) a[i][q] *= inverse;
      if (row == 0) this->factors()[q * GC + column] = this->tau_of(q);
    }
  }

  /* Behind a barrier, and those of the residual. */
  __device__ __forceinline__ void solve(int64_t item) {
    if (out.residual.data) rider.write_residual(out, item);
    if (column > 0) return; /* a whole warp */
    side_by_rows<triangle_shape> side;
    side.lane = row;
    side.b[0] = rider.b[0];
    side.exponent = rider.exponent;
    side.solve(out, triangle, unscales, item, true, 0);
  }
};

template <typename Shape> __device__ __forceinline__ void spread_whole(const least_squares_parameters &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  spread_tile<Shape> tile(out, shared);
  matrices_ahead<spread_tile<Shape>> ahead(tile, blockIdx.x);
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    tile.rider.load(out, item);
    ahead.wait();
    tile.read_stage();
    tile.rider.show_largest();
    tile.sync();
    if (item + gridDim.x < p.batch) {
      ahead.fetch(item + gridDim.x);
      tile.rider.prefetch(out, item + gridDim.x);
    }
    tile.rider.scale();
    tile.factor_beside();
    tile.sync();
    tile.catch_up();
    tile.solve(item);
  }
}

template <typename Shape> __device__ __forceinline__ void spread_halves(const least_squares_parameters &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  spread_tile<Shape> tile(out, shared);
  const bool is_whole = p.n > Shape::COLUMNS; /* both halves */
  const auto fetch = [&](int64_t item, int first_column) {
    tile.first_column = first_column;
    tile.fetch(item);
  };
  fetch(blockIdx.x, 0);
  tile.clear_triangle();
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    tile.rider.load(out, item);
    wait_for_copies();
    tile.sync();
    tile.read_stage();
    tile.rider.show_largest();
    tile.sync();
    if (is_whole) fetch(item, Shape::COLUMNS);
    tile.rider.scale();
    tile.first_column = 0;
    tile.factor_beside();
    if (is_whole) {
      tile.make_reflectors();
      wait_for_copies();
      tile.sync();
      tile.catch_up();
      tile.exchange();
      tile.sync();
      tile.first_column = Shape::COLUMNS;
      tile.scale_columns();
#pragma unroll 1
      for (int j = 0; j < Shape::COLUMNS; j++) tile.template apply<0>(j, tile.factors()[j]);
    }
    tile.sync();
    if (item + gridDim.x < p.batch) {
      fetch(item + gridDim.x, 0);
      tile.rider.prefetch(out, item + gridDim.x);
    }
    if (is_whole) {
      tile.first_column = Shape::COLUMNS;
      tile.factor_beside(false);
      tile.sync();
    } else {
      tile.first_column = 0;
    }
    tile.catch_up();
    tile.solve(item);
  }
}

template <typename Shape, int THREADS>
__device__ __forceinline__ void least_squares_spread(const least_squares_parameters &out) {
  static_assert(Shape::THREADS == THREADS);
  if constexpr (Shape::HALVES)
    spread_halves<Shape>(out);
  else
    spread_whole<Shape>(out);
}

/* For the list of least_squares.h. */
#define DEFINE_LEAST_SQUARES_SPREAD_KERNEL(chips, parameters, name, threads, blocks, ...)                              \
  DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, least_squares_spread<tile_shape<__VA_ARGS__>, threads>)

#endif
