/* qr_tile_apply.cu - C := Q C or Q^T C in a register tile.
 *
 * C comes to the registers through shared memory, then V takes its place there and stays, with ones and zeros where H
 * has R. A step takes one reflector from there; its scalars are known, so none waits for another warp: a warp's columns
 * are its own. Bound by the issue of multiply-adds for tiles from 64 on, by memory below. */
#include "qr_tile.cuh"
#include "qr_tile_apply.h"

template <typename Shape> struct applying_tile : register_tile<Shape> {
  using tile = register_tile<Shape>;
  using T = typename Shape::T;
  using tile::p, tile::stage, tile::scales, tile::lane, tile::GR;
  using tile::tile;
  static constexpr int COLUMNS = Shape::COLUMNS, LEADING = Shape::LEADING;
  /* Rows above a reflector's one are left out, in a few coarse blocks of steps. */
  static constexpr int BLOCKS = COLUMNS >= 32 ? 8 : 4, BLOCK = COLUMNS / BLOCKS;
  static_assert(!Shape::PACKED);

  /* The matrix of the parameters to shared memory. */
  __device__ __forceinline__ void bring(int64_t item) {
    this->fetch(item);
    wait_for_copies();
    this->sync();
  }

  /* Ones on the diagonal of V, zeros above it. */
  __device__ __forceinline__ void mask_reflectors() const {
#pragma unroll 1
    for (int j = p.offset; j < p.offset + p.n; j++)
      for (int i = lane; i <= j; i += Shape::LANES) stage[j * LEADING + i] = i == j ? T(1) : T(0);
  }

  template <int B> __device__ __forceinline__ void apply_block(int first, int last, bool backward) {
    constexpr int J = B * BLOCK;
    const int begin = max(first, J), end = min(last, J + BLOCK);
#pragma unroll 1
    for (int s = begin; s < end; s++) {
      const int j = backward ? begin + end - 1 - s : s;
      this->template apply<J / GR>(j, scales[j]);
    }
  }
  template <int... B>
  __device__ __forceinline__ void apply_blocks(std::integer_sequence<int, B...>, int first, int last, bool backward) {
    if (backward)
      (apply_block<BLOCKS - 1 - B>(first, last, true), ...);
    else
      (apply_block<B>(first, last, false), ...);
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
  const T *tau = (const T *)out.tau.data + item * out.tau.batch_stride;
  for (int j = tile.lane; j < out.reflectors; j += Shape::LANES) tile.scales[out.offset + j] = tau[j];
  tile.bring(item);
  tile.read_stage();
  tile.sync();

  const int columns = p.n;
  p.a = out.v, p.a_access = out.v_access, p.n = out.reflectors;
  tile.bring(item);
  tile.mask_reflectors();
  tile.sync();
  tile.apply_blocks(std::make_integer_sequence<int, applying_tile<Shape>::BLOCKS>{}, p.offset, p.offset + p.n,
                    out.backward);
  tile.sync();

  p.n = columns;
#pragma unroll
  for (int q = 0; q < Shape::TILE_COLUMNS; q++)
    tile.write_column(tile.stage + (q * Shape::COLUMN_LANES + tile.column) * Shape::LEADING, q);
  tile.sync();
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
