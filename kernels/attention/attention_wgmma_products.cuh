/* attention_wgmma_products.cuh - what a computing warpgroup of attention_wgmma.cu or attention_wgmma_e4m3.cu has in its
 * registers, its products, and its masks. `Size` is the kernel's tiling. */
#pragma once

#include "../common/send.cuh"
#include "../common/wgmma.cuh"
#include "attention_wgmma_copies.cuh"
#include "attention_wgmma_softmax.cuh"

/* The slots of K or of V, for the warpgroup that reads them. */
template <typename Size, int Bytes> struct ring_reader {
  uint32_t full, empty;
  uint64_t first; /* the first slot's descriptor */
  uint32_t rank;
  bool leads;         /* the thread is the one of its warp that arrives */
  uint32_t taken = 0; /* slot and parity are bits of it */

  DEVICE uint32_t slot() const { return taken & (Size::kv_slots - 1); }
  DEVICE void wait() const { barrier_wait(full + 8 * slot(), taken / Size::kv_slots & 1); }
  DEVICE uint64_t descriptor() const { return operand_further(first, slot() * Bytes); }
  DEVICE void release() {
    const uint32_t barrier = empty + 8 * slot();
    if (leads) {
      barrier_arrive(barrier);
      if constexpr (Size::shares_copies) barrier_arrive_there(address_in_block(barrier, rank ^ 1));
    }
    taken++;
  }
};

/* This warpgroup's 64 rows of a query tile. */
template <typename Size> struct query_ring {
  uint32_t full, empty, tiles;
  uint64_t first;
  bool leads;
  uint32_t taken = 0;

  DEVICE uint32_t slot() const { return taken & (Size::query_slots - 1); }
  /* Waits for the next query tile; false after the last. The thread that arrives at the empty barrier reads it. */
  DEVICE bool wait(query_tile &tile) {
    barrier_wait(full + 8 * Size::warpgroups * slot(), taken / Size::query_slots & 1);
    const uint32_t from = tiles + 32 * Size::warpgroups * slot();
    uint4 words = make_uint4(0, 0, 0, 0);
    uint32_t number = 0;
    if (leads) {
      words = load_four_words(from);
      number = load_word(from + 16);
    }
    tile.batch = __shfl_sync(0xffffffffu, words.x, 0);
    tile.head = __shfl_sync(0xffffffffu, words.y, 0);
    tile.row_begin = (int)__shfl_sync(0xffffffffu, words.z, 0);
    tile.length = (int)__shfl_sync(0xffffffffu, words.w, 0);
    tile.number = __shfl_sync(0xffffffffu, number, 0);
    if (tile.batch != NO_TILE) return true;
    release();
    return false;
  }
  DEVICE uint64_t descriptor() const {
    return operand_layout | uniform((uint32_t)first + slot() * (Size::warpgroups * Size::query_bytes / 16));
  }
  DEVICE void release() {
    if (leads) barrier_arrive(empty + 8 * Size::warpgroups * slot());
    taken++;
  }
};

