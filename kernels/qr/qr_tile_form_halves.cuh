/* qr_tile_form_halves.cuh - thin Q and R of a matrix with twice the columns of the tile.
 *
 * It is factored as qr_tile_halves does it: in the end the reflectors of the second half are in the tile, and those of
 * the first in shared memory, where nothing else has room. So the second half of Q is made where its reflectors stand,
 * as LAPACK's org2r does: from the last to the first, each goes to where pivot columns stand, its column becomes that
 * of the identity, and it is applied to this and the columns behind. Then the first half's reflectors are applied to it
 * from shared memory, and to the identity for the first half of Q. */
#ifndef RONDO_QR_TILE_FORM_HALVES_CUH
#define RONDO_QR_TILE_FORM_HALVES_CUH

#include "qr_tile.cuh"
#include "qr_tile_form.h"

template <typename Shape> struct forming_halves : register_tile<Shape> {
  using tile = register_tile<Shape>;
  using T = typename tile::T;
  using vector = typename tile::vector;
  using tile::COLUMNS, tile::GR, tile::GC, tile::P, tile::Q, tile::VECTOR;
  using tile::p, tile::a, tile::scales, tile::row, tile::column;
  using tile::tile;
  static_assert(Shape::HALVES && P % VECTOR == 0);
  static_assert(Shape::SHARED_BYTES + COLUMNS * (int)sizeof(T) ==
                qr_tile_form_shared_bytes((int)sizeof(T), Shape::ROWS, COLUMNS, GR, GC, Shape::OPTIONS));

  /* tau of this half's reflectors; register_tile's are those of the half in shared memory. */
  __device__ __forceinline__ T *own_factors() const { return this->factors() + COLUMNS; }

  /* All that R has is the first local row: there are two halves of it at most, and as many row lanes. */
  __device__ __forceinline__ void put_r(const qr_tile_form_parameters &out, int64_t item) const {
    T *to = (T *)out.r.data + item * out.r.batch_stride + row * out.r.row_stride;
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int k = q * GC + column, j = this->begin() + k;
      const T unscale = this->scaled ? scales[k] : T(1);
      if (row < min(p.m, p.n) && j < p.n) to[j * out.r.column_stride] = row <= j ? a[0][q] * unscale : T(0);
    }
  }

  __device__ __forceinline__ void put_q(const qr_tile_form_parameters &out, int64_t item) const {
    T *to = (T *)out.q.data + item * out.q.batch_stride;
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int j = this->begin() + q * GC + column;
      if (j < min(p.m, p.n))
#pragma unroll
        for (int i = 0; i < P; i++)
          if (i * GR + row < p.m) to[(i * GR + row) * out.q.row_stride + j * out.q.column_stride] = a[i][q];
    }
  }

  /* The tile becomes v with its one and zeros above; only the first local row is not below the diagonal as a whole. */
  __device__ __forceinline__ void make_reflectors(T *tau) {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int k = q * GC + column, diagonal = this->begin() + k;
      const T inverse = this->inverse_of_u(q);
#pragma unroll
      for (int i = 0; i < P; i++) a[i][q] *= inverse;
      if (row <= diagonal) a[0][q] = row == diagonal ? T(1) : T(0);
      if (row == 0) tau[k] = this->tau_of(q);
    }
  }

  /* Applies those of this half's first `count` reflectors that stand in local column QQ, from the last to the first. */
  template <int QQ> __device__ __forceinline__ void form_columns(int count) {
#pragma unroll 1
    for (int j = min(count, (QQ + 1) * GC) - 1; j >= QQ * GC; j--) {
      const int owner = j - QQ * GC;
      T *const from = this->slice(j);
      this->template show<QQ, 0>(owner, from);
      if (column == owner) {
#pragma unroll
        for (int i = 0; i < P; i++) a[i][QQ] = T(0);
        if (row == this->begin() + j) a[0][QQ] = T(1);
      }
      this->sync();
      T x[P], d[Q];
      this->template take<0>(from, x);
      this->template dots<QQ, 0, false, 2>(x, d);
      this->template sum_over_lanes<QQ>(d);
      const T tau = own_factors()[j];
#pragma unroll
      for (int q = QQ; q < Q; q++) this->template update<0>(q, x, q > QQ || column >= owner ? tau * d[q] : T(0));
    }
  }
  template <int... QQ> __device__ __forceinline__ void form_half(std::integer_sequence<int, QQ...>) {
    const int count = min(this->columns(), p.m - this->begin());
    (form_columns<Q - 1 - QQ>(count), ...);
  }

  __device__ __forceinline__ void become_identity() {
#pragma unroll
    for (int q = 0; q < Q; q++) {
#pragma unroll
      for (int i = 0; i < P; i++) a[i][q] = T(0);
      if (row == q * GC + column) a[0][q] = T(1);
    }
  }

  /* The reflectors in shared memory, the last one first. */
  __device__ __forceinline__ void apply_backward() {
#pragma unroll 1
    for (int j = COLUMNS; j-- > 0;) this->template apply<0>(j, this->factors()[j]);
  }
};

template <typename Shape> __device__ __forceinline__ void qr_tile_form_halves(const qr_tile_form_parameters &out) {
  extern __shared__ __align__(16) unsigned char shared[];
  const qr_tile_parameters &p = out.tile;
  forming_halves<Shape> tile(p, (typename Shape::T *)shared);
  const bool is_whole = p.n > Shape::COLUMNS; /* both halves */
  const auto fetch = [&](int64_t item, int first_column) {
    tile.first_column = first_column;
    tile.fetch(item);
  };
  fetch(blockIdx.x, 0);
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    wait_for_copies();
    tile.sync();
    tile.read_stage();
    tile.sync();
    if (is_whole) fetch(item, Shape::COLUMNS);
    tile.first_column = 0;
    tile.factor_only();
    if (out.r.data) tile.put_r(out, item);
    if (is_whole) {
      tile.make_reflectors(tile.factors());
      tile.turn_to_second_half();
      tile.factor_only(false);
      if (out.r.data) tile.put_r(out, item);
    }
    if (out.q.data) {
      tile.make_reflectors(tile.own_factors());
      tile.sync(); /* the steps have read the last pivot columns */
      tile.form_half(std::make_integer_sequence<int, Shape::TILE_COLUMNS>{});
      if (is_whole) tile.apply_backward();
      tile.put_q(out, item);
    }
    if (out.q.data && is_whole) {
      tile.first_column = 0;
      tile.become_identity();
      tile.apply_backward();
      tile.put_q(out, item);
    }
    tile.sync();
    if (item + gridDim.x < p.batch) fetch(item + gridDim.x, 0);
  }
}

#endif
