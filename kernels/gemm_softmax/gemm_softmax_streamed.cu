/* gemm_softmax_streamed.cu - softmax and maxima of the rows of S = scale A B^T on sm_90a, for any k and any number of
 * columns from 129. For long k the products bound it.
 *
 * A block makes 128 x 256 of S at a time: two warpgroups make 64 rows each. One more warp requests the next panels of A
 * and B, 64 of k for each stage of a ring. Neighbouring blocks of a cluster share rows and have different columns. Each
 * requests its share of A's panel, and the copies go to all of them. The softmax happens in the accumulators
 * (gemm_softmax_rows.cuh).
 *
 * If the sharers together are as wide as a row, S is made once. If they are half as wide, each makes two blocks of
 * columns and holds the exponentials of the first in 16 bits, beside the sums of the second: S is made once too. For
 * wider rows each makes several blocks of columns for the maxima and sums, and makes them again for P. A block of
 * columns is skipped if no row of the tile counts any of them.
 *
 * 288 threads with 168 registers, or 384 threads of which those that multiply have 240; 192 KB of stages. Products run
 * at the speed of a plain product, but rows wait for their softmax, some 3 us a tile. README.md has measurements. */
#include "../common/launch.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

constexpr int N = WGMMA_COLUMNS, STAGES = STREAMED_STAGES, WARPS = 8 /* that multiply */;
constexpr int MOST_SHARERS = STREAMED_MOST_SHARERS;
constexpr uint32_t A_BYTES = 2 * WGMMA_PANEL_BYTES, WARP_BOX_BYTES = 16 * WGMMA_BOX_BYTES;

/* Addresses in shared memory. */
template <bool Softmax> struct places {
  uint32_t ring, staging, slots, full, empty, heard;
  DEVICE explicit places(uint32_t shared) {
    ring = shared;
    staging = ring + STAGES * STREAMED_STAGE_BYTES;
    slots = staging + (Softmax ? WARPS * WARP_BOX_BYTES : 0);
    full = slots + STREAMED_SLOT_BYTES;
    empty = full + 8 * STAGES;
    heard = empty + 8 * STAGES; /* for each set of slots and each warpgroup */
  }
};

/* Rows of the sharers: a range of units of 64, which they take two at a time if these lie in one matrix. */
struct row_tile {
  uint32_t unit, end, units; /* the next, and those of the tile */
  int matrix, row;           /* the first */
  int column_end;            /* no row of the tile counts columns from here on */

  DEVICE row_tile(const gemm_softmax_wgmma_parameters &p, const row_sharers &sharers) {
    const uint32_t index = sharers.index(), all = p.tiles * p.batch, least = all / p.groups, more = all % p.groups;
    unit = index * least + min(index, more);
    end = index < p.groups ? unit + least + (index < more) : unit; /* the last blocks may have none */
  }
  DEVICE bool next(const gemm_softmax_wgmma_parameters &p) {
    if (unit == end) return false;
    matrix = unit / p.tiles;
    row = unit % p.tiles * WGMMA_TILE;
    units = min(min(2u, end - unit), p.tiles - unit % p.tiles);
    unit += units;
    const int last_row = min((int)p.m, row + (int)units * WGMMA_TILE) - 1;
    column_end = p.causal ? max(0, last_row + (int)p.n - (int)p.m + 1) : (int)p.n;
    return true;
  }
};

/* The warp that asks for copies; one thread does. Each block of the cluster has the others' consent before its copies
 * overwrite their stages: `empty` counts the warps of all. */
template <bool Softmax, bool Held>
DEVICE void ask(const gemm_softmax_wgmma_parameters &p, const places<Softmax> &at, const row_sharers &sharers) {
  const uint32_t rank = sharers.rank(), count = sharers.count(), passes = Softmax && !Held && p.blocks > 1 ? 2 : 1;
  const uint32_t rows = STREAMED_ROWS / count; /* of A's panel that this block asks for */
  const uint16_t to_all = ((1 << count) - 1) << sharers.first();
  const uint64_t policy = read_often_policy();
  uint32_t asked = 0; /* stages */
  row_tile tile(p, sharers);
  while (tile.next(p))
    for (uint32_t pass = 0; pass < passes; pass++)
      for (uint32_t block = 0; block < p.blocks && (int)(block * count * N) < tile.column_end; block++)
        for (uint32_t k = 0; k < p.steps; k++, asked++) {
          const uint32_t stage = asked % STAGES, to = at.ring + stage * STREAMED_STAGE_BYTES;
          const uint32_t barrier = at.full + 8 * stage;
          barrier_wait(at.empty + 8 * stage, asked / STAGES % 2 ^ 1);
          barrier_expect(barrier, STREAMED_STAGE_BYTES);
          const int row = tile.row + rank * rows, column = (block * count + rank) * N;
          if (count > 1)
            tensor_copy_to(to_all, to + rank * rows * 128, &p.a, WGMMA_DEPTH * k, row, tile.matrix, barrier, policy);
          else
            tensor_copy(to, &p.a, WGMMA_DEPTH * k, row, tile.matrix, barrier, policy);
          tensor_copy(to + A_BYTES, &p.b, WGMMA_DEPTH * k, column, tile.matrix, barrier, policy);
        }
}

