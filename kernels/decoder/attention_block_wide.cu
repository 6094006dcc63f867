/* attention_block_wide.cu - the attention half of a layer for one token of a wide model, in one launch
 * (attention_block_wide.h). Instructions bound it: each runs for the first time, some six cycles after the one before.
 *
 * It works like attention_block.cu, with two differences. The blocks of a cluster share the addition of x and its
 * parts, since these are more bytes than the sums to exchange. Sizes are known to the compiler, and addresses are
 * computed before the wait. */
#include "attention_block_attend.cuh"
#include "attention_block_wide_product.cuh"

/* ---- The row ----------------------------------------------------------------------------------------------------- */

/* Each warp that does not attend has a unit of x. */
template <typename Size> DEVICE uint32_t unit_of(const kv_head_place &b) {
  return (b.warp - Size::attending) * Size::cluster + b.rank;
}
template <typename Size> DEVICE uint32_t norm_copy(const kv_head_place &b) {
  return b.shared + ATTENTION_BLOCK_WIDE_NORM + (threadIdx.x - 32 * Size::attending) * 4;
}
template <typename Size> DEVICE void ask_norm(const attention_block_parameters &p, const kv_head_place &b) {
  copy_early<4>(norm_copy<Size>(b), static_cast<const uint32_t *>(p.half.norm) + unit_of<Size>(b) * 32 + b.lane);
}

/* A lane's two numbers of x, and their destinations in each block of the cluster. */
template <typename Size> struct row_share {
  static constexpr uint32_t units = ATTENTION_BLOCK_WIDE_HIDDEN / ATTENTION_BLOCK_WIDE_UNIT;
  static_assert(units == (Size::warps - Size::attending) * Size::cluster, "one of a warp");
  uint32_t unit, pair;
  const float2 *parts;

  DEVICE row_share(const attention_block_parameters &p, const kv_head_place &b) {
    unit = unit_of<Size>(b), pair = unit * 32 + b.lane;
    parts = reinterpret_cast<const float2 *>(p.half.x_parts) + pair;
  }

  template <uint32_t Count> DEVICE static void add(const float2 *from, float2 &two) {
    float2 part[Count];
    unrolled_for (uint32_t j = 0; j < Count; j++) part[j] = from[j * (Size::hidden / 2)];
    unrolled_for (uint32_t j = 0; j < Count; j++) two.x += part[j].x, two.y += part[j].y;
  }

  DEVICE float2 sum_of_parts(const attention_block_parameters &p) const {
    float2 two = reinterpret_cast<const float2 *>(p.half.x)[pair];
    const float2 *from = parts;
    uint32_t left = p.half.part_count;
    if (left == 15) /* as feed_forward_stream.cu and feed_forward.cu leave them */
      add<15>(from, two), left = 0;
    rolled_for (; left >= 4; left -= 4, from += 4 * (Size::hidden / 2)) add<4>(from, two);
    rolled_for (; left; left--, from += Size::hidden / 2) add<1>(from, two);
    return two;
  }

  /* The sum of x and its parts, to all blocks as the first product's vector. The first cluster stores it. */
  DEVICE void gather(const attention_block_parameters &p, const kv_head_place &b, uint32_t taken) const {
    float2 two;
    if constexpr (Size::has_ranks)
      two = take_sum<ATTENTION_BLOCK_WIDE_X_PARTS, 2, true>(p.exchange, taken, pair, p.half.x);
    else
      two = sum_of_parts(p);
    const float2 joined = two;
    if (!Size::has_ranks && b.part == 0) reinterpret_cast<float2 *>(p.half.out)[pair] = two;
    float square = two.x * two.x + two.y * two.y;
    if (p.half.norm) {
      cp_async_wait<Size::turns_round ? Size::slots : 2>(); /* requests before those of the weights */
      const float2 by = two_numbers(load_word(norm_copy<Size>(b)));
      two.x *= by.x, two.y *= by.y;
    }
    send(b, two);
    square = warp_sum(square);
    if (b.lane < Size::cluster) {
      const uint32_t to = address_in_block(b.shared, b.lane);
      send_word(to + ATTENTION_BLOCK_WIDE_ROW_SQUARES + unit * 4, __float_as_uint(square),
                to + (b.squares_barrier() - b.shared));
    }
    if constexpr (Size::has_ranks)
      if (b.part == 0) hand_on(p.exchange, taken, pair, joined, p.half.out);
  }

  DEVICE void send(const kv_head_place &b, float2 two) const {
    const uint32_t to = b.shared + ATTENTION_BLOCK_WIDE_ROW;
    if constexpr (Size::scaled_vector) {
      scaled_numbers(two).send(pair, to, ATTENTION_BLOCK_WIDE_PITCH, b.shared + ATTENTION_BLOCK_WIDE_POWERS,
                               b.row_barrier());
    } else {
      const uint32_t rounded = pack(two.x, two.y), rest = rest_of(two.x, two.y, rounded);
      send_of_four_lanes(rounded, to + pair / 4 * 16, b.row_barrier());
      send_of_four_lanes(rest, to + pair / 4 * 16 + ATTENTION_BLOCK_WIDE_PITCH, b.row_barrier());
    }
  }
};

