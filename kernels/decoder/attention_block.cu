/* attention_block.cu - the attention half of a layer for one token, in one launch (attention_block.h). It runs if a
 * cluster's shared memory holds the weights of a KV head. Steps that wait for each other bound it, not bytes.
 *
 * So each block reads and normalises x for itself, and multiplies the norm's factor into the sums of the product. A
 * block sends q, k and v, rotated and rounded, to all others, later its maximum, sum and O. Tiles of K and V are
 * requested as soon as the position is known, the first ones before that. Weights, and the norm's, are fetched before
 * the wait. */
#include "attention_block_attend.cuh"
#include "attention_block_numbers.cuh"

/* ---- The row, and the first product ------------------------------------------------------------------------------ */

/* `even`, of x, and the even parts, plus the odd parts, at elements 4 i to 4 i + 3: the order of
 * attention_several_tokens.cu. */
DEVICE float4 sum_parts(const attention_block_parameters &p, uint32_t i, float4 even) {
  constexpr uint32_t at_once = 8;
  const float4 *parts = reinterpret_cast<const float4 *>(p.half.x_parts) + i;
  float4 odd = {-0.0f, -0.0f, -0.0f, -0.0f};
  rolled_for (uint32_t base = 0; base < p.half.part_count; base += at_once) {
    float4 part[at_once];
    unroll<at_once>([&](uint32_t j) {
      part[j] = base + j < p.half.part_count ? parts[(base + j) * (p.hidden / 4)] : float4{-0.0f, -0.0f, -0.0f, -0.0f};
    });
    unroll<at_once>([&](uint32_t j) {
      float4 &sum = j % 2 ? odd : even;
      sum.x += part[j].x, sum.y += part[j].y, sum.z += part[j].z, sum.w += part[j].w;
    });
  }
  return {even.x + odd.x, even.y + odd.y, even.z + odd.z, even.w + odd.w};
}

/* The norm's weights come from memory too. Each thread uses its own request. */
template <typename Size> DEVICE void ask_norm(const attention_block_parameters &p, const kv_head_place &b) {
  if (!p.half.norm) return;
  rolled_for (uint32_t i = Size::threads - 1 - threadIdx.x; i < p.hidden / 4; i += Size::threads)
    copy_early<8>(b.shared + p.norm_copy + i * 8, static_cast<const uint2 *>(p.half.norm) + i);
}

/* The row as the first product's vector, and the sums of its squares. The last warps begin, since the first warps
 * request tiles of K and V. */
template <typename Size> DEVICE void gather(const attention_block_parameters &p, const kv_head_place &b) {
  float square = 0;
  cp_async_wait<0>();
  rolled_for (uint32_t i = Size::threads - 1 - threadIdx.x; i < p.hidden / 4; i += Size::threads) {
    const float4 four = reinterpret_cast<const float4 *>(p.half.x)[i];
    uint2 norm = {};
    if (p.half.norm) norm = load_two_words(b.shared + p.norm_copy + i * 8);
    const float4 row = sum_parts(p, i, four);
    if (b.kv_head == 0 && i % Size::cluster == b.rank) reinterpret_cast<float4 *>(p.half.out)[i] = row;
    float2 low = {row.x, row.y}, high = {row.z, row.w};
    square += sum_of_squares<Size::alike>(low) + sum_of_squares<Size::alike>(high);
    if (p.half.norm)
      low = products<Size::alike>(low, two_numbers(norm.x)), high = products<Size::alike>(high, two_numbers(norm.y));
    const uint32_t to = b.shared + p.activations + i * 8;
    const uint32_t words_low = pack(low.x, low.y), words_high = pack(high.x, high.y);
    store_two_words(to, words_low, words_high);
    store_two_words(to + p.pitch, rest_of(low.x, low.y, words_low), rest_of(high.x, high.y, words_high));
  }
  unrolled_for (int i = 0; i < 5; i++) square += __shfl_xor_sync(0xffffffffu, square, i < 4 ? 8 >> i : 16);
  if (b.lane == 0) store_number(b.shared + ATTENTION_BLOCK_SQUARES + (Size::warps - 1 - b.warp) * 4, square);
}

