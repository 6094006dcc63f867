/* attention_several_tokens_rows.cuh - for attention_several_tokens.cu: a block's tokens, and the way of their rows of x
 * to all blocks of the cluster. */
#pragma once

#include "attention_block_attend.cuh"
#include "attention_block_numbers.cuh"
#include "attention_several_tokens.h"

template <rondo_dtype Weights, bool AsTokens, uint32_t Own> struct row_sizes : block_sizes<Weights, 64> {
  using base = block_sizes<Weights, 64>;
  static constexpr bool as_tokens = AsTokens, alike = AsTokens; /* as_tokens: of one sequence */
  static constexpr uint32_t own = Own;                          /* tokens of a block: one, or a pair */
  static constexpr uint32_t tokens = Own * LAYER_HALF_CLUSTER, sharing = 1, attending = base::warps / Own;
  static constexpr uint32_t row_step = attending * LAYER_HALF_TILE;
  static constexpr uint32_t stages =
                                AsTokens ? ATTENTION_SEVERAL_TOKENS_STAGES_OF_ONE : ATTENTION_SEVERAL_TOKENS_STAGES,
                            ring_bytes = stages * base::stage_bytes;
  static DEVICE uint32_t stage_behind(uint32_t stage, uint32_t /* warp */) {
    return (stage + base::stage_bytes) % ring_bytes;
  }
  static DEVICE uint32_t place_of_warp(uint32_t warp) { return Own == 1 ? warp : warp % attending; }
  /* Which of the block's tokens the warp attends for. */
  static DEVICE uint32_t own_of_warp(uint32_t warp) { return Own == 1 ? 0 : warp / attending; }
  /* Bytes of a token's numbers of q, k and v; where those of the warp's token are. */
  static DEVICE uint32_t numbers_bytes(typename base::told p) { return (p.group + 2) * base::numbers_pitch; }
  template <typename Place> static DEVICE uint32_t numbers(typename base::told p, const Place &b) {
    return base::numbers(p, b) + own_of_warp(b.warp) * numbers_bytes(p);
  }
  /* Tiles of a warp that are complete in the cache when it requests them. */
  static constexpr uint32_t fetched = 2;
};

/* A block's token, and those of its cluster. */
struct row_place : kv_head_place {
  uint32_t first_token, tokens; /* of the cluster */
  bool has_token, has_second;   /* the block's own: token `rank` of the cluster, and of a pair rank + 8 */

  DEVICE row_place(const attention_block_parameters &p, uint32_t memory, uint32_t of_cluster)
      : kv_head_place(memory, p.splits) {
    first_token = (part - kv_head * p.splits) * of_cluster;
    tokens = min(p.half.rows - first_token, of_cluster);
    has_token = rank < tokens, has_second = rank + LAYER_HALF_CLUSTER < tokens, keeps_row = true;
  }
  /* Blocks with tokens. */
  DEVICE uint32_t busy() const { return min(tokens, (uint32_t)LAYER_HALF_CLUSTER); }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Four columns of the block's token, made by two lanes. Each adds half of the parts and sends to half of the blocks. Of
 * a pair of tokens each lane has one, with all of its parts. All addresses are computed before the wait. The last warps
 * begin, each with 64 columns: hidden is a multiple of 64. */
template <typename Size> struct row_gatherer {
  static constexpr bool pairs = Size::own == 2;
  static constexpr uint32_t of_warp = 16, of_block = of_warp * Size::warps, lanes = pairs ? 1 : 2; /* of a token */
  static constexpr uint32_t at_once = pairs ? 6 : 4;
  const unsigned char *x, *parts;
  uint32_t first, half, norm, to, square;
  uint32_t there[Size::cluster / 2], part_step;

  DEVICE row_gatherer(const attention_block_parameters &p, const row_place &b) {
    const uint32_t of_warps = Size::warps - 1 - b.warp, part_bytes = p.half.rows * p.hidden * 4;
    first = of_warps * of_warp + b.lane / 2, half = b.lane % 2;
    const uint32_t i = (b.first_token + own_token(b)) * (p.hidden / 4) + first;
    x = reinterpret_cast<const unsigned char *>(p.half.x) + (uint64_t)i * 16;
    parts = reinterpret_cast<const unsigned char *>(p.half.x_parts) + (uint64_t)i * 16 + (uint64_t)share() * part_bytes;
    part_step = lanes * part_bytes, norm = b.shared + p.norm_copy + first * 8;
    to = p.activations + b.rank * p.pitch + first * 16;
    square = p.squares + (own_token(b) * ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden) + of_warps) * 4;
    unrolled_for (uint32_t j = 0; j < Size::cluster / 2; j++)
      there[j] = address_in_block(b.shared, 2 * j + half), keep(there[j]);
    keep(x), keep(parts), keep(part_step), keep(norm), keep(to), keep(square);
  }

  /* The lane's token, in the cluster; of a pair that is not whole, the first one again. */
  DEVICE uint32_t own_token(const row_place &b) const { return b.rank + (has_second(b) ? LAYER_HALF_CLUSTER : 0); }
  DEVICE bool has_second(const row_place &b) const { return pairs && half && b.has_second; }
  /* The first of the lane's parts. */
  DEVICE uint32_t share() const { return pairs ? 0 : half; }

