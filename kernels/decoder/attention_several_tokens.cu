/* attention_several_tokens.cu - the attention half of a layer for 2 to 16 tokens, in one launch
 * (attention_several_tokens.h). It runs if a warp's weights fit in its registers. The chain of exchanges bounds it.
 *
 * It works like attention_block.cu, with eight tokens in the columns of operand B and their rounding's remainders in a
 * second operand B. A block makes the numbers of its token for all blocks, receives the token's q, k and v from all,
 * and attends the token's whole context, so that it sends a vector and no partial result. A token's bits depend neither
 * on its position among the tokens nor on the others. Of one sequence it has the bits of attention_block.cu
 * (attention_rows_as_tokens.cuh).
 *
 * Before the wait a block moves its weights to registers, and requests the first 576 rows of K and V in their place. */
#include "attention_block_attend.cuh"
#include "attention_block_numbers.cuh"
#include "attention_rows_as_tokens.cuh"

template <rondo_dtype Weights, bool AsTokens> struct row_sizes : block_sizes<Weights, 64> {
  using base = block_sizes<Weights, 64>;
  static constexpr bool as_tokens = AsTokens, alike = AsTokens; /* as_tokens: of one sequence */
  static constexpr uint32_t tokens = ATTENTION_SEVERAL_TOKENS_TOKENS, sharing = 1, attending = base::warps;
  static constexpr uint32_t row_step = attending * LAYER_HALF_TILE;
  static constexpr uint32_t stages =
                                AsTokens ? ATTENTION_SEVERAL_TOKENS_STAGES_OF_ONE : ATTENTION_SEVERAL_TOKENS_STAGES,
                            ring_bytes = stages * base::stage_bytes;
  static DEVICE uint32_t stage_behind(uint32_t stage, uint32_t /* warp */) {
    return (stage + base::stage_bytes) % ring_bytes;
  }
  /* Tiles of a warp that are complete in the cache when it requests them. */
  static constexpr uint32_t fetched = 2;
};

/* A block's token, and those of its cluster. */
struct row_place : kv_head_place {
  uint32_t first_token, tokens, token; /* tokens: of the cluster; token: of all */
  bool has_token;

  DEVICE row_place(const attention_block_parameters &p, uint32_t memory) : kv_head_place(memory, p.splits) {
    first_token = (part - kv_head * p.splits) * ATTENTION_SEVERAL_TOKENS_TOKENS;
    tokens = min(p.half.rows - first_token, (uint32_t)ATTENTION_SEVERAL_TOKENS_TOKENS);
    token = first_token + rank, has_token = rank < tokens, keeps_row = true;
  }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Four columns of the block's token, made by two lanes. Each adds half of the parts and sends to half of the blocks.
 * All addresses are computed before the wait. The last warps begin, each with 64 columns: hidden is a multiple of 64.
 */
template <typename Size> struct row_gatherer {
  static constexpr uint32_t of_warp = 16, of_block = of_warp * Size::warps, at_once = 4;
  const unsigned char *x, *parts;
  uint32_t first, half, norm, to, square;
  uint32_t there[Size::cluster / 2], part_step;

  DEVICE row_gatherer(const attention_block_parameters &p, const row_place &b) {
    const uint32_t of_warps = Size::warps - 1 - b.warp, part_bytes = p.half.rows * p.hidden * 4;
    first = of_warps * of_warp + b.lane / 2, half = b.lane % 2;
    const uint32_t i = b.token * (p.hidden / 4) + first;
    x = reinterpret_cast<const unsigned char *>(p.half.x) + (uint64_t)i * 16;
    parts = reinterpret_cast<const unsigned char *>(p.half.x_parts) + (uint64_t)i * 16 + (uint64_t)half * part_bytes;
    part_step = 2 * part_bytes, norm = b.shared + p.norm_copy + first * 8;
    to = p.activations + b.rank * p.pitch + first * 16;
    square = p.squares + (b.rank * ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden) + of_warps) * 4;
    unrolled_for (uint32_t j = 0; j < Size::cluster / 2; j++)
      there[j] = address_in_block(b.shared, 2 * j + half), keep(there[j]);
    keep(x), keep(parts), keep(part_step), keep(norm), keep(to), keep(square);
  }