template <typename Size> struct warpgroup_products {
  const attention_wgmma_parameters &p;
  const shared_layout<Size> &at;
  const uint32_t warpgroup, rank;
  const int first_row; /* of this thread, in a query tile; its second row is eight below */
  ring_reader<Size, Size::kv_bytes> keys;
  ring_reader<Size, Size::value_bytes> values;
  query_ring<Size> query;

  /* In the layouts of wgmma.cuh: scores, which become weights; the output; the weights as operand A. */
  float s[Size::tile / 2], o[Size::output / 2];
  uint32_t weights[Size::weight_words];
  softmax_rows rows;
  bool wide;              /* the scores of this thread's rows lie far apart */
  uint32_t exchanges = 0; /* with the cluster's other block */

  DEVICE warpgroup_products(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t warpgroup,
                            uint32_t rank)
      : p(p), at(at), warpgroup(warpgroup), rank(rank),
        first_row((int)(warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4)),
        keys{at.key_full, at.key_empty, operand_descriptor(at.key, 16), rank, threadIdx.x % 32 == 0},
        values{at.value_full, at.value_empty, operand_descriptor(at.value, Size::value_panel_bytes), rank,
               threadIdx.x % 32 == 0},
        query{at.query_full + 8 * warpgroup, at.query_empty + 8 * warpgroup, at.tile + 32 * warpgroup,
              operand_descriptor(at.query + warpgroup * Size::query_bytes, 16), threadIdx.x % 32 == 0} {}

  /* ---- Products ---- */

  /* Turns at the tensor cores. */
  DEVICE void take_turn() const { warps_meet(TURN_BARRIER + warpgroup, 256); }
  DEVICE void pass_turn() const {
    warps_arrive(TURN_BARRIER + (warpgroup + 1 == Size::warpgroups ? 0 : warpgroup + 1), 256);
  }

  /* Begins S = Q K^T. A product reduces 32 bytes of each row. */
  DEVICE void begin_score() {
    const uint64_t q = query.descriptor(), k = keys.descriptor();
    pin(s);
    wgmma_fence();
    unroll<Size::row_bytes / 32>([&](int i) {
      Size::template product<Size::tile>::shared(s, operand_further(q, i / 4 * 64 * 128 + i % 4 * 32),
                                                 operand_further(k, i / 4 * Size::tile * 128 + i % 4 * 32), i != 0);
    });
    wgmma_commit();
  }

  /* Begins O += P V. */
  DEVICE void begin_accumulate() {
    const uint64_t v = values.descriptor();
    pin(o);
    pin(weights);
    wgmma_fence();
    unroll<Size::weight_words / 4>([&](int i) {
      Size::template product<Size::output>::registers(o, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                                      weights[4 * i + 3],
                                                      operand_further(v, i * Size::value_step_bytes));
    });
    wgmma_commit();
  }
  DEVICE void end_accumulate() {
    wgmma_wait<0>();
    pin(o);
    pin(weights);
    values.release();
  }

  /* The score of the next KV tile beside the sums of the tile before; ends with the score. Returns is_noted() if asked.
   */
  template <bool Asks = false> DEVICE bool score_beside_accumulate() {
    keys.wait();
    if constexpr (Size::is_e4m3) pin(weights);
    take_turn();
    begin_score();
    values.wait();
    begin_accumulate();
    pass_turn();
    bool noted = false;
    if constexpr (Asks) noted = is_noted();
    wgmma_wait<1>();
    end_score();
    return noted;
  }
  DEVICE void score_alone() {
    keys.wait();
    begin_score();
    wgmma_wait<0>();
    end_score();
  }
  DEVICE void end_score() {
    pin(s);
    keys.release();
    if constexpr (Size::general)
      if (p.cap_scale != 0.0f) cap(s, p.cap_scale);
  }

  /* ---- Votes ---- */

  /* Warps decide together whether scores of the last tile whose maximum was taken lie far apart, since all warps of a
   * warpgroup take part in a product. Under the causal mask, and in e4m3, they vote. Without a mask a thread notes it
   * in shared memory, and all read it after their next turn, where they have met: a vote would cost 3 % at 512
   * positions. There are two words, since the fastest warp may be a tile further than the slowest. */
  DEVICE bool any_of_warpgroup(bool here) const { return warpgroup_any(WIDE_BARRIER + warpgroup, here); }
  DEVICE uint32_t note() const { return at.wide + 8 * warpgroup + keys.taken % 2 * 4; }
  DEVICE bool is_noted() const { return uniform(load_word(note())) == keys.taken; }

  /* ---- Masks ---- */

  /* Is there a row of the warpgroup that does not see the end of KV tile j or, under the causal mask, nothing after it?
   */
  DEVICE bool needs_mask(const query_tile &tile, int j) const {
    if constexpr (Size::general)
      if (tile.row_begin + (int)warpgroup * 64 + 64 > end_of<Size>(p, tile)) return true;
    return kv_begin_of<Size>(p, tile) + (j + 1) * Size::tile + (Size::causal ? 0 : -1) >=
           limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64);
  }
  /* limit_of a row of this item; rows of others see nothing. */
  DEVICE int seen_by(const query_tile &tile, int row) const {
    const int limit = limit_of<Size>(p, tile, row);
    return Size::general && row >= end_of<Size>(p, tile) ? -Size::tile : limit;
  }
  DEVICE void mask_tile(const query_tile &tile, int j) {
    const int column = kv_begin_of<Size>(p, tile) + j * Size::tile + (int)threadIdx.x % 4 * 2,
              row = tile.row_begin + first_row;
    mask(s, seen_by(tile, row) - column, seen_by(tile, row + 8) - column);
    if constexpr (Size::general)
      if (j < edge_end(tile)) mask_edge(tile, j);
  }
  /* The first KV tile whose beginning all rows of the warpgroup see. */
  DEVICE int edge_end(const query_tile &tile) const {
    const int begin =
        begin_of<Size>(p, tile, min(tile.row_begin + (int)warpgroup * 64 + 64, end_of<Size>(p, tile)) - 1);
    return Size::general ? (begin - kv_begin_of<Size>(p, tile) + Size::tile - 1) / Size::tile : 0;
  }
  DEVICE void mask_edge(const query_tile &tile, int j) {
    const int column = kv_begin_of<Size>(p, tile) + j * Size::tile + (int)threadIdx.x % 4 * 2,
              row = tile.row_begin + first_row;
    mask_before(s, begin_of<Size>(p, tile, row) - column, begin_of<Size>(p, tile, row + 8) - column);
  }

  /* ---- Parts ---- */

  /* 0 * infinity would be NaN: a row that sees an infinity of V gets it, however small its weight is. */
  static DEVICE float scaled(float value, float factor) { return isinf(value) ? value : value * factor; }

  /* After this, the first half of o has the columns that this block stores, and `mine` is of all KV tiles. Two blocks
   * send each other what they have of the other's columns. There are two places for packets of the other block, in
   * turn: it sends again only after the packet before has arrived, so after this block has read the one before that. */
  DEVICE void merge(const query_tile &tile, softmax_rows &mine) {
    if constexpr (Size::parts > 1) {
      constexpr int kept = Size::output / 4;
      float sent[kept];
      unroll<kept>([&](int i) {
        sent[i] = rank ? o[i] : o[kept + i];
        o[i] = rank ? o[kept + i] : o[i];
      });
      if (kv_tiles_of<Size>(p, tile) == 1) return;
      const uint32_t place = exchanges % 2 * Size::warpgroups + warpgroup, barrier = at.exchanged + 8 * place;
      const uint32_t packet = at.exchange + place * Size::exchange_bytes + threadIdx.x % 128 * 16;
      const uint32_t to = address_in_block(packet, rank ^ 1), there = address_in_block(barrier, rank ^ 1);
      if (threadIdx.x % 128 == 0) barrier_expect(barrier, Size::exchange_bytes);
      unroll<kept / 4>([&](int i) {
        send_four(to + i * 2048, make_float4(sent[4 * i], sent[4 * i + 1], sent[4 * i + 2], sent[4 * i + 3]), there);
      });
      send_four(to + kept / 4 * 2048, make_float4(mine.reference[0], mine.reference[1], mine.sum[0], mine.sum[1]),
                there);
      barrier_wait_cluster(barrier, exchanges++ / 2 & 1);
      const float4 rows = load_shared_four(packet + kept / 4 * 2048);
      const float reference[2] = {rows.x, rows.y}, sum[2] = {rows.z, rows.w};
      float own_factor[2], factor[2];
      unroll<2>([&](int half) {
        const float highest = fmaxf(mine.reference[half], reference[half]), against = against_of(highest);
        own_factor[half] = exp2_approximate(mine.reference[half] - against);
        factor[half] = exp2_approximate(reference[half] - against);
        mine.reference[half] = highest;
        /* The same in both blocks. */
        mine.sum[half] = __fadd_rn(__fmul_rn(mine.sum[half], own_factor[half]), __fmul_rn(sum[half], factor[half]));
      });
      unroll<kept / 4>([&](int i) {
        const float4 four = load_shared_four(packet + i * 2048);
        const float other[4] = {four.x, four.y, four.z, four.w};
        unroll<4>(
            [&](int k) { o[4 * i + k] = scaled(o[4 * i + k], own_factor[k / 2]) + scaled(other[k], factor[k / 2]); });
      });
    }
  }

  /* ---- Results ---- */

  DEVICE int rows_end(const query_tile &tile) const { return min(p.query_length, end_of<Size>(p, tile)); }
  /* Stores one of the thread's rows of O. `pack` makes a word of two numbers, given their index in o. */
  template <int Half, typename Pack> DEVICE void store_output(const query_tile &tile, Pack pack) const {
    const int row = tile.row_begin + first_row + 8 * Half;
    const bool there = row < rows_end(tile);
    const uint32_t lane = threadIdx.x % 4;
    uint16_t *to = static_cast<uint16_t *>(p.o) + tile.batch * p.o_stride.batch + tile.head * p.o_stride.head +
                   row * p.o_stride.position;
    const uint32_t begin = Size::parts > 1 ? rank * (Size::dimension / 8 / Size::parts) : 0;
    unrolled_for (int g = 0; g < Size::dimension / 8 / Size::parts; g += 4) {
      uint32_t word[4];
      unroll<4>([&](int j) { word[j] = pack(4 * (g + j) + 2 * Half); });
      transpose(word);
      const uint32_t eight = begin + g + lane;
      const bool in_head = Size::dimension > ATTENTION_WGMMA_LEAST_DIMENSION || 8 * (int)eight < p.head_dimension;
      if (there && in_head) *reinterpret_cast<uint4 *>(to + 8 * eight) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
  template <int Half> DEVICE void store_lse(const query_tile &tile, float reference, float sum) const {
    const int row = tile.row_begin + first_row + 8 * Half;
    if (row < rows_end(tile) && threadIdx.x % 4 == 0 && p.lse)
      p.lse[tile.batch * p.lse_batch_stride + tile.head * p.lse_head_stride + row] =
          sum == 0.0f ? -INFINITY : (reference + __log2f(sum)) * 0.693147181f;
  }
  DEVICE bool sees_some(const query_tile &tile, int half) const {
    return seen_by(tile, tile.row_begin + first_row + 8 * half) > 0;
  }
};
