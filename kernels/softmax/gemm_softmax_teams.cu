/* gemm_softmax_teams.cu - softmax of the rows of S = scale A B^T where k is short: what it costs then is to take the
 * exponentials and to write P.
 *
 * The blocks of a cluster share rows; B's rows of a block stay in its shared memory. A team of four warps takes 32 rows
 * at a time, one tile after the other, and its warps have 32 x 128 of S each in registers, made by mma.sync: a wgmma
 * tile of 64 rows would leave room for one tile in a multiprocessor, whose phases follow one another. Three teams are
 * in different phases instead, since they take turns to multiply: without turns they all multiply, take exponentials
 * and store at the same time (H200, 4096 x 4096 x 64: 21.5 us instead of 18.4).
 *
 * A warp takes exponentials counted from its own maximum. The team adds up, tells its {max, sum} to all blocks of the
 * cluster, hears theirs, and scales. Nobody waits for the whole block or the whole cluster.
 *
 * Columns are dealt to the fragments of mma so that a lane has eight neighbours in each 32, which it stores at once.
 * Measured on an H200: docs/performance.md. */
#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

constexpr int PARTS = TEAM_ROWS / 16;               /* of a warp's rows, in the words of ptx.cuh */
constexpr int COLUMN_TILES = TEAM_WARP_COLUMNS / 8; /* likewise */
constexpr int ELEMENTS = COLUMN_TILES * 4;          /* of a part, of a lane */
using warp_rows = float[PARTS][ELEMENTS];

/* A part's element i belongs to row group + 8 (i / 2 % 2), and to this column from the lane's first, 8 quad. */
__device__ __forceinline__ constexpr int column_of(int i) { return 32 * (i / 16) + 2 * (i / 4 % 4) + i % 2; }

/* threadIdx.x % 32, read anew by each caller, which volatile makes sure of: what is made of it is not held in registers
 * beside S. */
__device__ __forceinline__ uint32_t lane_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(index));
  return index;
}
/* The first of the lane's rows of a tile, and of its columns of a warp. */
__device__ __forceinline__ int lane_row() { return lane_index() / 4; }
__device__ __forceinline__ int lane_column() { return lane_index() % 4 * 8; }

/* Addresses in shared memory: of the block, and of the thread's team. Panels come first: they begin at multiples of
 * 1024 bytes. */
template <uint32_t Cluster, uint32_t Steps> struct team_places {
  uint32_t b, b_full;
  uint32_t a, own, told, a_full, heard;
  uint32_t turn, next_turn; /* of the thread's warp, and of that warp of the team which multiplies next */

  __device__ __forceinline__ team_places(uint32_t shared, uint32_t team, uint32_t warp) {
    b = shared;
    const uint32_t a_all = b + Steps * TEAM_B_BYTES, own_all = a_all + Steps * TEAMS * 2 * TEAM_A_BYTES;
    const uint32_t told_all = own_all + TEAMS * 2 * TEAM_ROWS * TEAM_SLOT_BYTES(TEAM_WARPS);
    b_full = told_all + TEAMS * 2 * TEAM_ROWS * TEAM_SLOT_BYTES(Cluster);
    const uint32_t a_full_all = b_full + 8 * TEAM_WARPS * Steps, heard_all = a_full_all + 8 * 2 * TEAMS;
    const uint32_t turns = heard_all + 8 * 2 * TEAMS;
    a = a_all + team * 2 * Steps * TEAM_A_BYTES;
    own = own_all + team * 2 * TEAM_ROWS * TEAM_SLOT_BYTES(TEAM_WARPS);
    told = told_all + team * 2 * TEAM_ROWS * TEAM_SLOT_BYTES(Cluster);
    a_full = a_full_all + 8 * 2 * team, heard = heard_all + 8 * 2 * team;
    turn = turns + 8 * (team * TEAM_WARPS + warp);
    next_turn = turns + 8 * ((team + 1) % TEAMS * TEAM_WARPS + warp);
  }
};