  DEVICE void ask_norm(const attention_block_parameters &p) const {
    if (!p.half.norm || half) return;
    for (uint32_t four = first; four < p.hidden / 4; four += of_block)
      copy_early<8>(norm + (four - first) * 8, static_cast<const uint2 *>(p.half.norm) + four);
  }

  /* x and its parts: a lane has the even parts, or the odd ones, or all. */
  DEVICE float4 sum_parts(const attention_block_parameters &p, uint32_t skipped) const {
    const float4 four = *reinterpret_cast<const float4 *>(x + skipped * 16);
    const unsigned char *from = parts + skipped * 16;
    float4 sum = {};
    rolled_for (uint32_t base = share(); base == share() || base < p.half.part_count; base += lanes * at_once) {
      float4 part[at_once];
      unrolled_for (uint32_t j = 0; j < at_once; j++, from += part_step)
        part[j] = base + lanes * j < p.half.part_count ? *reinterpret_cast<const float4 *>(from)
                                                       : float4{-0.0f, -0.0f, -0.0f, -0.0f};
      if (base == share()) sum = share() ? float4{-0.0f, -0.0f, -0.0f, -0.0f} : four;
      unrolled_for (uint32_t j = 0; j < at_once; j++)
        sum.x += part[j].x, sum.y += part[j].y, sum.z += part[j].z, sum.w += part[j].w;
    }
    if (pairs) return sum;
    const auto both = [](float of_lane) { return of_lane + __shfl_xor_sync(0xffffffffu, of_lane, 1); };
    return {both(sum.x), both(sum.y), both(sum.z), both(sum.w)};
  }

  /* A packet of sixteen bytes: four numbers and what rounding left, or four numbers of each token of a pair. */
  DEVICE uint4 packet(float2 low, float2 high) const {
    if (!pairs) return numbers_and_rest(low, high);
    const uint2 mine = {pack(low.x, low.y), pack(high.x, high.y)};
    const uint2 other = {__shfl_xor_sync(0xffffffffu, mine.x, 1), __shfl_xor_sync(0xffffffffu, mine.y, 1)};
    return half ? uint4{other.x, other.y, mine.x, mine.y} : uint4{mine.x, mine.y, other.x, other.y};
  }

  /* Over the warp's lanes of a token. */
  static DEVICE float sum_lanes(float number) {
    unrolled_for (int distance = 16; distance >= (pairs ? 2 : 1); distance /= 2)
      number += __shfl_xor_sync(0xffffffffu, number, distance);
    return number;
  }

  /* The tokens' numbers to all blocks, and the sums of their squares. */
  DEVICE void gather(const attention_block_parameters &p, const row_place &b) const {
    const bool keeps = !half || has_second(b);
    rolled_for (uint32_t four = first; four < p.hidden / 4; four += of_block) {
      const uint32_t skipped = four - first;
      const float4 row = sum_parts(p, skipped);
      float2 low = {row.x, row.y}, high = {row.z, row.w};
      float squares = keeps ? sum_of_squares<Size::alike>(low) + sum_of_squares<Size::alike>(high) : 0.0f;
      if (p.half.norm) {
        const uint2 by = load_two_words(norm + skipped * 8);
        low = products<Size::alike>(low, two_numbers(by.x)), high = products<Size::alike>(high, two_numbers(by.y));
      }
      const uint4 words = packet(low, high);
      unroll<Size::cluster / 2>([&](uint32_t j) {
        send_four_words(there[j] + to + skipped * 16, words, there[j] + ATTENTION_SEVERAL_TOKENS_BARRIER);
      });
      if (b.kv_head == 0 && keeps)
        reinterpret_cast<float4 *>(p.half.out)[(b.first_token + own_token(b)) * (p.hidden / 4) + four] = row;
      squares = sum_lanes(squares);
      const uint32_t block = b.lane / Size::own;
      if (block < Size::cluster && (!pairs || keeps))
        send_word(address_in_block(b.shared + square + skipped / of_warp * 4, block), __float_as_uint(squares),
                  address_in_block(b.row_barrier(), block));
    }
  }
};

/* The sum of a token's squares. Of tokens of one sequence in the order of attention_block.cu, whose warps have twice as
 * many numbers. */
template <typename Size> DEVICE float sum_squares(const attention_block_parameters &p, uint32_t from) {
  const uint32_t count = ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden);
  float sum = 0, before = 0;
#pragma unroll 4
  for (uint32_t i = 0; i < count; i += 4) {
    const float4 four = load_shared_four(from + i * 4);
    const float next = (four.x + four.y) + (four.z + four.w);
    if (!Size::as_tokens)
      sum += next;
    else if (i % 8 == 0)
      before = next;
    if (Size::as_tokens && (i % 8 || i + 4 == count)) sum += i % 8 ? before + next : next;
  }
  return sum;
}

template <typename Size>
DEVICE float row_factor(const attention_block_parameters &p, const row_place &b, uint32_t token) {
  if (p.half.epsilon == 0.0f) return p.half.scale;
  const float sum = sum_squares<Size>(p, b.shared + p.squares + token * ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden) * 4);
  return rsqrtf(fmaf(sum, p.inverse_hidden, p.half.epsilon)) * p.half.scale;
}
