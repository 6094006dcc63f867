/* attention_block_attend.cuh - attention of one token over a block's share of the context, and the sum over a cluster's
 * blocks, for attention_block.cu and attention_block_wide.cu.
 *
 * Tiles of 16 KV rows are dealt to the blocks, then to a block's warps, which copy and attend them like those of
 * attention_decode.cu. */
#pragma once

#include "attention_block_shared.cuh"
#include "decoder_integers.cuh"

/* The warp's ring, and the addresses for the request of a tile. */
template <typename Size> struct tile_ring {
  const unsigned char *k, *v; /* the lane's chunk of the head's first row */
  uint32_t k_row, v_row;      /* bytes */
  uint32_t ring, in_tile, to;

  DEVICE tile_ring(const attention_block_parameters &p, const kv_head_place &b) {
    using tile = typename Size::tile;
    const uint32_t chunk = b.lane % tile::chunks;
    ring = b.shared + Size::ring(p) + b.warp * Size::ring_bytes;
    in_tile = b.lane / tile::chunks;
    k = (const unsigned char *)p.k + ((uint64_t)b.kv_head * p.k_head + chunk * 8) * 2;
    v = (const unsigned char *)p.v + ((uint64_t)b.kv_head * p.v_head + chunk * 8) * 2;
    k_row = p.k_position * 2, v_row = p.v_position * 2;
    to = ring + in_tile * tile::row_bytes + ((chunk ^ in_tile % 8) << 4);
    keep(k), keep(v), keep(to), keep(ring);
  }

  /* Past the cache's last row, that row again. Early: before the wait. */
  template <bool Early = false> DEVICE void ask(uint32_t capacity, uint32_t first, uint32_t stage) const {
    using tile = typename Size::tile;
    unrolled_for (uint32_t i = 0; i < LAYER_HALF_TILE; i += tile::rows_at_once) {
      const uint32_t row = min(first + in_tile + i, capacity - 1);
      const uint32_t at = ((to + stage) ^ (i % 8 << 4)) + i * tile::row_bytes;
      const unsigned char *from_k = k + (uint64_t)row * k_row, *from_v = v + (uint64_t)row * v_row;
      if constexpr (Early)
        copy_early_16(at, from_k), copy_early_16(at + tile::tile_bytes, from_v);
      else
        copy_16(at, from_k), copy_16(at + tile::tile_bytes, from_v);
    }
  }
};

/* The first KV row of a warp's first tile. */
template <typename Size> DEVICE uint32_t first_row_of(const kv_head_place &b) {
  return (Size::place_of_warp(b.warp) * Size::sharing + b.rank % Size::sharing) * LAYER_HALF_TILE;
}

/* The new row, into a tile that has come and into the cache, of which the lane has the chunk that it copies. */
template <typename Size>
DEVICE void place_new_row(const attention_block_parameters &p, const kv_head_place &b, const tile_ring<Size> &tiles,
                          uint32_t row, uint32_t to) {
  using tile = typename Size::tile;
  if (b.lane < 2 * tile::chunks) {
    const uint32_t is_v = b.lane / tile::chunks, chunk = b.lane % tile::chunks, in_tile = row % LAYER_HALF_TILE;
    const uint4 numbers =
        load_shared_words_four(Size::numbers(p, b) + (Size::group(p) + is_v) * Size::numbers_pitch + chunk * 16);
    store_four_words(to + is_v * tile::tile_bytes + in_tile * tile::row_bytes + ((chunk ^ in_tile % 8) << 4), numbers);
    const unsigned char *at = is_v ? tiles.v + (uint64_t)row * tiles.v_row : tiles.k + (uint64_t)row * tiles.k_row;
    if (b.keeps_row) *reinterpret_cast<uint4 *>(const_cast<unsigned char *>(at)) = numbers;
  }
  __syncwarp();
}