/* The two halves of cluster_meet. Nothing but barriers has been written by then, and their initialisation has a fence.
 */
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/* ---- Operands ---------------------------------------------------------------------------------------------------- */

/* Arrives when this thread's earlier cp.async copies have come; the barrier was initialised for this arrival too. */
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* The block's rows of B, so that the eight which one ldmatrix reads lie in eight rows of shared memory: column
 * 32 j + 8 t + c, t being below 4 and c below 8, in row 32 j + 4 c + t. Row r of a panel has its chunk i of 16 bytes at
 * i ^ r % 8. `b_full` counts each warp's columns of each panel by themselves. */
template <uint32_t Steps>
__device__ __forceinline__ void b_copy(const gemm_softmax_wgmma_parameters &p, uint32_t b, uint32_t b_full,
                                       uint32_t first, uint32_t matrix) {
  for (uint32_t k = 0; k < Steps; k++)
    for (uint32_t warp = 0; warp < TEAM_WARPS; warp++) {
      const uint32_t barrier = b_full + 8 * (k * TEAM_WARPS + warp), row = warp * TEAM_WARP_COLUMNS;
      barrier_expect(barrier, TEAM_WARP_COLUMNS * 128);
      tensor_copy(b + k * TEAM_B_BYTES + row * 128, &p.b, WGMMA_DEPTH * k, 0, 0,
                  matrix * p.b_groups + (first + row) / TEAM_GROUP, barrier, read_often_policy());
    }
}

/* The same without a map, by all threads. */
template <uint32_t Steps>
__device__ __forceinline__ void b_load(const gemm_softmax_wgmma_parameters &p, uint32_t b, uint32_t b_full,
                                       uint32_t first, uint32_t matrix) {
  const char *from = static_cast<const char *>(p.b_rows) + matrix * p.b_batch_stride;
#pragma unroll 1
  for (uint32_t part = 0; part < Steps * TEAM_WARPS; part++) {
    const uint32_t panel = part / TEAM_WARPS, first_row = part % TEAM_WARPS * TEAM_WARP_COLUMNS;
    for (uint32_t i = threadIdx.x; i < TEAM_WARP_COLUMNS * 8; i += TEAM_THREADS) {
      const uint32_t row = first_row + i / 8, chunk = i % 8, k = WGMMA_DEPTH * panel + 8 * chunk;
      const uint32_t column = first + row / 32 * 32 + row % 4 * 8 + row / 4 % 8;
      const bool there = column < p.n && k < p.k;
      cp_async_16(b + panel * TEAM_B_BYTES + row * 128 + ((chunk ^ row % 8) << 4),
                  from + (there ? column * p.b_row_stride + 2 * k : 0), there ? 16 : 0);
    }
    cp_async_arrive(b_full + 8 * part);
  }
}

/* s := A B^T. The next team may multiply behind the first 64 of k: with twice as many, two do at a time. */
template <typename T, uint32_t Cluster, uint32_t Steps>
__device__ __forceinline__ void multiply(warp_rows &s, const team_places<Cluster, Steps> &at, uint32_t a, uint32_t warp,
                                         bool is_first) {
  const uint32_t lane = lane_index();
  const uint32_t a_lane = a + lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);
  const uint32_t b_turn = lane % 8 / 2 + lane % 2 * 4, b_row = warp * TEAM_WARP_COLUMNS + b_turn + lane / 16 * 8;
  const uint32_t b_lane = at.b + b_row * 128 + ((lane / 8 % 2 ^ b_turn) << 4);
