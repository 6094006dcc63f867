/* gemm_results.cuh - from a warpgroup's sums to results in memory, for gemm_wgmma.cuh: those of a tile are finished,
 * and leave as boxes by way of shared memory, or from registers (gemm_registers.cuh). */
#pragma once

#include "gemm_registers.cuh"

namespace {

template <typename D> struct gemm_warpgroup : gemm_registers<D> {
  using base = gemm_registers<D>;
  using base::base, base::p, base::at, base::index, base::thread, base::lane, base::warp, base::sent;
  using base::gated_by_two;
  using base::share, base::find_lane, base::free_stage, base::matrices_at, base::number_of, base::residual_at;

  /* ---- Out by boxes ---- */

  /* With silu_mul the results have half as many columns as the sums. */
  static constexpr bool CAN_GATE = gemm_tile_gates_by_box(D::TILE);
  static constexpr int GATED = D::STORED / 2, GATED_BOX = gemm_tile_gated_columns(D::TILE);
  static constexpr int GATED_BOXES = CAN_GATE ? (GATED + 63) / 64 : 0;
  DEVICE static constexpr int gated_begin(int box) { return box == GATED_BOXES - 1 ? GATED - GATED_BOX : 64 * box; }

  /* Two groups of eight rows of Q; and a box of them. `to`: this lane's in stmatrix. */
  template <typename Out> DEVICE static void write_two_groups(const float *x, uint32_t to) {
    const uint32_t a = pack_two<Out>(x[0], x[1]), b = pack_two<Out>(x[2], x[3]);
    const uint32_t c = pack_two<Out>(x[4], x[5]), e = pack_two<Out>(x[6], x[7]);
    if (D::SWAPPED)
      stmatrix_x4_transposed(to, a, b, c, e);
    else
      stmatrix_x4(to, a, b, c, e);
  }
  template <typename Out> DEVICE void write_box(const float *d, uint32_t to) const {
    unrolled_for (int j = 0; j < D::BOX / 16; j++) write_two_groups<Out>(d + 8 * j, matrices_at(to, j));
  }

  /* Of each two groups a lane has one column. It exchanges those of one group with its neighbour, and then has two
   * neighbours of the other group, in two rows. Even lanes keep the lower group. */
  template <typename Out> DEVICE void gate(const float (&d)[D::STORED / 2], uint32_t (&words)[GATED / 8][2]) const {
    const bool is_odd = lane & 1;
    unrolled_for (int j = 0; j < GATED / 8; j++) {
      const float *x = d + 8 * j;
      const uint32_t lower = pack_two<Out>(gated(x[0], x[1]), gated(x[2], x[3]));
      const uint32_t upper = pack_two<Out>(gated(x[4], x[5]), gated(x[6], x[7]));
      const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? lower : upper, 1);
      const uint32_t left = is_odd ? other : lower, right = is_odd ? upper : other;
      words[j][0] = __byte_perm(left, right, 0x5410), words[j][1] = __byte_perm(left, right, 0x7632);
    }
  }
  DEVICE void write_gated_box(const uint32_t (*words)[2], uint32_t to) const {
    const uint32_t group = lane / 4, in_chunk = (lane & 1) * 8 + (lane & 2) * 2;
    unrolled_for (uint32_t j = 0; j < GATED_BOX / 8; j++)
      unrolled_for (uint32_t h = 0; h < 2; h++)
        store_word(to + (16 * warp + group + 8 * h) * 128 + ((j ^ group) << 4) + in_chunk, words[j][h]);
  }