/* Past the group's last head, that head again. */
template <typename Size>
DEVICE void load_query(const attention_block_parameters &p, const kv_head_place &b,
                       query_fragments<typename Size::tile> &q) {
  const uint32_t head = min(b.lane % 8, Size::group(p) - 1),
                 from = Size::numbers(p, b) + head * Size::numbers_pitch + b.lane / 8 * 16;
  unroll<Size::dimension / 32>([&](int two) {
    uint32_t r[4];
    ldmatrix_x4(r, from + two * 64);
    q[0][2 * two][0] = r[0], q[0][2 * two][1] = r[1], q[0][2 * two + 1][0] = r[2], q[0][2 * two + 1][1] = r[3];
  });
}

/* A tile that has arrived, of which `count` rows count. */
template <typename Size>
DEVICE void attend_tile(const kv_head_place &b, float scale_log2, const query_fragments<typename Size::tile> &q,
                        uint32_t key, uint32_t value, uint32_t count, partial<typename Size::tile> &all) {
  using tile = typename Size::tile;
  score_fragments<tile> s = {}, odd = {};
  score<tile>(q, key, s, odd);
  unrolled_for (int i = 0; i < 4; i++)
    s[0][i] = b.g + i / 2 * 8 < count ? product<Size::alike>(s[0][i] + odd[0][i], scale_log2) : -INFINITY;
  move_reference<tile>(s, all);
  uint32_t weights[1][2];
  weigh<tile>(s, all, weights);
  const int after = (int)count - 2 * (int)b.t; /* the lane has KV rows 2 t + 0, 1, 8, 9 */
  const uint32_t low = first_of_two(after), high = first_of_two(after - 8);
  unroll<Size::dimension / 16>([&](int j) {
    value_fragments<tile> a;
    load_values<tile>(value, j, a);
    mma_16x8x16<__nv_bfloat16>(all.o[0][j], {a[0][0] & low, a[0][1] & low, a[0][2] & high, a[0][3] & high},
                               weights[0][0], weights[0][1]);
  });
}

/* A result: [head][pitch] numbers, and a head's maximum and sum at stats_of(head). */
template <typename Size, typename Stats>
DEVICE void lay_out(const attention_block_parameters &p, const kv_head_place &b, uint32_t numbers,
                    const partial<typename Size::tile> &all, const Stats &stats_of) {
  unrolled_for (int i = 0; i < 2; i++) {
    const uint32_t head = 2 * b.t + i;
    if (head >= Size::group(p)) continue;
    const uint32_t to = numbers + (head * Size::tile::pitch + b.g) * 4;
    unroll<Size::dimension / 16>([&](int j) {
      store_number(to + 16 * j * 4, all.o[0][j][i]);
      store_number(to + (16 * j + 8) * 4, all.o[0][j][i + 2]);
    });
    if (b.g == 0) store_two_numbers(stats_of(head), {all.most[0][i], all.sum[0][i]});
  }
}

/* Where a lane's operands of K and V are in the warp's first tile. */
template <typename Size> struct tile_operands {
  uint32_t key, value;

  DEVICE tile_operands(const kv_head_place &b, uint32_t ring) {
    using tile = typename Size::tile;
    const uint32_t permuted = b.lane % 8;
    key = ring + b.lane % 16 * tile::row_bytes + ((b.lane / 16 ^ permuted) << 4);
    value =
        ring + tile::tile_bytes + (b.lane % 8 + b.lane / 16 * 8) * tile::row_bytes + ((b.lane / 8 % 2 ^ permuted) << 4);
  }
};

