/* gemm_softmax_teams.cu - softmax of the rows of S = scale A B^T in 16 bits where k is short and a cluster's shared
 * memory holds B: what it costs then is to write P.
 *
 * A cluster takes 32 rows of S at a time, each of its blocks 512 columns of them, and a block's teams of one warpgroup
 * each take turns to multiply, so that one multiplies while another takes exponentials and a third stores: without
 * turns all do the same at the same time. The product is S^T = B A^T: B's rows, 64 at a time, are the rows of the
 * warpgroup's products, and A's 32 rows their columns.
 *
 * Of product b, warp w and lane 4 g + t have the products' rows 16 w + g + 8 h and columns 8 j + 2 t + e, h and e being
 * 0 or 1 and j 0 to 3: s[b][4 j + 2 h + e]. Which column of S is which row of a product is free, because it is where a
 * row of B lies in shared memory: column 128 w + 16 b + 8 h + g of the block is row 16 w + 8 h + g of product b, so
 * that a warp has 128 neighbouring columns. stmatrix turns what it has back into rows of P.
 *
 * A lane has numbers of eight rows, r = 2 j + e, and each row is in the eight lanes of a t. Reductions leave row r with
 * the lane whose g is r: each lane speaks for one of the tile's 32 rows, 8 (g / 2) + 2 t + g % 2.
 *
 * Exponents are counted from a share of what no logit of the row exceeds, factor |a| max |b|: known before the product
 * and the same in all blocks, so that these exchange sums alone. Where a row's sum says that this was too much, or
 * something is not finite, the tile is made again and counted from its maxima; all blocks see the same sums and decide
 * alike. Measured on an H200: README.md. */
#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#define WGMMA_D_32     WGMMA_EIGHT(0), WGMMA_EIGHT(8)
#define WGMMA_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
WGMMA_PRODUCTS(32, "16", "17", "18", "19", "20")

