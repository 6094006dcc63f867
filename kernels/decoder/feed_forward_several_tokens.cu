/* feed_forward_several_tokens.cu - the feed forward half of a layer for 2 to 16 tokens, if the compiler knows all
 * sizes.
 *
 * It works and is bound like feed_forward_one_token.cu, with a token in each column of operand B. Each block of a
 * cluster makes two tokens' numbers and sends them to all blocks (st.async), since to make all of them takes too long.
 */
#include "feed_forward_registers.cuh"

/* The pitch of rows in shared memory puts the loads of a quarter of a warp in different banks. */
template <int Operands, rondo_dtype W, int... Others> struct row_sizes : sizes<W, Others...> {
  using base = sizes<W, Others...>;
  static constexpr uint32_t operands = Operands, rows = 8 * Operands;
  /* A warp makes 96 numbers of a token, four a lane. */
  static constexpr uint32_t lanes = 24, row_warps = base::hidden / (4 * lanes),
                            padded_squares = (row_warps + 3) / 4 * 4;
  static constexpr uint32_t x_pitch = base::hidden * 2 + 64, gated_pitch = base::own * 2 + 64;
  static constexpr uint32_t first_pitch = 16 * base::first_tiles + 4, second_pitch = 16 * base::second_tiles + 4;
  static constexpr uint32_t fours = 4 * base::second_tiles; /* of a token's results of a block */
  static_assert(base::hidden % (4 * lanes) == 0 && row_warps * Operands <= base::warps, "");
  static_assert(base::cluster == 8 && base::own_of_block % 8 == 0 && base::own_of_block * rows <= base::threads &&
                    fours * rows <= base::threads,
                "");
};

template <typename Size> struct memory {
  /* The second product's sums replace x, which has been multiplied by then. */
  union {
    alignas(128) unsigned char x[Size::rows * Size::x_pitch];
    float second[Size::second_cuts][Size::rows][Size::second_pitch];
  };
  alignas(128) unsigned char gated[Size::rows * Size::gated_pitch]; /* those of the cluster */
  float first[Size::first_cuts][Size::rows][Size::first_pitch];
  alignas(16) float squares[Size::rows][Size::padded_squares];
  uint64_t barriers[2]; /* of x and its squares; of what is gated */
};

DEVICE float4 load_four(const unsigned char *address) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address)
               : "memory");
  return value;
}

/* Four numbers a lane, of one of the block's tokens: x and its parts, to `out`; times the norm to all blocks. */
template <typename Size> struct gatherer {
  const unsigned char *x, *parts;
  unsigned char *out;
  uint32_t part_count, part_bytes;
  uint32_t x_to, square_to, barrier; /* in this block; x_to: of eight numbers of two lanes */
  uint2 norm_bits;
  uint32_t has_numbers; /* of a lane */
  bool has_row, writes;

  DEVICE void gather(uint32_t lane) const {
    if (!has_row) return;
    float4 part[FEED_FORWARD_KNOWN_X_PARTS];
    float4 four = {};
    if (has_numbers) four = load_four(x);
    unroll<FEED_FORWARD_KNOWN_X_PARTS>([&](uint32_t i) {
      part[i] = float4{};
      if (i < part_count && has_numbers) part[i] = load_four(parts + i * part_bytes);
    });
    float2 low = {four.x, four.y}, high = {four.z, four.w};
    unroll<FEED_FORWARD_KNOWN_X_PARTS>(
        [&](uint32_t i) { low.x += part[i].x, low.y += part[i].y, high.x += part[i].z, high.y += part[i].w; });
    const float2 norm = two_numbers(norm_bits.x), norm_2 = two_numbers(norm_bits.y);
    const uint32_t mine[2] = {pack(low.x * norm.x, low.y * norm.y), pack(high.x * norm_2.x, high.y * norm_2.y)};
    const uint32_t other[2] = {__shfl_xor_sync(0xffffffffu, mine[0], 1), __shfl_xor_sync(0xffffffffu, mine[1], 1)};
    const bool odd = lane % 2;
    const uint32_t words[4] = {odd ? other[0] : mine[0], odd ? other[1] : mine[1], odd ? mine[0] : other[0],
                               odd ? mine[1] : other[1]};
    const uint32_t first = odd ? Size::cluster / 2 : 0;
    if (has_numbers) {
      unroll<Size::cluster / 2>([&](uint32_t block) {
        send_four_words(address_in_block(x_to, first + block), words, address_in_block(barrier, first + block));
      });
      if (writes)
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out), "f"(low.x), "f"(low.y), "f"(high.x),
                     "f"(high.y)
                     : "memory");
    }
    float square = (low.x * low.x + low.y * low.y) + (high.x * high.x + high.y * high.y);
    square = warp_sum(square);
    if (lane < Size::cluster)
      send_word(address_in_block(square_to, lane), __float_as_uint(square), address_in_block(barrier, lane));
  }
};