/* Factor of the first product's sums. */
DEVICE float norm_factor(const attention_block_parameters &p, const kv_head_place &b) {
  static_assert(ATTENTION_BLOCK_WIDE_HIDDEN / ATTENTION_BLOCK_WIDE_UNIT == 32, "a lane has one");
  barrier_wait_cluster(b.squares_barrier(), 0);
  if (p.half.epsilon == 0.0f) return p.half.scale;
  float square = load_number(b.shared + ATTENTION_BLOCK_WIDE_ROW_SQUARES + b.lane * 4);
  square = warp_sum(square);
  return rsqrtf(fmaf(square, p.inverse_hidden, p.half.epsilon)) * p.half.scale;
}

template <typename Size>
DEVICE void ask_tile(const attention_block_parameters &p, const tile_ring<Size> &tiles, uint32_t row, uint32_t end,
                     uint32_t stage) {
  if (row < end) tiles.template ask<Size::has_ranks>(p.capacity, row, stage);
  cp_async_commit();
}

template <typename Size> DEVICE void wait_for_scales(bool attends) {
  if (!Size::turns_round && attends) cp_async_wait<1 + ATTENTION_BLOCK_STAGES>();
  if (!Size::turns_round && !attends) cp_async_wait<1>();
  __syncwarp();
}