  DEVICE void ask_norm(const attention_block_parameters &p) const {
    if (!p.half.norm || half) return;
    for (uint32_t four = first; four < p.hidden / 4; four += of_block)
      copy_early<8>(norm + (four - first) * 8, static_cast<const uint2 *>(p.half.norm) + four);
  }

  /* x and its parts: a lane has the even parts, or the odd ones. */
  DEVICE float4 sum_parts(const attention_block_parameters &p, uint32_t skipped) const {
    const float4 four = *reinterpret_cast<const float4 *>(x + skipped * 16);
    const unsigned char *from = parts + skipped * 16;
    float4 sum = {};
    rolled_for (uint32_t base = half; base == half || base < p.half.part_count; base += 2 * at_once) {
      float4 part[at_once];
      unrolled_for (uint32_t j = 0; j < at_once; j++, from += part_step)
        part[j] = base + 2 * j < p.half.part_count ? *reinterpret_cast<const float4 *>(from)
                                                   : float4{-0.0f, -0.0f, -0.0f, -0.0f};
      if (base == half) sum = half ? float4{-0.0f, -0.0f, -0.0f, -0.0f} : four;
      unrolled_for (uint32_t j = 0; j < at_once; j++)
        sum.x += part[j].x, sum.y += part[j].y, sum.z += part[j].z, sum.w += part[j].w;
    }
    const auto both = [](float of_lane) { return of_lane + __shfl_xor_sync(0xffffffffu, of_lane, 1); };
    return {both(sum.x), both(sum.y), both(sum.z), both(sum.w)};
  }

