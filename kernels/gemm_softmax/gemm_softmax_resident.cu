/* gemm_softmax_resident.cu - softmax and maxima of the rows of S = scale A B^T for k up to 128 and 1025 to 4096
 * columns, unless gemm_softmax_staggered.cu takes the task. The product bounds it, for the softmax also the write of P.
 *
 * The rows of B that a block multiplies stay in its shared memory; one thread requests them once. Four or eight blocks
 * of a cluster share rows: they take 64 rows of A at a time, and each of a block's warpgroups makes 256 columns of S. S
 * never leaves the registers.
 *
 * Softmax: a warpgroup takes exponentials relative to its own maximum. It sends {max, sum} of each row to all sharers,
 * receives theirs and scales. The next product is under way before P goes to shared memory, and from there to memory
 * by tensor copies. Maxima: no warpgroup waits. Each sends its maxima to one of the sharers, which reduces them at the
 * end.
 *
 * Softmax: 256 threads with up to 255 registers, 64 KB of B for each 64 of k, 64 KB of stores in flight. README.md has
 * measurements. */
#include "../common/launch.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

constexpr int N = WGMMA_COLUMNS, PARTS = RESIDENT_PARTS, B_PANEL = WGMMA_COLUMNS * 128;
constexpr int MOST_PARTS = WGMMA_CLUSTER * PARTS; /* of a row, one for each warpgroup that makes columns of it */

/* A warp of a block. Its warpgroup takes items in turn with the block's others: item PARTS * turn + part is part `part`
 * of the block's columns, of tile number `turn` of its rows. */
