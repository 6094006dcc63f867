/* gemm_softmax_staggered.cu - softmax of the rows of S = scale A B^T in 16 bits on sm_90a, for k up to 128 and 1152 to
 * 4096 columns. The write of P bounds it.
 *
 * Four or eight blocks of a cluster share rows: they take 32 rows of A at a time, and each block makes 512 columns of
 * S. A block's three warpgroups multiply in turn: while one multiplies, another takes exponentials and the third
 * stores. Without turns all three would use the same unit at the same time. The product is S^T = B A^T: 64 rows of B at
 * a time are the rows of a warpgroup's product, and 32 rows of A its columns (gemm_softmax_staggered_rows.cuh).
 *
 * Exponents are relative to a share of the largest possible logit of a row, factor |a| max |b|. This reference is known
 * before the product and is the same in all blocks, so blocks exchange sums alone. If the sum of a row is too small
 * because the reference was too large, or if a number is not finite, the tile is made again relative to its maxima. All
 * sharers see the same sums and decide alike. README.md has measurements. */
#include "../common/launch.cuh"
#include "gemm_softmax_staggered_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

/* Places in shared memory, with room for what a cluster of eight blocks tells. Panels come first: they begin at
 * multiples of 1024 bytes. */
template <int Steps> struct staggered_places {
  static constexpr int Cluster = WGMMA_CLUSTER;
  static constexpr int B_PANEL = STAGGERED_COLUMNS * 128, A_PANEL = STAGGERED_ROWS * 128, A_TILE = Steps * A_PANEL;
  static constexpr int A_TILES = STAGGERED_A_TILES(Steps), BOX_ROWS = STAGGERED_BOX_ROWS(Steps);
  static constexpr int ROWS = STAGGERED_WARPGROUPS * STAGGERED_ROWS; /* of all warpgroups */
  static constexpr int A = Steps * B_PANEL, STAGING = A + STAGGERED_A_BYTES;
  static constexpr int OWN = STAGING + STAGGERED_BOX_BYTES / Steps;   /* a row's sum, of each warp */
  static constexpr int OWN_AGAIN = OWN + STAGGERED_WARPS * ROWS * 4;  /* {max, sum} */
  static constexpr int TOLD = OWN_AGAIN + STAGGERED_WARPS * ROWS * 8; /* of each block, two sets */
  static constexpr int TOLD_AGAIN = TOLD + 2 * Cluster * ROWS * 8;
  static constexpr int A_LENGTHS = TOLD_AGAIN + Cluster * ROWS * 8;
  static constexpr int B_LENGTHS = A_LENGTHS + ROWS * 4; /* the longest row that each warp found */
  static constexpr int BARRIERS = B_LENGTHS + STAGGERED_MEASURING_WARPS * Cluster * 4;
  static constexpr int B_FULL = BARRIERS, A_FULL = B_FULL + 8 * STAGGERED_PRODUCTS;
  static constexpr int HEARD = A_FULL + 16 * STAGGERED_WARPGROUPS, HEARD_AGAIN = HEARD + 16 * STAGGERED_WARPGROUPS;
  static constexpr int B_KNOWN = HEARD_AGAIN + 8 * STAGGERED_WARPGROUPS, TURN = B_KNOWN + 8;
  static constexpr int BYTES = TURN + 8 * STAGGERED_WARPGROUPS * STAGGERED_WARPS;
  static_assert(BYTES <= STAGGERED_SHARED_BYTES(Steps), "what a launch asks for");
};