namespace {

/* Places in shared memory. Panels come first: they begin at multiples of 1024 bytes. */
template <int Cluster, int Steps> struct team_places {
  static constexpr int B_PANEL = TEAM_COLUMNS * 128, A_PANEL = TEAM_ROWS * 128, A_TILE = Steps * A_PANEL;
  static constexpr int A_TILES = TEAM_A_TILES(Steps), BOX_ROWS = TEAM_BOX_ROWS(Steps);
  static constexpr int B_LENGTHS_COUNT = TEAM_MEASURING_WARPS * Cluster;
  static constexpr int A = Steps * B_PANEL, STAGING = A + TEAMS * A_TILES * A_TILE;
  static constexpr int OWN = STAGING + TEAMS * TEAM_WARPS * 2 * BOX_ROWS * 128; /* a row's sum, of each warp */
  static constexpr int OWN_AGAIN = OWN + TEAMS * TEAM_WARPS * TEAM_ROWS * 4;    /* {max, sum} */
  static constexpr int TOLD = OWN_AGAIN + TEAMS * TEAM_WARPS * TEAM_ROWS * 8;   /* of each block, two sets */
  static constexpr int TOLD_AGAIN = TOLD + TEAMS * 2 * Cluster * TEAM_ROWS * 8;
  static constexpr int A_LENGTHS = TOLD_AGAIN + TEAMS * Cluster * TEAM_ROWS * 8;
  static constexpr int B_LENGTHS = A_LENGTHS + TEAMS * TEAM_ROWS * 4; /* the longest row that each warp found */
  static constexpr int BARRIERS = B_LENGTHS + B_LENGTHS_COUNT * 4;
  static constexpr int B_FULL = BARRIERS, A_FULL = B_FULL + 8 * TEAM_PRODUCTS, HEARD = A_FULL + 16 * TEAMS;
  static constexpr int HEARD_AGAIN = HEARD + 16 * TEAMS, B_KNOWN = HEARD_AGAIN + 8 * TEAMS, TURN = B_KNOWN + 8;
  static constexpr int BYTES = TURN + 8 * TEAMS * TEAM_WARPS;
  static_assert(BYTES <= TEAM_SHARED_BYTES(Steps, Cluster), "what a launch asks for");
};

using tile_numbers = float[TEAM_PRODUCTS][16];

/* Exponents are counted from a share of what no logit of a row exceeds, at which the largest of some thousand is likely
 * to lie: of vectors in any directions they have a deviation of 1 / sqrt(k) of it, and the largest is some three of
 * these. 2^63 times as large, exponentials then have as much room above as below. */
template <int Steps> constexpr float likely_share = Steps == 1 ? 0.375f : 0.265f;
constexpr float RAISED = 63.0f;
/* Where a row's largest exponent is likely to be more than this, it is likely to be elsewhere by more than there is
 * room for, and the tile is counted from its maxima at once. With k of 128 to ask costs 1.3 % of the time. */
constexpr float MOST_LIKELY = 150.0f;
template <int Steps> constexpr bool asks_if_far = Steps == 1;

/* ---- Wrappers ---------------------------------------------------------------------------------------------------- */

/* The two halves of cluster_meet. Nothing but barriers has been written by then, and their initialisation has a fence.
 */
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void stmatrix_x4_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                                       uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_one_there(uint32_t address, float x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
               "r"(__float_as_uint(x)), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void shared_store(uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
/* warps_meet, and whether `here` is true in any thread that does. */
__device__ __forceinline__ bool any_meets(uint32_t barrier, uint32_t threads, bool here) {
  uint32_t any;
  asm volatile("{\n.reg .pred here, any;\nsetp.ne.u32 here, %1, 0;\n"
               "barrier.cta.red.or.aligned.pred any, %2, %3, here;\nselp.u32 %0, 1, 0, any;\n}"
               : "=r"(any)
               : "r"((uint32_t)here), "r"(barrier), "r"(threads)
               : "memory");
  return any;
}
__device__ __forceinline__ float root(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The sum of the squares of eight numbers. Pairs of bf16 are added in 16 bits: it is for a bound, of which two digits
 * are enough. f16 has too few exponents for squares. */
__device__ __forceinline__ float squares_of(const uint32_t (&pairs)[4], __nv_bfloat16) {
  __nv_bfloat162 sum = __float2bfloat162_rn(0.0f);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const __nv_bfloat162 pair = reinterpret_cast<const __nv_bfloat162 &>(pairs[i]);
    sum = i ? __hfma2(pair, pair, sum) : __hmul2(pair, pair);
  }
  const float2 two = __bfloat1622float2(sum);
  return two.x + two.y;
}
__device__ __forceinline__ float squares_of(const uint32_t (&pairs)[4], __half) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 two = __half22float2(reinterpret_cast<const __half2 &>(pairs[i]));
    sum = fmaf(two.x, two.x, fmaf(two.y, two.y, sum));
  }
  return sum;
}
template <typename T> __device__ __forceinline__ float squares(uint32_t address) {
  const float4 eight = load_shared_four(address);
  const uint32_t pairs[4] = {__float_as_uint(eight.x), __float_as_uint(eight.y), __float_as_uint(eight.z),
                             __float_as_uint(eight.w)};
  return squares_of(pairs, T());
}

/* Of eight numbers of each lane, one for each r, the lanes of a t make one each: that of r = g. Half of them go to the
 * lane whose g has the other bit, then a quarter, then an eighth. */
template <typename Join> __device__ __forceinline__ float rows_deal(const float (&of)[8], uint32_t g, Join join) {
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float keep = g & 4 ? of[4 + i] : of[i], give = g & 4 ? of[i] : of[4 + i];
    four[i] = join(keep, __shfl_xor_sync(0xffffffffu, give, 16));
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float keep = g & 2 ? four[2 + i] : four[i], give = g & 2 ? four[i] : four[2 + i];
    two[i] = join(keep, __shfl_xor_sync(0xffffffffu, give, 8));
  }
  const float keep = g & 1 ? two[1] : two[0], give = g & 1 ? two[0] : two[1];
  return join(keep, __shfl_xor_sync(0xffffffffu, give, 4));
}
/* What the lane that speaks for row r says. */
__device__ __forceinline__ float of_row(float value, int r, uint32_t t) {
  return __shfl_sync(0xffffffffu, value, 4 * r + t);
}

/* A row's {max, sum} from `Count` entries of it. */
struct row_told {
  float max, sum;
};
template <int Count> __device__ __forceinline__ row_told entries_join(uint32_t entries, uint32_t stride, float factor) {
  row_told all = {-INFINITY, 0.0f};
  float max[Count], sum[Count];
#pragma unroll
  for (int i = 0; i < Count; i++) {
    const float2 entry = load_shared_two(entries + i * stride);
    max[i] = entry.x, sum[i] = entry.y;
  }
#pragma unroll
  for (int i = 0; i < Count; i++) all.max = max_or_nan(all.max, max[i]);
  const float base = base_of(all.max);
#pragma unroll
  for (int i = 0; i < Count; i++) all.sum += sum[i] * weight_of(max[i], base, factor);
  return all;
}

