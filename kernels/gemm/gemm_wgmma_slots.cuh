/* gemm_wgmma_slots.cuh - W in NVFP4, for gemm_wgmma.cuh. The warpgroups that multiply decode W to registers, wgmma's
 * operand of rows, while the products of the step before run. So W takes no time of shared memory but for its codes.
 *
 * A thread copies the codes of a tile's rows by a tensor map, 256 of k to a slot, which are four steps. Two warps
 * decode their scales, in either layout, to numbers of X's type. A lane's part of an operand are two neighbours in k of
 * each group of eight: one byte of each word of codes. So the four lanes that share a row load the same words, each
 * chooses its bytes.
 *
 * Warpgroups share a tile, 64 rows each; or they take turns at the steps of a tile, and their sums meet at its end. */
#pragma once

#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_rows.cuh"
#include "gemm_rows_product.cuh"
#include "gemm_stream.cuh"

namespace {

enum { GEMM_SPLIT_BARRIER = GEMM_TURN_BARRIER, GEMM_SCALE_BARRIER = GEMM_EMPTY_BARRIER + 2 };

/* The place of a reader or writer among the slots. */
template <typename D> struct gemm_slot {
  uint32_t slot, parity;
  DEVICE void next() {
    if (++slot == D::SLOTS) slot = 0, parity ^= 1;
  }
};

template <typename D> DEVICE uint32_t slots_of_tile(const gemm_block<D> &at) {
  return (at.steps + GEMM_SLOT_STEPS - 1) / GEMM_SLOT_STEPS;
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

template <typename D> struct gemm_code_copier {
  const gemm_wgmma_parameters &p;
  const gemm_block<D> at;
  uint32_t turn = 0, step = 0;
  gemm_slot<D> to = {0, 1};
  gemm_place place;

  DEVICE gemm_code_copier(const gemm_wgmma_parameters &p, const void *shared)
      : p(p), at(p, shared), place(gemm_place_of(p, at, 0)) {}

  /* The first round finds all slots free. */
  template <bool IsFirstRound> DEVICE void copy(uint32_t count) {
    rolled_for (; count; count--, to.next()) {
      const uint32_t full = at.slot_full + 8 * to.slot;
      if (!IsFirstRound) barrier_wait(at.slot_empty + 8 * to.slot, to.parity);
      barrier_expect(full, D::SLOT_BYTES);
      box_copy(at.slots + to.slot * D::SLOT_BYTES, &p.p, (int)(at.k_begin + step) * (GEMM_DEPTH / 2), place.p,
               place.matrix, full);
      step += GEMM_SLOT_STEPS;
      if (step < at.steps) continue;
      step = 0, turn++;
      place = gemm_place_of(p, at, turn);
    }
  }
  DEVICE uint32_t all() const { return at.tiles * slots_of_tile(at); }
  DEVICE uint32_t first_round() const { return min((uint32_t)D::SLOTS, all()); }
};

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* The two warps that also tend rows (gemm_rows.cuh) decode the scales. They copy those of a slot's rows a few slots
 * ahead, a word for each step, and decode them to four numbers for each row of a step. */
template <typename D> struct gemm_scales {
  static constexpr uint32_t ROWS = D::P_ROWS / GEMM_SCALERS, AHEAD = D::SLOTS - 1; /* slots */

  const gemm_wgmma_parameters &p;
  const gemm_block<D> at;
  const uint32_t thread;
  uint32_t turn = 0, step = 0;
  gemm_slot<D> to = {0, 0};
  gemm_place place;

  DEVICE gemm_scales(const gemm_wgmma_parameters &p, const void *shared)
      : p(p), at(p, shared), thread(threadIdx.x % GEMM_SCALERS), place(gemm_place_of(p, at, 0)) {}

  /* The words of a row, in shared memory and of the next slot. Past the last row of W its scales are taken: the results
   * are not stored. */
  DEVICE uint32_t words(uint32_t slot, uint32_t row) const {
    return at.scales + (slot * D::P_ROWS + row) * 4 * GEMM_SLOT_STEPS;
  }
  DEVICE const unsigned char *words_of(uint32_t row) const {
    return p.scales +
           (place.matrix * p.scale_batch + scales_of_row(p.scale_strides, min(place.p + row, p.columns - 1)) +
            (at.k_begin + step) * p.scale_strides.four);
  }

  /* Of the next slot. Each call makes a group of copies, which may be empty. */
  DEVICE void copy() {
    if (turn < at.tiles) {
      const uint32_t steps = min(at.steps - step, (uint32_t)GEMM_SLOT_STEPS);
      if (p.scale_copies == GEMM_SCALES_IN_SIXTEEN) {
        unrolled_for (uint32_t i = 0; i < ROWS; i++) {
          const uint32_t row = thread + i * GEMM_SCALERS;
          cp_async_four_words(words(to.slot, row), words_of(row), 4 * steps);
        }
      } else {
        rolled_for (uint32_t i = thread; i < D::P_ROWS * GEMM_SLOT_STEPS; i += GEMM_SCALERS) {
          const uint32_t apart = D::P_ROWS / 32, in_column = i % D::P_ROWS;
          const bool is_blocked = p.scale_copies == GEMM_SCALES_BLOCKED;
          const uint32_t row = is_blocked ? in_column / apart + in_column % apart * 32 : i / GEMM_SLOT_STEPS;
          const uint32_t in_slot = is_blocked ? i / D::P_ROWS : i % GEMM_SLOT_STEPS;
          if (in_slot < steps)
            cp_async_word(words(to.slot, row) + 4 * in_slot, words_of(row) + in_slot * p.scale_strides.four);
        }
      }
      step += GEMM_SLOT_STEPS;
      if (step >= at.steps) {
        step = 0, turn++;
        place = gemm_place_of(p, at, turn);
      }
      to.next();
    }
    cp_async_commit();
  }
  DEVICE void copy_ahead() {
    rolled_for (uint32_t i = 0; i < AHEAD; i++) copy();
  }

  template <typename T> DEVICE void decode_all() {
    gemm_slot<D> next = {0, 1};
    const uint32_t of_tile = slots_of_tile(at), ahead = min(of_tile, (uint32_t)D::SLOTS) - 1;
    uint32_t tile = 0, in_tile = 0;
    rolled_for (uint32_t count = at.tiles * of_tile; count; count--, next.next()) {
      cp_async_wait<AHEAD - 1>();
      warps_meet(GEMM_SCALE_BARRIER, GEMM_SCALERS);
      copy();
      barrier_wait(at.slot_empty + 8 * next.slot, next.parity);
      unrolled_for (uint32_t j = 0; j < ROWS; j++) {
        const uint32_t row = thread + j * GEMM_SCALERS;
        uint32_t four[GEMM_SLOT_STEPS];
        load_four_words(words(next.slot, row), four);
        unrolled_for (uint32_t i = 0; i < GEMM_SLOT_STEPS; i++)
          store_two_words(at.scale_numbers + ((next.slot * GEMM_SLOT_STEPS + i) * D::P_ROWS + row) * 8,
                          gemm_code<T>::two_scales(gemm_two_scales(four[i])),
                          gemm_code<T>::two_scales(gemm_two_scales(four[i] >> 16)));
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(at.slot_full + 8 * next.slot);
      if (p.row_factors && in_tile == ahead) make_factors(p, at, tile); /* products have work meanwhile */
      if (++in_tile == of_tile) in_tile = 0, tile++;
    }
    cp_async_wait<0>();
  }
};

template <typename D> DEVICE void decode_scales(const gemm_wgmma_parameters &p, const void *shared) {
  gemm_scales<D> scales(p, shared);
  if (p.weights_early) scales.copy_ahead();
  only_wait_for_predecessors();
  if (!p.weights_early) scales.copy_ahead();
  if (D::STREAMS && p.streamed) touch_norm(p, scales.at);
  if (p.is_bf16)
    scales.template decode_all<__nv_bfloat16>();
  else
    scales.template decode_all<__half>();
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* A lane's numbers of wgmma's rows: a[k / 16] for 64 of k. */
using gemm_fragments = uint32_t[GEMM_DEPTH / 16][4];

/* A lane's codes of a step, loaded ahead, of two rows that are eight apart. A warpgroup takes its steps in pairs: a
 * slot has two, or one. */
template <typename T, typename D> struct gemm_decoder {
  static constexpr bool TWO_PAIRS = D::STEP == 1;

  const gemm_block<D> &at;
  uint32_t first_codes, first_scales, bytes; /* this lane's of the first slot */
  uint32_t slot = 0, pair = 0, codes_at = 0; /* of the pair */
  gemm_slot<D> next = {0, 0};                /* slot */
  bool next_is_full = false;                 /* it was, when this one was entered */
  uint4 codes[2][2];
  uint2 scales[2];

  /* A row's sixteen-byte pieces are exchanged as tensor copies do. */
  DEVICE gemm_decoder(const gemm_block<D> &at, const gemm_warpgroup<D> &me) : at(at) {
    const uint32_t row = 64 * me.share() + 16 * me.warp + me.lane / 4, first = D::SPLITS ? me.index : 0;
    first_codes = at.slots + row * GEMM_CODE_BYTES + (row % 8 * 16 ^ 32 * first);
    first_scales = at.scale_numbers + (first * D::P_ROWS + row) * 8;
    bytes = GEMM_FIRST_BYTE + GEMM_NEXT_BYTE * (me.lane % 4);
  }

  DEVICE void enter_slot() {
    if (!next_is_full) barrier_wait(at.slot_full + 8 * next.slot, next.parity);
    slot = next.slot, pair = 0;
    codes_at = first_codes + slot * D::SLOT_BYTES;
    next.next();
    next_is_full = barrier_test(at.slot_full + 8 * next.slot, next.parity);
  }
  /* After its codes are in registers. */
  DEVICE void leave_slot() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(at.slot_empty + 8 * slot);
  }
  DEVICE void next_pair() {
    if (TWO_PAIRS && !pair)
      pair = 1, codes_at ^= 64;
    else
      leave_slot(), enter_slot();
  }
  /* The pair's first or second step. There is place for it in the slot even if the tile ends before. */
  DEVICE void load(uint32_t second) {
    unrolled_for (uint32_t half = 0; half < 2; half++) {
      const uint32_t piece = codes_at ^ (32 * D::STEP * second + 16 * half);
      unrolled_for (uint32_t i = 0; i < 2; i++) codes[i][half] = load_four_words(piece + 8 * i * GEMM_CODE_BYTES);
    }
    const uint32_t scales_at = first_scales + (GEMM_SLOT_STEPS * slot + 2 * pair) * D::P_ROWS * 8;
    unrolled_for (uint32_t i = 0; i < 2; i++)
      scales[i] = load_two_words(scales_at + D::STEP * second * D::P_ROWS * 8 + 64 * i);
  }
  DEVICE void decode(gemm_fragments &a) const {
    unrolled_for (uint32_t k = 0; k < GEMM_DEPTH / 16; k++)
      unrolled_for (uint32_t i = 0; i < 2; i++) {
        const uint4 &c = codes[i][k / 2];
        const uint32_t scale = gemm_code<T>::both(k / 2 ? scales[i].y : scales[i].x, k % 2);
        a[k][i] = decode_two<T>(k % 2 ? c.z : c.x, bytes, scale);
        a[k][2 + i] = decode_two<T>(k % 2 ? c.w : c.y, bytes, scale);
      }
    unrolled_for (uint32_t k = 0; k < GEMM_DEPTH / 16; k++) pin(a[k]);
  }
};

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The stages after the last k of a tile. */
template <typename D> DEVICE void wait_for_residual(const gemm_block<D> &at, uint32_t before) {
  rolled_for (uint32_t i = before + at.k_fills; i < before + at.fills; i++)
    barrier_wait(at.full + 8 * (i % D::STAGES), i / D::STAGES & 1);
}

/* The sums of two warpgroups, which have taken turns at steps. The first one gets their sum, and true. */
template <typename D>
DEVICE bool meet_in_block(const gemm_block<D> &at, const gemm_warpgroup<D> &me, float (&d)[D::COLUMNS / 2]) {
  const uint32_t slot = at.split + me.thread * 16;
  if (me.index) {
    unrolled_for (int i = 0; i < D::COLUMNS / 2; i += 4)
      store_four_numbers(slot + i / 4 * 2048, make_float4(d[i], d[i + 1], d[i + 2], d[i + 3]));
    warps_arrive(GEMM_SPLIT_BARRIER, 256);
    return false;
  }
  warps_meet(GEMM_SPLIT_BARRIER, 256);
  unrolled_for (int i = 0; i < D::COLUMNS / 2; i += 4) {
    const float4 theirs = load_shared_four(slot + i / 4 * 2048);
    d[i] += theirs.x, d[i + 1] += theirs.y, d[i + 2] += theirs.z, d[i + 3] += theirs.w;
  }
  return true;
}

/* d := the sum over this warpgroup's part of k of a tile. `before`: the block's stages before it. */
template <typename T, typename D> struct gemm_code_products {
  static constexpr uint32_t IN_STAGE = D::STAGE_BOXES / D::STEP; /* boxes of a stage for this warpgroup */
  static constexpr uint32_t BOX = D::COLUMNS * 128 / 16;         /* as descriptors count */
  static_assert(IN_STAGE == 1 || IN_STAGE == 2, "a pair of steps has one stage of X, or two");

  const gemm_block<D> &at;
  const gemm_warpgroup<D> &me;
  gemm_decoder<T, D> &codes;
  const uint32_t first_box; /* of a stage's: the warpgroup's first */
  uint32_t step, left;      /* the block's stages from this one on */
  uint32_t stage, parity, full_before = 0, left_before = 0;

  DEVICE gemm_code_products(const gemm_block<D> &at, const gemm_warpgroup<D> &me, gemm_decoder<T, D> &codes,
                            uint32_t before)
      : at(at), me(me), codes(codes), first_box(D::SPLITS ? __shfl_sync(0xffffffffu, me.index, 0) : 0), step(first_box),
        left(at.tiles * at.fills - before), stage(before % D::STAGES), parity(before / D::STAGES & 1) {}

  /* In a block that shares no stages, whether or not it will be filled again. */
  DEVICE void free_stage_before() const {
    if (D::SHARERS > 1)
      me.free_stage(left_before, (full_before - at.full) / 8);
    else if (me.thread == 0)
      barrier_arrive(full_before + 8 * D::STAGES);
  }

  /* A step, whose W is decoded to `a` while the products before run, of W in `other`. A barrier answers late
   * meanwhile. So that of the stage is asked early, and rarely waited for. `load` loads the next codes. */
  template <bool Second, typename Load>
  DEVICE void multiply(gemm_fragments &a, gemm_fragments &other, float (&d)[D::COLUMNS / 2], bool is_first,
                       const Load &load) {
    constexpr bool OPENS = !Second || IN_STAGE == 1;
    const uint32_t full = at.full + 8 * stage, first = at.stages / 16 + (1 << 16) + first_box * BOX;
    const uint32_t q = first + stage * (D::STAGE_BYTES / 16) + (OPENS ? 0 : D::STEP * BOX);
    const bool is_full = !OPENS || barrier_test(full, parity);
    codes.decode(a);
    load();
    if (!is_full) barrier_wait(full, parity);
    pin(d);
    wgmma_fence();
    unrolled_for (int k = 0; k < GEMM_DEPTH / 16; k++)
      gemm_rows_product<T, D::COLUMNS>::add_to(d, a[k], operand_layout | (q + 2 * k));
    wgmma_commit();
    pin(d);
    wgmma_wait<1>();
    unrolled_for (int k = 0; k < GEMM_DEPTH / 16; k++) pin(other[k]);
    step += D::STEP;
    if (OPENS) {
      if (!is_first) free_stage_before();
      full_before = full, left_before = left;
    }
    if (Second || IN_STAGE == 1) {
      left--;
      if (++stage == D::STAGES) stage = 0, parity ^= 1;
    }
  }

  /* Each tile has a step. */
  DEVICE void multiply_tile(float (&d)[D::COLUMNS / 2]) {
    gemm_fragments a, b = {};
    bool is_first = true;
    unrolled_for (int i = 0; i < D::COLUMNS / 2; i++) d[i] = 0;
    codes.enter_slot(), codes.load(0);
#pragma unroll 1
    for (;;) {
      multiply<false>(a, b, d, is_first, [&]() { codes.load(1); });
      is_first = false;
      if (step >= at.steps) break;
      multiply<true>(b, a, d, false, [&]() {
        if (step + D::STEP < at.steps) codes.next_pair(), codes.load(0);
      });
      if (step >= at.steps) break;
    }
    codes.leave_slot();
    wgmma_wait<0>();
    pin(d);
    free_stage_before();
  }
};

/* A warpgroup's tiles, one after the other. */
template <typename T, typename D> DEVICE void multiply_codes(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  gemm_streamer<D> me(p, at);
  gemm_decoder<T, D> codes(at, me);
  rolled_for (uint32_t turn = 0; turn < at.tiles; turn++) {
    float d[1][D::COLUMNS / 2];
    gemm_place place = gemm_place_of(p, at, turn);
    keep(place);
    only_wait_for_predecessors(); /* after the first turn it returns at once */
    me.fetch_residual(turn);
    const uint32_t before = D::PARTS > 1 ? 0 : turn * at.fills, end = before + at.k_fills;
    gemm_code_products<T, D>(at, me, codes, before).multiply_tile(d[0]);
    wait_for_residual(at, before);
    me.find_lane(); /* so it takes no registers during the products */
    if constexpr (D::SPLITS)
      if (!meet_in_block<D>(at, me, d[0])) return;
    const uint32_t left = at.tiles * at.fills - end, stage = end % D::STAGES;
    const bool is_last = turn + 1 == at.tiles;
    me.begin_factors(turn);
    if constexpr (D::STREAMS)
      if (__builtin_expect(p.streamed, 0)) {
        me.template store_stream<T>(d, place, left, stage, is_last);
        me.end_factors(turn);
        continue;
      }
    me.template store<T>(d, place, left, stage, is_last && p.boxed);
    me.end_factors(turn);
  }
  only_wait_for_predecessors(); /* without a turn */
  me.end();
}

} // namespace
