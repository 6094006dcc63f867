/* feed_forward.cu - the feed forward half of a layer for 1 to 16 tokens, in one launch: silu(gate) * up, and the
 * product of it. It runs for all sizes that no special kernel takes. Memory bounds it in bf16.
 *
 * Each warp requests by cp.async the weights of its own fragments of operand A, into slots that no other warp reads, so
 * that there is no barrier. Its slots are a ring, which is filled before the wait and runs through both products.
 * Operand B is the tokens' numbers in shared memory; up to four tokens have two columns each, the rounded numbers and
 * their remainders. The order of k within a chunk is the order of the loads. Gated numbers go to all blocks of the
 * cluster (st.async), each of which waits for its own bytes only.
 *
 * Over ranks a half may be two launches (feed_forward_plan.c). The blocks of the first one have a multiprocessor each,
 * so they also hold weights in registers. The second one needs nothing from the first, and so waits for its end no
 * earlier than with its last statement: then the next half's wait is for both. The first one alone waits for the half
 * before and clears. It has the last part: where this is, the half before has ended (wait_for_own). */
#include "../exchange/exchange_gather.cuh"
#include "feed_forward_ring.cuh"

/* Barriers, in bytes from the beginning of shared memory: x has arrived; the gated numbers have. */
enum { ROW = 0, GATED = 8 };
static_assert(GATED + 8 <= FEED_FORWARD_BARRIERS, "");

/* ---- Products ---------------------------------------------------------------------------------------------------- */

DEVICE words load_late(const unsigned char *from) {
  const uint4 four = *(const uint4 *)from;
  return {{four.x, four.y, four.z, four.w}};
}

/* A chunk in its slot times the chunk of the tokens' columns. */
template <typename Size>
DEVICE void multiply_chunk(const place<Size> &at, uint32_t slot, uint32_t column, uint32_t column_8,
                           float (&c)[2][Size::operands][4]) {
  if constexpr (Size::weights == RONDO_NVFP4) {
    const uint2 codes[2] = {load_two_words(slot + at.lane * 8), load_two_words(slot + at.lane * 8 + 256)};
    uint32_t scale[2];
    unroll<2>([&](int h) { scale[h] = block_scales_bf16(load_word(slot + at.lane * 4 + 512 + 128 * h) >> 8 * at.t); });
    unroll<2>([&](int e) {
      uint32_t a[2][4];
      unroll<2>([&](int h) {
        words eight = {};
        eight.word[0] = e ? codes[h].y : codes[h].x;
        decode_eight<RONDO_NVFP4, true>(eight, 0, scale[h], a[h]);
      });
      unroll<Size::operands>([&](int o) {
        const words x = load_shared_words((o ? column_8 : column) + e * 16);
        uint32_t b[4];
        order_as_bf16(x.word, b);
        multiply_accumulate<true>(c[0][o], a[0], a[1], b);
        multiply_accumulate<true>(c[1][o], a[0] + 2, a[1] + 2, b + 2);
      });
    });
  } else {
    const uint32_t row = slot + at.g * 128 + at.t * 16, odd = at.g % 2 * 64;
    unrolled_for (uint32_t half = 0; half < 128; half += 64) {
      const words low = load_shared_words(row + (half ^ odd)), high = load_shared_words(row + (half ^ odd) + 1024);
      unrolled_for (int o = 0; o < Size::operands; o++) {
        const words x = load_shared_words((o ? column_8 : column) + half);
        multiply_accumulate<true>(c[0][o], low.word, high.word, x.word);
        multiply_accumulate<true>(c[1][o], low.word + 2, high.word + 2, x.word + 2);
      }
    }
  }
}