/* The warp's 128 columns of P, by two boxes of shared memory in turn. */
template <typename P, int Rows>
__device__ __forceinline__ void rows_store(const gemm_softmax_wgmma_parameters &p, const tile_numbers &s, float scale,
                                           uint32_t boxes, int column, int row, int matrix) {
  constexpr int OF_HALF = TEAM_ROWS / Rows; /* parts of 64 columns */
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
  for (int part = 0; part < 2 * OF_HALF; part++) {
    const int half = part / OF_HALF, first_row = part % OF_HALF * Rows;
    const uint32_t box = boxes + part % 2 * Rows * 128;
    if (lane == 0) tensor_store_wait_read<1>();
    __syncwarp();
#pragma unroll
    for (int j = first_row / 8; j < (first_row + Rows) / 8; j++) {
      const float x = of_row(scale, 2 * j, t), y = of_row(scale, 2 * j + 1, t);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float *one = &s[4 * half + 2 * i][4 * j], *two = &s[4 * half + 2 * i + 1][4 * j];
        stmatrix_x4_transposed(box + (j * 8 - first_row + lane % 8) * 128 + ((4 * i + lane / 8) ^ lane % 8) * 16,
                               pack_two<P>(one[0] * x, one[1] * y), pack_two<P>(one[2] * x, one[3] * y),
                               pack_two<P>(two[0] * x, two[1] * y), pack_two<P>(two[2] * x, two[3] * y));
      }
    }
    writes_reach_products();
    __syncwarp();
    if (lane == 0) {
      tensor_store(&p.p, column + 64 * half, row + first_row, matrix, box, read_once_policy());
      tensor_store_commit();
    }
  }
}

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

/* s := B A^T, under way. Each product waits for its rows of B: a block's first begins while others are still coming. */
template <typename T, int Steps>
__device__ __forceinline__ void multiply(tile_numbers &s, uint32_t b_panels, uint32_t b_full, uint32_t a_tile) {
  const uint64_t a = operand_descriptor(a_tile, 0), b0 = operand_descriptor(b_panels, 0);
#pragma unroll
  for (int b = 0; b < TEAM_PRODUCTS; b++) pin(s[b]);
#pragma unroll
  for (int b = 0; b < TEAM_PRODUCTS; b++) {
    barrier_wait(b_full + 8 * b, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4 * Steps; k++)
      warpgroup_product<T, 32>::shared(s[b],
                                       operand_further(b0, k / 4 * TEAM_B_BYTES + b * WGMMA_PANEL_BYTES + k % 4 * 32),
                                       operand_further(a, k / 4 * TEAM_ROWS * 128 + k % 4 * 32), k > 0);
  }
  wgmma_commit();
}

/* Signs by which a larger number is a larger logit, and -infinity where columns do not count: all of a warp's, or none.
 */
__device__ __forceinline__ void prepare(tile_numbers &s, bool negative, bool counts) {
  if (!negative && counts) return;
#pragma unroll
  for (int b = 0; b < TEAM_PRODUCTS; b++)
#pragma unroll
    for (int i = 0; i < 16; i++) s[b][i] = counts ? -s[b][i] : -INFINITY;
}

/* s := exponentials counted from the maxima of the warp's numbers. Returns {max, sum} of the row that the lane speaks
 * for. */
__device__ __forceinline__ row_told exponentials_from_maxima(tile_numbers &s, float factor, uint32_t g, uint32_t t) {
  float part[8];
#pragma unroll
  for (int r = 0; r < 8; r++) {
    const int i = r / 2 * 4 + r % 2;
    part[r] = max_or_nan(s[0][i], s[0][i + 2]);
#pragma unroll
    for (int b = 1; b < TEAM_PRODUCTS; b++) part[r] = max_or_nan(part[r], max_or_nan(s[b][i], s[b][i + 2]));
  }
  row_told own = {rows_deal(part, g, [](float a, float b) { return max_or_nan(a, b); }), 0.0f};
  /* One rounding in factor s - factor max keeps the products' rounding errors out; where they are so large that the
   * error would show, the difference comes first. */
  const float own_base = base_of(own.max);
  const bool large = fabsf(own_base * factor) > 4096.0f;
  const float offset = large ? 0.0f : own_base * factor;
  if (__any_sync(0xffffffffu, large)) {
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const float less = of_row(large ? own_base : 0.0f, r, t);
#pragma unroll
      for (int b = 0; b < TEAM_PRODUCTS; b++) s[b][r / 2 * 4 + r % 2] -= less, s[b][r / 2 * 4 + r % 2 + 2] -= less;
    }
  }
  const auto add = [&](int r) {
    part[r] = s[0][r / 2 * 4 + r % 2] + s[0][r / 2 * 4 + r % 2 + 2];
#pragma unroll
    for (int b = 1; b < TEAM_PRODUCTS; b++) part[r] += s[b][r / 2 * 4 + r % 2] + s[b][r / 2 * 4 + r % 2 + 2];
  };