/* The ring as a warp that multiplies sees it. */
template <bool Softmax> struct ring_reader {
  const places<Softmax> &at;
  const row_sharers &sharers;
  uint32_t count = 0; /* stages that were read */

  /* Waits until the next stage is full. */
  DEVICE uint32_t stage_wait() const {
    barrier_wait(at.full + 8 * (count % STAGES), count / STAGES % 2);
    return at.ring + count % STAGES * STREAMED_STAGE_BYTES;
  }
  /* The warp needs this stage no more, nor what any block's copies brought there. */
  DEVICE void release(uint32_t which) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < sharers.count()) barrier_arrive_there(sharers.address(lane, at.empty + 8 * (which % STAGES)));
  }
  /* A warpgroup without rows lets a block of columns go by. */
  DEVICE void pass_by(uint32_t steps) {
    for (uint32_t k = 0; k < steps; k++, count++) {
      stage_wait();
      release(count);
    }
  }
};

/* s := 64 x 256 of A B^T. */
template <bool Softmax>
DEVICE void multiply(const gemm_softmax_wgmma_parameters &p, float (&s)[N / 2], uint32_t steps,
                     ring_reader<Softmax> &ring, uint32_t warpgroup) {
  pin(s);
  for (uint32_t k = 0; k < steps; k++, ring.count++) {
    const uint32_t stage = ring.stage_wait();
    const uint64_t a = operand_descriptor(stage + warpgroup * WGMMA_PANEL_BYTES, 0);
    const uint64_t b = operand_descriptor(stage + A_BYTES, 0);
    multiply_panel<N>(p, s, a, b, k);
    if (k) {
      wgmma_wait<1>();
      ring.release(ring.count - 1);
    }
  }
  wgmma_wait<0>();
  pin(s);
  if (steps) ring.release(ring.count - 1);
  __syncwarp();
}

/* The warp's box, when the one before has been read, and what is in it to P. */
DEVICE void box_wait() {
  if (threadIdx.x % 32 == 0) tensor_store_wait_read<0>();
  __syncwarp();
}
DEVICE void box_send(const gemm_softmax_wgmma_parameters &p, uint32_t staging, int column, int row, int matrix) {
  writes_reach_products();
  __syncwarp();
  if (threadIdx.x % 32) return;
  tensor_store(&p.p, column, row, matrix, staging, read_once_policy());
  tensor_store_commit();
}

/* The warp's 16 rows of P, a box at a time. */
DEVICE void rows_store(const gemm_softmax_wgmma_parameters &p, const float (&s)[N / 2], uint32_t staging, int column,
                       int row, int matrix) {
  if (p.output == GEMM_SOFTMAX_F32) {
    unrolled_for (int at = 0; at < N; at += 32) {
      box_wait();
      box_fill_32(staging, s + at / 2);
      box_send(p, staging, column + at, row, matrix);
    }
  } else {
    unrolled_for (int at = 0; at < N; at += 64) {
      uint32_t packed[16];
      box_wait();
      rows_pack(packed, reinterpret_cast<const float(&)[32]>(s[at / 2]), p.output);
      box_fill_16(staging, packed);
      box_send(p, staging, column + at, row, matrix);
    }
  }
}