/* The sums of a warp's cut to shared memory: [cut][tile][token][16]. */
template <typename Size>
DEVICE void store_sums(const feed_forward_parameters &p, const place<Size> &at, float (&c)[2][Size::operands][4],
                       uint32_t to) {
  unrolled_for (int o = 0; o < Size::operands; o++) {
    unroll<4>([&](int i) { c[0][o][i] += c[1][o][i]; });
    if constexpr (Size::split) {
      if (at.t < p.half.rows) {
        store_number(to + at.t * 64, c[0][o][0] + c[0][o][1]);
        store_number(to + at.t * 64 + 32, c[0][o][2] + c[0][o][3]);
      }
    } else {
      unrolled_for (uint32_t i = 0; i < 2; i++)
        if (2 * at.t + i + 8 * o < p.half.rows) {
          store_number(to + (2 * at.t + i + 8 * o) * 64, c[0][o][i]);
          store_number(to + (2 * at.t + i + 8 * o) * 64 + 32, c[0][o][i + 2]);
        }
    }
  }
}

/* The address of lane (g, t)'s numbers of operand B. Columns without a token repeat the last token; their sums are not
 * used. */
template <typename Size>
DEVICE uint32_t column_of(const feed_forward_parameters &p, const place<Size> &at, uint32_t activations, uint32_t pitch,
                          uint32_t operand) {
  return activations + min(at.g + 8 * operand, p.half.rows * Size::columns_of_token - 1) * pitch +
         at.t * (Size::chunk::lane_elements * 2);
}

/* A product's tiles, out of the ring. */
template <typename Size>
DEVICE void multiply_stream(const feed_forward_parameters &p, const place<Size> &at, slots<Size> &s,
                            const share<Size> &one, const share<Size> &two, bool second, uint32_t activations,
                            uint32_t pitch) {
  using chunk = typename Size::chunk;
  const feed_forward_product &of = second ? p.down : p.gate_up;
  const share<Size> &share = second ? two : one;
  const uint32_t first = share.first_chunk * (chunk::elements * 2), cut = at.warp - share.tile * of.cuts;
  for (uint32_t tile = share.tile + (second ? 0 : Size::held); share.has(at, of, tile); tile += of.step) {
    uint32_t column = column_of(p, at, activations, pitch, 0) + first,
             column_8 = column_of(p, at, activations, pitch, 1) + first;
    float c[2][Size::operands][4] = {};
    rolled_for (uint32_t i = 0; i < share.chunks; i++) {
      cp_async_wait<Size::slots - 1>();
      __syncwarp();
      multiply_chunk<Size>(at, s.ring + s.used, column, column_8, c);
      __syncwarp();
      column += chunk::elements * 2, column_8 += chunk::elements * 2;
      s.used += chunk::slot;
      if (s.used == slots<Size>::bytes) s.used = 0;
      s.ask(p, at, one, two);
    }
    store_sums(p, at, c, at.shared + p.sums + at.g * 4 + (cut * of.tiles + tile) * p.half.rows * 64);
  }
}

/* ---- Tiles in registers ------------------------------------------------------------------------------------------ */

/* The block's first tiles of gate and up. Each warp has FEED_FORWARD_HELD_CHUNKS chunks of a tile. Of every 64 bytes of
 * rows g and g + 8 a lane has 16. */
