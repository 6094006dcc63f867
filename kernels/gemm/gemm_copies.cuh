/* gemm_copies.cuh - the walk of a block over its tiles, and the copies of X, W and the residual to shared memory, for
 * gemm_wgmma.cuh.
 *
 * The copies carry no L2 cache hint: with one, even evict_normal, L2 delivers a third less (docs/lab/gemm.md). */
#pragma once

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/tensor_copy.cuh"
#include "gemm.h"

namespace {

/* Copies a box of a tensor to shared memory; and the same to the blocks of a cluster in the mask `blocks`. */
DEVICE void box_copy(uint32_t to, const void *map, int k, int row, int matrix, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
               "[%5];" EARLY ::"r"(to),
               "l"(map), "r"(k), "r"(row), "r"(matrix), "r"(barrier)
               : "memory");
}
DEVICE void box_copy_to(uint16_t blocks, uint32_t to, const void *map, int k, int row, int matrix, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3, %4}], [%5], %6;" EARLY ::"r"(to),
               "l"(map), "r"(k), "r"(row), "r"(matrix), "r"(barrier), "h"(blocks)
               : "memory");
}
DEVICE void box_store(const void *map, int column, int row, int matrix, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(column), "r"(row), "r"(matrix), "r"(from)
               : "memory");
}

DEVICE void box_prefetch(const void *map, int column, int row, int matrix) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(column), "r"(row),
               "r"(matrix)
               : "memory");
}

template <int Count> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
template <int Count> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

/* Barriers of warps. Those from GEMM_TURN_BARRIER on are two each: of a warpgroup's turn, and of the factors of the
 * rows of two tiles, which are there, or which have been read. */
enum { GEMM_FIRST_BARRIER = 1, GEMM_TURN_BARRIER = 3, GEMM_FULL_BARRIER = 5, GEMM_EMPTY_BARRIER = 7 };
enum { GEMM_ROW_THREADS = 64 }; /* that make factors */

/* A kernel's tile and stages as types know them. */
template <int Rows, int Warpgroups, int Turns, int Columns, int AlongP, int AlongQ, int Parts, int Swapped, int Slots,
          int Stages, int Types>
struct gemm_design {
  static constexpr gemm_tile TILE = {Rows, Warpgroups, Turns, Columns, AlongP, AlongQ, Parts, Swapped, Slots};
  static constexpr int STAGES = Stages, WARPGROUPS = Warpgroups, COLUMNS = Columns, PARTS = Parts;
  static constexpr int ALONG_P = AlongP, ALONG_Q = AlongQ, SLOTS = Slots;
  static constexpr bool TURNS = Turns == 1, SPLITS = Turns == 2, SWAPPED = Swapped;
  static constexpr bool ANY = Types != GEMM_ONE_TYPE, E4M3 = Types == GEMM_E4M3;
  static constexpr int DEPTH = E4M3 ? GEMM_E4M3_DEPTH : GEMM_DEPTH;
  static constexpr int CLUSTER = gemm_tile_cluster(TILE), P_ROWS = gemm_tile_p(TILE);
  static constexpr int P_BYTES = Slots ? 0 : P_ROWS * 128; /* of a stage */
  static constexpr int STAGE_BYTES = gemm_stage_bytes(TILE), SLOT_BYTES = gemm_slot_bytes(TILE);
  static constexpr int PRODUCTS = Rows / 64;          /* of wgmma for 16 of k, in a warpgroup */
  static constexpr int SHARERS = AlongP + AlongQ - 1; /* blocks of a cluster that a block shares a tile with, and it */
  static constexpr int STAGE_BOXES = gemm_tile_boxes(TILE);
  static constexpr int ARRIVALS = (TURNS ? 1 : Warpgroups) * SHARERS; /* that free a stage */
  static constexpr int STORED = gemm_tile_stored(TILE), BUFFERS = gemm_tile_buffers(TILE, Stages);
  static constexpr bool IS_WIDE = gemm_tile_is_wide(TILE);
  static constexpr bool MEETS_OFTEN = gemm_meeting_bytes(TILE) > 0;
  static constexpr int STEP = SPLITS ? Warpgroups : 1; /* from a step of k of a warpgroup to its next: with slots */
  static constexpr int COPYING_REGISTERS = IS_WIDE ? 24 : Slots ? 56 : 40;
  static constexpr int MULTIPLYING_REGISTERS = IS_WIDE || Warpgroups == 1 ? 240 : Slots ? 224 : 232;

