/* gemm_softmax_resident.cu - softmax and maxima of the rows of S = scale A B^T for short k, where
 * gemm_softmax_staggered.cu does not suit. The product, and for the softmax the write of P, bound it.
 *
 * A cluster takes 64 rows of S at a time, a warpgroup of each of its blocks 256 columns of them. A block's rows of B
 * stay in shared memory, where one thread requests them once; A's tiles follow each other. S never leaves the
 * registers. A warpgroup takes exponentials counted from its own maximum, sends its {max, sum} to all blocks of the
 * cluster, receives theirs, and scales. The next product is under way before P goes to shared memory and from there, by
 * tensor copies, to memory. For the maxima no warpgroup waits: they go to the block that owns the tile, which ends with
 * them.
 *
 * Softmax: 256 threads with 223 registers, 64 KB of B for each 64 of k, 64 KB of stores in flight. Measured on an H200:
 * README.md. */
#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

/* Addresses in shared memory. Panels come first: they begin at multiples of 1024 bytes. */
template <bool Softmax, int Cluster> struct places {
  static constexpr int WARPGROUPS = Softmax ? RESIDENT_WARPGROUPS : RESIDENT_ROWMAX_WARPGROUPS;
  static constexpr int STAGES = Softmax ? RESIDENT_STAGES : RESIDENT_ROWMAX_STAGES;
  /* A warpgroup passes by some turns. It sees each fill of a stage or none: a phase of a barrier has but one bit, and
   * who missed one would take the fill before for the one it waits for. */
  static_assert(STAGES * RESIDENT_PARTS % WARPGROUPS == 0);
  static constexpr int PARTICIPANTS = Cluster * RESIDENT_PARTS; /* warpgroups that share a row */
  static constexpr int B_PANEL = WGMMA_COLUMNS * 128;
  uint32_t b, a, staging, slots, a_full, a_empty, b_full, heard;

  __device__ __forceinline__ places(uint32_t shared, uint32_t steps) {
    b = shared;
    a = b + RESIDENT_PARTS * steps * B_PANEL;
    staging = a + STAGES * steps * WGMMA_PANEL_BYTES;
    slots = staging + (Softmax ? WARPGROUPS * WGMMA_STAGING_BYTES : 0);
    a_full = slots + RESIDENT_SLOT_BYTES(Softmax, Cluster);
    a_empty = a_full + 8 * STAGES;
    b_full = a_empty + 8 * STAGES;
    heard = b_full + 8 * RESIDENT_PARTS;
  }
};

/* Earlier stores of the warpgroup have read its staging. */
__device__ __forceinline__ void staging_wait(uint32_t warpgroup) {
  if (threadIdx.x % 128 == 0) tensor_store_wait_read<0>();
  warps_meet(1 + warpgroup, 128);
}

/* What the warpgroup has written to its staging, boxes of 64 rows, to memory from `column` on. */
__device__ __forceinline__ void staging_store(const gemm_softmax_wgmma_parameters &p, uint32_t staging,
                                              uint32_t warpgroup, int column, int columns_of_box, int row, int matrix) {
  writes_reach_products();
  warps_meet(1 + warpgroup, 128);
  if (threadIdx.x % 128) return;
  const uint64_t policy = read_once_policy();
#pragma unroll
  for (int box = 0; box < 4; box++)
    tensor_store(&p.p, column + box * columns_of_box, row, matrix, staging + box * WGMMA_PANEL_BYTES, policy);
  tensor_store_commit();
}