  /* The token's numbers to all blocks, and the sums of its squares. */
  DEVICE void gather(const attention_block_parameters &p, const row_place &b) const {
    rolled_for (uint32_t four = first; four < p.hidden / 4; four += of_block) {
      const uint32_t skipped = four - first;
      const float4 row = sum_parts(p, skipped);
      float2 low = {row.x, row.y}, high = {row.z, row.w};
      float squares = half ? 0.0f : sum_of_squares<Size::alike>(low) + sum_of_squares<Size::alike>(high);
      if (p.half.norm) {
        const uint2 by = load_two_words(norm + skipped * 8);
        low = products<Size::alike>(low, two_numbers(by.x)), high = products<Size::alike>(high, two_numbers(by.y));
      }
      const uint4 words = numbers_and_rest(low, high);
      unroll<Size::cluster / 2>([&](uint32_t j) {
        send_four_words(there[j] + to + skipped * 16, words, there[j] + ATTENTION_SEVERAL_TOKENS_BARRIER);
      });
      if (b.kv_head == 0 && !half) reinterpret_cast<float4 *>(p.half.out)[b.token * (p.hidden / 4) + four] = row;
      squares = warp_sum(squares);
      if (b.lane < Size::cluster)
        send_word(address_in_block(b.shared + square + skipped / of_warp * 4, b.lane), __float_as_uint(squares),
                  address_in_block(b.row_barrier(), b.lane));
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

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The warp's piece of a tile: its weights in registers as bf16, moved there before the wait. Lanes move their own
 * requests; scales are requested by the warp. */
template <typename Size, int Most> struct row_weights {
  static constexpr bool codes = Size::weights == RONDO_NVFP4;
  static constexpr uint32_t bytes = ATTENTION_BLOCK_CHUNK_BYTES(Size::weights),
                            columns = ATTENTION_BLOCK_CHUNK_COLUMNS(Size::weights), steps = columns / 16;
  uint32_t a[Most][steps][4];
  uint32_t numbers, to; /* the lane's numbers of the vector; the destination of its sums */
  uint32_t count, step;

  DEVICE void take(const attention_block_parameters &p, const row_place &b, const attention_block_share &share,
                   uint32_t slots) {
    const uint32_t cut = b.warp / share.tiles, mine = b.warp - cut * share.tiles;
    const bool has = cut < share.cuts && mine * Size::cluster + b.rank < share.all_tiles;
    count = has ? (share.chunks - cut + share.cuts - 1) / share.cuts : 0;
    step = share.cuts * columns * 4;
    numbers = b.shared + p.activations + b.g * p.pitch + cut * columns * 4 + b.t * columns;
    to = b.shared + p.cuts + (b.warp * Size::tokens + 2 * b.t) * ATTENTION_SEVERAL_TOKENS_CUT_BYTES + b.g * 8;
    keep(count), keep(step), keep(numbers), keep(to);
    unrolled_for (int i = 0; i < Most; i++)
      take_chunk(b, slots + (mine * share.chunks + cut + min((uint32_t)i, count - 1) * share.cuts) * bytes, has, a[i]);
  }

  static DEVICE void take_chunk(const row_place &b, uint32_t slot, bool has, uint32_t (&a)[steps][4]) {
    if (!has) return;
    if constexpr (codes) {
      const uint2 low = load_two_words(slot + b.lane * 8), high = load_two_words(slot + 256 + b.lane * 8);
      const __nv_bfloat162 low_scale = block_scale(slot + 512 + b.g * 4 + b.t),
                           high_scale = block_scale(slot + 544 + b.g * 4 + b.t);
      unroll<2>([&](int w) {
        uint32_t first[4], second[4];
        decode_row(w ? low.y : low.x, low_scale, first);
        decode_row(w ? high.y : high.x, high_scale, second);
        unroll<4>([&](int i) { a[2 * w + i / 2][i % 2 * 2] = first[i], a[2 * w + i / 2][i % 2 * 2 + 1] = second[i]; });
      });
    } else {
      const uint4 low = load_shared_words_four(slot + b.lane * 16),
                  high = load_shared_words_four(slot + 512 + b.lane * 16);
      a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
      a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
    }
  }

  /* Sums of the piece, of each token; half of them are those of the remainders. */
  DEVICE void multiply() const {
    float c[4][4] = {};
    unroll<Most>([&](int i) {
      if ((uint32_t)i >= count) return;
      unroll<(int)steps / 2>([&](int w) {
        const uint4 v = load_shared_words_four(numbers + i * step + w * 32),
                    v_4 = load_shared_words_four(numbers + i * step + w * 32 + 16);
        uint32_t x[4] = {v.x, v.y, v_4.x, v_4.y}, rest[4] = {v.z, v.w, v_4.z, v_4.w};
        if constexpr (codes) {
          const uint32_t by_lines[4] = {x[0], x[1], x[2], x[3]},
                         rest_by_lines[4] = {rest[0], rest[1], rest[2], rest[3]};
          order_as_bf16(by_lines, x), order_as_bf16(rest_by_lines, rest);
        }
        unroll<2>([&](int k) {
          mma_16x8x16<__nv_bfloat16>(c[k], a[i][2 * w + k], x[2 * k], x[2 * k + 1]);
          mma_16x8x16<__nv_bfloat16>(c[k + 2], a[i][2 * w + k], rest[2 * k], rest[2 * k + 1]);
        });
      });
    });
    if (!count) return;
    unroll<2>([&](int i) {
      store_two_numbers(
          to + i * ATTENTION_SEVERAL_TOKENS_CUT_BYTES,
          {(c[0][i] + c[1][i]) + (c[2][i] + c[3][i]), (c[0][i + 2] + c[1][i + 2]) + (c[2][i + 2] + c[3][i + 2])});
    });
  }
};

/* Two pairs of a tile, of a token: x and z their first rows, y and w their second. */
template <typename Size>
DEVICE float4 sum_row_cuts(const attention_block_parameters &p, const row_place &b, const attention_block_share &share,
                           uint32_t tile, uint32_t couple, uint32_t token, float factor) {
  const uint32_t from =
      b.shared + p.cuts + (tile * Size::tokens + token) * ATTENTION_SEVERAL_TOKENS_CUT_BYTES + couple * 16;
  return sum_fours(from, share, Size::tokens * ATTENTION_SEVERAL_TOKENS_CUT_BYTES, factor);
}

/* ---- q, k and v -------------------------------------------------------------------------------------------------- */

/* Of a token of the cluster. */
template <typename Size>
DEVICE int32_t position_of(const attention_block_parameters &p, const row_place &b, uint32_t token) {
  const uint32_t position = load_word(b.shared + p.positions + token * 4);
  return (int32_t)(Size::as_tokens ? position + token : position);
}

/* Cosines and sines of a token's position: a lane has a pair. */
template <typename Size>
DEVICE void make_row_tables(const attention_block_parameters &p, const row_place &b, float frequency, uint32_t warps) {
  if (p.frequencies) frequency = p.frequencies[b.lane];
  rolled_for (uint32_t token = b.warp; token < b.tokens; token += warps) {
    const rotation by = rotation_of((float)position_of<Size>(p, b, token) * frequency);
    store_two_numbers(b.shared + p.table + (token * ATTENTION_SEVERAL_TOKENS_PAIRS + b.lane) * 8, {by.cosine, by.sine});
  }
}

/* Sums of the first product, normalised, rotated and rounded, to the block of their token: a warp has a tile, four of
 * its lanes a token. */
template <typename Size>
DEVICE void send_row_numbers(const attention_block_parameters &p, const row_place &b, float factor) {
  constexpr uint32_t of_head = Size::dimension / 16;
  const uint32_t couple = b.t, token = b.g;
  rolled_for (uint32_t mine = b.warp; mine < p.first.tiles; mine += Size::warps) {
    const uint32_t tile = mine * Size::cluster + b.rank;
    if (tile >= p.first.all_tiles) continue;
    const uint32_t head = tile / of_head, pair = tile % of_head * 8 + couple * 2;
    const float4 sum = sum_row_cuts<Size>(p, b, p.first, mine, couple, token, factor);
    const uint2 words =
        rotate_and_round<Size>(p, head, sum, b.shared + p.table + (token * ATTENTION_SEVERAL_TOKENS_PAIRS + pair) * 8);
    if constexpr (Size::as_tokens)
      send_to_later_tokens<Size>(p, b, b.tokens, token, head, tile % of_head * 8, words);
    else if (token < b.tokens)
      send_pairs<Size>(p, b, head, pair, words, token);
  }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The warps' results, joined, to all blocks as the second product's vector; each of eight lanes sends to one block. It
 * takes the place of the token's x. If the token's position is below 0, nothing was waited for, and a block that still
 * multiplies may read it: then only that token's sums are wrong, and they are not used. */
template <typename Size>
DEVICE void send_result(const attention_block_parameters &p, const row_place &b, uint32_t length) {
  constexpr uint32_t fours = Size::dimension / 4;
  const uint32_t active = active_warps<Size>(length, b.rank);
  rolled_for (uint32_t i = threadIdx.x / Size::cluster; i < p.group * fours; i += Size::threads / Size::cluster) {
    const uint32_t head = i / fours, four = i % fours, block = b.lane % Size::cluster;
    const uint32_t from = b.shared + p.ring + (head * Size::tile::pitch + four * 4) * 4,
                   stats = b.shared + ATTENTION_BLOCK_STATS + head * 8;
    float2 s[Size::attending];
    float4 of_warp[Size::attending];
    float most = lowest, sum = 0;
    float4 o = {};
    unroll<Size::attending>([&](uint32_t w) {
      s[w] = {lowest, 0.0f}, of_warp[w] = {};
      if (w < active)
        s[w] = load_shared_two(stats + w * ATTENTION_BLOCK_MOST_GROUP * 8),
        of_warp[w] = load_shared_four(from + w * Size::ring_bytes);
    });
    unroll<Size::attending>([&](uint32_t w) { most = fmaxf(most, s[w].x); });
    unroll<Size::attending>([&](uint32_t w) {
      const float f = exp2_approximate(s[w].x - most);
      sum = fmaf(f, s[w].y, sum);
      o.x = fmaf(f, of_warp[w].x, o.x), o.y = fmaf(f, of_warp[w].y, o.y);
      o.z = fmaf(f, of_warp[w].z, o.z), o.w = fmaf(f, of_warp[w].w, o.w);
    });
    const float inverse = sum == 0.0f ? 0.0f : reciprocal(sum);
    const uint4 words = numbers_and_rest({o.x * inverse, o.y * inverse}, {o.z * inverse, o.w * inverse});
    send_four_words(
        address_in_block(b.shared + p.activations + b.rank * p.pitch + (head * Size::dimension + four * 4) * 4, block),
        words, address_in_block(b.partials_barrier(), block));
  }
}

template <typename Size> DEVICE void store_rows(const attention_block_parameters &p, const row_place &b) {
  const uint32_t couple = b.t, token = b.g;
  rolled_for (uint32_t mine = b.warp; mine < p.second.tiles; mine += Size::warps) {
    const uint32_t tile = mine * Size::cluster + b.rank;
    if (tile >= p.second.all_tiles || token >= b.tokens) continue;
    const float4 sum = sum_row_cuts<Size>(p, b, p.second, mine, couple, token, p.half.scale);
    float *to = p.half.out_parts + ((uint64_t)b.kv_head * p.half.rows + b.first_token + token) * p.hidden +
                tile * LAYER_HALF_TILE + couple * 2;
    *reinterpret_cast<float2 *>(to) = {sum.x, sum.z};
    *reinterpret_cast<float2 *>(to + 8) = {sum.y, sum.w};
    rolled_for (uint32_t part = b.kv_head + p.heads; part < p.out_part_count; part += p.heads) {
      to += (uint64_t)p.heads * p.half.rows * p.hidden; /* parts without a cluster */
      *reinterpret_cast<float2 *>(to) = *reinterpret_cast<float2 *>(to + 8) = float2{};
    }
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Barriers, which other blocks use after the cluster has met, and zeros for sums of squares without a warp. */
template <typename Size> DEVICE void set_up_rows(const attention_block_parameters &p, const row_place &b) {
  const uint32_t squares = ATTENTION_SEVERAL_TOKENS_WARPS(p.hidden);
  if (threadIdx.x == 0) {
    barrier_init(b.numbers_barrier(), 1);
    barrier_init(b.partials_barrier(), 1);
    barrier_init(b.row_barrier(), 1);
    barriers_are_initialised();
    const uint32_t heads = p.group + (Size::as_tokens ? 2 * (b.rank + 1) : 2);
    barrier_expect(b.numbers_barrier(), b.has_token ? heads * Size::dimension * 2 : 0);
    barrier_expect(b.partials_barrier(), b.tokens * p.group * Size::dimension * 4);
    barrier_expect(b.row_barrier(), b.tokens * (p.hidden * 4 + squares * (uint32_t)sizeof(float)));
  }
  if (threadIdx.x < Size::tokens)
    for (uint32_t i = squares; i < ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden); i++)
      store_number(b.shared + p.squares + (threadIdx.x * ATTENTION_SEVERAL_TOKENS_SQUARES(p.hidden) + i) * 4, 0.0f);
  __syncwarp();
  arrive_at_cluster();
}

DEVICE void ask_positions(const attention_block_parameters &p, const row_place &b) {
  if (threadIdx.x < b.tokens)
    copy_early<4>(b.shared + p.positions + threadIdx.x * 4,
                  p.position + p.position_of_each * (b.first_token + threadIdx.x));
  cp_async_commit();
}

/* A tile's rows into the cache. */
template <typename Size>
DEVICE void fetch_tile(const tile_ring<Size> &tiles, const row_place &b, uint32_t capacity, uint32_t first) {
  const uint32_t row = min(first + b.lane % 16, capacity - 1);
  const unsigned char *k = tiles.k - b.lane % 8 * 16, *v = tiles.v - b.lane % 8 * 16;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(b.lane < 16 ? k + (uint64_t)row * tiles.k_row
                                                            : v + (uint64_t)row * tiles.v_row));
}

/* The warp's first tiles to the ring, and the next ones into the cache. */
template <typename Size>
DEVICE void ask_first_rows(const tile_ring<Size> &tiles, const row_place &b, uint32_t capacity, uint32_t first,
                           uint32_t length) {
  unroll<Size::stages>([&](uint32_t stage) {
    const uint32_t row = first + stage * Size::row_step;
    if (row < length) tiles.template ask<true>(capacity, row, stage * Size::stage_bytes);
    cp_async_commit();
  });
  unrolled_for (uint32_t stage = 0; stage < Size::fetched; stage++) {
    const uint32_t row = first + (Size::stages + stage) * Size::row_step;
    if (row < length) fetch_tile<Size>(tiles, b, capacity, row);
  }
}

template <typename Size>
DEVICE void ask_first_tiles(const attention_block_parameters &p, const row_place &b, const tile_ring<Size> &tiles,
                            tile_of_share &asked, uint32_t first_row, uint32_t length) {
  if constexpr (Size::as_tokens)
    unroll<Size::stages>([&](uint32_t stage) {
      ask_tile_of_share<true>(tiles, asked, p.capacity, tile_count(length), stage * Size::stage_bytes);
    });
  else
    ask_first_rows<Size>(tiles, b, p.capacity, first_row, length);
}

/* The block's token's attention, and its vector to all blocks. */
template <typename Size>
DEVICE void attend_and_send(const attention_block_parameters &p, const row_place &b, const tile_ring<Size> &tiles,
                            const tile_of_share &asked, uint32_t first_row, uint32_t length, int32_t position) {
  if constexpr (Size::as_tokens) {
    barrier_wait_cluster(b.numbers_barrier(), 0);
    attend_shares<Size>(p, b, tiles, asked, length, position - (int32_t)b.rank);
    __syncthreads();
    if (b.has_token) send_result_of_shares<Size>(p, b, length);
  } else {
    if (first_row < length) {
      cp_async_wait<Size::stages - 1>();
      barrier_wait_cluster(b.numbers_barrier(), 0);
      attend<Size>(p, b, tiles, length, position);
    }
    __syncthreads();
    if (b.has_token) send_result<Size>(p, b, length);
  }
}

template <typename Size> DEVICE void attend_rows(const attention_block_parameters &p) {
  extern __shared__ __align__(128) unsigned char attention_rows_memory[];
  const row_place b(p, shared_address(attention_rows_memory));
  set_up_rows<Size>(p, b);
  if (!p.half.early) only_wait_for_predecessors();
  if (p.early_context) ask_positions(p, b);
  const uint32_t columns = p.group * Size::dimension, first_slots = b.shared + p.weights,
                 second_slots =
                     first_slots + p.first.tiles * p.first.chunks * ATTENTION_BLOCK_CHUNK_BYTES(Size::weights);
  ask_weights<Size>(b, p.first, p.half.first.weights, p.half.first.scales, p.hidden, 0, first_slots,
                    qkv_rows<Size>{b.kv_head, b.kv_head, p.heads, 1, p.group, (uint32_t)p.rope_is_halves});
  ask_weights<Size>(b, p.second, p.half.second.weights, p.half.second.scales, p.heads * columns, b.kv_head * columns,
                    second_slots, output_rows{});
  const row_gatherer<Size> gatherer(p, b);
  gatherer.ask_norm(p);
  cp_async_commit();
  float frequency = (float)exp2((double)b.lane * p.frequency_step);
  lane_angles<Size>::keep_number(frequency);
  tile_ring<Size> tiles(p, b);
  if (!Size::as_tokens) tiles.k += (uint64_t)b.token * p.k_batch * 2, tiles.v += (uint64_t)b.token * p.v_batch * 2;
  const uint32_t first_row = first_row_of<Size>(b);
  row_weights<Size, ATTENTION_SEVERAL_TOKENS_FIRST(Size::weights)> first;
  row_weights<Size, ATTENTION_SEVERAL_TOKENS_SECOND(Size::weights)> second;
  cp_async_wait<0>();
  __syncwarp();
  first.take(p, b, p.first, first_slots), second.take(p, b, p.second, second_slots);
  if (!p.early_context) {
    only_wait_for_predecessors();
    ask_positions(p, b);
    cp_async_wait<0>();
  }
  __syncthreads(); /* tiles of K and V replace the weights */
  const int32_t position = b.has_token ? position_of<Size>(p, b, b.rank) : -1;
  const uint32_t length = position < 0 ? 0 : min((uint32_t)position, p.capacity - 1) + 1;
  tile_of_share asked(b.warp);
  ask_first_tiles<Size>(p, b, tiles, asked, first_row, length);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (b.has_token) gatherer.gather(p, b);
  if (p.has_rope) make_row_tables<Size>(p, b, frequency, Size::warps);
  barrier_wait_cluster(b.row_barrier(), 0);
  first.multiply();
  const float factor = row_factor<Size>(p, b, b.g);
  __syncthreads();
  send_row_numbers<Size>(p, b, factor);
  attend_and_send<Size>(p, b, tiles, asked, first_row, length, position);
  barrier_wait_cluster(b.partials_barrier(), 0);
  second.multiply();
  __syncthreads();
  store_rows<Size>(p, b);
  /* No block ends while something is sent to it. */
  if (threadIdx.x == 0) barrier_wait_cluster(b.numbers_barrier(), 0);
}

/* Tokens of one sequence have code of their own. */
template <rondo_dtype Weights> DEVICE void attention_several_tokens(const attention_block_parameters &p) {
  if constexpr (Weights == RONDO_BF16) {
    if (p.shares) {
      attend_rows<row_sizes<Weights, true>>(p);
      return;
    }
  }
  attend_rows<row_sizes<Weights, false>>(p);
}

#define DEFINE(chips, parameters, name, threads, weights)                                                              \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        attention_several_tokens<weights>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ATTENTION_SEVERAL_TOKENS_KERNELS(DEFINE)
#endif
