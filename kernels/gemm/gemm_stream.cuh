/* gemm_stream.cuh - the residual stream, for gemm_wgmma.cuh: out in f32, with its residual in f32; the vectors of the
 * next product, out * norm in 16 bits; and out's sums of squares.
 *
 * The residual's boxes of 32 columns come through the stages. Results leave from where it was, and the vectors from the
 * buffers of all results. A sum of squares has a row's 64 columns: those of a box, or, if W is P, of a warpgroup, whose
 * warps have 16 each. */
#pragma once

#include "gemm_results.cuh"

namespace {

template <typename D> struct gemm_streamer : gemm_warpgroup<D> {
  using base = gemm_warpgroup<D>;
  using base::base, base::p, base::at, base::index, base::thread, base::lane, base::warp;

  using row_scales = typename base::row_scales;
  static constexpr int GROUPS = D::BOX / 8;

  DEVICE uint32_t stream_at(uint32_t stage, int product, int box, int half) const {
    return base::residual_at(stage, 2 * base::number_of(product, box) + half);
  }

  /* ---- P is X ---- */

  /* A box's sums become results, which are stored where the residual was, and then the next product's vectors. */
  template <typename T>
  DEVICE void stream_by_rows(float *d, const row_scales &scales, const uint32_t (&places)[2], int row, int column,
                             int matrix) const {
    const uint32_t t = lane % 4, g = lane / 4, line = (16 * warp + g) * 128 + (t & 1) * 8;
    float squares[2] = {};
    float2 norms[GROUPS];
    unrolled_for (int j = 0; j < GROUPS; j++) norms[j] = norm_of<T>(column + 8 * j);
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int h = 0; h < 2; h++) {
        const uint32_t place = places[j / 4] + line + h * 8 * 128 + (((j % 4 * 2 + t / 2) ^ g) << 4);
        const float2 old = load_shared_two(place);
        float *x = d + 4 * j + 2 * h;
        x[0] = result(x[0], scales[0][h], old.x), x[1] = result(x[1], scales[0][h], old.y);
        store_two_numbers(place, make_float2(x[0], x[1]));
        squares[h] = fmaf(x[1], x[1], fmaf(x[0], x[0], squares[h]));
        x[0] *= norms[j].x, x[1] *= norms[j].y;
      }
    unrolled_for (int h = 0; h < 2; h++) {
      squares[h] = quad_sum(squares[h]);
      if (t == 0) store_squares(squares[h], row + 8 * h, column, matrix);
    }
  }

  /* ---- W is P ---- */

  /* The sums of two groups of eight rows become results and then the next product's vectors. `place` and `to`: of the
   * groups' first rows. A sum of squares that a lane keeps has the warp's sixteen columns. */
  template <typename T>
  DEVICE void stream_two_groups(float *d, uint32_t first, uint32_t place, uint32_t to, uint32_t squares_at,
                                const float (&norms)[2]) const {
    const uint32_t t = lane % 4, g = lane / 4, chunk = 4 * (warp % 2) + g / 4;
    const auto at = [&](int i) { /* of d[i], which is row 8 (i / 4) + 2 t + i % 2 */
                                 const uint32_t row = 2 * t + i % 2;
                                 return place + (i / 4 * 8 + row) * 128 + ((chunk + i / 2 % 2 * 2) ^ row) * 16 +
                                        g % 4 * 4;
    };
    float old[8], squares[4] = {};
    unrolled_for (int i = 0; i < 8; i++) old[i] = load_number(at(i));
    unrolled_for (int j = 0; j < 2; j++) {
      const float2 scales = p.row_factors ? base::factors_of(first + j) : make_float2(p.finish.scale, p.finish.scale);
      unrolled_for (int i = 4 * j; i < 4 * j + 4; i++) {
        d[i] = result(d[i], i % 2 ? scales.y : scales.x, old[i]);
        store_number(at(i), d[i]);
        squares[i / 4 * 2 + i % 2] = fmaf(d[i], d[i], squares[i / 4 * 2 + i % 2]);
        d[i] *= norms[i / 2 % 2];
      }
    }
    base::template write_two_groups<T>(d, to);
    store_number(squares_at + (lane >> 4 & 1) * 32 + (lane >> 3 & 1) * 4, add_columns(squares));
  }

  /* Eight lanes have a column each of the same rows. In each of two steps a lane keeps half of its sums, and adds those
   * of a lane that keeps the other half; in the last one two lanes get the same sum. */
  DEVICE float add_columns(float (&sums)[4]) const {
    unrolled_for (int step = 0; step < 2; step++) {
      const int half = 2 >> step;
      const uint32_t mask = 16 >> step;
      const bool keeps_upper = lane & mask;
      unrolled_for (int i = 0; i < 2; i++) {
        if (i >= half) continue;
        const float sent = keeps_upper ? sums[i] : sums[half + i];
        sums[i] = (keeps_upper ? sums[half + i] : sums[i]) + __shfl_xor_sync(0xffffffffu, sent, mask);
      }
    }
    return sums[0] + __shfl_xor_sync(0xffffffffu, sums[0], 4);
  }

