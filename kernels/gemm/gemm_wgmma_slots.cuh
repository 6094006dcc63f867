/* gemm_wgmma_slots.cuh - W in NVFP4, for gemm_wgmma.cuh: a warpgroup of its own decodes it to the stages, 64 of k at a
 * time.
 *
 * A thread copies the codes of a tile's rows by a tensor map, 128 of k to a slot. Each thread that decodes has a row,
 * or half of one. It copies the scales of its row a few stages ahead, four bytes for 64 of k, in either layout.
 *
 * Shared memory bounds it: a stage of W is written there once more than if it came in 16 bits. With few vectors the
 * threads that decode do, some 800 cycles for 128 rows and 64 of k. */
#pragma once

#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_results.cuh"

namespace {

DEVICE void cp_async_word(uint32_t to, const unsigned char *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" EARLY ::"r"(to), "l"(from) : "memory");
}

/* The place of a reader or writer among the slots. */
template <typename D> struct gemm_slot {
  uint32_t slot, parity;
  DEVICE void next() {
    if (++slot == D::SLOTS) slot = 0, parity ^= 1;
  }
};

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
  DEVICE uint32_t all() const { return at.tiles * ((at.steps + GEMM_SLOT_STEPS - 1) / GEMM_SLOT_STEPS); }
  DEVICE uint32_t first_round() const { return min((uint32_t)D::SLOTS, all()); }
};

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* A thread's copies of the scales of its row, a word for each stage. Only this thread reads them. */
template <typename D> struct gemm_scales {
  const gemm_wgmma_parameters &p;
  const gemm_block<D> &at;
  const uint32_t words; /* the first of this thread's */
  uint32_t turn = 0, step = 0, number = 0;
  const unsigned char *from;

  DEVICE gemm_scales(const gemm_wgmma_parameters &p, const gemm_block<D> &at)
      : p(p), at(at), words(at.scales + 4 * (threadIdx.x % GEMM_DECODERS)) {
    find_row();
  }
  DEVICE uint32_t word(uint32_t number) const { return words + number % D::SCALES_AHEAD * GEMM_DECODERS * 4; }
  /* Past the last row of W its scales are taken: the results are not stored. */
  DEVICE void find_row() {
    const gemm_place place = gemm_place_of(p, at, turn);
    const uint32_t row = min(place.p + threadIdx.x % D::P_ROWS, p.columns - 1);
    from = p.scales +
           (place.matrix * p.scale_batch + scales_of_row(p.scale_strides, row) + at.k_begin * p.scale_strides.four);
  }
  /* Those of the next stage. Each call makes a group of copies, which may be empty. */
  DEVICE void copy() {
    if (turn < at.tiles) {
      cp_async_word(word(number), from);
      from += p.scale_strides.four;
      if (++step == at.steps) {
        step = 0, turn++;
        if (turn < at.tiles) find_row();
      }
    }
    number++;
    cp_async_commit();
  }
  DEVICE void copy_ahead() {
    rolled_for (int i = 0; i < D::SCALES_AHEAD - 1; i++) copy();
  }
};

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* Other warps do not hide a decoder's latencies. So it loads what it decodes next before it waits for anything, and
 * says that a stage is full when the next one has been decoded in registers. */