/* The same, of exponentials in 16 bits. */
DEVICE void held_store(const gemm_softmax_wgmma_parameters &p, const uint32_t (&held)[N / 4],
                       const row_factors &factors, uint32_t staging, int column, int tile_row, int matrix) {
  const uint32_t warp = threadIdx.x / 32 % 4, group = threadIdx.x % 32 / 4;
  unrolled_for (int at = 0; at < N; at += 64) {
    float s[32];
    uint32_t packed[16];
    rows_unpack(s, held + at / 4, p.output);
    rows_finish(s, factors, counts_of(p, tile_row, tile_row + 16 * warp + group, column + at, 64));
    rows_pack(packed, s, p.output);
    box_wait();
    box_fill_16(staging, packed);
    box_send(p, staging, column + at, tile_row + 16 * warp, matrix);
  }
}

/* The softmax where a block makes two blocks of columns, and holds the first. */
DEVICE void reduce_held(const gemm_softmax_wgmma_parameters &p, const places<true> &at, const row_sharers &sharers,
                        uint32_t warpgroup) {
  const uint32_t rank = sharers.rank(), warp = threadIdx.x / 32 % 4, group = threadIdx.x % 32 / 4;
  const uint32_t staging = at.staging + threadIdx.x / 32 * WARP_BOX_BYTES;
  uint32_t told = 0;
  ring_reader<true> ring = {at, sharers};
  row_tile tile(p, sharers);
  while (tile.next(p)) {
    const int tile_row = tile.row + WGMMA_TILE * warpgroup, row = tile_row + 16 * warp + group;
    const auto first_of = [&](int block) { return (int)((block * sharers.count() + rank) * N); };
    const auto steps_of = [&](int block) { return (int)(block * sharers.count() * N) < tile.column_end ? p.steps : 0; };
    if (warpgroup >= tile.units) {
      for (int block = 0; block < 2; block++) ring.pass_by(steps_of(block));
      continue;
    }
    uint32_t held[N / 4];
    row_pair part[2];
    float s[N / 2];
    unrolled_for (int block = 0; block < 2; block++) {
      multiply(p, s, steps_of(block), ring, warpgroup);
      rows_prepare(p, s, counts_of(p, tile_row, row, first_of(block), N));
      part[block] = {{row_max<0>(s), row_max<1>(s)}, {0.0f, 0.0f}};
      rows_exponentials(s, part[block].max, p.factor, part[block].sum);
      if (block == 0) {
        rows_pack(held, s, p.output);
        pin(held);
      }
    }
    const uint32_t set = told % 2 * 2 + warpgroup, slots = at.slots + set * MOST_SHARERS * WGMMA_SLOT_BYTES;
    rows_tell<MOST_SHARERS>(sharers, rows_join<true>(part, p.factor), slots + rank * WGMMA_SLOT_BYTES,
                            at.heard + 8 * set);
    barrier_wait_cluster(at.heard + 8 * set, told++ / 2 % 2);
    const row_pair all = rows_combine<MOST_SHARERS>(slots, sharers.count(), p.factor);
    held_store(p, held, factors_of(part[0], all, p.factor), staging, first_of(0), tile_row, tile.matrix);
    rows_finish(s, factors_of(part[1], all, p.factor), counts_of(p, tile_row, row, first_of(1), N));
    rows_store(p, s, staging, first_of(1), tile_row + 16 * warp, tile.matrix);
  }
  if (threadIdx.x % 32 == 0) tensor_store_wait();
  __syncwarp();
}

/* Takes one block of columns more into the maxima and, with Softmax, into the sums, which become relative to them. */
template <bool Softmax>
DEVICE void take_block(const gemm_softmax_wgmma_parameters &p, float (&s)[N / 2], row_pair &own) {
  const float top[2] = {row_max<0>(s), row_max<1>(s)};
  unrolled_for (int r = 0; r < 2; r++) {
    const float before = own.max[r];
    own.max[r] = max_or_nan(before, top[r]);
    if (Softmax) own.sum[r] *= weight_of(before, base_of(own.max[r]), p.factor);
  }
  if (Softmax) rows_exponentials(s, own.max, p.factor, own.sum);
}

DEVICE void store_maxima(const gemm_softmax_wgmma_parameters &p, const row_pair &all, int row, int matrix) {
  float *max = p.max + matrix * p.max_batch_stride + row * p.max_row_stride;
  unrolled_for (int r = 0; r < 2; r++)
    if (row + 8 * r < p.m) max[8 * r * p.max_row_stride] = all.max[r] * p.factor;
}

