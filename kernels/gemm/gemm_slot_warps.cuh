/* gemm_slot_warps.cuh - products of W in NVFP4 with up to 32 vectors, for gemm_wgmma_slots.cuh: by mma.sync, whose time
 * falls with the number of vectors.
 *
 * The four warps of a warpgroup have the same 64 rows of W, and 64 of k of each slot. So a warp reads the vectors
 * once for 64 rows. At the end of a tile the warps exchange their sums, and each gets those of sixteen rows: where
 * wgmma would leave them.
 *
 * A sum takes its numbers in any order, if both operands have the same. So a lane takes sixteen neighbours in k, a
 * block of codes with one scale, for four products: of each eight codes a word, and four words of the vectors. */
#pragma once

#include "gemm_codes.cuh"
#include "gemm_stream.cuh"

namespace {

template <typename T, typename D> struct gemm_warp_products {
  static constexpr int TILES = 4;                   /* of 16 rows of W */
  static constexpr int GROUPS = GEMM_WARP_ROWS / 8; /* of eight vectors */
  using tile_sums = float[GROUPS][4];
  using sums = float[TILES][GROUPS][4];
  using operands = uint32_t[2][4]; /* 16 rows, of half of a step: of two products */

  const gemm_block<D> &at;
  const gemm_warpgroup<D> &me;
  uint32_t words_at, scales_at, vectors_at; /* the lane's, in the first slot and step */
  uint32_t slots = 0;                       /* that this warp has left */
  uint32_t words[TILES][2], scales[TILES][2];

  DEVICE gemm_warp_products(const gemm_block<D> &at, const gemm_warpgroup<D> &me) : at(at), me(me) {
    const uint32_t g = me.lane / 4, t = me.lane % 4, row = 64 * me.share() + g;
    words_at = at.slots + row * GEMM_CODE_BYTES + (((2 * me.warp + t / 2) ^ g) << 4) + t % 2 * 8;
    scales_at = at.scale_numbers + (me.warp * D::P_ROWS + row) * 8 + 2 * t;
    vectors_at = at.stages + me.warp % D::STAGE_BOXES * (D::COLUMNS * 128) + g * 128 + ((2 * t ^ g) << 4);
  }

  /* ---- Codes ---- */

  /* The lane's words of half of the step: eight codes of each row. */
  DEVICE void load_words(uint32_t half) {
    const uint32_t from = words_at + slots % D::SLOTS * D::SLOT_BYTES + half * 4;
    unrolled_for (int i = 0; i < TILES; i++)
      unrolled_for (int h = 0; h < 2; h++) words[i][h] = load_word(from + (16 * i + 8 * h) * GEMM_CODE_BYTES);
  }
  DEVICE void load_scales() {
    const uint32_t from = scales_at + slots % D::SLOTS * GEMM_SLOT_STEPS * D::P_ROWS * 8;
    unrolled_for (int i = 0; i < TILES; i++)
      unrolled_for (int h = 0; h < 2; h++)
        scales[i][h] = permute(load_half_word(from + (16 * i + 8 * h) * 8), 0, 0x1010);
  }
  DEVICE void decode(int i, operands &a) const {
    unrolled_for (int h = 0; h < 2; h++) {
      uint32_t pairs[4];
      decode_eight<T>(words[i][h], scales[i][h], pairs);
      unrolled_for (int k = 0; k < 2; k++) a[k][h] = pairs[2 * k], a[k][2 + h] = pairs[2 * k + 1];
    }
  }
  DEVICE void leave_slot() {
    __syncwarp();
    if (thread_index() % 32 == 0) barrier_arrive(at.slot_empty + 8 * (slots % D::SLOTS));
    slots++;
  }

  DEVICE bool slot_is_full(uint32_t slot) const {
    return barrier_test(at.slot_full + 8 * (slot % D::SLOTS), slot / D::SLOTS & 1);
  }
  /* The slot of `step`, if the tile has one. There this warp has a step, or not. */
  DEVICE void enter_slot(uint32_t step, bool is_full) {
    if (step >= at.steps + me.warp) return;
    if (!is_full) barrier_wait(at.slot_full + 8 * (slots % D::SLOTS), slots / D::SLOTS & 1);
    if (step < at.steps)
      load_words(0), load_scales();
    else
      leave_slot();
  }

  /* ---- Products ---- */

  DEVICE void load_vectors(uint32_t stage, uint32_t half, uint4 (&b)[GROUPS]) const {
    const uint32_t from = (vectors_at ^ half << 4) + stage * D::STAGE_BYTES;
    unrolled_for (int j = 0; j < GROUPS; j++) b[j] = load_four_words(from + 1024 * j);
  }
  DEVICE static void multiply(const operands &a, const uint4 (&b)[GROUPS], tile_sums &d) {
    unrolled_for (int j = 0; j < GROUPS; j++) mma_16x8x16<T>(d[j], a[0], b[j].x, b[j].y);
    unrolled_for (int j = 0; j < GROUPS; j++) mma_16x8x16<T>(d[j], a[1], b[j].z, b[j].w);
  }
  DEVICE void free_stage(uint32_t fill) const {
    __syncwarp();
    if (fill + D::STAGES < at.tiles * at.fills && thread_index() % 32 == 0)
      barrier_arrive(at.empty + 8 * (fill % D::STAGES));
  }

  /* d := the sum over this warp's steps of a tile. `before`: the block's stages before it. Codes of sixteen rows are
   * decoded while those before are multiplied. A warp sees every round of each slot, and of each of its stages. */
  DEVICE void multiply_tile(uint32_t before, sums &d) {
    static_assert(D::STAGES * D::STAGE_BOXES % GEMM_SLOT_STEPS == 0, "a warp sees every round of its stages");
    unrolled_for (int i = 0; i < TILES; i++)
      unrolled_for (int j = 0; j < GROUPS; j++)
        unrolled_for (int c = 0; c < 4; c++) d[i][j][c] = 0;
    unrolled_for (int i = 0; i < TILES; i++) /* a warp without a step decodes them, too */
      unrolled_for (int h = 0; h < 2; h++) words[i][h] = scales[i][h] = 0;
    operands a[2];
    uint32_t step = me.warp;
    enter_slot(step, false);
    decode(0, a[0]);
    bool is_full = false;
    rolled_for (; step < at.steps;) {
      const uint32_t fill = before + step / D::STAGE_BOXES, stage = fill % D::STAGES;
      uint4 b[GROUPS];
      if (!is_full) barrier_wait(at.full + 8 * stage, fill / D::STAGES & 1);
      load_vectors(stage, 0, b);
      unrolled_for (int i = 0; i < TILES; i++) {
        if (i == TILES - 1) load_words(1);
        decode((i + 1) % TILES, a[(i + 1) % 2]);
        multiply(a[i % 2], b, d[i]);
      }
      load_vectors(stage, 1, b);
      const uint32_t next = fill + GEMM_SLOT_STEPS / D::STAGE_BOXES;
      const bool next_slot_is_full = slot_is_full(slots + 1);
      is_full = barrier_test(at.full + 8 * (next % D::STAGES), next / D::STAGES & 1);
      unrolled_for (int i = 0; i < TILES; i++) {
        if (i == TILES - 1) {
          free_stage(fill);
          leave_slot();
          step += GEMM_SLOT_STEPS;
          enter_slot(step, next_slot_is_full);
        }
        decode((i + 1) % TILES, a[(i + 1) % 2]);
        multiply(a[i % 2], b, d[i]);
      }
    }
    if (step - me.warp % D::STAGE_BOXES < at.steps) { /* the tile's last stage has nothing for this warp */
      const uint32_t fill = before + step / D::STAGE_BOXES;
      barrier_wait(at.full + 8 * (fill % D::STAGES), fill / D::STAGES & 1);
      free_stage(fill);
    }
  }

  /* ---- The warps' sums meet ---- */

  /* mine += what warp `other` sends, while it gets `sent`. */
  DEVICE void exchange(const tile_sums &sent, tile_sums &mine, uint32_t other) const {
    const uint32_t place = at.staging + me.index * D::BUFFERS * GEMM_STAGING_BYTES + me.lane * 16;
    unrolled_for (int j = 0; j < GROUPS; j++)
      store_four_numbers(place + (me.warp * GROUPS + j) * 512,
                         make_float4(sent[j][0], sent[j][1], sent[j][2], sent[j][3]));
    warps_meet(GEMM_FIRST_BARRIER + me.index, 128);
    unrolled_for (int j = 0; j < GROUPS; j++) {
      const float4 theirs = load_shared_four(place + (other * GROUPS + j) * 512);
      mine[j][0] += theirs.x, mine[j][1] += theirs.y, mine[j][2] += theirs.z, mine[j][3] += theirs.w;
    }
    warps_meet(GEMM_FIRST_BARRIER + me.index, 128);
  }
  /* A warp keeps one of two tiles: low becomes it, and `sent` the other one. */
  DEVICE static void choose(tile_sums &low, const tile_sums &high, bool keeps_high, tile_sums &sent) {
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int c = 0; c < 4; c++) {
        sent[j][c] = keeps_high ? low[j][c] : high[j][c];
        low[j][c] = keeps_high ? high[j][c] : low[j][c];
      }
  }
  /* Each warp gets the sums of its sixteen rows: of two tiles from the warp that keeps the other two, then of one. */
  DEVICE void meet(sums &d, float (&own)[D::COLUMNS / 2]) const {
    tile_sums sent;
    if (me.thread == 0) tensor_store_wait_read<0>(); /* of results in the buffers */
    warps_meet(GEMM_FIRST_BARRIER + me.index, 128);
    unrolled_for (int i = 0; i < 2; i++) {
      choose(d[i], d[i + 2], me.warp & 2, sent);
      exchange(sent, d[i], me.warp ^ 2);
    }
    choose(d[0], d[1], me.warp & 1, sent);
    exchange(sent, d[0], me.warp ^ 1);
    unrolled_for (int i = 0; i < D::COLUMNS / 2; i++) own[i] = i < 4 * GROUPS ? d[0][i / 4 % GROUPS][i % 4] : 0;
  }

  DEVICE void multiply_and_meet(uint32_t before, float (&own)[D::COLUMNS / 2]) {
    sums d;
    multiply_tile(before, d);
    meet(d, own);
  }
};

} // namespace