template <typename T, bool Softmax, int Cluster>
__device__ __forceinline__ void resident(const gemm_softmax_wgmma_parameters &p) {
  using place = places<Softmax, Cluster>;
  constexpr int N = WGMMA_COLUMNS, PARTS = RESIDENT_PARTS, STAGES = place::STAGES;
  extern __shared__ __align__(1024) unsigned char shared[];
  const place at(shared_address(shared), p.steps);
  /* A reduction over the warp lands in a register of its own kind, from which descriptors are made without moves. */
  const uint32_t warpgroup = __reduce_max_sync(0xffffffffu, threadIdx.x / 128);
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const uint32_t rank = cluster_rank(), cluster = blockIdx.x / Cluster;
  const uint32_t matrix = cluster / p.clusters, first_tile = cluster % p.clusters;
  const auto tile_of = [&](uint32_t turn) { return first_tile + turn * p.clusters; };

  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(at.a_full + 8 * i, 1), barrier_init(at.a_empty + 8 * i, 4 * PARTS);
    for (int i = 0; i < PARTS; i++) barrier_init(at.b_full + 8 * i, 1);
    for (int i = 0; i < 2; i++) barrier_init(at.heard + 8 * i, 4 * PARTS);
    barriers_are_initialised();
  }
  cluster_meet();

  const auto a_load = [&](uint32_t turn) {
    const uint32_t stage = turn % STAGES, barrier = at.a_full + 8 * stage;
    barrier_expect(barrier, p.steps * WGMMA_PANEL_BYTES);
    for (uint32_t k = 0; k < p.steps; k++)
      tensor_copy(at.a + (stage * p.steps + k) * WGMMA_PANEL_BYTES, &p.a, WGMMA_DEPTH * k, tile_of(turn) * WGMMA_TILE,
                  matrix, barrier, read_often_policy());
  };
  if (threadIdx.x == 0) {
    a_load(0);
    for (uint32_t part = 0; part < PARTS; part++) {
      barrier_expect(at.b_full + 8 * part, p.steps * place::B_PANEL);
      for (uint32_t k = 0; k < p.steps; k++)
        tensor_copy(at.b + (part * p.steps + k) * place::B_PANEL, &p.b, WGMMA_DEPTH * k, (rank * PARTS + part) * N,
                    matrix, at.b_full + 8 * part, read_often_policy());
    }
    for (uint32_t turn = 1; turn < STAGES && tile_of(turn) < p.tiles; turn++) a_load(turn);
  }
  __syncwarp();

  /* Items: for each turn the parts of a tile. A warpgroup takes every so many of them. */
  float s[N / 2];
  const auto valid = [&](uint32_t item) { return tile_of(item / PARTS) < p.tiles; };
  const auto multiply =
      [&](uint32_t item) { /* after the last item the product is not used */
                           const uint32_t turn = item / PARTS, part = item % PARTS, stage = turn % STAGES;
                           if (valid(item)) {
                             barrier_wait(at.a_full + 8 * stage, turn / STAGES & 1);
                             barrier_wait(at.b_full + 8 * part, 0);
                           }
                           uint64_t a = operand_descriptor(at.a + stage * p.steps * WGMMA_PANEL_BYTES, 0);
                           uint64_t b = operand_descriptor(at.b + part * p.steps * place::B_PANEL, 0);
                           pin(s);
#pragma unroll 1
                           for (uint32_t k = 0; k < p.steps; k++) {
                             wgmma_fence();
#pragma unroll
                             for (int q = 0; q < 4; q++)
                               warpgroup_product<T, N>::shared(s, operand_further(a, 32 * q),
                                                               operand_further(b, 32 * q), k || q);
                             wgmma_commit();
                             a = operand_further(a, WGMMA_PANEL_BYTES), b = operand_further(b, place::B_PANEL);
                           }
      };

  if constexpr (Softmax) multiply(warpgroup);
  for (uint32_t item = warpgroup; valid(item); item += place::WARPGROUPS) {
    const uint32_t turn = item / PARTS, part = item % PARTS, stage = turn % STAGES;
    const int tile_row = tile_of(turn) * WGMMA_TILE, row = tile_row + 16 * warp + group;
    const int first = (rank * PARTS + part) * N;
    if constexpr (!Softmax) multiply(item);
    wgmma_wait<0>();
    pin(s);
    if (lane == 0) {
      barrier_arrive(at.a_empty + 8 * stage);
      if (warp == 0 && part == PARTS - 1 && tile_of(turn + STAGES) < p.tiles) {
        barrier_wait(at.a_empty + 8 * stage, turn / STAGES & 1);
        a_load(turn + STAGES);
      }
    }
    __syncwarp();

    const column_counts counts = counts_of(p, tile_row, row, first, N);
    rows_prepare(p, s, counts);
    row_pair own = {{row_max<0>(s), row_max<1>(s)}, {0.0f, 0.0f}};
    if constexpr (!Softmax) {
      const uint32_t slot = turn / Cluster * place::PARTICIPANTS + rank * PARTS + part;
      const uint32_t there = address_in(turn % Cluster, at.slots + (slot * WGMMA_TILE + 16 * warp + group) * 4);
      if (quad == 0) store_there(there, own.max[0]), store_there(there + 8 * 4, own.max[1]);
    } else {
      rows_exponentials(s, own.max, p.factor, own.sum);
      own.sum[0] = quad_sum(own.sum[0]), own.sum[1] = quad_sum(own.sum[1]);
      /* Two sets of slots: who tells of the next tile but one has heard of the next, so that all have read of this. */
      const uint32_t slots = at.slots + turn % 2 * place::PARTICIPANTS * WGMMA_SLOT_BYTES;
      const uint32_t heard = at.heard + 8 * (turn % 2);
      rows_tell<Cluster>(own, slots + (rank * PARTS + part) * WGMMA_SLOT_BYTES, heard, 0);
      barrier_wait_cluster(heard, turn / 2 & 1);
      rows_finish(s, factors_of(own, rows_combine<place::PARTICIPANTS>(slots, p.factor), p.factor), counts);

      const uint32_t staging = at.staging + warpgroup * WGMMA_STAGING_BYTES, rows_of_warp = staging + warp * 16 * 128;
      uint32_t packed[N / 4];
      staging_wait(warpgroup);
      if (p.output == GEMM_SOFTMAX_F32) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (half) staging_wait(warpgroup);
#pragma unroll
          for (int box = 0; box < 4; box++)
            box_fill_32(rows_of_warp + box * WGMMA_PANEL_BYTES, s + (4 * half + box) * 16);
          staging_store(p, staging, warpgroup, first + half * N / 2, 32, tile_row, matrix);
        }
      } else {
        rows_pack(packed, s, p.output);
      }
      multiply(item + place::WARPGROUPS);
      if (p.output != GEMM_SOFTMAX_F32) {
#pragma unroll
        for (int box = 0; box < 4; box++) box_fill_16(rows_of_warp + box * WGMMA_PANEL_BYTES, packed + box * 16);
        staging_store(p, staging, warpgroup, first, 64, tile_row, matrix);
      }
    }
  }

  if constexpr (Softmax) {
    wgmma_wait<0>();
    pin(s);
    if (threadIdx.x % 128 == 0) tensor_store_wait();
  } else {
    cluster_meet();
    for (uint32_t i = threadIdx.x;; i += blockDim.x) {
      const uint32_t turn = i / WGMMA_TILE * Cluster + rank, row = tile_of(turn) * WGMMA_TILE + i % WGMMA_TILE;
      if (tile_of(turn) >= p.tiles) break;
      float max = -INFINITY;
      for (uint32_t slot = 0; slot < place::PARTICIPANTS; slot++)
        max = max_or_nan(
            max,
            shared_float(at.slots + ((i / WGMMA_TILE * place::PARTICIPANTS + slot) * WGMMA_TILE + i % WGMMA_TILE) * 4));
      if (row < p.m) p.max[matrix * p.max_batch_stride + row * p.max_row_stride] = max * p.factor;
    }
  }
}

} // namespace

#define DEFINE(chips, parameters, name, threads, type, is_softmax, cluster, held)                                      \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                             \
      name(const __grid_constant__ parameters p) {                                                                     \
    wait_for_predecessors();                                                                                           \
    resident<element<type>, is_softmax, cluster>(p);                                                                   \
    publish(p.done);                                                                                                   \
  }
GEMM_SOFTMAX_RESIDENT_KERNELS(DEFINE)

#endif