/* The first tile has arrived, and all stages are requested. */
template <typename Size>
DEVICE void attend(const attention_block_parameters &p, const kv_head_place &b, const tile_ring<Size> &tiles,
                   uint32_t length, int32_t position) {
  using tile = typename Size::tile;
  partial<tile> all;
  all.clear();
  query_fragments<tile> q;
  load_query<Size>(p, b, q);
  const tile_operands<Size> from(b, tiles.ring);
  uint32_t stage = 0;
  rolled_for (uint32_t first = first_row_of<Size>(b); first < length; first += Size::row_step) {
    if (first != first_row_of<Size>(b)) cp_async_wait<Size::stages - 1>();
    __syncwarp();
    if ((uint32_t)position - first < LAYER_HALF_TILE && (uint32_t)position < p.capacity)
      place_new_row<Size>(p, b, tiles, (uint32_t)position, tiles.ring + stage);
    attend_tile<Size>(b, p.scale_log2, q, from.key + stage, from.value + stage, length - first, all);
    __syncwarp();
    const uint32_t next = first + Size::stages * Size::row_step;
    if (next < length) tiles.ask(p.capacity, next, stage);
    cp_async_commit();
    stage = Size::stage_behind(stage, b.warp);
  }
  all.sum_up();
  /* In place of the warp's first tile. */
  lay_out<Size>(p, b, tiles.ring, all, [&](uint32_t head) {
    return b.shared + ATTENTION_BLOCK_STATS + (b.warp * ATTENTION_BLOCK_MOST_GROUP + head) * 8;
  });
}

/* The numbers of a partial result that a thread joins, and the blocks that it sends them to: computed before the wait.
 */
template <typename Size> struct sender {
  uint32_t packed; /* one register: head, four of its numbers, first block, step */

  DEVICE explicit sender(const attention_block_parameters &p) {
    const uint32_t all = Size::group(p) * (Size::dimension / 4), of_block = threadIdx.x / all,
                   place = threadIdx.x % all;
    const uint32_t step = Size::threads / all, first_block = of_block < step ? of_block : Size::cluster;
    packed = place / (Size::dimension / 4) | place % (Size::dimension / 4) << 8 | first_block << 16 | step << 24;
    if (!Size::knows_sizes) keep(packed);
  }
  DEVICE uint32_t head() const { return packed & 255; }
  DEVICE uint32_t four() const { return packed >> 8 & 255; }
  DEVICE uint32_t first_block() const { return packed >> 16 & 255; }
  DEVICE uint32_t step() const { return packed >> 24; }
};

/* Of a head: what exponents are taken against, the sum of weights, and four numbers of O. */
struct joined {
  float most, sum;
  float4 o;
};

/* Four numbers of the results of the first `active` of up to `MostActive` warps, joined. `stats` and `numbers` are of
 * the first one. */
template <uint32_t MostActive>
DEVICE joined join_warps(uint32_t stats, uint32_t stats_step, uint32_t numbers, uint32_t numbers_step,
                         uint32_t active) {
  joined all = {lowest, 0.0f, {}};
  float4 &o = all.o;
  rolled_for (uint32_t base = 0; base < MostActive; base += 4) {
    if (base >= active) break;
    float2 s[4];
    float4 next[4];
    unrolled_for (uint32_t w = 0; w < 4; w++) {
      s[w] = {lowest, 0.0f}, next[w] = {};
      if (base + w < active)
        s[w] = load_shared_two(stats + (base + w) * stats_step),
        next[w] = load_shared_four(numbers + (base + w) * numbers_step);
    }
    const float before = all.most;
    all.most = fmaxf(fmaxf(fmaxf(s[0].x, s[1].x), fmaxf(s[2].x, s[3].x)), all.most);
    const float factor = exp2_approximate(before - all.most);
    all.sum *= factor, o.x *= factor, o.y *= factor, o.z *= factor, o.w *= factor;
    unrolled_for (uint32_t w = 0; w < 4; w++) {
      const float f = exp2_approximate(s[w].x - all.most);
      all.sum = fmaf(f, s[w].y, all.sum);
      o.x = fmaf(f, next[w].x, o.x), o.y = fmaf(f, next[w].y, o.y);
      o.z = fmaf(f, next[w].z, o.z), o.w = fmaf(f, next[w].w, o.w);
    }
  }
  return all;
}

DEVICE uint32_t tile_count(uint32_t length) { return (length + LAYER_HALF_TILE - 1) / LAYER_HALF_TILE; }

/* How many of `Size::attending` warps of block `rank` have a tile. */
template <typename Size> DEVICE uint32_t active_warps(uint32_t length, uint32_t rank) {
  return min((tile_count(length) + Size::sharing - 1 - rank % Size::sharing) / Size::sharing, Size::attending);
}