  /* A box. The sums move down, so that a loop finds the next ones in the same registers: code that runs once takes
   * some six cycles an instruction. */
  template <typename T>
  DEVICE void stream_by_columns(float *d, uint32_t place, uint32_t to, int box, int column) const {
    const float norms[2] = {one_norm<T>(column), one_norm<T>(column + 8)};
    to = base::matrices_at(to, 0);
    uint32_t squares_at = at.squares + ((index * 4 + warp) * D::STORED + D::BOX * box + lane % 4 * 2) * 4;
    rolled_for (uint32_t j = 0; j < GROUPS; j += 2, place += 16 * 128, to += 16 * 128, squares_at += 16 * 4) {
      stream_two_groups<T>(d, D::BOX / 8 * box + j, place, to, squares_at, norms);
      unrolled_for (int i = 0; i + 8 < 4 * GROUPS; i++) d[i] = d[i + 8];
    }
  }

  /* After the warps have met. */
  DEVICE void add_warps(int row, int column, int matrix, int box) const {
    if (thread >= D::BOX) return;
    float sum = 0;
    unrolled_for (uint32_t i = 0; i < 4; i++)
      sum += load_number(at.squares + ((index * 4 + i) * D::STORED + D::BOX * box + thread) * 4);
    store_squares(sum, row + (int)thread, column, matrix);
  }

  /* ---- Both ---- */

  DEVICE static float result(float sum, float scale, float old) { return fmaf(base::whole_sum(sum), scale, old); }

  template <typename T> DEVICE float2 norm_of(int column) const {
    return numbers_16::two(gemm_dtype<T>::value, p.norms.norm, column < (int)p.columns ? column : 0);
  }
  template <typename T> DEVICE float one_norm(int column) const {
    return numbers_16::one(gemm_dtype<T>::value, p.norms.norm, column < (int)p.columns ? column : 0);
  }
  DEVICE void store_squares(float sum, int row, int column, int matrix) const {
    if (row >= (int)p.rows || column >= (int)p.columns) return;
    p.norms.squares[matrix * p.norms.squares_batch + column / GEMM_GROUP * p.norms.squares_group + row] = sum;
  }

  template <typename T>
  DEVICE void stream_product(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = 2 * ((int)lane % 4);
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      float *numbers = d + D::BOX / 2 * box;
      const int q = q0 + D::BOX * box;
      const uint32_t to = base::next_buffer();
      if constexpr (D::SWAPPED) {
        stream_by_columns<T>(numbers, stream_at(stage, product, box, (int)warp / 2), to, box, lane_p);
      } else {
        row_scales scales;
        base::find_scales(scales, product, D::BOX / 8 * box);
        const uint32_t places[2] = {stream_at(stage, product, box, 0), stream_at(stage, product, box, 1)};
        stream_by_rows<T>(numbers, scales, places, lane_p, q + lane_q, matrix);
        base::template write_box<T>(numbers, to);
      }
      writes_reach_products();
      warps_meet(GEMM_FIRST_BARRIER + index, 128);
      if (thread == 0) {
        const int column = D::SWAPPED ? p0 : q, row = D::SWAPPED ? q : p0;
        unrolled_for (int half = 0; half < 2; half++)
          if (column + 32 * half < (int)p.columns)
            box_store(&p.out, column + 32 * half, row, matrix, stream_at(stage, product, box, half));
        box_store(&p.normed, column, row, matrix, to);
        tensor_store_commit();
      }
      if constexpr (D::SWAPPED) add_warps(q, p0, matrix, box);
    }
  }

  /* All results of a tile, as gemm_warpgroup's store. */
  template <typename T>
  DEVICE void store_stream(float (&d)[D::PRODUCTS][D::COLUMNS / 2], const gemm_place &place, uint32_t left,
                           uint32_t stage, bool is_last) {
    const int p0 = place.p + (int)base::share() * D::PRODUCTS * 64, q0 = place.q + (int)at.part * D::STORED;
    unrolled_for (int product = 0; product < D::PRODUCTS; product++) {
      if constexpr (D::PARTS > 1) {
        float own[D::STORED / 2];
        if (!base::meet(d[product], own)) return;
        stream_product<T>(own, product, p0 + 64 * product, q0, place.matrix, stage);
      } else {
        stream_product<T>(d[product], product, p0 + 64 * product, q0, place.matrix, stage);
      }
    }
    if (is_last) return;
    if (thread == 0) tensor_store_wait_read<0>(); /* the stages will be filled again */
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    unrolled_for (uint32_t i = 0; i < D::STREAM_FILLS; i++)
      base::free_stage(left - i, stage + i >= D::STAGES ? stage + i - D::STAGES : stage + i);
  }
};

} // namespace
