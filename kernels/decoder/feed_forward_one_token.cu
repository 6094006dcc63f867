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

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

DEVICE float load_float(const unsigned char *address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}
DEVICE float2 load_shared_couple(uint32_t address) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(address));
  return two;
}
DEVICE void store_shared_16(uint32_t address, uint32_t bits) {
  asm volatile("{.reg .b16 low, high; mov.b32 {low, high}, %1; st.shared.b16 [%0], low;}" ::"r"(address), "r"(bits)
               : "memory");
}
template <typename Size> DEVICE void feed_forward(const feed_forward_known_parameters &p) {
  constexpr uint32_t hidden = Size::hidden, most_parts = FEED_FORWARD_KNOWN_X_PARTS;
  __shared__ __align__(128) memory<Size> m;
  const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % Size::cluster, cluster = blockIdx.x / Size::cluster;
  /* 0, which the compiler cannot know: values computed with it are computed once, before the wait, and kept. */
  const uint32_t always_zero = p.half.always_zero;
  const uint32_t barrier = kept(shared_address(&m.barrier));
  if (thread == 0) {
    barrier_init(barrier, 1);
    barriers_are_initialised();
    barrier_expect(barrier, Size::own * 2 * (uint32_t)sizeof(uint16_t));
  }
  if (thread < Size::padded_warps) m.squares[thread] = 0;
  __syncwarp();
  arrive_at_cluster();

  const uint32_t first_tile = warp / Size::first_cuts, first_cut = warp % Size::first_cuts;
  const uint32_t first_element = first_cut * (Size::first_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const uint32_t second_cut = warp / Size::second_tiles, in_block = warp % Size::second_tiles;
  const uint32_t second_tile = rank + in_block * Size::cluster;
  const uint32_t second_element = second_cut * (Size::second_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const bool has_second = second_cut < Size::second_cuts && second_tile < Size::second_all;
  const bool has_column = Size::threads == hidden || thread < hidden;
  fragments<Size, Size::first_chunks> first = {};
  fragments<Size, Size::second_chunks> second = {};
  uint32_t norm_bits = 0x3f80; /* 1 */
  const auto load = [&] {
    const uint32_t first_row = 2 * (cluster * Size::own + rank * Size::own_of_block) + first_tile * LAYER_HALF_TILE;
    first.load(p.half.first.weights, p.half.first.scales, first_row + g, hidden, first_element, always_zero);
    if (has_second)
      second.load(p.half.second.weights, p.half.second.scales, second_tile * LAYER_HALF_TILE + g, Size::columns,
                  cluster * Size::own + second_element, always_zero);
    if (p.half.norm && has_column) norm_bits = load_early_16((const uint16_t *)p.half.norm + thread);
  };
  if (p.half.early) load();

  const unsigned char *x = kept((const unsigned char *)p.half.x + thread * 4);
  const unsigned char *parts = kept((const unsigned char *)p.half.x_parts + thread * 4);
  float *out = kept(p.half.out + thread);
  const uint32_t part_count = kept_by_each(p.half.part_count);
  const uint32_t x_to = kept(shared_address(&m.x[0][thread]));
  const uint32_t x_from = kept(shared_address(&m.x[g % 2][first_element]));
  const uint32_t first_to = kept(shared_address(&m.first[first_cut][first_tile * LAYER_HALF_TILE + g + 8 * (t % 2)]));
  const uint32_t squares_to = kept(shared_address(&m.squares[warp]));
  const uint32_t writes = kept(has_column && cluster == 0 && warp % Size::cluster == rank ? 1u : 0u);
  const uint32_t sends = warp < Size::cluster && lane < Size::own_of_block ? 1 : 0;
  const uint32_t pair_from = kept(shared_address(&m.first[0][sends ? 2 * lane : 0]));
  const uint32_t pair = (rank * Size::own_of_block + lane) / 2 * 2;
  const uint32_t there = kept(address_in_block(shared_address(&m.gated[lane % 2][pair]), warp % Size::cluster));
  const uint32_t barrier_there = kept(address_in_block(barrier, warp % Size::cluster));
  const bool odd = kept(lane % 2);
  const uint32_t gated_from = kept(shared_address(&m.gated[g % 2][has_second ? second_element : 0]));
  const uint32_t second_to =
      kept(shared_address(&m.second[has_second ? second_cut : 0][in_block * LAYER_HALF_TILE + g + 8 * (t % 2)]));
  const float epsilon = kept_by_each(p.half.epsilon), scale = kept_by_each(p.half.scale * Size::factor);
  /* A thread's result, one of the block's. */
  const uint32_t result_tile = rank + thread / LAYER_HALF_TILE * Size::cluster;
  const uint32_t result_from = kept(shared_address(&m.second[0][thread % (LAYER_HALF_TILE * Size::second_tiles)]));
  float *result = kept(p.half.out_parts + cluster * hidden + result_tile * LAYER_HALF_TILE + thread % LAYER_HALF_TILE);
  const bool is_one = thread < LAYER_HALF_TILE * Size::second_tiles && result_tile < Size::second_all;
  const uint32_t has_result = kept(is_one ? 1u : 0u);
  const uint32_t late = kept_by_each(p.half.early ^ 1);
  keep_early(always_zero, first.all() ^ second.all() ^ norm_bits);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (__builtin_expect(late, 0)) load();

  float square = 0;
  if (has_column) {
    float part[most_parts];
    float sum = load_float(x);
    unroll<most_parts>([&](uint32_t i) {
      part[i] = 0.0f;
      if (i < part_count) part[i] = load_float(parts + i * (hidden * 4));
    });
    unroll<most_parts>([&](uint32_t i) { sum += part[i]; });
    const float value = sum * two_numbers(norm_bits).x;
    const uint32_t high = pack_one(value);
    store_shared_16(x_to, high);
    store_shared_16(x_to + (hidden + Size::padding) * 2, pack_one(value - two_numbers(high).x));
    if (writes) asm volatile("st.global.f32 [%0], %1;" ::"l"(out), "f"(sum) : "memory");
    square = sum * sum;
  }
  __syncthreads();
  {
    const float2 sum = first.multiply(x_from);
    square = warp_sum(square);
    const float of_row = odd ? sum.y : sum.x;
    if (t < 2) store_number(first_to, of_row);
    if (lane == 0) store_number(squares_to, square);
  }
  __syncthreads();
  if (warp < Size::cluster) {
    float2 of_cut[Size::first_cuts];
    float four[Size::padded_warps / 4];
    unroll<Size::first_cuts>(
        [&](uint32_t cut) { of_cut[cut] = load_shared_couple(pair_from + cut * sizeof m.first[0]); });
    unroll<Size::padded_warps / 4>([&](uint32_t i) {
      const words w = load_shared_words(shared_address(m.squares) + i * 16);
      four[i] = (__uint_as_float(w.word[0]) + __uint_as_float(w.word[1])) +
                (__uint_as_float(w.word[2]) + __uint_as_float(w.word[3]));
    });
    float squares = 0;
    unroll<Size::padded_warps / 4>([&](uint32_t i) { squares += four[i]; });
    const float root = root_reciprocal(squares * (1.0f / hidden) + epsilon);
    const float factor = epsilon > 0 ? root * scale : scale;
    unrolled_for (uint32_t cut = 1; cut < Size::first_cuts; cut++)
      of_cut[0].x += of_cut[cut].x, of_cut[0].y += of_cut[cut].y;
    const float gate = of_cut[0].x * factor, up = of_cut[0].y * factor;
    const float value = gate * reciprocal(1.0f + exp2_approximate(gate * -1.44269504f)) * up;
    const float other = __shfl_xor_sync(0xffffffffu, value, 1);
    const float low = odd ? other : value, high = odd ? value : other;
    const uint32_t rounded = pack(low, high);
    const uint32_t rest = rest_of(low, high, rounded);
    if (sends) send_word(there, odd ? rest : rounded, barrier_there);
  }
  barrier_wait_cluster(barrier, 0);
  const float2 rows = second.multiply(gated_from);
  if (has_second && t < 2) store_number(second_to, odd ? rows.y : rows.x);
  __syncthreads();
  if (!has_result) return;
  float of_cut[Size::second_cuts];
  unroll<Size::second_cuts>([&](uint32_t cut) { of_cut[cut] = load_number(result_from + cut * sizeof m.second[0]); });
  unrolled_for (uint32_t cut = 1; cut < Size::second_cuts; cut++) of_cut[0] += of_cut[cut];
  asm volatile("st.global.f32 [%0], %1;" ::"l"(result), "f"(of_cut[0] * scale) : "memory");
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        feed_forward<sizes<__VA_ARGS__>>)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_ONE_TOKEN_KERNELS(DEFINE)
#endif