#pragma unroll
  for (int part = 0; part < PARTS; part++)
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) s[part][i] = 0.0f;
#pragma unroll 1
  for (uint32_t k = 0; k < Steps; k++) {
    if (is_first) barrier_wait(at.b_full + 8 * (k * TEAM_WARPS + warp), 0);
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) {
      uint32_t rows[PARTS][4];
#pragma unroll
      for (int part = 0; part < PARTS; part++)
        ldmatrix_x4(rows[part], (a_lane ^ 32 * q) + k * TEAM_A_BYTES + part * 16 * 128);
#pragma unroll
      for (int j = 0; j < COLUMN_TILES; j += 2) {
        uint32_t columns[4];
        ldmatrix_x4(columns, (b_lane ^ 32 * q) + k * TEAM_B_BYTES + j * 8 * 128);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
          mma_16x8x16<T>(reinterpret_cast<float(&)[4]>(s[part][4 * j]), rows[part], columns[0], columns[1]);
          mma_16x8x16<T>(reinterpret_cast<float(&)[4]>(s[part][4 * j + 4]), rows[part], columns[2], columns[3]);
        }
      }
    }
    if (k == 0) {
      __syncwarp();
      if (lane == 0) barrier_arrive(at.next_turn);
    }
  }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The columns that a row counts. */
__device__ __forceinline__ int columns_counted(const gemm_softmax_wgmma_parameters &p, int row) {
  return p.causal ? min((int)p.n, row + (int)p.n - (int)p.m + 1) : (int)p.n;
}

/* Columns that do not count, of the tile from `tile_row` on and the warp's columns from `warp_column` on. */
__device__ __forceinline__ void columns_fill(const gemm_softmax_wgmma_parameters &p, warp_rows &s, int tile_row,
                                             int warp_column, float value) {
  const int row = tile_row + lane_row(), first = warp_column + lane_column();
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    const int counts[2] = {columns_counted(p, row + 16 * part) - first,
                           columns_counted(p, row + 16 * part + 8) - first};
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++)
      if (column_of(i) >= counts[i / 2 % 2]) s[part][i] = value;
  }
}

/* As rows_exponentials, for all parts. */
__device__ __forceinline__ void exponentials(warp_rows &s, row_pair (&own)[PARTS], float factor) {
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    own[part].sum[0] = own[part].sum[1] = 0.0f;
    rows_exponentials(s[part], own[part].max, factor, own[part].sum);
    own[part].sum[0] = quad_sum(own[part].sum[0]), own[part].sum[1] = quad_sum(own[part].sum[1]);
  }
}

/* ---- What warps of a team, and teams of a cluster, tell each other ----------------------------------------------- */

/* {max, sum} of all `Count` of them, that lie one behind the other at `slot`. */
struct row_total {
  float max, sum;
};
template <int Count> __device__ __forceinline__ row_total row_join(uint32_t slot, float factor) {
  float max[Count], sum[Count];
  row_total all = {-INFINITY, 0.0f};
#pragma unroll
  for (int i = 0; i < Count; i += 2) {
    const float4 two = shared_float4(slot + i * 8);
    max[i] = two.x, sum[i] = two.y, max[i + 1] = two.z, sum[i + 1] = two.w;
  }
#pragma unroll
  for (int i = 0; i < Count; i++) all.max = max_or_nan(all.max, max[i]);
#pragma unroll
  for (int i = 0; i < Count; i++) all.sum += sum[i] * weight_of(max[i], base_of(all.max), factor);
  return all;
}

/* The warp's {max, sum} to its team: the first lane of a quad tells those of its rows. */
__device__ __forceinline__ void team_tell(uint32_t own, uint32_t warp, const row_pair (&rows)[PARTS]) {
  const uint32_t lane = lane_index();
  if (lane % 4) return;
#pragma unroll
  for (int part = 0; part < PARTS; part++)
#pragma unroll
    for (int r = 0; r < 2; r++)
      shared_store(own + (16 * part + 8 * r + lane / 4) * TEAM_SLOT_BYTES(TEAM_WARPS) + warp * 8, rows[part].max[r],
                   rows[part].sum[r]);
}