/* The warps' results, joined, to all blocks. */
template <typename Size>
DEVICE void send_partial(const attention_block_parameters &p, const kv_head_place &b, const sender<Size> &sender,
                         uint32_t length) {
  if (sender.first_block() >= Size::cluster) return;
  const joined mine = join_warps<Size::attending>(
      b.shared + ATTENTION_BLOCK_STATS + sender.head() * 8, ATTENTION_BLOCK_MOST_GROUP * 8,
      b.shared + Size::ring(p) + (sender.head() * Size::tile::pitch + sender.four() * 4) * 4, Size::ring_bytes,
      active_warps<Size>(length, b.rank));
  const uint32_t row = b.rank * Size::group(p) + sender.head(),
                 to = Size::received(p) + (row * Size::dimension + sender.four() * 4) * 4,
                 to_stats = Size::received(p) + (Size::cluster * Size::group(p) * Size::dimension + row * 2) * 4;
  rolled_for (uint32_t block = sender.first_block(); block < Size::cluster; block += sender.step()) {
    const uint32_t there = address_in_block(b.shared, block), barrier = there + (b.partials_barrier() - b.shared);
    send_four(there + to, mine.o, barrier);
    if (sender.four() == 0) send_two(there + to_stats, {mine.most, mine.sum}, barrier);
  }
}

/* A number of O, of the results of all blocks, joined: a lane joins every other one, beginning at `stats` and `from`,
 * and lane + 16 the others. */
template <typename Size> DEVICE float join_blocks(uint32_t stats, uint32_t from, uint32_t step, uint32_t stats_step) {
  float2 s[Size::cluster / 2];
  float next[Size::cluster / 2];
  unroll<Size::cluster / 2>([&](uint32_t i) {
    s[i] = load_shared_two(stats + i * stats_step);
    next[i] = load_number(from + 2 * i * step);
  });
  float most = fmaxf(fmaxf(s[0].x, s[1].x), fmaxf(s[2].x, s[3].x)), sum = 0, o = 0;
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 16));
  unroll<Size::cluster / 2>([&](uint32_t i) {
    const float factor = exp2_approximate(s[i].x - most);
    sum = fmaf(factor, s[i].y, sum), o = fmaf(factor, next[i], o);
  });
  sum += __shfl_xor_sync(0xffffffffu, sum, 16), o += __shfl_xor_sync(0xffffffffu, o, 16);
  return sum == 0.0f ? 0.0f : product<Size::alike>(o, reciprocal(sum));
}

/* All blocks' results, joined, as the second product's vector: each block makes all of it. A warp has sixteen columns
 * of a head's row at a time; each half of the warp joins every other block's result. */
template <typename Size> DEVICE void join_partials(const attention_block_parameters &p, const kv_head_place &b) {
  constexpr uint32_t of_row = Size::dimension / 16;
  static_assert(Size::cluster == 8, "a lane joins four");
  const uint32_t step = Size::group(p) * Size::dimension * 4;
  rolled_for (uint32_t unit = b.warp; unit < Size::group(p) * of_row; unit += Size::warps) {
    const uint32_t head = unit / of_row, column = head * Size::dimension + unit % of_row * 16 + b.lane % 16;
    const uint32_t half = b.lane / 16, from = b.shared + Size::received(p) + half * step + column * 4,
                   stats = b.shared + Size::received(p) + Size::cluster * step + (half * Size::group(p) + head) * 8;
    const float o = join_blocks<Size>(stats, from, step, Size::group(p) * 16);
    if constexpr (Size::scaled_vector) {
      const uint32_t to = b.shared + Size::activations(p) + column / 16 * 16;
      store_scaled(o, to, to + Size::pitch(p), b.shared + Size::powers(p) + column / 16 * 4);
    } else {
      const uint32_t bits = pack(o, 0.0f), rest = pack(o - two_numbers(bits).x, 0.0f);
      store_half_word(b.shared + Size::activations(p) + b.lane / 16 * Size::pitch(p) + column * 2,
                      b.lane < 16 ? bits : rest);
    }
  }
}