  /* If W is P, the lanes of a warp have eight columns of a box's rows, and a warpgroup 32: half of
   * the 128 bytes that a row has in shared memory. */
  template <typename Out> DEVICE void write_box_gated_by_two(const float *d, uint32_t to) const {
    unrolled_for (int j = 0; j < D::BOX / 8; j++) {
      float numbers[2];
      unrolled_for (int i = 0; i < 2; i++) numbers[i] = gated_by_two(d + 4 * j + i);
      const uint32_t two = pack_two<Out>(numbers[0], numbers[1]);
      unrolled_for (int i = 0; i < 2; i++) {
        const uint32_t row = lane % 4 * 2 + i;
        const uint32_t at = to + (8 * j + row) * 128 + ((warp ^ row) << 4) + (lane & 4) * 2 + lane / 8 * 2;
        store_half_word(at, two >> 16 * i);
      }
    }
  }

  DEVICE void send_box(int p0, int q0, int matrix, uint32_t from) const {
    box_store(&p.out, D::SWAPPED ? p0 : q0, D::SWAPPED ? q0 : p0, matrix, from);
    tensor_store_commit();
  }
  DEVICE uint32_t next_buffer() {
    const uint32_t to = at.staging + (index * D::BUFFERS + sent++ % D::BUFFERS) * GEMM_STAGING_BYTES;
    if (thread == 0) tensor_store_wait_read<D::BUFFERS - 1>();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    return to;
  }
  DEVICE void send(int p0, int q0, int matrix, uint32_t from) const {
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (thread == 0) send_box(p0, q0, matrix, from);
  }
  /* The last tile's boxes leave by the stages: from where the residual was, or from the rows of P that only this
   * warpgroup has read. */
  DEVICE uint32_t place_in_stages(uint32_t stage, int product, int box) const {
    if (!D::IS_WIDE && p.boxed) return residual_at(stage, number_of(product, box));
    return at.stages + box * D::STAGE_BYTES + (share() * D::PRODUCTS + product) * GEMM_P_PANEL_BYTES;
  }
  DEVICE void send_at_once(int p0, int q0, int matrix, uint32_t stage) const {
    const bool is_gated = CAN_GATE && p.finish.silu_mul;
    const int boxes = is_gated ? GATED_BOXES : D::BOXES, product = (int)thread / boxes, box = (int)thread % boxes;
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (product < D::PRODUCTS)
      send_box(p0 + 64 * product, is_gated ? q0 / 2 + gated_begin(box) : q0 + D::box_begin(box), matrix,
               place_in_stages(stage, product, box));
  }