/* The team's to all blocks of the cluster: a lane tells those of one row, a warp to every so many of the blocks. */
template <uint32_t Cluster>
__device__ __forceinline__ void cluster_tell(uint32_t own, uint32_t told, uint32_t heard, uint32_t warp, float factor) {
  const uint32_t row = lane_index();
  const row_total team = row_join<TEAM_WARPS>(own + row * TEAM_SLOT_BYTES(TEAM_WARPS), factor);
  const uint32_t slot = told + row * TEAM_SLOT_BYTES(Cluster) + cluster_rank() * 8;
#pragma unroll
  for (uint32_t i = 0; i < Cluster; i += TEAM_WARPS)
    store_there(address_in(warp + i, slot), team.max, team.sum, address_in(warp + i, heard));
}

/* What the warp's exponentials of each row are multiplied by. A lane finds that of one row. */
template <uint32_t Cluster>
__device__ __forceinline__ void row_factors_of(row_factors (&factors)[PARTS], uint32_t own, uint32_t told,
                                               uint32_t warp, float factor) {
  const uint32_t row = lane_index(), group = row / 4;
  const float max = shared_float(own + row * TEAM_SLOT_BYTES(TEAM_WARPS) + warp * 8);
  const row_total all = row_join<Cluster>(told + row * TEAM_SLOT_BYTES(Cluster), factor);
  const float of_row = weight_of(max, base_of(all.max), factor) * reciprocal(all.sum);
#pragma unroll
  for (int part = 0; part < PARTS; part++)
#pragma unroll
    for (int r = 0; r < 2; r++) factors[part].of[r] = __shfl_sync(0xffffffffu, of_row, 16 * part + 8 * r + group);
}

/* ---- P ----------------------------------------------------------------------------------------------------------- */