/* The accumulators to [token][row]: token 2 t + i % 2 of an operand, row g + 8 (i / 2) of the tile. */
template <int Operands, uint32_t Pitch> DEVICE void store_sums(uint32_t to, float (&sum)[Operands][4]) {
  unroll<Operands, 4>([&](int o, int i) { store_number(to + (o * 8 + i % 2) * (Pitch * 4) + i / 2 * 32, sum[o][i]); });
}

template <typename Size> DEVICE void feed_forward(const feed_forward_known_parameters &p) {
  constexpr uint32_t hidden = Size::hidden;
  __shared__ memory<Size> m;
  const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % Size::cluster, cluster = blockIdx.x / Size::cluster;
  /* 0, which the compiler cannot know: values computed with it are computed once, before the wait, and kept. */
  const uint32_t always_zero = p.half.always_zero, rows = kept_by_each(p.half.rows);
  const uint32_t barrier = kept(shared_address(m.barriers));
  if (thread == 0) {
    barrier_init(barrier, 1);
    barrier_init(barrier + 8, 1);
    barriers_are_initialised();
    barrier_expect(barrier, p.half.rows * (hidden * 2 + Size::row_warps * 4));
    barrier_expect(barrier + 8, p.half.rows * (Size::own * 2));
  }
  for (uint32_t i = thread; i < Size::rows * (Size::padded_squares - Size::row_warps); i += Size::threads)
    m.squares[i % Size::rows][Size::row_warps + i / Size::rows] = 0;
  __syncwarp();
  arrive_at_cluster();

  const uint32_t first_tile = warp / Size::first_cuts, first_cut = warp % Size::first_cuts;
  const uint32_t first_element = first_cut * (Size::first_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const uint32_t second_cut = warp / Size::second_tiles, in_block = warp % Size::second_tiles;
  const uint32_t second_tile = rank + in_block * Size::cluster;
  const uint32_t second_element = second_cut * (Size::second_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const bool has_second = second_cut < Size::second_cuts && second_tile < Size::second_all;
  /* Of x: a token, and four columns of it. */
  const uint32_t mine = rank + warp / Size::row_warps * Size::cluster;
  const uint32_t four = warp % Size::row_warps * Size::lanes + min(lane, Size::lanes - 1);
  fragments<Size, Size::first_chunks> first = {};
  fragments<Size, Size::second_chunks> second = {};
  constexpr uint32_t ones = 0x3f803f80; /* 1 and 1 */
  uint2 norm_bits = {ones, ones};
  const auto load = [&] {
    const uint32_t first_row = 2 * (cluster * Size::own + rank * Size::own_of_block) + first_tile * LAYER_HALF_TILE;
    first.load(p.half.first.weights, p.half.first.scales, first_row + g, hidden, first_element, always_zero);
    if (has_second)
      second.load(p.half.second.weights, p.half.second.scales, second_tile * LAYER_HALF_TILE + g, Size::columns,
                  cluster * Size::own + second_element, always_zero);
    if (p.half.norm)
      norm_bits = {load_early((const unsigned char *)p.half.norm + four * 8),
                   load_early((const unsigned char *)p.half.norm + four * 8 + 4)};
  };
  if (p.half.early) load();

  gatherer<Size> of_x;
  const uint32_t element = mine * hidden + 4 * four;
  of_x.x = kept((const unsigned char *)p.half.x + element * 4);
  of_x.parts = kept((const unsigned char *)p.half.x_parts + element * 4);
  of_x.out = kept((unsigned char *)p.half.out + element * 4);
  of_x.part_count = kept_by_each(p.half.part_count), of_x.part_bytes = kept_by_each(p.half.rows * (hidden * 4));
  of_x.x_to = kept(shared_address(m.x) + mine % Size::rows * Size::x_pitch + four / 2 * 16);
  of_x.square_to = kept(shared_address(&m.squares[mine % Size::rows][warp % Size::row_warps]));
  of_x.barrier = barrier;
  of_x.has_row = kept(warp < Size::row_warps * Size::operands && mine < p.half.rows ? 1u : 0u);
  of_x.has_numbers = kept(lane < Size::lanes ? 1u : 0u);
  of_x.writes = kept(cluster == 0 ? 1u : 0u);

  /* Columns without a token repeat the last token; their sums are not used. */
  const uint32_t token = min(g, p.half.rows - 1), token_8 = min(g + 8, p.half.rows - 1);
  const uint32_t x_from = kept(shared_address(m.x) + token * Size::x_pitch + first_element * 2);
  const uint32_t x_from_8 = kept(shared_address(m.x) + token_8 * Size::x_pitch + first_element * 2);
  const uint32_t second_or_none = has_second ? second_element * 2 : 0;
  const uint32_t gated_from = kept(shared_address(m.gated) + token * Size::gated_pitch + second_or_none);
  const uint32_t gated_from_8 = kept(shared_address(m.gated) + token_8 * Size::gated_pitch + second_or_none);
  const uint32_t first_to = kept(shared_address(&m.first[first_cut][2 * t][first_tile * LAYER_HALF_TILE + g]));
  const uint32_t second_to =
      kept(shared_address(&m.second[has_second ? second_cut : 0][2 * t][in_block * LAYER_HALF_TILE + g]));
  /* A gated number a thread: eight lanes have eight columns of a token, and each of them sends all to a block. */
  constexpr uint32_t eights = Size::own_of_block / 8;
  const uint32_t gated_token = thread / 8 % Size::rows, gated_eight = thread / (8 * Size::rows) % eights;
  const uint32_t gate_from = kept(shared_address(&m.first[0][gated_token][2 * (gated_eight * 8 + lane % 8)]));
  const uint32_t gate_squares = kept(shared_address(&m.squares[gated_token][0]));
  const uint32_t gated_to = kept(address_in_block(shared_address(m.gated) + gated_token * Size::gated_pitch +
                                                      (rank * Size::own_of_block + gated_eight * 8) * 2,
                                                  lane % 8));
  const uint32_t gated_barrier = kept(address_in_block(barrier + 8, lane % 8));
  const uint32_t sends = kept(gated_token < p.half.rows ? 1u : 0u);
  const float epsilon = kept_by_each(p.half.epsilon), scale = kept_by_each(p.half.scale * Size::factor);
  /* Four results a thread, of a token. */
  const uint32_t result_token = thread / Size::fours, result_four = thread % Size::fours;
  const uint32_t result_tile = rank + result_four / 4 * Size::cluster;
  const uint32_t result_from = kept(shared_address(&m.second[0][result_token % Size::rows][result_four * 4]));
  float *result = kept(p.half.out_parts + (cluster * p.half.rows + result_token) * hidden +
                       result_tile * LAYER_HALF_TILE + result_four % 4 * 4);
  const uint32_t has_result = kept(result_token < p.half.rows && result_tile < Size::second_all ? 1u : 0u);
  const uint32_t late = kept_by_each(p.half.early ^ 1);
  keep_early(always_zero, first.all() ^ second.all() ^ norm_bits.x ^ norm_bits.y);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (__builtin_expect(late, 0)) load();

  of_x.norm_bits = norm_bits;
  of_x.gather(lane);
  barrier_wait_cluster(barrier, 0);
  {
    float sum[Size::operands][4];
    first.template multiply_columns<Size::operands>(x_from, x_from_8, sum);
    store_sums<Size::operands, Size::first_pitch>(first_to, sum);
  }
  __syncthreads();
  if (warp < Size::own_of_block * Size::rows / 32) {
    float2 of_cut[Size::first_cuts];
    float squares = 0;
    unroll<Size::first_cuts>([&](uint32_t cut) { of_cut[cut] = load_shared_two(gate_from + cut * sizeof m.first[0]); });
    unrolled_for (uint32_t i = 0; i < Size::padded_squares; i += 4) {
      const float4 four = load_shared_four(gate_squares + i * 4);
      squares += (four.x + four.y) + (four.z + four.w);
    }
    const float root = root_reciprocal(squares * (1.0f / hidden) + epsilon);
    const float factor = epsilon > 0 ? root * scale : scale;
    unrolled_for (uint32_t cut = 1; cut < Size::first_cuts; cut++)
      of_cut[0].x += of_cut[cut].x, of_cut[0].y += of_cut[cut].y;
    const float gate = of_cut[0].x * factor, up = of_cut[0].y * factor;
    const float value = gate * reciprocal(1.0f + exp2_approximate(gate * -1.44269504f)) * up;
    const uint32_t word = pack(value, __shfl_down_sync(0xffffffffu, value, 1));
    uint32_t words[4];
    unroll<4>([&](int i) { words[i] = __shfl_sync(0xffffffffu, word, 2 * i, 8); });
    if (sends) send_four_words(gated_to, words, gated_barrier);
  }
  barrier_wait_cluster(barrier + 8, 0);
  if (has_second) {
    float sum[Size::operands][4];
    second.template multiply_columns<Size::operands>(gated_from, gated_from_8, sum);
    store_sums<Size::operands, Size::second_pitch>(second_to, sum);
  }
  __syncthreads();
  if (!has_result) return;
  float4 sum = load_shared_four(result_from);
  unrolled_for (uint32_t cut = 1; cut < Size::second_cuts; cut++) {
    const float4 more = load_shared_four(result_from + cut * sizeof m.second[0]);
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  *(float4 *)result = float4{sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
}

#define DEFINE(chips, parameters, name, threads, operands, ...)                                                        \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        feed_forward<row_sizes<operands, __VA_ARGS__>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_SEVERAL_TOKENS_KERNELS(DEFINE)
#endif
