/* feed_forward_several_tokens.cu - the feed forward half of a layer for 2 to 16 tokens, if the compiler knows all
 * sizes.
 *
 * It works and is bound like feed_forward_one_token.cu, with a token in each column of operand B. Each block of a
 * cluster makes two tokens' numbers and sends them to all blocks (st.async), since to make all of them takes too long.
 *
 * Where up to 8 tokens must have the bits that they have alone (`rests`), the second eight columns are what rounding
 * left, and the sums of both are added as in feed_forward_one_token.cu. */
#include "feed_forward_registers.cuh"

/* The pitch of rows in shared memory puts the loads of a quarter of a warp in different banks. */
template <int Operands, rondo_dtype W, int... Others> struct row_sizes : sizes<W, Others...> {
  using base = sizes<W, Others...>;
  static constexpr uint32_t operands = Operands, rows = 8 * Operands;
  /* A warp makes 96 numbers of a token, four a lane. */
  static constexpr uint32_t lanes = 24, row_warps = base::hidden / (4 * lanes);
  static constexpr bool has_rests = W == RONDO_BF16 && Operands == 2, alike = has_rests; /* rests: if it is told to */
  /* Sums of squares of a token: of a warp, or alike of 32 numbers. */
  static constexpr uint32_t squares = base::hidden / (alike ? 32 : 4 * lanes), padded_squares = (squares + 3) / 4 * 4;
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

/* ---- What a thread knows before the wait ------------------------------------------------------------------------- */

/* Of x: a token, or what its rounding left, and four columns of it; and their row in shared memory. */
template <typename Size> struct lane_columns {
  const uint32_t row, token, four;
  const bool is_rest;

  DEVICE lane_columns(const thread_place &at, bool rests)
      : row(at.rank + at.warp / Size::row_warps * Size::cluster), token(rests ? at.rank : row),
        four(at.warp % Size::row_warps * Size::lanes + min(at.lane, Size::lanes - 1)), is_rest(rests && row != token) {}
};

/* Four numbers a lane, of one of the block's tokens: x and its parts, to `out`; times the norm to all blocks. */
template <typename Size> struct gatherer {
  const unsigned char *x, *parts;
  unsigned char *out;
  uint32_t part_count, part_bytes;
  uint32_t x_to, square_to, barrier; /* in this block; x_to: of eight numbers of two lanes */
  uint32_t has_numbers;              /* of a lane */
  bool has_row, writes, is_rest;

  DEVICE gatherer(const layer_half_parameters &half, memory<Size> &m, const warp_share<Size> &at,
                  const lane_columns<Size> &of, uint32_t barrier)
      : barrier(barrier), is_rest(of.is_rest) {
    const uint32_t element = of.token * Size::hidden + 4 * of.four;
    x = kept((const unsigned char *)half.x + element * 4);
    parts = kept((const unsigned char *)half.x_parts + element * 4);
    out = kept((unsigned char *)half.out + element * 4);
    part_count = kept_by_each(half.part_count), part_bytes = kept_by_each(half.rows * (Size::hidden * 4));
    x_to = kept(shared_address(m.x) + of.row % Size::rows * Size::x_pitch + of.four / 2 * 16);
    const uint32_t of_warp = at.warp % Size::row_warps * (Size::squares / Size::row_warps);
    square_to = kept(shared_address(&m.squares[of.token % Size::rows][of_warp]) + (Size::alike ? at.lane / 8 * 4 : 0));
    has_row = kept(at.warp < Size::row_warps * Size::operands && of.token < half.rows ? 1u : 0u);
    has_numbers = kept(at.lane < Size::lanes ? 1u : 0u);
    writes = kept(at.cluster == 0 && !of.is_rest ? 1u : 0u);
  }

  DEVICE void gather(uint32_t lane, const uint2 &norm_bits) const {
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
    const float2 first_two = products<Size::alike>(low, two_numbers(norm_bits.x)),
                 next_two = products<Size::alike>(high, two_numbers(norm_bits.y));
    uint32_t mine[2] = {pack(first_two.x, first_two.y), pack(next_two.x, next_two.y)};
    if (is_rest)
      mine[0] = rest_of(first_two.x, first_two.y, mine[0]), mine[1] = rest_of(next_two.x, next_two.y, mine[1]);
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
    send_squares(lane, low, high);
  }

  /* Alike, eight lanes add what a warp adds in feed_forward_one_token.cu, in its order. */
  DEVICE void send_squares(uint32_t lane, float2 low, float2 high) const {
    if constexpr (Size::alike) {
      const float2 low_2 = products<true>(low, low), high_2 = products<true>(high, high);
      float square[4] = {low_2.x, low_2.y, high_2.x, high_2.y};
      unrolled_for (int distance = 4; distance; distance /= 2)
        unroll<4>([&](int i) { square[i] += __shfl_xor_sync(0xffffffffu, square[i], distance); });
      const float sum = (square[0] + square[2]) + (square[1] + square[3]);
      if (has_numbers && !is_rest)
        send_word(address_in_block(square_to, lane % 8), __float_as_uint(sum), address_in_block(barrier, lane % 8));
    } else {
      const float square = warp_sum(sum_of_squares<false>(low) + sum_of_squares<false>(high));
      if (lane < Size::cluster)
        send_word(address_in_block(square_to, lane), __float_as_uint(square), address_in_block(barrier, lane));
    }
  }
};

/* Where a lane's numbers of operand B of both products lie, for two tokens, and where its sums go. */
template <typename Size> struct product_places {
  uint32_t x_from, x_from_8, gated_from, gated_from_8, first_to, second_to;

  /* Columns without a token repeat the last token; their sums are not used. */
  DEVICE product_places(const layer_half_parameters &half, memory<Size> &m, const warp_share<Size> &at, bool rests) {
    const uint32_t token = min(at.g, half.rows - 1), token_8 = rests ? token + 8 : min(at.g + 8, half.rows - 1);
    x_from = kept(shared_address(m.x) + token * Size::x_pitch + at.first_element * 2);
    x_from_8 = kept(shared_address(m.x) + token_8 * Size::x_pitch + at.first_element * 2);
    const uint32_t second_or_none = at.has_second ? at.second_element * 2 : 0;
    gated_from = kept(shared_address(m.gated) + token * Size::gated_pitch + second_or_none);
    gated_from_8 = kept(shared_address(m.gated) + token_8 * Size::gated_pitch + second_or_none);
    first_to = kept(shared_address(&m.first[at.first_cut][2 * at.t][at.first_tile * LAYER_HALF_TILE + at.g]));
    second_to = kept(
        shared_address(&m.second[at.has_second ? at.second_cut : 0][2 * at.t][at.in_block * LAYER_HALF_TILE + at.g]));
  }
};

/* A gated number a thread: eight lanes have eight columns of a token, and each of them sends all to a block. */
template <typename Size> struct gated_places {
  uint32_t sums, squares, to, barrier, sends; /* to, barrier: in that block */
  bool is_rest;

  DEVICE gated_places(const layer_half_parameters &half, memory<Size> &m, const warp_share<Size> &at, uint32_t here,
                      bool rests) {
    constexpr uint32_t eights = Size::own_of_block / 8;
    const uint32_t row = at.thread / 8 % Size::rows, eight = at.thread / (8 * Size::rows) % eights;
    const uint32_t token = rests ? row % 8 : row;
    is_rest = row != token;
    sums = kept(shared_address(&m.first[0][token][2 * (eight * 8 + at.lane % 8)]));
    squares = kept(shared_address(&m.squares[token][0]));
    to = kept(address_in_block(shared_address(m.gated) + row * Size::gated_pitch +
                                   (at.rank * Size::own_of_block + eight * 8) * 2,
                               at.lane % 8));
    barrier = kept(address_in_block(here, at.lane % 8));
    sends = kept(token < half.rows ? 1u : 0u);
  }
};

/* Four results a thread, of a token. */
template <typename Size> struct results {
  uint32_t from, has_result;
  float *to;

  DEVICE results(const layer_half_parameters &half, memory<Size> &m, const warp_share<Size> &at) {
    const uint32_t token = at.thread / Size::fours, four = at.thread % Size::fours;
    const uint32_t tile = at.rank + four / 4 * Size::cluster;
    from = kept(shared_address(&m.second[0][token % Size::rows][four * 4]));
    to = kept(half.out_parts + (at.cluster * half.rows + token) * Size::hidden + tile * LAYER_HALF_TILE + four % 4 * 4);
    has_result = kept(token < half.rows && tile < Size::second_all ? 1u : 0u);
  }

  DEVICE void store(float scale) const {
    if (!has_result) return;
    float4 sum = load_shared_four(from);
    unrolled_for (uint32_t cut = 1; cut < Size::second_cuts; cut++) {
      const float4 more = load_shared_four(from + cut * (uint32_t)sizeof(memory<Size>::second[0]));
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    *(float4 *)to = float4{sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Barriers of x with its squares and of what is gated, which other blocks use after the cluster has met, and zeros for
 * sums of squares without a warp. */
template <typename Size>
DEVICE void set_up(const layer_half_parameters &half, memory<Size> &m, uint32_t barrier, bool rests) {
  const uint32_t number_bytes = rests ? 4 : 2;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init(barrier + 8, 1);
    barriers_are_initialised();
    barrier_expect(barrier, half.rows * (Size::hidden * number_bytes + Size::squares * 4));
    barrier_expect(barrier + 8, half.rows * (Size::own * number_bytes));
  }
  for (uint32_t i = threadIdx.x; i < Size::rows * (Size::padded_squares - Size::squares); i += Size::threads)
    m.squares[i % Size::rows][Size::squares + i / Size::rows] = 0;
  __syncwarp();
  arrive_at_cluster();
}

/* The accumulators to [token][row]: token 2 t + i % 2 of an operand, row g + 8 (i / 2) of the tile. */
template <int Operands, uint32_t Pitch> DEVICE void store_sums(uint32_t to, float (&sum)[Operands][4]) {
  unroll<Operands, 4>([&](int o, int i) { store_number(to + (o * 8 + i % 2) * (Pitch * 4) + i / 2 * 32, sum[o][i]); });
}

/* A product's sums to their place. */
template <typename Size, uint32_t Pitch, int Chunks>
DEVICE void multiply_rows(const fragments<Size, Chunks> &weights, uint32_t from, uint32_t from_8, uint32_t to,
                          bool rests) {
  float sum[Size::operands][4];
  weights.template multiply_columns<Size::operands>(from, from_8, sum);
  if constexpr (Size::has_rests)
    if (rests) {
      float both[1][4];
      unroll<4>([&](int i) { both[0][i] = sum[0][i] + sum[1][i]; });
      store_sums<1, Pitch>(to, both);
      return;
    }
  store_sums<Size::operands, Pitch>(to, sum);
}

/* All that follows until the results. Split further, it has other machine code. */
template <typename Size>
DEVICE void multiply_and_gate(const warp_share<Size> &at, const gatherer<Size> &of_x, const uint2 &norm_bits,
                              const fragments<Size, Size::first_chunks> &first, const product_places<Size> &places,
                              const gated_places<Size> &gated, float epsilon, float scale,
                              const fragments<Size, Size::second_chunks> &second, bool rests) {
  of_x.gather(at.lane, norm_bits);
  barrier_wait_cluster(of_x.barrier, 0);
  multiply_rows<Size, Size::first_pitch>(first, places.x_from, places.x_from_8, places.first_to, rests);
  __syncthreads();
  if (at.warp < Size::own_of_block * Size::rows / 32) {
    float2 of_cut[Size::first_cuts];
    float squares = 0;
    constexpr uint32_t cut_bytes = sizeof(memory<Size>::first[0]);
    unroll<Size::first_cuts>([&](uint32_t cut) { of_cut[cut] = load_shared_two(gated.sums + cut * cut_bytes); });
    unrolled_for (uint32_t i = 0; i < Size::padded_squares; i += 4) {
      const float4 four = load_shared_four(gated.squares + i * 4);
      squares += (four.x + four.y) + (four.z + four.w);
    }
    const float factor = norm_factor<Size>(squares, epsilon, scale);
    unrolled_for (uint32_t cut = 1; cut < Size::first_cuts; cut++)
      of_cut[0].x += of_cut[cut].x, of_cut[0].y += of_cut[cut].y;
    const float gate = of_cut[0].x * factor, up = of_cut[0].y * factor;
    const float value = product<Size::alike>(silu(gate), up), next = __shfl_down_sync(0xffffffffu, value, 1);
    uint32_t word = pack(value, next);
    if (gated.is_rest) word = rest_of(value, next, word);
    uint32_t words[4];
    unroll<4>([&](int i) { words[i] = __shfl_sync(0xffffffffu, word, 2 * i, 8); });
    if (gated.sends) send_four_words(gated.to, words, gated.barrier);
  }
  barrier_wait_cluster(of_x.barrier + 8, 0);
  if (at.has_second)
    multiply_rows<Size, Size::second_pitch>(second, places.gated_from, places.gated_from_8, places.second_to, rests);
}

template <typename Size> DEVICE void feed_forward(const feed_forward_known_parameters &p) {
  __shared__ memory<Size> m;
  const thread_place place;
  /* 0, which the compiler cannot know: values computed with it are computed once, before the wait, and kept. */
  const uint32_t always_zero = p.half.always_zero, rows = kept_by_each(p.half.rows);
  const uint32_t barrier = kept(shared_address(m.barriers));
  const bool rests = Size::has_rests && kept_by_each(p.with_rests);
  set_up<Size>(p.half, m, barrier, rests);

  const warp_share<Size> at(place);
  const lane_columns<Size> columns(place, rests);
  fragments<Size, Size::first_chunks> first = {};
  fragments<Size, Size::second_chunks> second = {};
  constexpr uint32_t ones = 0x3f803f80; /* 1 and 1 */
  uint2 norm_bits = {ones, ones};
  const auto load = [&] {
    load_weights(p.half, at, always_zero, first, second);
    if (p.half.norm)
      norm_bits = {load_early((const unsigned char *)p.half.norm + columns.four * 8),
                   load_early((const unsigned char *)p.half.norm + columns.four * 8 + 4)};
  };
  if (p.half.early) load();
  const gatherer<Size> of_x(p.half, m, at, columns, barrier);
  const product_places<Size> places(p.half, m, at, rests);
  const gated_places<Size> gated(p.half, m, at, barrier + 8, rests);
  const float epsilon = kept_by_each(p.half.epsilon), scale = kept_by_each(p.half.scale * Size::factor);
  const results<Size> of_block(p.half, m, at);
  const uint32_t late = kept_by_each(p.half.early ^ 1);
  keep_early(always_zero, first.all() ^ second.all() ^ norm_bits.x ^ norm_bits.y);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (__builtin_expect(late, 0)) load();

  multiply_and_gate(at, of_x, norm_bits, first, places, gated, epsilon, scale, second, rests);
  __syncthreads();
  of_block.store(scale);
}

#define DEFINE(chips, parameters, name, threads, operands, ...)                                                        \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        feed_forward<row_sizes<operands, __VA_ARGS__>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_SEVERAL_TOKENS_KERNELS(DEFINE)
#endif
