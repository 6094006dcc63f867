/* feed_forward_one_token.cu - the feed forward half of a layer for one token, if the compiler knows all sizes. The
 * instructions of one warp after the wait, at five to ten cycles each, and the latencies between them bound it.
 *
 * So everything possible happens before the wait: each lane loads its fragments of operand A of both products, decodes
 * NVFP4 to bf16 (exact, scales included: six bits), and computes all addresses. Operand B is the token's numbers in
 * shared memory, rounded numbers and remainders; its eight columns repeat the two. The order of k within a chunk is the
 * order of the loads. Gated numbers go to all blocks of the cluster (st.async), each of which waits for its own bytes
 * only. */
#include "feed_forward_registers.cuh"

template <typename Size> struct memory {
  uint16_t x[2][Size::hidden + Size::padding];  /* rounded, and the rest */
  uint16_t gated[2][Size::own + Size::padding]; /* those of the cluster */
  float first[Size::first_cuts][16 * Size::first_tiles];
  float second[Size::second_cuts][16 * Size::second_tiles];
  alignas(16) float squares[Size::padded_warps];
  uint64_t barrier;
};

DEVICE float load_float(const unsigned char *address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}
DEVICE uint32_t pack_one(float x) { return pack(x, 0.0f); }

/* A thread's work after the wait; all addresses of it are computed before. */
template <typename Size> struct thread_work {
  /* A number of x and its parts, to `out` and, times the norm, to shared memory. */
  const unsigned char *x, *parts;
  float *out;
  uint32_t part_count, x_to, writes; /* writes: to `out` */
  /* Both products: a lane's numbers of operand B, and where its row's sum goes; the sum of squares of a warp. */
  uint32_t x_from, first_to, squares_to, gated_from, second_to;
  /* A gated number a lane: the pair of rows it is made of, and its place in the block that the warp sends to. */
  uint32_t sends, pair_from, there, barrier_there, squares;
  bool odd;
  float epsilon, scale;
  /* A result. */
  uint32_t result_from, has_result;
  float *result;

  static DEVICE bool has_column(uint32_t thread) { return Size::threads == Size::hidden || thread < Size::hidden; }

  DEVICE thread_work(const layer_half_parameters &half, memory<Size> &m, const warp_share<Size> &at, uint32_t barrier) {
    x = kept((const unsigned char *)half.x + at.thread * 4);
    parts = kept((const unsigned char *)half.x_parts + at.thread * 4);
    out = kept(half.out + at.thread);
    part_count = kept_by_each(half.part_count);
    x_to = kept(shared_address(&m.x[0][at.thread]));
    x_from = kept(shared_address(&m.x[at.g % 2][at.first_element]));
    first_to = kept(shared_address(&m.first[at.first_cut][at.first_tile * LAYER_HALF_TILE + at.g + 8 * (at.t % 2)]));
    squares_to = kept(shared_address(&m.squares[at.warp]));
    writes = kept(has_column(at.thread) && at.cluster == 0 && at.warp % Size::cluster == at.rank ? 1u : 0u);
    sends = at.warp < Size::cluster && at.lane < Size::own_of_block ? 1 : 0;
    pair_from = kept(shared_address(&m.first[0][sends ? 2 * at.lane : 0]));
    const uint32_t pair = (at.rank * Size::own_of_block + at.lane) / 2 * 2;
    there = kept(address_in_block(shared_address(&m.gated[at.lane % 2][pair]), at.warp % Size::cluster));
    barrier_there = kept(address_in_block(barrier, at.warp % Size::cluster));
    odd = kept(at.lane % 2);
    gated_from = kept(shared_address(&m.gated[at.g % 2][at.has_second ? at.second_element : 0]));
    second_to = kept(shared_address(
        &m.second[at.has_second ? at.second_cut : 0][at.in_block * LAYER_HALF_TILE + at.g + 8 * (at.t % 2)]));
    epsilon = kept_by_each(half.epsilon), scale = kept_by_each(half.scale * Size::factor);
    const uint32_t result_tile = at.rank + at.thread / LAYER_HALF_TILE * Size::cluster;
    result_from = kept(shared_address(&m.second[0][at.thread % (LAYER_HALF_TILE * Size::second_tiles)]));
    result =
        kept(half.out_parts + at.cluster * Size::hidden + result_tile * LAYER_HALF_TILE + at.thread % LAYER_HALF_TILE);
    const bool is_one = at.thread < LAYER_HALF_TILE * Size::second_tiles && result_tile < Size::second_all;
    has_result = kept(is_one ? 1u : 0u);
    squares = shared_address(m.squares);
  }

  /* The square of the thread's number. */
  DEVICE float gather(uint32_t norm_bits) const {
    float part[FEED_FORWARD_KNOWN_X_PARTS];
    float sum = load_float(x);
    unroll<FEED_FORWARD_KNOWN_X_PARTS>([&](uint32_t i) {
      part[i] = 0.0f;
      if (i < part_count) part[i] = load_float(parts + i * (Size::hidden * 4));
    });
    unroll<FEED_FORWARD_KNOWN_X_PARTS>([&](uint32_t i) { sum += part[i]; });
    const float value =
        product<Size::alike>(sum, two_numbers(norm_bits).x); /* not contracted with what is subtracted */
    const uint32_t high = pack_one(value);
    store_half_word(x_to, high);
    store_half_word(x_to + (Size::hidden + Size::padding) * 2, pack_one(value - two_numbers(high).x));
    if (writes) asm volatile("st.global.f32 [%0], %1;" ::"l"(out), "f"(sum) : "memory");
    return product<Size::alike>(sum, sum);
  }

  DEVICE void multiply_first(const warp_share<Size> &at, const fragments<Size, Size::first_chunks> &weights,
                             float square) const {
    const float2 sum = weights.multiply(x_from);
    square = warp_sum(square);
    const float of_row = odd ? sum.y : sum.x;
    if (at.t < 2) store_number(first_to, of_row);
    if (at.lane == 0) store_number(squares_to, square);
  }

  /* A warp makes all of the block's gated numbers, and sends them to one block. */
  DEVICE void gate() const {
    float2 of_cut[Size::first_cuts];
    float four[Size::padded_warps / 4];
    constexpr uint32_t cut_bytes = sizeof(memory<Size>::first[0]);
    unroll<Size::first_cuts>([&](uint32_t cut) { of_cut[cut] = load_shared_two(pair_from + cut * cut_bytes); });
    unroll<Size::padded_warps / 4>([&](uint32_t i) {
      const words w = load_shared_words(squares + i * 16);
      four[i] = (__uint_as_float(w.word[0]) + __uint_as_float(w.word[1])) +
                (__uint_as_float(w.word[2]) + __uint_as_float(w.word[3]));
    });
    float sum = 0;
    unroll<Size::padded_warps / 4>([&](uint32_t i) { sum += four[i]; });
    const float factor = norm_factor<Size>(sum, epsilon, scale);
    unrolled_for (uint32_t cut = 1; cut < Size::first_cuts; cut++)
      of_cut[0].x += of_cut[cut].x, of_cut[0].y += of_cut[cut].y;
    const float gate = of_cut[0].x * factor, up = of_cut[0].y * factor;
    const float value = product<Size::alike>(silu(gate), up);
    const float other = __shfl_xor_sync(0xffffffffu, value, 1);
    const float low = odd ? other : value, high = odd ? value : other;
    const uint32_t rounded = pack(low, high);
    const uint32_t rest = rest_of(low, high, rounded);
    if (sends) send_word(there, odd ? rest : rounded, barrier_there);
  }

  DEVICE void multiply_second(const warp_share<Size> &at, const fragments<Size, Size::second_chunks> &weights) const {
    const float2 rows = weights.multiply(gated_from);
    if (at.has_second && at.t < 2) store_number(second_to, odd ? rows.y : rows.x);
  }

  DEVICE void store_result() const {
    if (!has_result) return;
    float of_cut[Size::second_cuts];
    constexpr uint32_t cut_bytes = sizeof(memory<Size>::second[0]);
    unroll<Size::second_cuts>([&](uint32_t cut) { of_cut[cut] = load_number(result_from + cut * cut_bytes); });
    unrolled_for (uint32_t cut = 1; cut < Size::second_cuts; cut++) of_cut[0] += of_cut[cut];
    asm volatile("st.global.f32 [%0], %1;" ::"l"(result), "f"(of_cut[0] * scale) : "memory");
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* The barrier of the gated numbers, which other blocks use after the cluster has met, and zeros for sums of squares
 * without a warp. */
template <typename Size> DEVICE void set_up(memory<Size> &m, uint32_t barrier) {
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barriers_are_initialised();
    barrier_expect(barrier, Size::own * 2 * (uint32_t)sizeof(uint16_t));
  }
  if (threadIdx.x < Size::padded_warps) m.squares[threadIdx.x] = 0;
  __syncwarp();
  arrive_at_cluster();
}

template <typename Size> DEVICE void feed_forward(const feed_forward_known_parameters &p) {
  __shared__ __align__(128) memory<Size> m;
  const thread_place place;
  /* 0, which the compiler cannot know: values computed with it are computed once, before the wait, and kept. */
  const uint32_t always_zero = p.half.always_zero;
  const uint32_t barrier = kept(shared_address(&m.barrier));
  set_up<Size>(m, barrier);

  const warp_share<Size> at(place);
  const bool has_column = thread_work<Size>::has_column(at.thread);
  fragments<Size, Size::first_chunks> first = {};
  fragments<Size, Size::second_chunks> second = {};
  uint32_t norm_bits = 0x3f80; /* 1 */
  const auto load = [&] {
    load_weights(p.half, at, always_zero, first, second);
    if (p.half.norm && has_column) norm_bits = load_early_16((const uint16_t *)p.half.norm + at.thread);
  };
  if (p.half.early) load();
  const thread_work<Size> work(p.half, m, at, barrier);
  const uint32_t late = kept_by_each(p.half.early ^ 1);
  keep_early(always_zero, first.all() ^ second.all() ^ norm_bits);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (__builtin_expect(late, 0)) load();

  float square = 0;
  if (has_column) square = work.gather(norm_bits);
  __syncthreads();
  work.multiply_first(at, first, square);
  __syncthreads();
  if (at.warp < Size::cluster) work.gate();
  barrier_wait_cluster(barrier, 0);
  work.multiply_second(at, second);
  __syncthreads();
  work.store_result();
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        feed_forward<sizes<__VA_ARGS__>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_ONE_TOKEN_KERNELS(DEFINE)
#endif