/* A warp, its warpgroup and its block. */
template <int Steps> struct staggered_warp {
  using place = staggered_places<Steps>;
  static constexpr uint32_t Cluster = WGMMA_CLUSTER;
  const gemm_softmax_wgmma_parameters &p;
  uint32_t base, warp, warpgroup, w, lane, g, t; /* w: of the warpgroup */
  uint32_t rank, first, matrix, first_tile;      /* first: of the blocks of the cluster that share rows */
  uint32_t b_full, a_full, heard, heard_again, b_known, my_turn, next_turn; /* barriers */
  uint32_t a_stages, told, told_again, a_lengths, own_sums, own_again;
  bool asks;       /* the thread that asks for the warpgroup's copies */
  float likely;    /* a row's largest exponent, for each unit of its length */
  uint32_t agains; /* tiles that were made again */

  DEVICE staggered_warp(const gemm_softmax_wgmma_parameters &parameters, uint32_t memory)
      : p(parameters), base(memory) {
    /* A reduction over the warp lands in a uniform register, from which descriptors are made without moves. */
    warp = __reduce_max_sync(0xffffffffu, threadIdx.x / 32), warpgroup = warp / 4, w = warp % 4;
    lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const row_sharers sharers = {p};
    rank = sharers.rank(), first = sharers.first();
    matrix = sharers.index() / p.groups, first_tile = sharers.index() % p.groups;
    b_full = base + place::B_FULL, a_full = base + place::A_FULL + warpgroup * 16;
    heard = base + place::HEARD + warpgroup * 16, heard_again = base + place::HEARD_AGAIN + warpgroup * 8;
    b_known = base + place::B_KNOWN;
    my_turn = base + place::TURN + (warpgroup * 4 + w) * 8;
    next_turn = base + place::TURN + ((warpgroup + 1) % STAGGERED_WARPGROUPS * 4 + w) * 8;
    a_stages = base + place::A + warpgroup * place::A_TILES * place::A_TILE;
    told = base + place::TOLD + warpgroup * 2 * Cluster * 256;
    told_again = base + place::TOLD_AGAIN + warpgroup * Cluster * 256;
    a_lengths = base + place::A_LENGTHS + warpgroup * 128;
    own_sums = base + place::OWN + warpgroup * STAGGERED_WARPS * 128;
    own_again = base + place::OWN_AGAIN + warpgroup * STAGGERED_WARPS * 256;
    asks = threadIdx.x % 128 == 0;
    likely = 0.0f, agains = 0;
  }

  DEVICE uint32_t tile_of(uint32_t turn) const {
    return (turn * STAGGERED_WARPGROUPS + warpgroup) * p.groups + first_tile;
  }

  /* ---- Copies ---- */

  DEVICE void a_load(uint32_t turn) const {
    if (tile_of(turn) >= p.tiles) return;
    const uint32_t buffer = turn % place::A_TILES, barrier = a_full + 8 * buffer;
    barrier_expect(barrier, place::A_TILE);
    for (int k = 0; k < Steps; k++)
      tensor_copy(a_stages + buffer * place::A_TILE + k * place::A_PANEL, &p.a, WGMMA_DEPTH * k,
                  tile_of(turn) * STAGGERED_ROWS, matrix, barrier, read_often_policy());
  }

  DEVICE void begin() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < (place::BYTES - place::BARRIERS) / 8; i++) barrier_init(base + place::BARRIERS + 8 * i, 1);
      barriers_are_initialised();
      barrier_expect(b_known, p.row_blocks * STAGGERED_MEASURING_WARPS * 4);
    } else if (threadIdx.x == 64) {
      tensor_prefetch(&p.b);
      tensor_prefetch(&p.a);
    }
    __syncwarp();
    only_arrive_at_cluster();
    __syncthreads();
  }

  /* The first tiles of A, and all of the block's rows of B. */
  DEVICE void load_first() const {
    if (asks) {
      if (warpgroup == 0) a_load(0);
      for (int b = warpgroup; b < STAGGERED_PRODUCTS; b += STAGGERED_WARPGROUPS) {
        barrier_expect(b_full + 8 * b, Steps * WGMMA_PANEL_BYTES);
        for (int k = 0; k < Steps; k++) /* coordinates: k, the column in 16, b, w */
          tensor_copy(base + k * place::B_PANEL + b * WGMMA_PANEL_BYTES, &p.b, WGMMA_DEPTH * k, 0, b,
                      matrix * p.b_groups + 4 * rank, b_full + 8 * b, read_often_policy());
      }
      if (warpgroup) a_load(0);
      if (place::A_TILES > 1) a_load(1);
    }
    __syncwarp();
  }

  /* ---- Lengths ---- */

  /* The longest row of B that a warp finds goes to all blocks. Warpgroup 0 multiplies meanwhile. */
  DEVICE void measure_b() const {
    if (warpgroup) {
      const uint32_t mine = warp - STAGGERED_WARPS;
      float most = 0.0f;
      for (uint32_t i = mine; i < STAGGERED_COLUMNS / 32;
           i += STAGGERED_MEASURING_WARPS) { /* 32 rows, of product i / 2 */
        const uint32_t row = 32 * i + lane;
        barrier_wait(b_full + 8 * (i / 2), 0);
        most = max_or_nan(most, squares<8 * Steps>(p, [&](int chunk) {
                            return base + chunk / 8 * place::B_PANEL + row * 128 + ((chunk % 8 ^ lane % 8) << 4);
                          }));
      }
      /* NaN is the largest. */
      most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most) & 0x7fffffffu));
      wait_for_cluster();
      if (lane < p.row_blocks)
        send_word(
            address_in_block(base + place::B_LENGTHS + (rank * STAGGERED_MEASURING_WARPS + mine) * 4, first + lane),
            __float_as_uint(most), address_in_block(b_known, first + lane));
    } else
      wait_for_cluster();
  }

  /* Lengths of the tile's rows, two rows to eight lanes. Returns whether one is so long that its maximum is likely far
   * from its reference. */
  DEVICE bool measure_a(uint32_t a_tile) const {
    const uint32_t row = 8 * w + g;
    const float sum = quad_sum(squares<2 * Steps>(p, [&](int chunk) {
      return a_tile + chunk / 2 * place::A_PANEL + row * 128 + ((2 * t + chunk % 2 ^ g) << 4);
    }));
    const float length = root(sum);
    if (t == 0) store_number(a_lengths + row * 4, length);
    if constexpr (asks_if_far<Steps>) return warpgroup_any(1 + warpgroup, length * likely > MOST_LIKELY);
    warps_meet(1 + warpgroup, 128);
    return false;
  }

  /* After the first product, since B's longest row is known later. */
  DEVICE bool learn_b() {
    barrier_wait_cluster(b_known, 0);
    float most = 0.0f;
    for (uint32_t i = lane; i < p.row_blocks * STAGGERED_MEASURING_WARPS; i += 32)
      most = max_or_nan(most, load_number(base + place::B_LENGTHS + i * 4));
    likely =
        likely_share<Steps> * p.factor * root(__uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most))));
    if constexpr (asks_if_far<Steps>)
      return __any_sync(0xffffffffu, load_number(a_lengths + lane * 4) * likely > MOST_LIKELY);
    return false;
  }

  /* ---- Exponentials and sums ---- */

  /* s := exponentials relative to the maxima. Returns the factor of the row that the lane speaks for. */
  DEVICE float finish_from_maxima(tile_numbers &s, uint32_t told_to, uint32_t heard_by, uint32_t phase) const {
    const row_told own = exponentials_from_maxima(s, p.factor, g, t);
    store_two_numbers(own_again + w * 256 + lane * 8, {own.max, own.sum});
    warps_meet(1 + warpgroup, 128);
    if (asks) barrier_expect(heard_by, p.row_blocks * 256);
    __syncwarp();
    const row_told block = entries_join<STAGGERED_WARPS>(own_again + lane * 8, STAGGERED_WARPS, p.factor);
    unrolled_for (uint32_t i = 0; i < Cluster; i += 4)
      if (i < p.row_blocks)
        send_two(address_in_block(told_to + rank * 256 + lane * 8, first + i + w), make_float2(block.max, block.sum),
                 address_in_block(heard_by, first + i + w));
    barrier_wait_cluster(heard_by, phase);
    const row_told all = entries_join<Cluster>(told_to + lane * 8, p.row_blocks, p.factor);
    return weight_of(own.max, base_of(all.max), p.factor) * reciprocal(all.sum);
  }

  /* The references of the lane's rows. */
  DEVICE void references(float (&less)[8]) const {
    unrolled_for (int j = 0; j < 4; j++) {
      const float2 two = load_shared_two(a_lengths + (8 * j + 2 * t) * 4);
      less[2 * j] = two.x * likely - RAISED, less[2 * j + 1] = two.y * likely - RAISED;
    }
  }

  /* Sends the block's sums to all sharers, and returns the sum of all. Two sets of slots suffice: a sender for the tile
   * after the next has heard of the next tile, so all have read the slots of this one. */
  DEVICE float sum_of_all(float own, uint32_t told_to, uint32_t heard_by, uint32_t phase) const {
    float all = 0.0f;
    store_number(own_sums + w * 128 + lane * 4, own);
    warps_meet(1 + warpgroup, 128);
    if (asks) barrier_expect(heard_by, p.row_blocks * 128);
    __syncwarp();
    float block = load_number(own_sums + lane * 4);
    unrolled_for (int i = 1; i < STAGGERED_WARPS; i++) block += load_number(own_sums + i * 128 + lane * 4);
    unrolled_for (uint32_t i = 0; i < Cluster; i += 4)
      if (i < p.row_blocks)
        send_word(address_in_block(told_to + rank * 128 + lane * 4, first + i + w), __float_as_uint(block),
                  address_in_block(heard_by, first + i + w));
    barrier_wait_cluster(heard_by, phase);
    unrolled_for (uint32_t i = 0; i < Cluster; i++)
      if (i < Cluster / 2 || p.row_blocks == Cluster) all += load_number(told_to + i * 128 + lane * 4);
    return all;
  }

  DEVICE static void wait_for_products(tile_numbers &s) {
    wgmma_wait<0>();
    unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++) pin(s[b]);
  }

  /* ---- A tile ---- */

  /* s := exponentials of the tile. Returns the factor of the row that the lane speaks for. */
  DEVICE float make_tile(tile_numbers &s, uint32_t turn) {
    const uint32_t buffer = turn & 1, parity = turn >> 1 & 1, a_buffer = turn % place::A_TILES;
    const uint32_t a_tile = a_stages + a_buffer * place::A_TILE;
    const uint32_t told_now = told + buffer * Cluster * 256, heard_now = heard + 8 * buffer;
    const bool counts = rank * STAGGERED_COLUMNS + STAGGERED_GROUP * w < p.n;
    barrier_wait(a_full + 8 * a_buffer, turn / place::A_TILES & 1);
    barrier_wait(my_turn, warpgroup ? turn & 1 : turn & 1 ^ 1);
    float scale;
    bool from_maxima = false;
    do { /* once, or twice: with two places that multiply ptxas spills */
      multiply<Steps>(p, s, base, b_full, a_tile);
      if (from_maxima) {
        wait_for_products(s);
        prepare(s, p.negative, counts);
        scale = finish_from_maxima(s, told_again, heard_again, agains & 1);
        agains++;
        break;
      }
      bool far = measure_a(a_tile);
      wait_for_products(s);
      __syncwarp();
      if (lane == 0) barrier_arrive(next_turn);
      if (turn == 0) far = learn_b();
      float less[8];
      references(less);
      prepare(s, p.negative, counts);
      if (far) {
        scale = finish_from_maxima(s, told_now, heard_now, parity);
        break;
      }
      const float all = sum_of_all(exponentials_from(s, less, p.factor, g), told_now, heard_now, parity);
      scale = reciprocal(all);
      from_maxima = __any_sync(0xffffffffu, !(all >= 1.0f && all <= 0x1p126f));
    } while (from_maxima);
    return scale;
  }

  DEVICE void store(const tile_numbers &s, float scale, uint32_t tile) const {
    const uint32_t boxes = base + place::STAGING + 2 * warp * place::BOX_ROWS * 128;
    const int column = rank * STAGGERED_COLUMNS + STAGGERED_GROUP * w;
    if (p.output == GEMM_SOFTMAX_F16)
      rows_store<__half, place::BOX_ROWS>(p, s, scale, boxes, column, tile * STAGGERED_ROWS, matrix);
    else
      rows_store<__nv_bfloat16, place::BOX_ROWS>(p, s, scale, boxes, column, tile * STAGGERED_ROWS, matrix);
  }
};

template <int Steps> DEVICE void softmax_staggered(const gemm_softmax_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  staggered_warp<Steps> at(p, shared_address(shared));
  at.begin();
  if (at.matrix >= p.batch) { /* no tile is left for the last blocks of the last cluster */
    wait_for_cluster();
    return;
  }
  at.load_first();
  at.measure_b();
  for (uint32_t turn = 0; at.tile_of(turn) < p.tiles; turn++) {
    tile_numbers s;
    const float scale = at.make_tile(s, turn);
    if (at.asks) at.a_load(turn + staggered_places<Steps>::A_TILES);
    __syncwarp();
    at.store(s, scale, at.tile_of(turn));
  }
  if (at.lane == 0) tensor_store_wait();
}

} // namespace

#define DEFINE(chips, parameters, name, threads, steps)                                                                \
  DEFINE_CLUSTER_KERNEL(wait_for_predecessors(), WGMMA_CLUSTER, parameters, name, threads, 1, softmax_staggered<steps>)
GEMM_SOFTMAX_STAGGERED_KERNELS(DEFINE)

#endif