  /* Results leave in boxes of 64 rows and 64 columns, or fewer along Q. The last box may repeat some of the one before.
   */
  static constexpr int BOX = STORED < 64 ? STORED : 64, BOXES = (STORED + 63) / 64;
  static constexpr bool OVERLAP = BOXES > 1 && STORED % BOX;
  DEVICE static constexpr int box_begin(int box) { return OVERLAP && box == BOXES - 1 ? STORED - BOX : BOX * box; }

  /* After a tile's last stage of k come the stages of its residual. Each holds IN_STAGE boxes: first those of the first
   * columns, for all rows of P. */
  static constexpr uint32_t BOX_BYTES = BOX * 128;
  static constexpr int PANELS = P_ROWS / 64, IN_STAGE = STAGE_BYTES / BOX_BYTES;
  static constexpr int RESIDUAL_FILLS = (BOXES * PANELS + IN_STAGE - 1) / IN_STAGE;

  /* The residual stream in f32 has boxes of 32 columns: a left and a right one for each box of the sums. */
  static constexpr bool STREAMS = gemm_tile_streams(TILE) && (!ANY || SLOTS || MEETS_OFTEN);
  static constexpr int STREAM_FILLS = (2 * BOXES * PANELS + IN_STAGE - 1) / IN_STAGE;
  static constexpr int X_ROWS = gemm_tile_x(TILE), FACTOR_THREADS = GEMM_ROW_THREADS + 128 * (Turns ? 1 : Warpgroups);
  static_assert(gemm_shared_bytes(TILE, Stages) <= GEMM_MOST_SHARED_BYTES, "a block has no more");
  static_assert(P_ROWS / AlongQ <= 256 && Columns / AlongP <= 256, "a box has no more rows");
  static_assert(Parts == 1 || (Parts <= 3 && !TURNS && (Parts - 1) * Rows * STORED * 4 <= BUFFERS * GEMM_STAGING_BYTES),
                "parts meet in the buffers for results");
  static_assert(!MEETS_OFTEN || Warpgroups == 1, "its barriers are those of two meetings, not of two warpgroups");
  static_assert(!STREAMS || (STREAM_FILLS < Stages && !OVERLAP), "the residual stream comes through stages");
  static_assert(RESIDUAL_FILLS < Stages && BOXES <= Stages, "boxes of results leave from stages");
  static_assert(!Slots || (Swapped && !TURNS && ALONG_Q == 1 && Rows == 64), "a warpgroup decodes W for itself");
  static_assert(!SPLITS || (Slots && Warpgroups == 2 &&
                            (gemm_split_bytes(TILE) || COLUMNS * 256 <= BUFFERS * GEMM_STAGING_BYTES)),
                "two warpgroups meet in the second one's buffers, or in a place of their own");
};