#pragma unroll
  for (int r = 0; r < 8; r++) {
    const float less = of_row(offset, r, t);
#pragma unroll
    for (int b = 0; b < TEAM_PRODUCTS; b++) {
      float &x = s[b][r / 2 * 4 + r % 2], &y = s[b][r / 2 * 4 + r % 2 + 2];
      x = exp2_approximate(fmaf(x, factor, -less)), y = exp2_approximate(fmaf(y, factor, -less));
    }
    if (r) add(r - 1);
  }
  add(7);
  own.sum = rows_deal(part, g, [](float a, float b) { return a + b; });
  return own;
}

/* s := exponentials, of each of the lane's rows counted from `less`. Returns the sum of the row that it speaks for. */
__device__ __forceinline__ float exponentials_from(tile_numbers &s, const float (&less)[8], float factor, uint32_t g) {
  float sum[8];
#pragma unroll
  for (int b = 0; b < TEAM_PRODUCTS; b++) {
#pragma unroll
    for (int i = 0; i < 16; i++) s[b][i] = exp2_approximate(fmaf(s[b][i], factor, -less[i / 4 * 2 + i % 2]));
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const float x = s[b][r / 2 * 4 + r % 2], y = s[b][r / 2 * 4 + r % 2 + 2];
      sum[r] = b ? sum[r] + (x + y) : x + y;
    }
  }
  return rows_deal(sum, g, [](float x, float y) { return x + y; });
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename T, int Cluster, int Steps>
__device__ __forceinline__ void softmax_by_teams(const gemm_softmax_wgmma_parameters &p) {
  using place = team_places<Cluster, Steps>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  /* A reduction over the warp lands in a register of its own kind, from which descriptors are made without moves. */
  const uint32_t warp = __reduce_max_sync(0xffffffffu, threadIdx.x / 32), team = warp / 4, w = warp % 4;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = cluster_rank(), cluster = blockIdx.x / Cluster;
  const uint32_t matrix = cluster / p.clusters, first_tile = cluster % p.clusters;
  const uint32_t b_full = base + place::B_FULL, a_full = base + place::A_FULL + team * 16,
                 heard = base + place::HEARD + team * 16;
  const uint32_t heard_again = base + place::HEARD_AGAIN + team * 8, b_known = base + place::B_KNOWN;
  const uint32_t my_turn = base + place::TURN + (team * 4 + w) * 8,
                 next_turn = base + place::TURN + ((team + 1) % TEAMS * 4 + w) * 8;
  const uint32_t a_stages = base + place::A + team * place::A_TILES * place::A_TILE,
                 told = base + place::TOLD + team * 2 * Cluster * 256;
  const uint32_t told_again = base + place::TOLD_AGAIN + team * Cluster * 256,
                 a_lengths = base + place::A_LENGTHS + team * 128;
  const uint32_t own_sums = base + place::OWN + team * TEAM_WARPS * 128;
  const uint32_t own_again = base + place::OWN_AGAIN + team * TEAM_WARPS * 256;
  const bool asks = threadIdx.x % 128 == 0;
  const auto tile_of = [&](uint32_t turn) { return (turn * TEAMS + team) * p.clusters + first_tile; };
  const auto a_load = [&](uint32_t turn) {
    if (tile_of(turn) >= p.tiles) return;
    const uint32_t buffer = turn % place::A_TILES, barrier = a_full + 8 * buffer;
    barrier_expect(barrier, place::A_TILE);
    for (int k = 0; k < Steps; k++)
      tensor_copy(a_stages + buffer * place::A_TILE + k * place::A_PANEL, &p.a, WGMMA_DEPTH * k,
                  tile_of(turn) * TEAM_ROWS, matrix, barrier, read_often_policy());
  };

  if (threadIdx.x == 0) {
    for (int i = 0; i < (place::BYTES - place::BARRIERS) / 8; i++) barrier_init(base + place::BARRIERS + 8 * i, 1);
    barriers_are_initialised();
    barrier_expect(b_known, place::B_LENGTHS_COUNT * 4);
  } else if (threadIdx.x == 64) {
    tensor_prefetch(&p.b);
    tensor_prefetch(&p.a);
  }
  __syncwarp();
  cluster_arrive();
  __syncthreads();
  if (asks) {
    if (team == 0) a_load(0);
    for (int b = team; b < TEAM_PRODUCTS; b += TEAMS) {
      barrier_expect(b_full + 8 * b, Steps * WGMMA_PANEL_BYTES);
      for (int k = 0; k < Steps; k++) /* coordinates: k, the column in 16, b, w */
        tensor_copy(base + k * place::B_PANEL + b * WGMMA_PANEL_BYTES, &p.b, WGMMA_DEPTH * k, 0, b,
                    matrix * p.b_groups + 4 * rank, b_full + 8 * b, read_often_policy());
    }
    if (team) a_load(0);
    if (place::A_TILES > 1) a_load(1);
  }
  __syncwarp();

  /* The longest row of B that a warp finds goes to all blocks. Team 0 multiplies meanwhile. */
  if (team) {
    const uint32_t first = warp - TEAM_WARPS;
    float most = 0.0f;
    for (uint32_t i = first; i < TEAM_COLUMNS / 32; i += TEAM_MEASURING_WARPS) { /* 32 rows, of product i / 2 */
      const uint32_t row = 32 * i + lane;
      float sum[2] = {0.0f, 0.0f};
      barrier_wait(b_full + 8 * (i / 2), 0);
#pragma unroll
      for (int chunk = 0; chunk < 8 * Steps; chunk++)
        sum[chunk % 2] += squares<T>(base + chunk / 8 * place::B_PANEL + row * 128 + ((chunk % 8 ^ lane % 8) << 4));
      most = max_or_nan(most, sum[0] + sum[1]);
    }
    most =
        __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most) & 0x7fffffffu)); /* NaN is the largest */
    cluster_wait();
    if (lane < Cluster)
      store_one_there(address_in(lane, base + place::B_LENGTHS + (rank * TEAM_MEASURING_WARPS + first) * 4), most,
                      address_in(lane, b_known));
  } else
    cluster_wait();
  float likely = 0.0f; /* a row's largest exponent, for each unit of its length */
  uint32_t agains = 0;

  for (uint32_t turn = 0;; turn++) {
    const uint32_t tile = tile_of(turn);
    if (tile >= p.tiles) break;
    const uint32_t buffer = turn & 1, parity = turn >> 1 & 1, a_buffer = turn % place::A_TILES;
    const uint32_t a_tile = a_stages + a_buffer * place::A_TILE;
    tile_numbers s;

    const bool counts = rank * TEAM_COLUMNS + TEAM_GROUP * w < p.n;
    barrier_wait(a_full + 8 * a_buffer, turn / place::A_TILES & 1);
    barrier_wait(my_turn, team ? turn & 1 : turn & 1 ^ 1);

    float scale;
    bool from_maxima = false;
    const auto from_the_maxima = [&](uint32_t told_to, uint32_t heard_by, uint32_t phase) {
      const row_told own = exponentials_from_maxima(s, p.factor, g, t);
      shared_store(own_again + w * 256 + lane * 8, own.max, own.sum);
      warps_meet(1 + team, 128);
      if (asks) barrier_expect(heard_by, Cluster * 256);
      __syncwarp();
      const row_told block = entries_join<TEAM_WARPS>(own_again + lane * 8, 256, p.factor);
#pragma unroll
      for (int i = 0; i < Cluster / 4; i++)
        store_there(address_in(4 * i + w, told_to + rank * 256 + lane * 8), block.max, block.sum,
                    address_in(4 * i + w, heard_by));
      barrier_wait_cluster(heard_by, phase);
      const row_told all = entries_join<Cluster>(told_to + lane * 8, 256, p.factor);
      scale = weight_of(own.max, base_of(all.max), p.factor) * reciprocal(all.sum);
    };
    const uint32_t told_now = told + buffer * Cluster * 256, heard_now = heard + 8 * buffer;
    do { /* once, or twice: with two places that multiply ptxas spills */
      multiply<T, Steps>(s, base, b_full, a_tile);
      if (from_maxima) {
        wgmma_wait<0>();
#pragma unroll
        for (int b = 0; b < TEAM_PRODUCTS; b++) pin(s[b]);
        prepare(s, p.negative, counts);
        from_the_maxima(told_again, heard_again, agains & 1);
        agains++;
        break;
      }

      /* Lengths of the tile's rows, two rows to eight lanes. */
      bool far = false;
      {
        const uint32_t row = 8 * w + g;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 2 * Steps; i++) {
          const uint32_t chunk = 2 * t + i % 2;
          sum += squares<T>(a_tile + i / 2 * place::A_PANEL + row * 128 + ((chunk ^ g) << 4));
        }
        sum = quad_sum(sum);
        const float length = root(sum);
        if (t == 0) shared_store(a_lengths + row * 4, length);
        if constexpr (asks_if_far<Steps>)
          far = any_meets(1 + team, 128, length * likely > MOST_LIKELY);
        else
          warps_meet(1 + team, 128);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int b = 0; b < TEAM_PRODUCTS; b++) pin(s[b]);
      __syncwarp();
      if (lane == 0) barrier_arrive(next_turn);
      if (turn == 0) { /* behind the turn: B's longest row is known later than the first product */
        barrier_wait_cluster(b_known, 0);
        float most = 0.0f;
        for (uint32_t i = lane; i < place::B_LENGTHS_COUNT; i += 32)
          most = max_or_nan(most, shared_float(base + place::B_LENGTHS + i * 4));
        likely = likely_share<Steps> * p.factor *
                 root(__uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most))));
        if constexpr (asks_if_far<Steps>)
          far = __any_sync(0xffffffffu, shared_float(a_lengths + lane * 4) * likely > MOST_LIKELY);
      }
      float less[8];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 two = load_shared_two(a_lengths + (8 * j + 2 * t) * 4);
        less[2 * j] = two.x * likely - RAISED, less[2 * j + 1] = two.y * likely - RAISED;
      }
      prepare(s, p.negative, counts);
      if (far) {
        from_the_maxima(told_now, heard_now, parity);
        break;
      }
      const float own = exponentials_from(s, less, p.factor, g);

      /* The block's sums to all blocks. Two sets of slots: who tells of the next tile but one has heard of the next, so
       * that all have read of this. */
      float all = 0.0f;
      shared_store(own_sums + w * 128 + lane * 4, own);
      warps_meet(1 + team, 128);
      if (asks) barrier_expect(heard_now, Cluster * 128);
      __syncwarp();
      float block = shared_float(own_sums + lane * 4);