template <bool Softmax>
DEVICE void reduce(const gemm_softmax_wgmma_parameters &p, const places<Softmax> &at, const row_sharers &sharers,
                   uint32_t warpgroup) {
  const uint32_t rank = sharers.rank(), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = lane / 4;
  const uint32_t passes = Softmax && p.blocks > 1 ? 2 : 1;
  const uint32_t staging = at.staging + threadIdx.x / 32 * WARP_BOX_BYTES;
  uint32_t told = 0; /* tiles of this warpgroup whose rows have been told about */
  const auto agree = [&](const row_pair &own) {
    if (sharers.count() == 1) return own;
    const uint32_t slots = at.slots + (told % 2 * 2 + warpgroup) * MOST_SHARERS * WGMMA_SLOT_BYTES;
    const uint32_t heard = at.heard + 8 * (told % 2 * 2 + warpgroup);
    rows_tell<MOST_SHARERS>(sharers, own, slots + rank * WGMMA_SLOT_BYTES, heard);
    barrier_wait_cluster(heard, told++ / 2 % 2);
    return rows_combine<MOST_SHARERS>(slots, sharers.count(), p.factor);
  };

  ring_reader<Softmax> ring = {at, sharers};
  row_tile tile(p, sharers);
  while (tile.next(p)) {
    const int tile_row = tile.row + WGMMA_TILE * warpgroup, row = tile_row + 16 * warp + group;
    row_pair own = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}}; /* of this block's columns */
    row_factors factors;
    for (uint32_t pass = 0; pass < passes; pass++)
      for (uint32_t block = 0; block < p.blocks; block++) {
        const int first = (block * sharers.count() + rank) * N;
        const uint32_t steps = (int)(block * sharers.count() * N) < tile.column_end ? p.steps : 0;
        if (warpgroup >= tile.units) { /* has no rows */
          ring.pass_by(steps);
          continue;
        }
        float s[N / 2];
        multiply(p, s, steps, ring, warpgroup);
        const column_counts counts = counts_of(p, tile_row, row, first, N);
        rows_prepare(p, s, counts);
        if (pass == 0) take_block<Softmax>(p, s, own);
        if constexpr (Softmax) {
          if (pass == 0 && block == p.blocks - 1) {
            own.sum[0] = quad_sum(own.sum[0]), own.sum[1] = quad_sum(own.sum[1]);
            const row_pair all = agree(own);
            if (passes > 1) own = all; /* exponentials are taken again, relative to all.max */
            factors = factors_of(own, all, p.factor);
          }
          if (pass < passes - 1) continue;
          if (pass) rows_exponentials(s, own.max, p.factor, own.sum);
          rows_finish(s, factors, counts);
          rows_store(p, s, staging, first, tile_row + 16 * warp, tile.matrix);
        }
      }
    if constexpr (!Softmax) {
      if (warpgroup >= tile.units) continue;
      const row_pair all = agree(own);
      if (rank == 0 && lane % 4 == 0) store_maxima(p, all, row, tile.matrix);
    }
  }
  if (Softmax && lane == 0) tensor_store_wait();
  __syncwarp();
}

template <bool Softmax, bool Held> DEVICE void streamed(const gemm_softmax_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const places<Softmax> at(shared_address(shared));
  const row_sharers sharers = {p};
  const uint32_t warpgroup = __reduce_max_sync(0xffffffffu, threadIdx.x / 128);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++)
      barrier_init(at.full + 8 * i, 1), barrier_init(at.empty + 8 * i, WARPS * sharers.count());
    for (int i = 0; i < 4; i++) barrier_init(at.heard + 8 * i, 4);
    barriers_are_initialised();
  }
  meet_cluster();
  if (warpgroup < 2) {
    if constexpr (Held) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)STREAMED_HELD_REGISTERS));
      reduce_held(p, at, sharers, warpgroup);
    } else {
      reduce<Softmax>(p, at, sharers, warpgroup);
    }
  } else {
    if constexpr (Held) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)STREAMED_ASKING_REGISTERS));
    if (threadIdx.x == 2 * 128) ask<Softmax, Held>(p, at, sharers);
    __syncwarp();
  }
  meet_cluster(); /* others still arrive at this block's barriers */
}

} // namespace

#define DEFINE(chips, parameters, name, threads, is_softmax, cluster, held)                                            \
  DEFINE_CLUSTER_KERNEL(wait_for_predecessors(), cluster, parameters, name, threads, 1, streamed<is_softmax, held>)
GEMM_SOFTMAX_STREAMED_KERNELS(DEFINE)

#endif
