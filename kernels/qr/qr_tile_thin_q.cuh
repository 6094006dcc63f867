/* qr_tile_thin_q.cuh - thin Q and R: an end of a register tile's kernel, after the steps of qr_tile.cuh.
 *
 * After the last step the tile holds R, and u and x below it. R leaves through shared memory. Then the reflectors go
 * there, as v with its one and zeros above it, and stay. The tile becomes the first columns of the identity, and the
 * reflectors are applied to it from the last to the first: Q = H_0 .. H_(k-1) I. Column c is e_c until step c, and
 * v . e_c = 0 for each later step, so no step needs a mask, a pivot or a barrier: a warp's columns are its own. A few
 * coarse blocks of steps leave out the rows and columns before their own. */
#pragma once

#include "qr_tile.cuh"

template <typename Shape> struct thin_tile : register_tile<Shape> {
  using tile = register_tile<Shape>;
  using T = typename tile::T;
  using vector = typename tile::vector;
  using tile::p, tile::a, tile::scales, tile::stage, tile::lane, tile::row, tile::column;
  using tile::ROWS, tile::COLUMNS, tile::GR, tile::GC, tile::P, tile::Q, tile::VECTOR;
  static constexpr int STRIDE = qr_tile_reflector_stride((int)sizeof(T), ROWS, GR);
  static constexpr int LANE_STRIDE = GR == 1 ? 0 : Shape::SLICE;
  static constexpr int STAGE = STRIDE <= Shape::LEADING ? Shape::STAGE : STRIDE * COLUMNS;
  static constexpr int SHARED_BYTES = Shape::MATRICES * (Shape::PIVOTS + COLUMNS + STAGE + COLUMNS) * (int)sizeof(T);
  static constexpr int FORM_BLOCKS = COLUMNS >= 32 ? 8 : 4, FORM_BLOCK = COLUMNS / FORM_BLOCKS;
  static_assert(Shape::STAGED);
  static_assert(COLUMNS % GR == 0);
  static_assert(Shape::MATRICES == 1 || STAGE == Shape::STAGE);
  static_assert(SHARED_BYTES == qr_tile_thin_q_shared_bytes((int)sizeof(T), ROWS, COLUMNS, GR, GC, Shape::OPTIONS));

  T *factors;

  DEVICE thin_tile(const qr_tile_parameters &parameters, T *shared) : tile(parameters, shared) {
    factors = shared + Shape::MATRICES * (Shape::PIVOTS + COLUMNS + STAGE) + (int)threadIdx.x / Shape::LANES * COLUMNS;
  }

  /* ---- outputs ---- */

  /* Is row i GR + row below the diagonal of column q GC + column? A constant for most local rows. */
  static DEVICE bool all_below(int i, int q) { return i * GR >= (q + 1) * GC; }
  static DEVICE bool none_below(int i, int q) { return (i + 1) * GR <= q * GC + 1; }
  DEVICE bool below(int i, int q) const {
    return all_below(i, q) || (!none_below(i, q) && i * GR + row > q * GC + column);
  }
  DEVICE bool on_diagonal(int i, int q) const {
    return !all_below(i, q) && (i + 1) * GR > q * GC && i * GR + row == q * GC + column;
  }

  DEVICE void put_r(const qr_tile_task &out, int64_t item, bool wanted) {
    this->stage_r([&](int q) {
      const T unscale = this->scaled ? scales[q * GC + column] : T(1);
      return [this, q, unscale](int i, T number) { return below(i, q) ? T(0) : number * unscale; };
    });
    this->sync();
    if (wanted) this->template put<COLUMNS, 8>(out.r, out.r_access, min(p.m, p.n), p.n, stage, tile::R_LEADING, item);
    this->sync();
  }

  /* From the registers or through shared memory. */
  DEVICE void put_q(const qr_tile_task &out, int64_t item, bool wanted) {
    const int k = min(p.m, p.n);
    if (Shape::DIRECT && out.q_access <= tile::DIRECT_MOST) {
      if (wanted)
        unrolled_for (int q = 0; q < Q; q++) this->write_directly(out.q, item, k, q);
      return;
    }
    this->sync();
    unrolled_for (int q = 0; q < Q; q++) this->write_column(stage + (q * GC + column) * Shape::LEADING, q);
    this->sync();
    if (wanted) this->template put<ROWS, 8>(out.q, out.q_access, p.m, k, stage, Shape::LEADING, item);
  }

  /* ---- the reflectors ---- */

  /* v and tau of this lane's columns to shared memory; tau as LAPACK has it. */
  DEVICE void keep_reflectors() {
    unrolled_for (int q = 0; q < Q; q++) {
      const int k = q * GC + column;
      const T inverse = this->inverse_of_u(q);
      this->template write_values<P, 1>(stage + k * STRIDE + row * LANE_STRIDE, [&](int i) {
        return below(i, q) ? a[i][q] * inverse : on_diagonal(i, q) ? T(1) : T(0);
      });
      if (row == 0) factors[k] = this->tau_of(q);
    }
  }

  /* The tile := H_j tile, from local row PP and local column QQ on: v is zero above. */
  template <int QQ, int PP> DEVICE void reflect(int j) {
    const T *from = stage + j * STRIDE + row * LANE_STRIDE;
    T x[P], d[Q];
    this->template take<PP>(from, x);
    const T tau = factors[j];
    this->template dots<QQ, PP>(x, d);
    this->template sum_over_lanes<QQ>(d);
    unrolled_for (int q = QQ; q < Q; q++) this->template update<PP>(q, x, tau * d[q]);
  }

  template <int B> DEVICE void form_block(int first, int last) {
    constexpr int J = B * FORM_BLOCK;
    rolled_for (int j = min(last, J + FORM_BLOCK) - 1; j >= max(first, J); j--) reflect<J / GC, J / GR>(j);
  }
  template <int... B> DEVICE void form_blocks(std::integer_sequence<int, B...>, int first, int last) {
    (form_block<FORM_BLOCKS - 1 - B>(first, last), ...);
  }

  DEVICE void form() {
    unrolled_for (int q = 0; q < Q; q++)
      unrolled_for (int i = 0; i < P; i++) a[i][q] = on_diagonal(i, q) ? T(1) : T(0);
    form_blocks(std::make_integer_sequence<int, FORM_BLOCKS>{}, p.offset, p.offset + min(p.m - 1, p.n));
  }

  DEVICE void end(const qr_tile_task &out, int64_t item, bool wanted) {
    this->sync();
    if (out.r.data) put_r(out, item, wanted);
    if (!out.q.data) return;
    keep_reflectors();
    this->sync();
    form();
    put_q(out, item, wanted);
  }
};