  /* A product's boxes, from buffers or by_stages. */
  template <typename Out>
  DEVICE void leave(const float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                    bool by_stages) {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const float *numbers = d + D::box_begin(box) / 2;
      if (by_stages) {
        write_box<Out>(numbers, place_in_stages(stage, product, box));
      } else {
        const uint32_t to = next_buffer();
        write_box<Out>(numbers, to);
        send(p0, q0 + D::box_begin(box), matrix, to);
      }
    }
  }
  template <typename Out>
  DEVICE void leave_gated(const float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, bool by_stages) {
    uint32_t words[GATED / 8][2];
    gate<Out>(d, words);
    unrolled_for (int box = 0; box < GATED_BOXES; box++) {
      const uint32_t(*first)[2] = words + gated_begin(box) / 8;
      if (by_stages) {
        write_gated_box(first, place_in_stages(0, product, box));
      } else {
        const uint32_t to = next_buffer();
        write_gated_box(first, to);
        send(p0, q0 / 2 + gated_begin(box), matrix, to);
      }
    }
  }

  template <typename Out> DEVICE void leave_gated_by_two(const float *d, int p0, int q0, int matrix) {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const uint32_t to = next_buffer();
      write_box_gated_by_two<Out>(d + D::box_begin(box) / 2, to);
      send(p0 / 2, q0 + D::box_begin(box), matrix, to);
    }
  }

  /* ---- A tile ---- */

  /* One thread of a tile fetches into L2 what the block's results are added to. */
  DEVICE void fetch_residual(uint32_t turn) const {
    if (!D::ANY || !p.fetched || thread || share() || !at.stores()) return;
    const gemm_place place = gemm_place_of(p, at, turn);
    const int rows = D::SWAPPED ? D::STORED : D::P_ROWS, columns = D::SWAPPED ? D::P_ROWS : D::STORED;
    const int moved = (int)at.part * D::STORED, box_rows = D::SWAPPED ? D::BOX : 64;
    const int row = D::SWAPPED ? place.q + moved : place.p, column = D::SWAPPED ? place.p : place.q + moved;
    for (int i = 0; i < rows; i += box_rows)
      for (int j = 0; j < columns; j += (int)p.fetched) box_prefetch(&p.residual, column + j, row + i, place.matrix);
  }

  template <typename T>
  DEVICE void store_product(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                            bool by_stages) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = q0 + 2 * ((int)lane % 4);
    if (p.finishing) this->template finish<T>(d, product, lane_p, lane_q, matrix, stage);
    if constexpr (D::SWAPPED && !std::is_same_v<T, either>)
      if (p.by_map && p.finish.silu_mul) return leave_gated_by_two<T>(d, p0, q0, matrix);
    if constexpr (!D::ANY) {
      if constexpr (CAN_GATE)
        if (D::COLUMNS < 128 ? __builtin_expect(p.finish.silu_mul, 0) : p.finish.silu_mul)
          return leave_gated<T>(d, product, p0, q0, matrix, by_stages);
      return leave<T>(d, product, p0, q0, matrix, stage, by_stages);
    } else {
      store_any(d, product, p0, q0, matrix, stage, by_stages);
    }
  }
  DEVICE void store_any(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                        bool by_stages) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = q0 + 2 * ((int)lane % 4);
    const bool is_bf16 = p.finish.out_dtype == RONDO_BF16;
    if (!p.by_map) return this->store_each(d, lane_p, lane_q, matrix);
    if constexpr (CAN_GATE)
      if (p.finish.silu_mul) {
        if (is_bf16)
          return leave_gated<__nv_bfloat16>(d, product, p0, q0, matrix, by_stages);
        else
          return leave_gated<__half>(d, product, p0, q0, matrix, by_stages);
      }
    if (is_bf16)
      leave<__nv_bfloat16>(d, product, p0, q0, matrix, stage, by_stages);
    else
      leave<__half>(d, product, p0, q0, matrix, stage, by_stages);
  }

  /* All results of a tile. `stage` is the first with its residual, `left` the number of the block's stages from there
   * on. `by_stages`: nothing will be copied to the stages any more, and all of them have this tile. */
  template <typename T>
  DEVICE void store(float (&d)[D::PRODUCTS][D::COLUMNS / 2], const gemm_place &place, uint32_t left, uint32_t stage,
                    bool by_stages) {
    const int p0 = place.p + (int)share() * D::PRODUCTS * 64, q0 = place.q + (int)at.part * D::STORED;
    by_stages = by_stages && p.by_map && !(D::SWAPPED && p.finish.silu_mul);
    unrolled_for (int product = 0; product < D::PRODUCTS; product++) {
      if constexpr (D::PARTS > 1) {
        float own[D::STORED / 2];
        if (!this->meet(d[product], own)) return;
        store_product<T>(own, product, p0 + 64 * product, q0, place.matrix, stage, by_stages);
      } else {
        store_product<T>(d[product], product, p0 + 64 * product, q0, place.matrix, stage, by_stages);
      }
    }
    if (by_stages) return send_at_once(p0, q0, place.matrix, stage);
    if (D::IS_WIDE || !p.boxed) return;
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    unrolled_for (uint32_t i = 0; i < D::RESIDUAL_FILLS; i++)
      free_stage(left - i, stage + i >= D::STAGES ? stage + i - D::STAGES : stage + i);
  }

  /* Before the block ends: shared memory has been read; and if the host waits for the block, results are written. */
  DEVICE void end() const {
    if (p.done.words)
      tensor_store_wait();
    else
      tensor_store_wait_read<0>();
  }
};

} // namespace
