/* attention_several_tokens.cu - the attention half of a layer for 2 to 128 tokens, in one launch
 * (attention_several_tokens.h). It runs if a warp's weights fit in its registers. The chain of exchanges bounds it.
 *
 * It works like attention_block.cu, with eight tokens in the columns of operand B and their rounding's remainders in a
 * second operand B. In bf16 and from 25 tokens on, eight more tokens take the place of the remainders: a block has a
 * pair of tokens, and half of its warps attend for each. A block makes the numbers of its token for all blocks,
 * receives the token's q, k and v from all, and attends the token's whole context, so that it sends a vector and no
 * partial result. A token's bits depend neither on its position among the tokens nor on the others. Of one sequence it
 * has the bits of attention_block.cu (attention_rows_as_tokens.cuh).
 *
 * Before the wait a block moves its weights to registers, and requests the first 576 rows of K and V in their place. */
#include "attention_rows_as_tokens.cuh"
#include "attention_several_tokens_rows.cuh"

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
    if constexpr (Size::own == 2) {
      constexpr uint32_t second = LAYER_HALF_CLUSTER * ATTENTION_SEVERAL_TOKENS_CUT_BYTES;
      unroll<2, 2>([&](int i, int k) {
        store_two_numbers(to + i * ATTENTION_SEVERAL_TOKENS_CUT_BYTES + k * second,
                          {c[2 * k][i] + c[2 * k + 1][i], c[2 * k][i + 2] + c[2 * k + 1][i + 2]});
      });
      return;
    }
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

/* Sums of the first product, normalised, rotated and rounded, to the block of their token: a warp has a tile of eight
 * tokens, four of its lanes a token. */
