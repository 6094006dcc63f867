/* attention_rows_as_tokens.cuh - attention of tokens of one sequence with the bits that each has alone, for
 * attention_several_tokens.cu.
 *
 * A block attends for one token, but adds in the order of attention_block.cu's blocks and warps: a warp takes the share
 * of one of them after the other, and results of shares are joined as there. It sees the new rows of the tokens before
 * its own as they come from the first product, since the cache does not have them yet. */
#pragma once

#include "attention_block_attend.cuh"
#include "attention_block_numbers.cuh"
#include "attention_several_tokens.h"

/* A warp's place in its order of tiles: `share` is a warp of attention_block.cu, whose tiles are as far apart as there
 * are shares. After the last tile come numbers beyond all tiles. */
struct tile_of_share {
  uint32_t share, tile;

  DEVICE explicit tile_of_share(uint32_t warp) : share(warp), tile(warp) {}
  DEVICE void next(uint32_t warps, uint32_t tiles) {
    tile += ATTENTION_BLOCK_SHARES;
    if (tile < tiles) return;
    share += warps;
    tile = share < ATTENTION_BLOCK_SHARES ? share : ~0u / 2;
  }
};

/* Requests the tile, if there is one, and moves on. */
template <bool Early, typename Size>
DEVICE void ask_tile_of_share(const tile_ring<Size> &tiles, tile_of_share &at, uint32_t capacity, uint32_t count,
                              uint32_t stage) {
  if (at.tile < count) tiles.template ask<Early>(capacity, at.tile * LAYER_HALF_TILE, stage);
  cp_async_commit();
  at.next(Size::warps, count);
}

/* Where shared memory has a new row of K, and of V after it. */
DEVICE uint32_t new_row_at(uint32_t new_rows, uint32_t token, uint32_t pitch) { return new_rows + 2 * token * pitch; }

/* Four words of two pairs each, of four lanes, as a head's numbers in two packets of sixteen bytes; and the distance
 * of the second. */
struct head_packets {
  uint4 first, second;
  uint32_t at, distance;

  DEVICE head_packets(bool halves, uint32_t dimension, uint32_t first_pair, uint2 words) {
    uint32_t x[4], y[4];
    unrolled_for (uint32_t i = 0; i < 4; i++)
      x[i] = __shfl_sync(0xffffffffu, words.x, i, 4), y[i] = __shfl_sync(0xffffffffu, words.y, i, 4);
    first = halves ? uint4{x[0], x[1], x[2], x[3]} : uint4{x[0], y[0], x[1], y[1]};
    second = halves ? uint4{y[0], y[1], y[2], y[3]} : uint4{x[2], y[2], x[3], y[3]};
    at = first_pair * (halves ? 2 : 4), distance = halves ? dimension : 16;
  }
  DEVICE void send(uint32_t to, uint32_t barrier) const {
    send_four_words(to + at, first, barrier);
    send_four_words(to + at + distance, second, barrier);
  }
};

/* Eight pairs of a token's head, of which four lanes have two each: q to the token's block; k and v to those of all
 * tokens that see it. */
template <typename Size>
DEVICE void send_to_later_tokens(const attention_block_parameters &p, const kv_head_place &b, uint32_t tokens,
                                 uint32_t token, uint32_t head, uint32_t first_pair, uint2 words) {
  const head_packets packets(p.rope_is_halves, Size::dimension, first_pair, words);
  const uint32_t group = Size::group(p);
  const uint32_t to = b.shared + (head < group ? ATTENTION_BLOCK_NUMBERS + head * Size::numbers_pitch
                                               : new_row_at(p.new_rows, token, Size::numbers_pitch) +
                                                     (head - group) * Size::numbers_pitch);
  unrolled_for (uint32_t i = 0; i < Size::cluster; i += 4) {
    const uint32_t block = i + b.t;
    if (head < group ? block == token && token < tokens : block >= token && block < tokens)
      packets.send(address_in_block(to, block), address_in_block(b.numbers_barrier(), block));
  }
}

/* The new rows of the tokens up to the block's own into a tile that has come, and its own into the cache. A half of
 * the warp has a row. */
template <typename Size>
DEVICE void place_new_rows(const attention_block_parameters &p, const kv_head_place &b, const tile_ring<Size> &tiles,
                           int32_t position, uint32_t first, uint32_t to) {
  using tile = typename Size::tile;
  static_assert(2 * tile::chunks == 16, "half of a warp");
  const uint32_t is_v = b.lane / tile::chunks % 2, chunk = b.lane % tile::chunks;
  rolled_for (uint32_t token = b.lane / 16; token <= b.rank; token += 2) {
    const uint32_t row = (uint32_t)(position + (int32_t)token), in_tile = row - first;
    if (in_tile >= LAYER_HALF_TILE || row >= p.capacity) continue;
    const uint4 numbers = load_shared_words_four(b.shared + new_row_at(p.new_rows, token, Size::numbers_pitch) +
                                                 is_v * Size::numbers_pitch + chunk * 16);
    store_four_words(to + is_v * tile::tile_bytes + in_tile * tile::row_bytes + ((chunk ^ in_tile % 8) << 4), numbers);
    const unsigned char *at = is_v ? tiles.v + (uint64_t)row * tiles.v_row : tiles.k + (uint64_t)row * tiles.k_row;
    if (token == b.rank) *reinterpret_cast<uint4 *>(const_cast<unsigned char *>(at)) = numbers;
  }
  __syncwarp();
}