/* Tiles for the stages that become free after the first product. */
template <typename Size>
DEVICE void ask_further(const attention_block_parameters &p, const kv_head_place &b, const tile_ring<Size> &tiles,
                        uint32_t length) {
  uint32_t stage = Size::stage_bytes;
  unrolled_for (uint32_t i = ATTENTION_BLOCK_STAGES; i < Size::stages; i++) {
    stage = Size::stage_behind(stage, b.warp);
    const uint32_t row = first_row_of<Size>(b) + i * Size::row_step;
    if (row < length) tiles.ask(p.capacity, row, stage);
    cp_async_commit();
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Rows of the context, with the new one. */
DEVICE uint32_t length_at(const attention_block_parameters &p, int32_t position) {
  return position < 0 ? 0 : min((uint32_t)position, p.capacity - 1) + 1;
}

/* Barriers. Other blocks use them after the cluster has met. */
template <typename Size> DEVICE void set_up(const attention_block_parameters &p, const kv_head_place &b) {
  if (threadIdx.x == 0) {
    barrier_init(b.row_barrier(), 1);
    barrier_init(b.squares_barrier(), 1);
    barrier_init(b.numbers_barrier(), 1);
    barrier_init(b.partials_barrier(), 1);
    barriers_are_initialised();
    barrier_expect(b.row_barrier(), Size::scaled_vector ? Size::hidden * 2 + Size::hidden / 16 * 4 : Size::hidden * 4);
    barrier_expect(b.squares_barrier(), row_share<Size>::units * 4);
    barrier_expect(b.numbers_barrier(), (Size::group(p) + 2) * Size::dimension * 2);
    barrier_expect(b.partials_barrier(),
                   Size::cluster * Size::group(p) * (Size::dimension + 2) * (uint32_t)sizeof(float));
  }
  __syncwarp();
  arrive_at_cluster();
  if (Size::scaled_vector && threadIdx.x < 16) store_number(b.shared + ATTENTION_BLOCK_WIDE_ZEROS + threadIdx.x * 4, 0);
}

template <typename Size>
DEVICE void exchange_partials(const attention_block_parameters &p, const kv_head_place &b, const sender<Size> &sender,
                              uint32_t length) {
  __syncthreads();
  send_partial<Size>(p, b, sender, length);
  barrier_wait_cluster(b.partials_barrier(), 0);
  join_partials<Size>(p, b);
  __syncthreads();
}

template <typename Size> DEVICE void attention_block_wide(const attention_block_parameters &p) {
  extern __shared__ __align__(128) unsigned char attention_block_memory[];
  const kv_head_place b(shared_address(attention_block_memory), p.splits);
  if (!p.half.early) only_wait_for_predecessors();
  const bool attends = b.warp < Size::attending;
  if (!attends && p.half.norm) ask_norm<Size>(p, b);
  weight_stream<Size> stream(p, b);
  set_up<Size>(p, b);
  const row_share<Size> share(p, b);
  const bool has_table = b.warp == Size::attending - 1 && p.has_rope;
  const lane_angles<Size> angles(p, has_table);
  const tile_ring<Size> tiles(p, b);
  const sender<Size> sender(p);
  const uint32_t first_row = first_row_of<Size>(b);
  if (Size::scaled_vector) __syncthreads(); /* zeros */
  wait_for_cluster();
  uint32_t taken = 0;
  int32_t position = 0;
  if constexpr (Size::has_ranks) {
    taken = begin_sum(p.exchange);
    if (attends && !p.exchange.settled) wait_for_own(p.exchange, taken);
    if (attends)
      position = load_after_flag(p.position);
    else
      share.gather(p, b, taken);
  } else {
    only_wait_for_predecessors();
    position = *p.position;
  }
  uint32_t length = length_at(p, position);
  if (attends) {
    ask_tile<Size>(p, tiles, first_row, p.capacity, 0); /* for any position */
    if (has_table) angles.make_table(p, b, position);
    ask_tile<Size>(p, tiles, first_row + Size::row_step, length, Size::stage_bytes);
  } else if constexpr (!Size::has_ranks) {
    share.gather(p, b, taken);
  }
  wait_for_scales<Size>(attends);
  barrier_wait_cluster(b.row_barrier(), 0);
  multiply_first<Size>(b, stream);
  __syncthreads();
  if constexpr (Size::has_ranks) {
    only_wait_for_predecessors();
    if (!attends) length = length_at(p, *p.position);
  }
  constexpr float of_codes = Size::scaled_vector ? codes_factor : 1.0f;
  if (threadIdx.x < ATTENTION_BLOCK_WIDE_TILES * 4 * Size::cluster)
    send_numbers<Size>(p, b, norm_factor(p, b) * of_codes);
  if (attends) ask_further<Size>(p, b, tiles, length);
  if constexpr (Size::has_ranks) end_sum(p.exchange, taken);
  /* A block that has sent its numbers has finished the first product: partial results may arrive. */
  barrier_wait_cluster(b.numbers_barrier(), 0);
  if (attends && first_row < length) {
    /* Later requests are weights, or further tiles. */
    cp_async_wait<Size::turns_round ? Size::slots : Size::stages - 1>();
    attend<Size>(p, b, tiles, length, position);
  }
  exchange_partials<Size>(p, b, sender, length);
  multiply_second<Size>(p, b, stream, p.half.scale * of_codes, taken);
}

#define DEFINE(chips, parameters, name, threads, weights)                                                              \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 2,                      \
                        attention_block_wide<wide_sizes<weights>>)
#define DEFINE_OF_RANKS(chips, parameters, name, threads, weights)                                                     \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 2,                      \
                        attention_block_wide<wide_sizes<weights, true>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ATTENTION_BLOCK_WIDE_KERNELS(DEFINE)
ATTENTION_BLOCK_WIDE_RANKS_KERNELS(DEFINE_OF_RANKS)
#endif