#pragma unroll
      for (int i = 1; i < TEAM_WARPS; i++) block += shared_float(own_sums + i * 128 + lane * 4);
#pragma unroll
      for (int i = 0; i < Cluster / 4; i++)
        store_one_there(address_in(4 * i + w, told_now + rank * 128 + lane * 4), block,
                        address_in(4 * i + w, heard_now));
      barrier_wait_cluster(heard_now, parity);
#pragma unroll
      for (int i = 0; i < Cluster; i++) all += shared_float(told_now + i * 128 + lane * 4);
      scale = reciprocal(all);
      from_maxima = __any_sync(0xffffffffu, !(all >= 1.0f && all <= 0x1p126f));
    } while (from_maxima);
    if (asks) a_load(turn + place::A_TILES);
    __syncwarp();

    const uint32_t boxes = base + place::STAGING + 2 * warp * place::BOX_ROWS * 128;
    const int column = rank * TEAM_COLUMNS + TEAM_GROUP * w;
    if (p.output == GEMM_SOFTMAX_F16)
      rows_store<__half, place::BOX_ROWS>(p, s, scale, boxes, column, tile * TEAM_ROWS, matrix);
    else
      rows_store<__nv_bfloat16, place::BOX_ROWS>(p, s, scale, boxes, column, tile * TEAM_ROWS, matrix);
  }
  if (lane == 0) tensor_store_wait();
}

} // namespace

#define DEFINE(chips, parameters, name, threads, type, is_softmax, cluster, held, steps)                               \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                             \
      name(const __grid_constant__ parameters p) {                                                                     \
    wait_for_predecessors();                                                                                           \
    softmax_by_teams<element<type>, cluster, steps>(p);                                                                \
    publish(p.done);                                                                                                   \
  }
GEMM_SOFTMAX_TEAMS_KERNELS(DEFINE)

#endif