template <typename Size> struct held_tiles {
  static constexpr uint32_t quarters = 2 * FEED_FORWARD_HELD_CHUNKS,
                            cut_bytes = FEED_FORWARD_HELD_CHUNKS * Size::chunk::row_bytes;
  words rows[Size::held ? Size::held : 1][2][quarters] = {};

  /* Before the wait if the weights are settled, else after it. */
  template <bool Early> DEVICE void load(const feed_forward_parameters &p, const place<Size> &at) {
    constexpr uint32_t row_bytes = FEED_FORWARD_THREADS / 32 * cut_bytes;
    const unsigned char *from = (const unsigned char *)p.half.first.weights + at.warp * cut_bytes + at.t * 16 +
                                (uint64_t)(slots<Size>::row_of(at, false, 0) + at.g) * row_bytes;
    unroll<Size::held>([&](uint32_t i) {
      if (i >= at.groups) return;
      unroll<2, quarters>([&](uint32_t h, uint32_t j) {
        const unsigned char *mine = from + (i * (16 * Size::cluster) + h * 8) * row_bytes + j * 64;
        rows[i][h][j] = Early ? load_weights(mine) : load_late(mine);
      });
    });
  }
  DEVICE void multiply(const feed_forward_parameters &p, const place<Size> &at) const {
    const uint32_t column = column_of(p, at, at.shared + p.activations, p.pitch, 0) + at.warp * cut_bytes;
    unroll<Size::held>([&](uint32_t i) {
      if (i >= at.groups) return;
      float c[2][1][4] = {};
      unroll<quarters>([&](uint32_t j) {
        const words x = load_shared_words(column + j * 64);
        multiply_accumulate<true>(c[0][0], rows[i][0][j].word, rows[i][1][j].word, x.word);
        multiply_accumulate<true>(c[1][0], rows[i][0][j].word + 2, rows[i][1][j].word + 2, x.word + 2);
      });
      store_sums(p, at, c, at.shared + p.sums + at.g * 4 + (at.warp * p.gate_up.tiles + i) * 64);
    });
  }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Where the block keeps the number of the sum over ranks, and each warp the state of its ring: behind the squares of
 * one row (feed_forward_plan.c). Registers are few. */
template <typename Size> DEVICE uint32_t sum_place(const feed_forward_parameters &p, const place<Size> &at) {
  return at.shared + p.squares + EXCHANGE_GATHER_NUMBERS / FEED_FORWARD_UNIT * 4;
}
template <typename Size> DEVICE uint32_t ring_place(const feed_forward_parameters &p, const place<Size> &at) {
  return sum_place(p, at) + 4 + at.warp * 4;
}

/* x and its parts, two columns a lane, times the norm, to all blocks of the cluster, which share the work. The norm's
 * factor follows later from the sums of squares, and is multiplied into the products' sums. */
template <typename Size> DEVICE void gather(const feed_forward_parameters &p, const place<Size> &at, uint32_t taken) {
  const uint32_t pairs = p.hidden / 2;
  for (uint32_t unit = at.warp * Size::cluster + at.rank; unit < p.units * p.half.rows;
       unit += at.warps * Size::cluster) {
    const uint32_t token = unit * p.unit_reciprocal >> 16, pair = (unit - token * p.units) * 32 + at.lane;
    const uint32_t index = token * pairs + pair;
    float2 two;
    if constexpr (Size::has_ranks) {
      two = take_sum<Size::parts / 2, 1, false>(p.exchange, taken, index, p.half.x);
      if (at.cluster == 0) hand_on(p.exchange, taken, index, two, p.half.out);
    } else {
      two = *((const float2 *)p.half.x + index);
      float2 part[Size::parts];
      unroll<Size::parts>([&](int j) {
        part[j] = float2{};
        if (j < p.half.part_count) part[j] = *((const float2 *)p.half.x_parts + (j * p.half.rows * pairs + index));
      });
      float2 sum = two;
      unroll<Size::parts>([&](int j) { sum.x += part[j].x, sum.y += part[j].y; });
      two = sum;
      if (at.cluster == 0) *((float2 *)p.half.out + index) = two;
    }
    float square = two.x * two.x + two.y * two.y;
    if (p.half.norm) {
      const float2 by = two_numbers(load_word(at.shared + p.sums + pair * 4));
      two.x *= by.x, two.y *= by.y;
    }
    const uint32_t high = pack(two.x, two.y), low = rest_of(two.x, two.y, high);
    const uint32_t to = at.shared + p.activations + token * Size::columns_of_token * p.pitch + pair / 4 * 16;
    send_of_four_lanes(high, to, at.shared + ROW);
    if (Size::split) send_of_four_lanes(low, to + p.pitch, at.shared + ROW);
    square = warp_sum(square);
    const uint32_t square_at = at.shared + p.squares + unit * 4;
    if (at.lane < Size::cluster)
      send_word(address_in_block(square_at, at.lane), __float_as_uint(square),
                address_in_block(at.shared + ROW, at.lane));
    if (Size::held) break; /* a warp has one unit at most: registers are few */
  }
}

template <typename Size>
DEVICE float factor_of(const feed_forward_parameters &p, const place<Size> &at, uint32_t token) {
  if (p.half.epsilon == 0.0f) return p.half.scale;
  float sum = 0;
  for (uint32_t i = at.lane; i < p.units; i += 32)
    sum += __uint_as_float(load_word(at.shared + p.squares + (token * p.units + i) * 4));
  sum = warp_sum(sum);
  return rsqrtf(sum * p.inverse_hidden + p.half.epsilon) * p.half.scale;
}

/* Rows 2 two and 2 two + 1 of a tile, of every step-th cut. */
DEVICE float2 sum_of_cuts(const feed_forward_parameters &p, const feed_forward_product &of, uint32_t from,
                          uint32_t first = 0, uint32_t step = 1) {
  const uint32_t of_cut = of.tiles * p.half.rows * 64;
  float2 sum = {};
#pragma unroll 4
  for (uint32_t cut = first; cut < of.cuts; cut += step) {
    const float2 v = load_shared_two(from + cut * of_cut);
    sum.x += v.x, sum.y += v.y;
  }
  return sum;
}

/* silu(gate) * up, to all blocks. A warp has a tile of a token: its quarters share the cuts, and each of eight lanes
 * has a column. Sixteen bytes are the tile's numbers, or their remainders. */
template <typename Size>
DEVICE void send_gated(const feed_forward_parameters &p, const place<Size> &at, const share<Size> &share) {
  const uint32_t two = at.lane % 8, quarter = at.lane / 8, kind = two % 2;
  for (uint32_t unit = at.warp; unit < p.gate_up.tiles * p.half.rows; unit += at.warps) {
    const uint32_t tile = p.half.rows == 1 ? unit : unit / p.half.rows,
                   token = p.half.rows == 1 ? 0 : unit - tile * p.half.rows;
    const uint32_t of_cluster = at.rank + tile * Size::cluster;
    float2 sum = sum_of_cuts(p, p.gate_up, at.shared + p.sums + unit * 64 + two * 8, quarter, 4);
    const float factor = factor_of<Size>(p, at, token);
    unrolled_for (int d = 8; d < 32; d *= 2)
      sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d), sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
    const float mine = silu(sum.x * factor) * (sum.y * factor);
    const float other = __shfl_xor_sync(0xffffffffu, mine, 1);
    const float low = kind ? other : mine, high = kind ? mine : other;
    const uint32_t rounded = pack(low, high);
    const uint32_t word = kind ? rest_of(low, high, rounded) : rounded;
    uint32_t words[4];
    unroll<4>([&](uint32_t i) { words[i] = __shfl_sync(0xffffffffu, word, 2 * i + kind, 8); });
    const uint32_t block = quarter * 4 + two / 2;
    if (of_cluster >= share.cluster_tiles || block >= Size::cluster || (!Size::split && kind)) continue;
    const uint32_t to =
        at.shared + p.received + (token * Size::columns_of_token + kind) * p.received_pitch + of_cluster * 16;
    send_four_words(address_in_block(to, block), words, address_in_block(at.shared + GATED, block));
  }
}