template <typename T, typename D> struct gemm_decoder {
  static constexpr uint32_t CHUNKS = 2 * D::P_ROWS / GEMM_DECODERS; /* of 32 codes of a stage that a thread has */

  const gemm_block<D> &at;
  gemm_scales<D> &scales;
  uint32_t row, part, stage = 0, parity = 1, number = 0, in_slot = 0;
  uint32_t written = 0; /* the barrier of a stage that is not yet said to be full, or 0 */
  gemm_slot<D> from = {0, 0};
  uint4 codes[CHUNKS];
  uint32_t four_scales;

  DEVICE gemm_decoder(const gemm_block<D> &at, gemm_scales<D> &scales) : at(at), scales(scales) {
    const uint32_t thread = threadIdx.x % GEMM_DECODERS;
    row = thread % D::P_ROWS, part = thread / D::P_ROWS;
  }

  DEVICE void fill_stage() {
    if (!written) return;
    writes_reach_products();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(written);
    written = 0;
  }
  DEVICE void next_stage() {
    written = at.full + 8 * stage;
    if (++stage == D::STAGES) stage = 0, parity ^= 1;
  }

  /* In a slot every other pair of rows takes its chunks in the other order, against conflicts of banks. */
  DEVICE uint32_t chunk_of(uint32_t i) const { return (part + i) ^ (row >> 1 & 1); }

  /* The next 64 of k, from a new slot or the second half of one. */
  DEVICE void load() {
    if (in_slot == 0) {
      fill_stage();
      barrier_wait(at.slot_full + 8 * from.slot, from.parity);
    }
    cp_async_wait<D::SCALES_AHEAD - 2>();
    four_scales = load_word(scales.word(number++));
    const uint32_t codes_at = at.slots + from.slot * D::SLOT_BYTES + row * GEMM_CODE_BYTES + in_slot * 32;
    unrolled_for (uint32_t i = 0; i < CHUNKS; i++) codes[i] = load_four_words(codes_at + 16 * chunk_of(i));
    scales.copy();
  }

  /* All codes of a slot's half are in registers, and with `is_last` the second half is not used. */
  DEVICE void leave_slot(bool is_last) {
    if (++in_slot < GEMM_SLOT_STEPS && !is_last) return;
    in_slot = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(at.slot_empty + 8 * from.slot);
    from.next();
  }

  /* A stage has rows of 128 bytes, of which the eight chunks are exchanged, as tensor copies do. */
  DEVICE void decode_stage() {
    uint32_t pairs[CHUNKS][4][4];
    unrolled_for (uint32_t i = 0; i < CHUNKS; i++) {
      const uint32_t words[] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
      const uint32_t halves = gemm_two_scales(four_scales >> 16 * chunk_of(i));
      unrolled_for (uint32_t j = 0; j < 4; j++)
        decode_eight<T>(words[j], gemm_code<T>::scale(halves, j / 2), pairs[i][j]);
    }
    fill_stage();
    barrier_wait(at.empty + 8 * stage, parity);
    const uint32_t to = at.stages + stage * D::STAGE_BYTES + row * 128;
    unrolled_for (uint32_t i = 0; i < CHUNKS; i++)
      unrolled_for (uint32_t j = 0; j < 4; j++)
        store_four_words(to + (((4 * chunk_of(i) + j) ^ (row & 7)) << 4),
                         make_uint4(pairs[i][j][0], pairs[i][j][1], pairs[i][j][2], pairs[i][j][3]));
    next_stage();
  }

  DEVICE void decode_all() {
    if (at.tiles && at.steps) load();
    rolled_for (uint32_t turn = 0; turn < at.tiles; turn++) {
      rolled_for (uint32_t step = 1; step <= at.steps; step++) {
        decode_stage();
        leave_slot(step == at.steps);
        if (step < at.steps || turn + 1 < at.tiles) load();
      }
      rolled_for (uint32_t i = at.steps; i < at.fills; i++) { /* stages of the residual */
        fill_stage();
        barrier_wait(at.empty + 8 * stage, parity);
        next_stage();
      }
    }
    fill_stage();
    cp_async_wait<0>();
  }
};

template <typename D> DEVICE void decode(const gemm_wgmma_parameters &p, const void *shared) {
  const gemm_block<D> at(p, shared);
  gemm_scales<D> scales(p, at);
  if (p.weights_early) scales.copy_ahead();
  only_wait_for_predecessors();
  if (!p.weights_early) scales.copy_ahead();
  if (p.is_bf16)
    gemm_decoder<__nv_bfloat16, D>(at, scales).decode_all();
  else
    gemm_decoder<__half, D>(at, scales).decode_all();
}

} // namespace
