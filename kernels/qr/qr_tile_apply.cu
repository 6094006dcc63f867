/* qr_tile_apply.cu - C := Q C or Q^T C in a register tile, up to 2048 rows (f64: 1024).
 *
 * C comes to the registers through shared memory. Then V takes its place there, part after part, with its ones and
 * zeros in the place of R. Each step applies one reflector. Its scalars are known, so no step waits for another warp: a
 * warp's columns are its own. Bound by the issue of multiply-adds for tiles from 64 rows on, by memory below.
 *
 * Products with columns near the largest number may leave the range of numbers, though the results are in it. An
 * infinite number stays infinite. At the end the kernel looks for such columns and computes them again, one at a time.
 * Its loops are not unrolled: they run rarely, and a jump over long code costs up to 4%. */
#include "../common/launch.cuh"
#include "qr_tile.cuh"
#include "qr_tile_apply.h"

template <typename Shape> struct applying_tile : register_tile<Shape> {
  using tile = register_tile<Shape>;
  using T = typename Shape::T;
  using tile::a, tile::stage, tile::scales, tile::lane, tile::GR;
  static constexpr int COLUMNS = Shape::COLUMNS, LEADING = Shape::LEADING;
  /* A few coarse blocks of steps leave out the rows above a reflector's one. */
  static constexpr int BLOCKS = COLUMNS >= 32 ? 8 : 4, BLOCK = (Shape::LOWERED ? Shape::ROWS : COLUMNS) / BLOCKS;
  static_assert(!Shape::PACKED && BLOCK % GR == 0);

  qr_tile_parameters &p; /* of the matrix that is brought or put */
  DEVICE applying_tile(qr_tile_parameters &parameters, T *shared) : tile(parameters, shared), p(parameters) {}

  /* The matrix of the parameters to shared memory. */
  DEVICE void bring(int64_t item) {
    this->fetch(item);
    wait_for_copies();
    this->sync();
  }

  /* ---- columns near the largest number ---- */

  static constexpr int WIDTH = tile_smaller(Shape::LANES, 32), COLUMN_LANES = WIDTH / GR; /* of a matrix in a warp */

  DEVICE bool any_of_matrix(bool one) const {
    return __ballot_sync(0xffffffffu, one) >> tile::item_lane & (0xffffffffu >> (32 - WIDTH));
  }

  /* In one of the warp's columns. After a factor of v that is infinite or no number, no row from the reflector's one on
   * is a finite number, even if v is zero there. Later steps change no such row, so the last row shows it. */
  DEVICE bool some_are_beyond() const {
    T sum = T(0);
    unrolled_for (int q = 0; q < tile::Q; q++) sum = fused(a[tile::P - 1][q], T(0), sum);
    return __any_sync(0xffffffffu, sum != T(0));
  }

  /* Up to 32 lanes compute the first `rows` numbers of a column of C again, made smaller meanwhile. */
  DEVICE void apply_again(const qr_tile_apply_parameters &out, int64_t item, const T *from, T *to, int rows) const {
    const int own = lane % WIDTH;
    const T *tau = (const T *)out.tau.data + item * out.tau.batch_stride;
    rolled_for (int i = own; i < rows; i += WIDTH) to[i] = from[i * out.c.row_stride] * T(0x1p-16);
    rolled_for (int step = 0; step < out.reflectors; step++) {
      const int k = out.backward ? out.reflectors - 1 - step : step;
      const T *v = (const T *)out.v.data + item * out.v.batch_stride + k * out.v.column_stride;
      T sum = T(0);
      rolled_for (int i = own; i < rows; i += WIDTH)
        if (i >= k) sum += (i == k ? T(1) : v[i * out.v.row_stride]) * to[i];
      unrolled_for (int offset = 1; offset < WIDTH; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      const T w = tau[k] * sum;
      rolled_for (int i = own; i < rows; i += WIDTH)
        if (i >= k) to[i] -= (i == k ? T(1) : v[i * out.v.row_stride]) * w;
    }
    rolled_for (int i = own; i < rows; i += WIDTH) to[i] *= T(0x1p16);
  }

  /* Columns of this warp in the stage with such numbers are computed again from C, which is unchanged. The matrices of
   * a warp do so together; one without such numbers has no rows. */
  DEVICE void mend(const qr_tile_apply_parameters &out, int64_t item, int64_t first, int columns) {
    const T *c = (const T *)out.c.data + item * out.c.batch_stride + first * out.c.column_stride;
    __syncwarp();
    rolled_for (int k = 0; k < tile::Q * COLUMN_LANES; k++) {
      const int place = k / COLUMN_LANES * Shape::COLUMN_LANES + lane / WIDTH * COLUMN_LANES + k % COLUMN_LANES;
      const int j = place - this->across();
      T *to = stage + place * LEADING + p.offset;
      bool beyond = false;
      if (j >= 0 && j < columns)
        rolled_for (int i = lane % WIDTH; i < out.m; i += WIDTH) beyond |= to[i] * T(0) != T(0);
      beyond = any_of_matrix(beyond);
      if (__any_sync(0xffffffffu, beyond)) apply_again(out, item, c + j * out.c.column_stride, to, beyond ? out.m : 0);
    }
  }

  /* ---- reflectors ---- */

  /* The ones of the reflectors, the first in row `one`, and zeros above them, from row `begin` on. */
  DEVICE void mask_reflectors(int one, int begin) const {
    rolled_for (int j = 0; j < p.n; j++)
      rolled_for (int i = begin + lane; i <= one + j; i += Shape::LANES)
        stage[(this->across() + j) * LEADING + i] = i == one + j ? T(1) : T(0);
  }

  /* Applies the reflectors of block B among those with ones in rows [first, last). */
  template <int B> DEVICE void apply_block(int first, int last, bool backward) {
    constexpr int I = B * BLOCK;
    const int begin = max(first, I), end = min(last, I + BLOCK), column = this->across() - first;
    rolled_for (int s = begin; s < end; s++) {
      const int j = column + (backward ? begin + end - 1 - s : s);
      this->template apply<I / GR>(j, scales[j]);
    }
  }
  template <int... B> DEVICE void apply_blocks(std::integer_sequence<int, B...>, int first, int last, bool backward) {
    const int low = first / BLOCK, high = (last - 1) / BLOCK;
    rolled_for (int k = low; k <= high; k++) {
      const int block = backward ? low + high - k : k;
      ((block == B ? apply_block<B>(first, last, backward) : void()), ...);
    }
  }

  /* Applies the reflectors of V from number `first` on, as many as the tile has columns. */
  DEVICE void apply_some(const qr_tile_apply_parameters &out, int64_t item, int first) {
    p.a.data = (T *)out.v.data + first * out.v.column_stride;
    p.n = min(out.reflectors - first, COLUMNS);
    const T *tau = (const T *)out.tau.data + item * out.tau.batch_stride + first;
    for (int j = lane; j < p.n; j += Shape::LANES) scales[this->across() + j] = tau[j];
    bring(item);
    const int one = p.offset + first;
    mask_reflectors(one, one / BLOCK * BLOCK);
    this->sync();
    apply_blocks(std::make_integer_sequence<int, BLOCKS>{}, one, one + p.n, out.backward);
    this->sync();
  }
};

template <typename Shape> DEVICE void qr_tile_apply(const qr_tile_apply_parameters &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  using T = typename Shape::T;
  const int64_t place = (int64_t)blockIdx.x * Shape::MATRICES + threadIdx.x / Shape::LANES;
  const bool wanted = place < out.batch * out.groups;
  const int64_t present = wanted ? place : out.batch * out.groups - 1, item = present / out.groups,
                first = (present - item * out.groups) * out.group_columns;
  qr_tile_parameters p = {.a = out.c, .m = out.m, .offset = out.offset, .a_access = out.c_access};
  p.a.data = (T *)p.a.data + first * p.a.column_stride;
  p.n = (int)min(out.columns - first, (int64_t)out.group_columns);
  p.h = p.a, p.h_access = p.a_access;
  applying_tile<Shape> tile(p, (T *)shared);
  tile.bring(item);
  tile.read_stage();
  tile.sync();

  const int columns = p.n, last = Shape::LOWERED ? (out.reflectors - 1) / Shape::COLUMNS * Shape::COLUMNS : 0;
  p.a = out.v, p.a_access = out.v_access;
  rolled_for (int done = 0; done <= last; done += Shape::COLUMNS)
    tile.apply_some(out, item, out.backward ? last - done : done);

  p.n = columns;
  unrolled_for (int q = 0; q < Shape::TILE_COLUMNS; q++)
    tile.write_column(tile.stage + (q * Shape::COLUMN_LANES + tile.column) * Shape::LEADING, q);
  if (tile.some_are_beyond()) tile.mend(out, item, first, columns);
  tile.sync();
  if (wanted) tile.put_h(item);
}

#define DEFINE_QR_TILE_APPLY_KERNEL(chips, parameters, name, threads, blocks, ...)                                     \
  static_assert(tile_shape<__VA_ARGS__>::THREADS == threads);                                                          \
  DEFINE_LATE_KERNEL(chips, parameters, name, threads, blocks, qr_tile_apply<tile_shape<__VA_ARGS__>>)

QR_TILE_APPLY_KERNELS(DEFINE_QR_TILE_APPLY_KERNEL)