template <typename Size>
DEVICE void send_row_numbers(const attention_block_parameters &p, const row_place &b, float factor) {
  constexpr uint32_t of_head = Size::dimension / 16;
  const uint32_t couple = b.t, second = b.warp % Size::own, token = b.g + second * LAYER_HALF_CLUSTER;
  rolled_for (uint32_t mine = b.warp / Size::own; mine < p.first.tiles; mine += Size::warps / Size::own) {
    const uint32_t tile = mine * Size::cluster + b.rank;
    if (tile >= p.first.all_tiles) continue;
    const uint32_t head = tile / of_head, pair = tile % of_head * 8 + couple * 2;
    const float4 sum = sum_row_cuts<Size>(p, b, p.first, mine, couple, token, factor);
    const uint2 words =
        rotate_and_round<Size>(p, head, sum, b.shared + p.table + (token * ATTENTION_SEVERAL_TOKENS_PAIRS + pair) * 8);
    if constexpr (Size::as_tokens)
      send_to_later_tokens<Size>(p, b, b.tokens, token, head, tile % of_head * 8, words);
    else if (token < b.tokens)
      send_pairs<Size>(p, b, head, pair, words, b.g, second * Size::numbers_bytes(p));
  }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Four numbers of the results of a token's warps, of which `active` have a tile, joined. */
template <typename Size> DEVICE float4 join_row(uint32_t stats, uint32_t from, uint32_t active) {
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
  return {o.x * inverse, o.y * inverse, o.z * inverse, o.w * inverse};
}

/* The warps' results, joined, to all blocks as the second product's vectors; each of eight lanes sends to one block.
 * They take the place of the tokens' x. If the positions are below 0, nothing was waited for, and a block that still
 * multiplies may read them: then only these tokens' sums are wrong, and they are not used. */
template <typename Size>
DEVICE void send_result(const attention_block_parameters &p, const row_place &b, const uint32_t (&lengths)[2]) {
  constexpr uint32_t fours = Size::dimension / 4;
  rolled_for (uint32_t i = threadIdx.x / Size::cluster; i < p.group * fours; i += Size::threads / Size::cluster) {
    const uint32_t head = i / fours, four = i % fours, block = b.lane % Size::cluster;
    const uint32_t from = b.shared + p.ring + (head * Size::tile::pitch + four * 4) * 4,
                   stats = b.shared + ATTENTION_BLOCK_STATS + head * 8;
    const float4 o = join_row<Size>(stats, from, active_warps<Size>(lengths[0], b.rank));
    uint4 words;
    if constexpr (Size::own == 1) {
      words = numbers_and_rest({o.x, o.y}, {o.z, o.w});
    } else {
      const float4 next =
          join_row<Size>(stats + Size::attending * ATTENTION_BLOCK_MOST_GROUP * 8,
                         from + Size::attending * Size::ring_bytes, active_warps<Size>(lengths[1], b.rank));
      words = {pack(o.x, o.y), pack(o.z, o.w), pack(next.x, next.y), pack(next.z, next.w)};
    }
    send_four_words(
        address_in_block(b.shared + p.activations + b.rank * p.pitch + (head * Size::dimension + four * 4) * 4, block),
        words, address_in_block(b.partials_barrier(), block));
  }
}

template <typename Size> DEVICE void store_rows(const attention_block_parameters &p, const row_place &b) {
  const uint32_t couple = b.t, token = b.g + b.warp % Size::own * LAYER_HALF_CLUSTER;
  rolled_for (uint32_t mine = b.warp / Size::own; mine < p.second.tiles; mine += Size::warps / Size::own) {
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
    barrier_expect(b.numbers_barrier(), (b.has_token + b.has_second) * heads * Size::dimension * 2);
    barrier_expect(b.partials_barrier(), b.busy() * p.group * Size::dimension * 4);
    barrier_expect(b.row_barrier(), b.busy() * p.hidden * 4 + b.tokens * squares * (uint32_t)sizeof(float));
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

/* The warp's first tiles to the ring, and the next ones into the cache, unless tokens come in pairs, whose blocks would
 * take the memory from each other. */
template <typename Size>
DEVICE void ask_first_rows(const tile_ring<Size> &tiles, const row_place &b, uint32_t capacity, uint32_t first,
                           uint32_t length) {
  unroll<Size::stages>([&](uint32_t stage) {
    const uint32_t row = first + stage * Size::row_step;
    if (row < length) tiles.template ask<true>(capacity, row, stage * Size::stage_bytes);
    cp_async_commit();
  });
  if constexpr (Size::own == 1)
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

/* The attention of the warp's token, and the block's vectors to all blocks. */
template <typename Size>
DEVICE void attend_and_send(const attention_block_parameters &p, const row_place &b, const tile_ring<Size> &tiles,
                            const tile_of_share &asked, uint32_t first_row, uint32_t length, int32_t position,
                            const uint32_t (&lengths)[2]) {
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
    if (b.has_token) send_result<Size>(p, b, lengths);
  }
}

/* KV rows that a token sees. */
DEVICE uint32_t length_of(const attention_block_parameters &p, int32_t position) {
  return position < 0 ? 0 : min((uint32_t)position, p.capacity - 1) + 1;
}

template <typename Size> DEVICE void attend_rows(const attention_block_parameters &p) {
  extern __shared__ __align__(128) unsigned char attention_rows_memory[];
  const row_place b(p, shared_address(attention_rows_memory), Size::tokens);
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
  const uint32_t own = Size::own_of_warp(b.warp);
  const uint32_t token = b.first_token + b.rank + own * LAYER_HALF_CLUSTER;
  if (!Size::as_tokens) tiles.k += (uint64_t)token * p.k_batch * 2, tiles.v += (uint64_t)token * p.v_batch * 2;
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
  const int32_t positions[2] = {b.has_token ? position_of<Size>(p, b, b.rank) : -1,
                                b.has_second ? position_of<Size>(p, b, b.rank + LAYER_HALF_CLUSTER) : -1};
  const uint32_t lengths[2] = {length_of(p, positions[0]), length_of(p, positions[1])};
  const int32_t position = own ? positions[1] : positions[0];
  const uint32_t length = own ? lengths[1] : lengths[0];
  tile_of_share asked(b.warp);
  ask_first_tiles<Size>(p, b, tiles, asked, first_row, length);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (b.has_token) gatherer.gather(p, b);
  if (p.has_rope) make_row_tables<Size>(p, b, frequency, Size::warps);
  barrier_wait_cluster(b.row_barrier(), 0);
  first.multiply();
  const float factor = row_factor<Size>(p, b, b.g + b.warp % Size::own * LAYER_HALF_CLUSTER);
  __syncthreads();
  send_row_numbers<Size>(p, b, factor);
  attend_and_send<Size>(p, b, tiles, asked, first_row, length, position, lengths);
  barrier_wait_cluster(b.partials_barrier(), 0);
  second.multiply();
  __syncthreads();
  store_rows<Size>(p, b);
  /* No block ends while something is sent to it. */
  if (threadIdx.x == 0) barrier_wait_cluster(b.numbers_barrier(), 0);
}

/* Tokens of one sequence, and pairs of tokens, have code of their own. Both are in bf16; a third path through the
 * kernel of bf16 would take 3 to 5% longer, so pairs have the other's. */
template <rondo_dtype Weights> DEVICE void attention_several_tokens(const attention_block_parameters &p) {
  if constexpr (Weights == RONDO_BF16) {
    if (p.shares) {
      attend_rows<row_sizes<Weights, true, 1>>(p);
      return;
    }
  } else if (p.half.rows > p.splits * ATTENTION_SEVERAL_TOKENS_TOKENS) {
    attend_rows<row_sizes<RONDO_BF16, false, 2>>(p);
    return;
  }
  attend_rows<row_sizes<Weights, false, 1>>(p);
}

#define DEFINE(chips, parameters, name, threads, weights)                                                              \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        attention_several_tokens<weights>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ATTENTION_SEVERAL_TOKENS_KERNELS(DEFINE)
#endif