DEVICE float norm_factor(const attention_block_parameters &p, const kv_head_place &b) {
  if (p.half.epsilon == 0.0f) return 1.0f;
  float sum = 0;
  unrolled_for (int i = 0; i < ATTENTION_BLOCK_WARPS; i += 4) {
    const float4 four = load_shared_four(b.shared + ATTENTION_BLOCK_SQUARES + i * 4);
    sum += (four.x + four.y) + (four.z + four.w);
  }
  return rsqrtf(fmaf(sum, p.inverse_hidden, p.half.epsilon));
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void store_sums(const attention_block_parameters &p, const kv_head_place &b) {
  rolled_for (uint32_t i = threadIdx.x; i < p.second.tiles * 4; i += Size::threads) {
    const uint32_t couple = i % 4, mine = i / 4, tile = mine * Size::cluster + b.rank;
    if (tile >= p.second.all_tiles) continue;
    const float4 sum = sum_cuts(b.shared + p.cuts, p.second, mine, couple, p.half.scale);
    float *to = p.half.out_parts + (uint64_t)b.kv_head * p.hidden + tile * LAYER_HALF_TILE + couple * 2;
    *reinterpret_cast<float2 *>(to) = {sum.x, sum.z};
    *reinterpret_cast<float2 *>(to + 8) = {sum.y, sum.w};
    rolled_for (uint32_t part = b.kv_head + p.heads; part < p.out_part_count; part += p.heads) {
      to += (uint64_t)p.heads * p.hidden; /* parts without a cluster */
      *reinterpret_cast<float2 *>(to) = *reinterpret_cast<float2 *>(to + 8) = float2{};
    }
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Barriers. Other blocks use them after the cluster has met. */
template <typename Size> DEVICE void set_up(const attention_block_parameters &p, const kv_head_place &b) {
  if (threadIdx.x == 0) {
    barrier_init(b.numbers_barrier(), 1);
    barrier_init(b.partials_barrier(), 1);
    barriers_are_initialised();
    barrier_expect(b.numbers_barrier(), (p.group + 2) * Size::dimension * 2);
    barrier_expect(b.partials_barrier(), Size::cluster * p.group * (Size::dimension + 2) * (uint32_t)sizeof(float));
  }
  __syncwarp();
  arrive_at_cluster();
}

template <typename Size> DEVICE void attention_block(const attention_block_parameters &p) {
  extern __shared__ __align__(128) unsigned char attention_block_memory[];
  const kv_head_place b(shared_address(attention_block_memory), 1);
  set_up<Size>(p, b);
  if (!p.half.early) only_wait_for_predecessors();
  const uint32_t columns = p.group * Size::dimension, first_slots = b.shared + p.weights,
                 second_slots =
                     first_slots + p.first.tiles * p.first.chunks * ATTENTION_BLOCK_CHUNK_BYTES(Size::weights);
  ask_weights<Size>(b, p.first, p.half.first.weights, p.half.first.scales, p.hidden, 0, first_slots,
                    qkv_rows<Size>{b.part, b.kv_head, p.heads, 1, p.group, (uint32_t)p.rope_is_halves});
  ask_weights<Size>(b, p.second, p.half.second.weights, p.half.second.scales, p.heads * columns, b.kv_head * columns,
                    second_slots, output_rows{});
  ask_norm<Size>(p, b);
  cp_async_commit();
  constexpr uint32_t table_warp = ATTENTION_BLOCK_WARPS / 2; /* the least busy warp */
  const bool has_table = b.warp == table_warp && p.has_rope;
  const lane_angles<Size> angles(p, has_table);
  const first_unit first(b, p.first), second(b, p.second);
  const tile_ring<Size> tiles(p, b);
  const sender<Size> sender(p);
  const uint32_t first_row = first_row_of<Size>(b);
  wait_for_cluster();
  wait_for_predecessors();
  const int32_t position = *p.position;
  const bool attends = b.warp < Size::attending;
  const bool is_blind = b.warp < ATTENTION_BLOCK_UNCONDITIONAL && first_row < p.capacity;
  if (is_blind) tiles.ask(p.capacity, first_row, 0);
  gather<Size>(p, b);
  const uint32_t length = position < 0 ? 0 : min((uint32_t)position, p.capacity - 1) + 1;
  if (has_table) angles.make_table(p, b, position);
  unrolled_for (uint32_t stage = 0; stage < ATTENTION_BLOCK_STAGES; stage++) {
    const uint32_t row = first_row + stage * Size::row_step;
    if (attends && row < length && (stage || !is_blind)) tiles.ask(p.capacity, row, stage * Size::stage_bytes);
    cp_async_commit();
  }
  cp_async_wait<ATTENTION_BLOCK_STAGES>();
  __syncthreads();
  multiply<Size>(p, b, p.first, first, first_slots);
  __syncthreads();
  send_numbers<Size>(p, b, norm_factor(p, b) * p.half.scale);
  if (attends && first_row < length) {
    cp_async_wait<ATTENTION_BLOCK_STAGES - 1>();
    barrier_wait_cluster(b.numbers_barrier(), 0);
    attend<Size>(p, b, tiles, length, position);
  }
  __syncthreads();
  send_partial<Size>(p, b, sender, length);
  barrier_wait_cluster(b.partials_barrier(), 0);
  join_partials<Size>(p, b);
  cp_async_wait<0>(); /* and tiles that were requested without need */
  __syncthreads();
  multiply<Size>(p, b, p.second, second, second_slots);
  __syncthreads();
  store_sums<Size>(p, b);
  /* No block ends while something is sent to it. */
  if (threadIdx.x == 0) barrier_wait_cluster(b.numbers_barrier(), 0);
}

#define DEFINE(chips, parameters, name, threads, weights, dimension)                                                   \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        attention_block<block_sizes<weights, dimension>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ATTENTION_BLOCK_KERNELS(DEFINE)
#endif