/* 16 bytes that nobody here reads again. */
__device__ __forceinline__ void store_16(void *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* The warp's rows of P: 16 bytes of a row are there as a whole or not at all. */
template <typename P>
__device__ __forceinline__ void rows_store(const gemm_softmax_wgmma_parameters &p, const warp_rows &s,
                                           const row_factors (&factors)[PARTS], uint32_t matrix, int tile_row,
                                           int warp_column) {
  const int row = tile_row + lane_row(), column = warp_column + lane_column();
  P *to = static_cast<P *>(p.out) + matrix * p.out_batch_stride + row * p.out_row_stride + column;
#pragma unroll
  for (int part = 0; part < PARTS; part++)
#pragma unroll
    for (int r = 0; r < 2; r++, to += 8 * p.out_row_stride) {
      if (row + 16 * part + 8 * r >= (int)p.m) continue;
#pragma unroll
      for (int i = 0; i < ELEMENTS; i += 16) {
        const float *from = s[part] + i + 2 * r, factor = factors[part].of[r];
        uint32_t two[4];
#pragma unroll
        for (int q = 0; q < 4; q++) two[q] = pack_two<P>(from[4 * q] * factor, from[4 * q + 1] * factor);
        if (column + column_of(i) < (int)p.n) store_16(to + column_of(i), two[0], two[1], two[2], two[3]);
      }
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename T, uint32_t Cluster, uint32_t Steps>
__device__ __forceinline__ void softmax_by_teams(const gemm_softmax_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t warp_of_block = __reduce_max_sync(0xffffffffu, threadIdx.x / 32); /* uniform, and known to be */
  const uint32_t team = warp_of_block / TEAM_WARPS, warp = warp_of_block % TEAM_WARPS;
  const team_places<Cluster, Steps> at(shared_address(shared), team, warp);
  const uint32_t cluster = blockIdx.x / Cluster, matrix = cluster / p.clusters, first_tile = cluster % p.clusters;
  const uint32_t first_column = cluster_rank() * TEAM_COLUMNS;
  const int warp_column = first_column + warp * TEAM_WARP_COLUMNS;
  const bool asks = threadIdx.x % (32 * TEAM_WARPS) == 0; /* for the team's tiles of A */
  const auto tile_of = [&](uint32_t turn) { return (turn * TEAMS + team) * p.clusters + first_tile; };
  const auto a_load = [&](uint32_t turn) {
    if (tile_of(turn) >= p.tiles) return;
    const uint32_t stage = turn % 2, barrier = at.a_full + 8 * stage;
    barrier_expect(barrier, Steps * TEAM_A_BYTES);
    for (uint32_t k = 0; k < Steps; k++)
      tensor_copy(at.a + (stage * Steps + k) * TEAM_A_BYTES, &p.a, WGMMA_DEPTH * k, tile_of(turn) * TEAM_ROWS, matrix,
                  barrier, read_often_policy());
  };

  if (asks) {
    for (int i = 0; i < 2; i++) barrier_init(at.a_full + 8 * i, 1), barrier_init(at.heard + 8 * i, 1);
    for (int i = 0; i < TEAM_WARPS; i++) barrier_init(at.turn + 8 * i, 1);
    if (team == 0)
      for (uint32_t i = 0; i < TEAM_WARPS * Steps; i++) barrier_init(at.b_full + 8 * i, p.b_groups ? 1 : TEAM_THREADS);
    barriers_are_initialised();
    a_load(0);
    if (team == 0 && p.b_groups) b_copy<Steps>(p, at.b, at.b_full, first_column, matrix);
    a_load(1);
    for (int i = 0; i < 2; i++) barrier_expect(at.heard + 8 * i, Cluster * TEAM_ROWS * 8);
  }
  __syncthreads();
  cluster_arrive();
  if (!p.b_groups) b_load<Steps>(p, at.b, at.b_full, first_column, matrix);
  cluster_wait();

  for (uint32_t turn = 0; tile_of(turn) < p.tiles; turn++) {
    const uint32_t stage = turn % 2, parity = turn / 2 % 2;
    const int tile_row = tile_of(turn) * TEAM_ROWS;
    const uint32_t own = at.own + stage * TEAM_ROWS * TEAM_SLOT_BYTES(TEAM_WARPS);
    const uint32_t told = at.told + stage * TEAM_ROWS * TEAM_SLOT_BYTES(Cluster), heard = at.heard + 8 * stage;
    warp_rows s;
    barrier_wait(at.a_full + 8 * stage, parity);
    barrier_wait(at.turn, (team ? turn : turn + 1) % 2); /* the first team need not wait for its first */
    multiply<T>(s, at, at.a + stage * Steps * TEAM_A_BYTES, warp, turn == 0);

    if (p.negative) {
#pragma unroll
      for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) s[part][i] = -s[part][i];
    }
    const bool all_count = warp_column + TEAM_WARP_COLUMNS <= columns_counted(p, tile_row);
    if (!all_count) columns_fill(p, s, tile_row, warp_column, -INFINITY);
    row_pair rows[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; part++)
      rows[part].max[0] = row_max<0>(s[part]), rows[part].max[1] = row_max<1>(s[part]);
    exponentials(s, rows, p.factor);

    /* Two sets of slots: who tells of the next tile but one has heard of the next, so that all have read of this. */
    team_tell(own, warp, rows);
    warps_meet(1 + team, 32 * TEAM_WARPS);
    cluster_tell<Cluster>(own, told, heard, warp, p.factor);
    if (asks) a_load(turn + 2); /* all warps have read this tile of A */
    __syncwarp();
    barrier_wait_cluster(heard, parity);
    row_factors factors[PARTS];
    row_factors_of<Cluster>(factors, own, told, warp, p.factor);
    if (!all_count) { /* those that do not count are 0 even in a row of NaN */
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) s[part][i] *= factors[part].of[i / 2 % 2];
        factors[part] = {{1.0f, 1.0f}};
      }
      columns_fill(p, s, tile_row, warp_column, 0.0f);
    }
    if (p.output == GEMM_SOFTMAX_F16)
      rows_store<__half>(p, s, factors, matrix, tile_row, warp_column);
    else
      rows_store<__nv_bfloat16>(p, s, factors, matrix, tile_row, warp_column);
    if (asks) barrier_expect(heard, Cluster * TEAM_ROWS * 8);
    __syncwarp();
  }
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