template <typename Size> DEVICE void store_results(const feed_forward_parameters &p, const place<Size> &at) {
  for (uint32_t unit = threadIdx.x; unit < p.down.tiles * p.half.rows * 8; unit += blockDim.x) {
    const uint32_t two = unit % 8, rest = unit / 8;
    const uint32_t tile = p.half.rows == 1 ? rest : rest / p.half.rows,
                   token = p.half.rows == 1 ? 0 : rest - tile * p.half.rows;
    const uint32_t of_cluster = at.rank + tile * Size::cluster;
    if (of_cluster >= p.down.all_tiles) continue;
    float2 sum = sum_of_cuts(p, p.down, at.shared + p.sums + (tile * p.half.rows + token) * 64 + two * 8);
    sum.x *= p.half.scale, sum.y *= p.half.scale;
    if constexpr (Size::has_ranks)
      if (p.exchange.gives) {
        give_pair(p.exchange, sum_given(p.exchange, load_word(sum_place(p, at))), at.cluster, of_cluster * 8 + two,
                  sum);
        continue;
      } else {
        only_wait_for_predecessors(); /* a path for build/check-waits: such a launch has waited */
      }
    *(float2 *)(p.half.out_parts + ((at.cluster * p.half.rows + token) * p.hidden + of_cluster * 16 + two * 2)) = sum;
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* The norm of x, where the sums come later. */
template <typename Size> DEVICE void ask_norm(const feed_forward_parameters &p, const place<Size> &at) {
  if (p.half.norm)
    for (uint32_t i = threadIdx.x; i < p.hidden / 8; i += blockDim.x)
      copy_early_16(at.shared + p.sums + i * 16, (const unsigned char *)p.half.norm + i * 16);
  cp_async_commit();
}

template <typename Size> DEVICE void feed_forward(const feed_forward_parameters &p) {
  using chunk = typename Size::chunk;
  extern __shared__ __align__(128) unsigned char feed_forward_memory[];
  const place<Size> at(p, shared_address(feed_forward_memory));
  if (threadIdx.x == 0) {
    barrier_init(at.shared + ROW, 1);
    barrier_init(at.shared + GATED, 1);
    barriers_are_initialised();
    barrier_expect(at.shared + GATED, at.groups * chunk::elements * p.half.rows * (Size::columns_of_token * 2));
    barrier_expect(at.shared + ROW, p.half.rows * (p.hidden * Size::columns_of_token * 2 + p.units * 4));
  }
  __syncwarp();
  arrive_at_cluster();
  held_tiles<Size> held;
  if constexpr (Size::held > 0)
    if (p.half.early) held.template load<true>(p, at);
  if (!p.half.early) {
    only_wait_for_predecessors();
    if constexpr (Size::held > 0) held.template load<false>(p, at);
  }
  ask_norm(p, at);
  share<Size> one(at, p.gate_up, p.hidden / chunk::elements, at.groups * (chunk::elements / 8));
  if (Size::held) /* known to the compiler */
    one.tile = 0, one.first_chunk = at.warp * FEED_FORWARD_HELD_CHUNKS, one.chunks = FEED_FORWARD_HELD_CHUNKS;
  const share<Size> two(at, p.down, at.groups, p.down.all_tiles);
  slots<Size> s(p, at);
  s.find_next(p, at, one, two);
  rolled_for (int i = 0; i < Size::slots; i++) s.ask(p, at, one, two);
  cp_async_wait<Size::slots>();
  __syncthreads();
  wait_for_cluster();
  if constexpr (Size::has_ranks) {
    if (at.warp == 0 || at.warp * Size::cluster + at.rank < p.units) {
      const uint32_t taken = begin_sum(p.exchange);
      if (threadIdx.x == 0) store_word(sum_place(p, at), taken);
      if (Size::held) store_word(ring_place(p, at), s.packed());
      gather<Size>(p, at, taken);
      if (Size::held) s.unpack(load_word(ring_place(p, at)));
    }
  } else {
    only_wait_for_predecessors();
    gather<Size>(p, at, 0);
  }
  barrier_wait_cluster(at.shared + ROW, 0);
  if constexpr (Size::held > 0) held.multiply(p, at);
  multiply_stream<Size>(p, at, s, one, two, false, at.shared + p.activations, p.pitch);
  __syncthreads();
  send_gated<Size>(p, at, one);
  if constexpr (Size::has_ranks)
    if (!p.follows) {
      only_wait_for_predecessors();
      end_sum(p.exchange, load_word(sum_place(p, at)));
    }
  barrier_wait_cluster(at.shared + GATED, 0);
  multiply_stream<Size>(p, at, s, one, two, true, at.shared + p.received, p.received_pitch);
  __syncthreads();
  store_results<Size>(p, at);
  if constexpr (Size::has_ranks) only_wait_for_predecessors();
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads,                         \
                        (sizes<__VA_ARGS__>::blocks), feed_forward<sizes<__VA_ARGS__>>)
#define DEFINE_OF_RANKS(chips, parameters, name, threads, ...)                                                         \
  DEFINE(chips, parameters, name, threads, __VA_ARGS__, true)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_KERNELS(DEFINE)
FEED_FORWARD_RANKS_KERNELS(DEFINE_OF_RANKS)
#endif