/* Addresses in shared memory, and the place of the block in its cluster. */
template <typename D> struct gemm_block {
  uint32_t stages, slots, scales, scale_numbers, staging, full, empty;
  uint32_t slot_full, slot_empty;
  uint32_t met;            /* a barrier for each warpgroup, or for each place of a meeting: parts */
  uint32_t meeting;        /* two places, if they meet often */
  uint32_t split;          /* where the sums of two warpgroups meet */
  uint32_t factors;        /* of the rows of two tiles */
  uint32_t squares;        /* of each warp and row */
  uint32_t cp, cq, part;   /* which tile of the cluster, along P and Q; which part of k */
  uint32_t first, apart;   /* this cluster's first unit, and the distance to its next */
  uint32_t tiles;          /* of this block */
  uint32_t k_begin, steps; /* of this block's part */
  uint32_t k_fills, fills; /* of stages, for a tile: of k; and with those of the residual's boxes */

  DEVICE gemm_block(const gemm_wgmma_parameters &p, const void *shared) {
    stages = shared_address(shared);
    slots = stages + D::STAGES * D::STAGE_BYTES;
    scales = slots + D::SLOTS * D::SLOT_BYTES;
    scale_numbers = scales + D::SLOTS * GEMM_SLOT_STEPS * D::P_ROWS * 4;
    staging = scales + gemm_scale_bytes(D::TILE);
    meeting = staging + D::BUFFERS * D::WARPGROUPS * GEMM_STAGING_BYTES;
    split =
        gemm_split_bytes(D::TILE) ? meeting + gemm_meeting_bytes(D::TILE) : staging + D::BUFFERS * GEMM_STAGING_BYTES;
    factors = meeting + gemm_meeting_bytes(D::TILE) + gemm_split_bytes(D::TILE);
    squares = factors + 2 * 4 * D::X_ROWS;
    full = factors + gemm_row_bytes(D::TILE);
    empty = full + 8 * D::STAGES;
    met = empty + 8 * D::STAGES;
    slot_full = met + 8 * 2;
    slot_empty = slot_full + 8 * D::SLOTS;
    const uint32_t rank = D::CLUSTER > 1 ? cluster_rank() : 0;
    cp = rank % D::ALONG_P;
    cq = rank / D::ALONG_P % D::ALONG_Q;
    part = D::PARTS > 1 ? rank / (D::ALONG_P * D::ALONG_Q) : 0;
    first = blockIdx.x / D::CLUSTER;
    apart = gridDim.x / D::CLUSTER;
    tiles = p.least + (first < p.more);
    k_begin = D::PARTS > 1 ? begin_of(p.steps, part) : 0;
    steps = (D::PARTS > 1 ? begin_of(p.steps, part + 1) : p.steps) - k_begin;
    k_fills = (steps + D::STAGE_BOXES - 1) / D::STAGE_BOXES;
    fills = k_fills +
            (!D::IS_WIDE && p.boxed && stores() ? D::STREAMS && p.streamed ? D::STREAM_FILLS : D::RESIDUAL_FILLS : 0);
  }
  /* Does it store results? */
  DEVICE bool stores() const { return D::PARTS < 3 || part < 2; }
  /* The first of a part's steps. With slots it begins at a multiple of a slot's. */
  DEVICE static uint32_t begin_of(uint32_t steps, uint32_t part) {
    const uint32_t begin = steps * part / D::PARTS;
    return D::SLOTS && part < D::PARTS ? begin / GEMM_SLOT_STEPS * GEMM_SLOT_STEPS : begin;
  }
  /* The rank of the block that has the same part of k, and this tile of the cluster. */
  DEVICE static uint32_t rank_of(uint32_t p, uint32_t q, uint32_t part) {
    return p + D::ALONG_P * (q + D::ALONG_Q * part);
  }
};

/* The first rows of a tile, and its matrix. */
struct gemm_place {
  int p, q, matrix;
};
/* So that the compiler finds a place here, before waits and products, and not after them. */
DEVICE void keep(gemm_place &place) { asm volatile("" : "+r"(place.p), "+r"(place.q), "+r"(place.matrix)); }
DEVICE uint32_t divide(uint32_t number, const gemm_divisor &by) { return __umulhi(2 * number, by.factor) >> by.shift; }
/* Units are walked in groups along P, each for all of Q, so that neighbours in time share tiles of Q. */
template <typename D>
DEVICE gemm_place gemm_place_of(const gemm_wgmma_parameters &p, const gemm_block<D> &at, uint32_t turn) {
  const uint32_t unit = at.first + turn * at.apart, matrix = divide(unit, p.of_matrix);
  const uint32_t in = unit - matrix * p.of_matrix.by, group = divide(in, p.of_group);
  const uint32_t in_group = in - group * p.of_group.by;
  const gemm_divisor along = group < p.groups ? p.along : p.last_along;
  const uint32_t uq = divide(in_group, along), up = group * p.along.by + in_group - uq * along.by;
  return {(int)(up * D::ALONG_P + at.cp) * D::P_ROWS, (int)(uq * D::ALONG_Q + at.cq) * D::COLUMNS, (int)matrix};
}

/* One thread's copies of W, or of X, stage after stage. One of them leads: it says how many bytes a stage gets, and
 * copies the residual. If a cluster shares a tile, each of its blocks copies a part to all. */
