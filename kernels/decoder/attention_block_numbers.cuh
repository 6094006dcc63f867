/* attention_block_numbers.cuh - from the first product's sums to q, k and v, for attention_block.cu and
 * attention_block_wide.cu: a block's rows of the matrix, their rotation, and their way to all blocks. */
#pragma once

#include "../exchange/exchange_gather.cuh"
#include "../model/rope.cuh"
#include "attention_block_product.cuh"

/* Radians a position of the lane's pairs, lane + 32 i. If they follow from a base, they are computed before the wait.
 */
template <typename Size> struct lane_angles {
  float frequency[Size::dimension / 64];

  DEVICE lane_angles(const attention_block_parameters &p, bool has_table) {
    unrolled_for (int i = 0; i < Size::dimension / 64; i++) {
      frequency[i] = 0;
      if (has_table && !p.frequencies)
        frequency[i] = (float)exp2((double)(threadIdx.x % 32 + 32 * i) * p.frequency_step);
      keep_number(frequency[i]);
    }
  }
  static DEVICE float frequency_at(const float *from) {
    if constexpr (Size::has_ranks) return load_after_flag(from);
    return *from;
  }
  static DEVICE void keep_number(float &value) { asm volatile("" : "+f"(value)); }

  DEVICE void make_table(const attention_block_parameters &p, const kv_head_place &b, int32_t position) const {
    unrolled_for (int i = 0; i < Size::dimension / 64; i++) {
      const float radians = p.frequencies ? frequency_at(p.frequencies + b.lane + 32 * i) : frequency[i];
      const rotation by = rotation_of((float)position * radians);
      store_two_numbers(b.shared + ATTENTION_BLOCK_TABLE + (b.lane + 32 * i) * 8, {by.cosine, by.sine});
    }
  }
};

/* The rows of a pair are a rotary pair: their sums meet in one lane. */
template <typename Size> struct qkv_rows {
  uint32_t part, kv_head, heads, splits, group, halves;

  DEVICE weight_rows operator()(uint32_t tile, uint32_t pair) const {
    constexpr uint32_t of_head = Size::dimension / 16;
    const uint32_t head = tile / of_head, in_head = tile % of_head * 8 + pair;
    uint32_t row = (head < group ? part * group + head : heads * splits * group + (head - group) * heads + kv_head) *
                   Size::dimension;
    row += halves ? in_head : 2 * in_head;
    return {row, row + (halves ? Size::dimension / 2 : 1)};
  }
};

/* Of the output. */
struct output_rows {
  DEVICE weight_rows operator()(uint32_t tile, uint32_t pair) const {
    return {tile * LAYER_HALF_TILE + pair, tile * LAYER_HALF_TILE + pair + 8};
  }
};

/* Two pairs of a head's numbers, `sum` (see sum_cuts), rounded: two words as in shared memory. Those of q and k are
 * rotated by the cosines and sines at `table`. */
template <typename Size>
DEVICE uint2 rotate_and_round(const attention_block_parameters &p, uint32_t head, float4 sum, uint32_t table) {
  if (p.has_rope && head <= Size::group(p)) {
    const float4 by = load_shared_four(table);
    rotate_pair({by.y, by.x}, sum.x, sum.y);
    rotate_pair({by.w, by.z}, sum.z, sum.w);
  }
  return {p.rope_is_halves ? pack(sum.x, sum.z) : pack(sum.x, sum.y),
          p.rope_is_halves ? pack(sum.y, sum.w) : pack(sum.z, sum.w)};
}

/* These words to a block. */
template <typename Size>
DEVICE void send_pairs(const attention_block_parameters &p, const kv_head_place &b, uint32_t head, uint32_t pair,
                       uint2 words, uint32_t to_block, uint32_t further = 0) {
  const uint32_t there = address_in_block(b.shared, to_block), to = there + ATTENTION_BLOCK_NUMBERS + further +
                                                                    head * Size::numbers_pitch +
                                                                    pair * (p.rope_is_halves ? 2 : 4);
  send_word(to, words.x, there + ATTENTION_BLOCK_BARRIERS);
  send_word(to + (p.rope_is_halves ? Size::dimension : 4), words.y, there + ATTENTION_BLOCK_BARRIERS);
}

/* Sums of the first product, times `factor`, rotated and rounded, to all blocks. */
template <typename Size>
DEVICE void send_numbers(const attention_block_parameters &p, const kv_head_place &b, float factor) {
  constexpr uint32_t of_head = Size::dimension / 16;
  rolled_for (uint32_t i = threadIdx.x; i < Size::first(p).tiles * 4 * Size::cluster; i += Size::threads) {
    const uint32_t couple = i % 4, to_block = i / 4 % Size::cluster, mine = i / 4 / Size::cluster,
                   tile = mine * Size::cluster + b.rank;
    if (tile >= Size::first(p).all_tiles) continue;
    const uint32_t head = tile / of_head, pair = tile % of_head * 8 + couple * 2;
    const float4 sum = sum_cuts(b.shared + Size::cuts(p), Size::first(p), mine, couple, factor);
    const uint2 words = rotate_and_round<Size>(p, head, sum, b.shared + ATTENTION_BLOCK_TABLE + pair * 8);
    send_pairs<Size>(p, b, head, pair, words, to_block);
  }
}
