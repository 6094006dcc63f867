/* qr_tile_apply.cu - C := Q C or Q^T C in a register tile.
 *
 * C comes to the registers through shared memory, then V takes its place there, part after part, with ones and zeros
 * where H has R. A step takes one reflector from there; its scalars are known, so none waits for another warp: a warp's
 * columns are its own. Bound by the issue of multiply-adds for tiles from 64 on, by memory below.
 *
 * Products with columns near the largest number may leave the range of numbers, though the results are in it: these are
 * made smaller before they come to the registers, and larger again behind. */
#include "qr_tile.cuh"
#include "qr_tile_apply.h"

template <typename Shape> struct applying_tile : register_tile<Shape> {
  using tile = register_tile<Shape>;
  using T = typename Shape::T;
  using vector = typename tile::vector;
  using tile::stage, tile::scales, tile::lane, tile::GR;
  static constexpr int COLUMNS = Shape::COLUMNS, LEADING = Shape::LEADING;
  /* Rows above a reflector's one are left out, in a few coarse blocks of them. */
  static constexpr int BLOCKS = COLUMNS >= 32 ? 8 : 4, BLOCK = (Shape::LOWERED ? Shape::ROWS : COLUMNS) / BLOCKS;
  static_assert(!Shape::PACKED && BLOCK % GR == 0);

  qr_tile_parameters &p; /* of what is brought or put */
  __device__ __forceinline__ applying_tile(qr_tile_parameters &parameters, T *shared)
      : tile(parameters, shared), p(parameters) {}

  /* The matrix of the parameters to shared memory. */
  __device__ __forceinline__ void bring(int64_t item) {
    this->fetch(item);
    wait_for_copies();
    this->sync();
  }

  /* ---- columns near the largest number ---- */

  /* Behind each column of the stage is room that nothing else uses: what it is multiplied with at the end, and behind
   * the first, whether any is other than one. */
  static_assert(LEADING >= Shape::ROWS + 2);
  __device__ __forceinline__ T &larger_of(int j) const { return stage[j * LEADING + Shape::ROWS]; }
  __device__ __forceinline__ T &some_are_smaller() const { return stage[Shape::ROWS + 1]; }

  /* At least 2^-34 of the largest number, or none. */
  static constexpr uint32_t LARGE = (uint32_t)(2 * tile_number<T>::BIAS + 1 - 34) << tile_number<T>::MANTISSA;
  static __device__ __forceinline__ bool is_large(T x) { return (high_word(x) & 0x7fffffffu) >= LARGE; }
  /* Of the lanes of a matrix. */
  __device__ __forceinline__ bool any_lane(bool one) const {
    if constexpr (Shape::LANES > 32)
      return __syncthreads_or(one);
    else
      return __ballot_sync(0xffffffffu, one) >> tile::item_lane & (0xffffffffu >> (32 - Shape::LANES));
  }

  /* A column of the stage times `factor`. */
  __device__ __forceinline__ void multiply(int j, T factor) const {
    for (int i = lane; i < Shape::ROWS; i += Shape::LANES) stage[j * LEADING + i] *= factor;
  }

  /* The high word of the largest magnitude in this lane's part of the stage. What is between columns is looked at too:
   * if that is large, nothing changes. */
  __device__ __forceinline__ uint32_t largest_in_stage() const {
    constexpr int STEP = Shape::LANES * tile::VECTOR;
    std::conditional_t<sizeof(T) == 4, T, uint32_t> most = 0;
#pragma unroll 8
    for (int k = 0; k < Shape::STAGE; k += STEP) {
      const int i = k + lane * tile::VECTOR;
      if (Shape::STAGE % STEP != 0 && i >= Shape::STAGE) break;
      const vector v = *(const vector *)(stage + i);
#pragma unroll
      for (int e = 0; e < tile::VECTOR; e++)
        if constexpr (sizeof(T) == 4)
          most = fmaxf(most, fabsf(((const T *)&v)[e]));
        else
          most = max(most, high_word(((const T *)&v)[e]) & 0x7fffffffu);
    }
    if constexpr (sizeof(T) == 4)
      return high_word(most);
    else
      return most;
  }
  __device__ __forceinline__ void make_smaller() const {
    bool large = largest_in_stage() >= LARGE;
    const bool some = Shape::LANES > 32 ? __syncthreads_or(large) : __any_sync(0xffffffffu, large);
    if (some) {
#pragma unroll 1
      for (int j = 0; j < COLUMNS; j++) {
        large = false;
        for (int i = lane; i < Shape::ROWS; i += Shape::LANES) large |= is_large(stage[j * LEADING + i]);
        large = any_lane(large);
        multiply(j, large ? T(0x1p-16) : T(1));
        if (lane == 0) larger_of(j) = large ? T(0x1p16) : T(1);
      }
      this->sync();
    }
    if (lane == 0) some_are_smaller() = some ? T(1) : T(0);
  }
  __device__ __forceinline__ void make_larger() const {
    if (some_are_smaller() == T(0)) return;
#pragma unroll 1
    for (int j = 0; j < COLUMNS; j++) multiply(j, larger_of(j));
    this->sync();
  }

  /* ---- reflectors ---- */

  /* Ones where those of the reflectors are, the first one's in row `one`; zeros above them, from row `begin` on. */
  __device__ __forceinline__ void mask_reflectors(int one, int begin) const {
#pragma unroll 1
    for (int j = 0; j < p.n; j++)
      for (int i = begin + lane; i <= one + j; i += Shape::LANES)
        stage[(this->across() + j) * LEADING + i] = i == one + j ? T(1) : T(0);
  }

  /* Of the reflectors with ones in rows [first, last) those of block B. */
  template <int B> __device__ __forceinline__ void apply_block(int first, int last, bool backward) {
    constexpr int I = B * BLOCK;
    const int begin = max(first, I), end = min(last, I + BLOCK), column = this->across() - first;
#pragma unroll 1
    for (int s = begin; s < end; s++) {
      const int j = column + (backward ? begin + end - 1 - s : s);
      this->template apply<I / GR>(j, scales[j]);
    }
  }
  template <int... B>
  __device__ __forceinline__ void apply_blocks(std::integer_sequence<int, B...>, int first, int last, bool backward) {
    const int low = first / BLOCK, high = (last - 1) / BLOCK;
#pragma unroll 1
    for (int k = low; k <= high; k++) {
      const int block = backward ? low + high - k : k;
      ((block == B ? apply_block<B>(first, last, backward) : void()), ...);
    }
  }

  /* Reflectors of V from number `first` on, as many as the tile has columns. */
  __device__ __forceinline__ void apply_some(const qr_tile_apply_parameters &out, int64_t item, int first) {
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

template <typename Shape> __device__ __forceinline__ void qr_tile_apply(const qr_tile_apply_parameters &out) {
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
  tile.make_smaller();
  tile.read_stage();
  tile.sync();

  const int columns = p.n, last = Shape::LOWERED ? (out.reflectors - 1) / Shape::COLUMNS * Shape::COLUMNS : 0;
  p.a = out.v, p.a_access = out.v_access;
#pragma unroll 1
  for (int done = 0; done <= last; done += Shape::COLUMNS)
    tile.apply_some(out, item, out.backward ? last - done : done);

  p.n = columns;
#pragma unroll
  for (int q = 0; q < Shape::TILE_COLUMNS; q++)
    tile.write_column(tile.stage + (q * Shape::COLUMN_LANES + tile.column) * Shape::LEADING, q);
  tile.sync();
  tile.make_larger();
  if (wanted) tile.put_h(item);
}

#define DEFINE_QR_TILE_APPLY_KERNEL(chips, parameters, name, threads, blocks, ...)                                     \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ parameters p) {           \
    static_assert(tile_shape<__VA_ARGS__>::THREADS == threads);                                                        \
    only_wait_for_predecessors();                                                                                      \
    qr_tile_apply<tile_shape<__VA_ARGS__>>(p);                                                                         \
    let_successors_start();                                                                                            \
    publish(p.done);                                                                                                   \
  }

QR_TILE_APPLY_KERNELS(DEFINE_QR_TILE_APPLY_KERNEL)