template <typename D, bool IsWeights> struct gemm_copier {
  static constexpr bool IS_P = IsWeights == D::SWAPPED, LEADS = IsWeights || D::SLOTS;
  static constexpr int SHARERS = IS_P ? D::ALONG_Q : D::ALONG_P, ROWS = (IS_P ? D::P_ROWS : D::COLUMNS) / SHARERS;

  const gemm_wgmma_parameters &p;
  const gemm_block<D> at;
  int row, matrix; /* of this block's part of a tile */
  uint32_t turn = 0, step = 0, stage = 0, parity = 1;

  DEVICE gemm_copier(const gemm_wgmma_parameters &p, const void *shared) : p(p), at(p, shared) { find_place(); }

  DEVICE uint32_t mine() const { return IS_P ? at.cq : at.cp; }
  DEVICE void find_place() {
    const gemm_place place = gemm_place_of(p, at, turn);
    row = (IS_P ? place.p : place.q) + (int)mine() * ROWS, matrix = place.matrix;
  }

  DEVICE void next_stage() {
    if (++stage == D::STAGES) stage = 0, parity ^= 1;
  }

  /* Both threads wait for each stage: a parity names one of two neighbouring rounds only. */
  DEVICE void copy_residual() {
    const gemm_place place = gemm_place_of(p, at, turn);
    const int halves = D::STREAMS && p.streamed ? 2 : 1, all = D::BOXES * D::PANELS * halves;
    rolled_for (int first = 0; first < all; first += D::IN_STAGE) {
      const int count = min(all - first, D::IN_STAGE);
      barrier_wait(at.empty + 8 * stage, parity);
      if (LEADS) {
        barrier_expect(at.full + 8 * stage, count * D::BOX_BYTES);
        rolled_for (int i = 0; i < count; i++) {
          const int number = (first + i) / halves, panel = number % D::PANELS, box = number / D::PANELS;
          const int along_p = place.p + 64 * panel, along_q = place.q + (int)at.part * D::STORED + D::box_begin(box);
          const int column = (D::SWAPPED ? along_p : along_q) + (first + i) % halves * 32;
          box_copy(at.stages + stage * D::STAGE_BYTES + i * D::BOX_BYTES, &p.residual, column,
                   D::SWAPPED ? along_q : along_p, place.matrix, at.full + 8 * stage);
        }
      }
      next_stage();
    }
  }

  /* Copies the next `count` stages of k, and the residual after a tile's last. The first round finds all stages free,
   * and ends no tile with a residual. */
  template <bool IsFirstRound> DEVICE void copy(uint32_t count) {
    uint16_t blocks = 0;
    unrolled_for (uint32_t i = 0; i < SHARERS; i++)
      blocks |= 1 << (IS_P ? at.rank_of(at.cp, i, at.part) : at.rank_of(i, at.cq, at.part));
    const void *map = IS_P ? &p.p : &p.q;
    const uint32_t bytes = D::STAGE_BYTES - D::STAGE_BOXES * 128 * gemm_x_missing(D::TILE, p.rows);
    rolled_for (; count; count--) {
      const uint32_t full = at.full + 8 * stage;
      const uint32_t to = at.stages + stage * D::STAGE_BYTES + (IS_P ? 0 : D::P_BYTES) + mine() * ROWS * 128;
      const int k = (int)(at.k_begin + step) * D::DEPTH;
      if (!IsFirstRound) barrier_wait(at.empty + 8 * stage, parity);
      if (LEADS) barrier_expect(full, bytes);
      /* Here its instructions before the first copy are done. NVFP4's copies would lose time each. */
      if (!IsWeights && !D::SLOTS) only_wait_for_predecessors();
      unrolled_for (int i = 0; i < D::STAGE_BOXES; i++) {
        const uint32_t box = to + i * D::COLUMNS * 128;
        if (SHARERS == 1)
          box_copy(box, map, k + i * D::DEPTH, row, matrix, full);
        else
          box_copy_to(blocks, box, map, k + i * D::DEPTH, row, matrix, full);
      }
      next_stage();
      step += D::STAGE_BOXES;
      if (step >= at.steps) {
        if (!D::IS_WIDE && !IsFirstRound && p.boxed && at.stores()) copy_residual();
        step = 0, turn++;
        find_place();
      }
    }
  }
  DEVICE uint32_t all() const { return at.tiles * at.k_fills; }
  /* How many of them may be copied before the predecessors end. With a residual, a stage less than a tile has. */
  static_assert(D::STAGE_BOXES == 1 || D::SLOTS, "a stage has one step");
  DEVICE uint32_t first_round() const { return min((uint32_t)D::STAGES, p.boxed ? at.steps - 1 : all()); }
};

} // namespace