/* Results of shares: [share][head][pitch] numbers, then [share][head] maximum and sum. */
template <typename Size> struct share_results {
  uint32_t numbers, step, stats, stats_step;

  DEVICE share_results(const attention_block_parameters &p, const kv_head_place &b) {
    step = Size::group(p) * Size::tile::pitch * 4, stats_step = Size::group(p) * 8;
    numbers = b.shared + p.shares, stats = numbers + ATTENTION_BLOCK_SHARES * step;
  }
};

/* All shares of the warp. `asked` is the first tile that is not requested; `position` that of the first token. */
template <typename Size>
DEVICE void attend_shares(const attention_block_parameters &p, const kv_head_place &b, const tile_ring<Size> &tiles,
                          tile_of_share asked, uint32_t length, int32_t position) {
  using tile = typename Size::tile;
  const share_results<Size> results(p, b);
  const uint32_t count = tile_count(length);
  partial<tile> all;
  query_fragments<tile> q;
  load_query<Size>(p, b, q);
  const tile_operands<Size> from(b, tiles.ring);
  uint32_t stage = 0;
  tile_of_share now(b.warp);
  while (now.tile < count) {
    const uint32_t first = now.tile * LAYER_HALF_TILE, share = now.share;
    cp_async_wait<Size::stages - 1>();
    __syncwarp();
    if ((int32_t)(first + LAYER_HALF_TILE) > position)
      place_new_rows<Size>(p, b, tiles, position, first, tiles.ring + stage);
    if (now.tile == share) all.clear();
    attend_tile<Size>(b, p.scale_log2, q, from.key + stage, from.value + stage, length - first, all);
    __syncwarp();
    ask_tile_of_share<false>(tiles, asked, p.capacity, count, stage);
    stage = Size::stage_behind(stage, b.warp);
    now.next(Size::warps, count);
    if (now.share == share) continue;
    all.sum_up();
    lay_out<Size>(p, b, results.numbers + share * results.step, all,
                  [&](uint32_t head) { return results.stats + share * results.stats_step + head * 8; });
  }
}

/* The results of shares, joined as the warps of each block of attention_block.cu are, and then as its blocks are; and
 * the token's vector for the second product to all blocks. */
template <typename Size>
DEVICE void send_result_of_shares(const attention_block_parameters &p, const kv_head_place &b, uint32_t length) {
  using alone = block_sizes<Size::weights, Size::dimension>; /* the sizes of attention_block.cu */
  constexpr uint32_t fours = Size::dimension / 4, of_row = Size::dimension / 16;
  const share_results<Size> results(p, b);
  const uint32_t group = Size::group(p), step = group * Size::dimension * 4,
                 joined_stats = b.shared + p.received + Size::cluster * step;
  rolled_for (uint32_t i = threadIdx.x; i < Size::cluster * group * fours; i += Size::threads) {
    const uint32_t block = i / (group * fours), head = i / fours % group, four = i % fours;
    const joined all = join_warps<alone::attending>(
        results.stats + block * results.stats_step + head * 8, Size::cluster * results.stats_step,
        results.numbers + block * results.step + (head * Size::tile::pitch + four * 4) * 4,
        Size::cluster * results.step, active_warps<alone>(length, block));
    store_four_words(b.shared + p.received + i * 16, {__float_as_uint(all.o.x), __float_as_uint(all.o.y),
                                                      __float_as_uint(all.o.z), __float_as_uint(all.o.w)});
    if (four == 0) store_two_numbers(joined_stats + (block * group + head) * 8, {all.most, all.sum});
  }
  __syncthreads();
  rolled_for (uint32_t unit = b.warp; unit < group * of_row; unit += Size::warps) {
    const uint32_t head = unit / of_row, column = head * Size::dimension + unit % of_row * 16, half = b.lane / 16;
    const float o =
        join_blocks<Size>(joined_stats + (half * group + head) * 8,
                          b.shared + p.received + half * step + (column + b.lane % 16) * 4, step, group * 16);
    float four[4];
    unrolled_for (uint32_t i = 0; i < 4; i++) four[i] = __shfl_sync(0xffffffffu, o, i, 4);
    const uint32_t block = half * 4 + b.t;
    const uint32_t to = b.shared + p.activations + b.rank * p.pitch + (column + b.lane % 16 / 4 * 4) * 4;
    send_four_words(address_in_block(to, block), numbers_and_rest({four[0], four[1]}, {four[2], four[3]}),
                    address_in_block(b.partials_barrier(), block));
  }
}