template <bool Softmax> struct resident_warp {
  static constexpr int WARPGROUPS = Softmax ? RESIDENT_WARPGROUPS : RESIDENT_ROWMAX_WARPGROUPS;
  static constexpr int STAGES = Softmax ? RESIDENT_STAGES : RESIDENT_ROWMAX_STAGES;
  /* A warpgroup skips some turns. For each stage it sees all fills or none, since a barrier's phase has one bit: after
   * a skipped fill it would take the fill before for the next. */
  static_assert(STAGES * PARTS % WARPGROUPS == 0);

  const gemm_softmax_wgmma_parameters &p;
  const row_sharers sharers;
  uint32_t b, a, staging, slots, a_full, a_empty, b_full, heard; /* addresses in shared memory */
  uint32_t warpgroup, warp, lane, rank, matrix, first_tile;

  DEVICE resident_warp(const gemm_softmax_wgmma_parameters &parameters, uint32_t shared)
      : p(parameters), sharers{parameters} {
    b = shared; /* panels come first: they begin at multiples of 1024 bytes */
    a = b + PARTS * p.steps * B_PANEL;
    staging = a + STAGES * p.steps * WGMMA_PANEL_BYTES;
    slots = staging + (Softmax ? WARPGROUPS * WGMMA_STAGING_BYTES : 0);
    a_full = slots + RESIDENT_SLOT_BYTES(Softmax);
    a_empty = a_full + 8 * STAGES;
    b_full = a_empty + 8 * STAGES;
    heard = b_full + 8 * PARTS;
    /* A reduction over the warp lands in a uniform register, from which descriptors are made without moves. */
    warpgroup = __reduce_max_sync(0xffffffffu, threadIdx.x / 128);
    warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, rank = sharers.rank();
    matrix = sharers.index() / p.groups, first_tile = sharers.index() % p.groups;
  }

  DEVICE uint32_t tile_of(uint32_t turn) const { return first_tile + turn * p.groups; }
  DEVICE bool is_valid(uint32_t item) const { return tile_of(item / PARTS) < p.tiles; }

  /* ---- Copies ---- */

  DEVICE void begin() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) barrier_init(a_full + 8 * i, 1), barrier_init(a_empty + 8 * i, 4 * PARTS);
      for (int i = 0; i < PARTS; i++) barrier_init(b_full + 8 * i, 1);
      for (int i = 0; i < 2; i++) barrier_init(heard + 8 * i, 4 * PARTS);
      barriers_are_initialised();
    }
    meet_cluster();
  }

  DEVICE void a_load(uint32_t turn) const {
    const uint32_t stage = turn % STAGES, barrier = a_full + 8 * stage;
    barrier_expect(barrier, p.steps * WGMMA_PANEL_BYTES);
    for (uint32_t k = 0; k < p.steps; k++)
      tensor_copy(a + (stage * p.steps + k) * WGMMA_PANEL_BYTES, &p.a, WGMMA_DEPTH * k, tile_of(turn) * WGMMA_TILE,
                  matrix, barrier, read_often_policy());
  }

  /* The first tiles of A, and all of the block's rows of B. */
  DEVICE void load_first() const {
    if (threadIdx.x == 0) {
      a_load(0);
      for (uint32_t part = 0; part < PARTS; part++) {
        barrier_expect(b_full + 8 * part, p.steps * B_PANEL);
        for (uint32_t k = 0; k < p.steps; k++)
          tensor_copy(b + (part * p.steps + k) * B_PANEL, &p.b, WGMMA_DEPTH * k, (rank * PARTS + part) * N, matrix,
                      b_full + 8 * part, read_often_policy());
      }
      for (uint32_t turn = 1; turn < STAGES && tile_of(turn) < p.tiles; turn++) a_load(turn);
    }
    __syncwarp();
  }

  /* The warp has read the item's tile of A. The warp that releases a tile last asks for the next in its place. */
  DEVICE void a_release(uint32_t turn, uint32_t part) const {
    const uint32_t stage = turn % STAGES;
    if (lane == 0) {
      barrier_arrive(a_empty + 8 * stage);
      if (warp == 0 && part == PARTS - 1 && tile_of(turn + STAGES) < p.tiles) {
        barrier_wait(a_empty + 8 * stage, turn / STAGES & 1);
        a_load(turn + STAGES);
      }
    }
    __syncwarp();
  }

  /* ---- Products ---- */

  /* s := the item, under way; or, after the last item, a product that nobody uses. */
  DEVICE void multiply(float (&s)[N / 2], uint32_t item) const {
    const uint32_t turn = item / PARTS, part = item % PARTS, stage = turn % STAGES;
    if (is_valid(item)) {
      barrier_wait(a_full + 8 * stage, turn / STAGES & 1);
      barrier_wait(b_full + 8 * part, 0);
    }
    uint64_t rows = operand_descriptor(a + stage * p.steps * WGMMA_PANEL_BYTES, 0);
    uint64_t columns = operand_descriptor(b + part * p.steps * B_PANEL, 0);
    pin(s);
    rolled_for (uint32_t k = 0; k < p.steps; k++) {
      multiply_panel<N>(p, s, rows, columns, k);
      rows = operand_further(rows, WGMMA_PANEL_BYTES), columns = operand_further(columns, B_PANEL);
    }
  }

  /* ---- P to memory ---- */

  /* Earlier stores of the warpgroup have read its staging. */
  DEVICE void staging_wait() const {
    if (threadIdx.x % 128 == 0) tensor_store_wait_read<0>();
    warps_meet(1 + warpgroup, 128);
  }
  /* The warpgroup's staging, boxes of 64 rows, to memory from `column` on. */
  DEVICE void staging_store(int column, int columns_of_box, int row) const {
    writes_reach_products();
    warps_meet(1 + warpgroup, 128);
    if (threadIdx.x % 128) return;
    const uint64_t policy = read_once_policy();
    unrolled_for (int box = 0; box < 4; box++)
      tensor_store(&p.p, column + box * columns_of_box, row, matrix,
                   staging + warpgroup * WGMMA_STAGING_BYTES + box * WGMMA_PANEL_BYTES, policy);
    tensor_store_commit();
  }

  /* Stores the item's P. Before the stores of 16-bit results the product of the next item begins. */
  DEVICE void store(float (&s)[N / 2], uint32_t next, int column, int row) const {
    const uint32_t rows_of_warp = staging + warpgroup * WGMMA_STAGING_BYTES + warp * 16 * 128;
    uint32_t packed[N / 4];
    staging_wait();
    if (p.output == GEMM_SOFTMAX_F32) {
      unrolled_for (int half = 0; half < 2; half++) {
        if (half) staging_wait();
        unrolled_for (int box = 0; box < 4; box++)
          box_fill_32(rows_of_warp + box * WGMMA_PANEL_BYTES, s + (4 * half + box) * 16);
        staging_store(column + half * N / 2, 32, row);
      }
    } else {
      rows_pack(packed, s, p.output);
    }
    multiply(s, next);
    if (p.output == GEMM_SOFTMAX_F32) return;
    unrolled_for (int box = 0; box < 4; box++) box_fill_16(rows_of_warp + box * WGMMA_PANEL_BYTES, packed + box * 16);
    staging_store(column, 64, row);
  }

  /* ---- Items ---- */

  /* s := P. */
  DEVICE void normalise(float (&s)[N / 2], uint32_t turn, uint32_t part, const column_counts &counts) const {
    row_pair own = {{row_max<0>(s), row_max<1>(s)}, {0.0f, 0.0f}};
    rows_exponentials(s, own.max, p.factor, own.sum);
    own.sum[0] = quad_sum(own.sum[0]), own.sum[1] = quad_sum(own.sum[1]);
    /* Two sets of slots suffice: a sender for the tile after the next has heard of the next tile, so all have read the
     * slots of this one. */
    const uint32_t now = slots + turn % 2 * MOST_PARTS * WGMMA_SLOT_BYTES, barrier = heard + 8 * (turn % 2);
    rows_tell<WGMMA_CLUSTER>(sharers, own, now + (rank * PARTS + part) * WGMMA_SLOT_BYTES, barrier);
    barrier_wait_cluster(barrier, turn / 2 & 1);
    rows_finish(s, factors_of(own, rows_combine<MOST_PARTS>(now, sharers.count() * PARTS, p.factor), p.factor), counts);
  }

  /* The slot of a row's maximum in the sharer that reduces the tile: turns of a sharer, parts, rows. */
  DEVICE uint32_t max_slot(uint32_t turn_of_sharer, uint32_t part, uint32_t row) const {
    return slots + ((turn_of_sharer * MOST_PARTS + part) * WGMMA_TILE + row) * 4;
  }

  DEVICE void maxima_tell(const float (&s)[N / 2], uint32_t turn, uint32_t part) const {
    const float max[2] = {row_max<0>(s), row_max<1>(s)};
    const uint32_t slot = max_slot(turn >> p.row_blocks_log2, rank * PARTS + part, 16 * warp + lane / 4);
    const uint32_t there = sharers.address(turn & (sharers.count() - 1), slot);
    if (lane % 4 == 0) store_there(there, max[0]), store_there(there + 8 * 4, max[1]);
  }

  /* The maxima of the block's share of the tiles, a row a thread. */
  DEVICE void maxima_store() const {
    for (uint32_t i = threadIdx.x;; i += blockDim.x) {
      const uint32_t turn = i / WGMMA_TILE, tile = tile_of(turn * sharers.count() + rank), row = i % WGMMA_TILE;
      if (tile >= p.tiles) break;
      float max = -INFINITY;
      unrolled_for (uint32_t part = 0; part < MOST_PARTS; part++)
        if (part < sharers.count() * PARTS) max = max_or_nan(max, load_number(max_slot(turn, part, row)));
      if (tile * WGMMA_TILE + row < p.m)
        p.max[matrix * p.max_batch_stride + (tile * WGMMA_TILE + row) * p.max_row_stride] = max * p.factor;
    }
  }

  DEVICE void run() const {
    float s[N / 2];
    if constexpr (Softmax) multiply(s, warpgroup);
    for (uint32_t item = warpgroup; is_valid(item); item += WARPGROUPS) {
      const uint32_t turn = item / PARTS, part = item % PARTS;
      const int tile_row = tile_of(turn) * WGMMA_TILE, first = (rank * PARTS + part) * N;
      if constexpr (!Softmax) multiply(s, item);
      wgmma_wait<0>();
      pin(s);
      a_release(turn, part);
      const column_counts counts = counts_of(p, tile_row, tile_row + 16 * warp + lane / 4, first, N);
      rows_prepare(p, s, counts);
      if constexpr (Softmax) {
        normalise(s, turn, part, counts);
        store(s, item + WARPGROUPS, first, tile_row);
      } else {
        maxima_tell(s, turn, part);
      }
    }
    if constexpr (Softmax) {
      wgmma_wait<0>();
      pin(s);
      if (threadIdx.x % 128 == 0) tensor_store_wait();
    }
  }
};

template <bool Softmax> DEVICE void resident(const gemm_softmax_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const resident_warp<Softmax> at(p, shared_address(shared));
  const bool has_rows = at.matrix < p.batch; /* the last blocks of the last cluster may have none */
  at.begin();
  if (has_rows) {
    at.load_first();
    at.run();
  }
  if constexpr (!Softmax) {
    meet_cluster();
    if (has_rows) at.maxima_store();
  }
}

} // namespace

#define DEFINE(chips, parameters, name, threads, is_softmax)                                                           \
  DEFINE_CLUSTER_KERNEL(wait_for_predecessors(), WGMMA_CLUSTER, parameters, name, threads, 1, resident<is_softmax>)
GEMM_SOFTMAX_RESIDENT_KERNELS(DEFINE)

#endif
