/* feed_forward_ring.cuh - the weights of feed_forward.cu: which of them a block and a warp multiply, and the ring of
 * slots through which they come. */
#pragma once

#include "../gemv/gemv_operands.cuh"
#include "decoder_shared.cuh"
#include "feed_forward.h"

template <rondo_dtype W> struct chunk_of;
/* 64 numbers of a row, one line of memory: a lane multiplies eight of them twice. */
template <> struct chunk_of<RONDO_BF16> {
  static constexpr int elements = 64, row_bytes = 128, lane_elements = 8, slot = 2048;
};
/* 64 numbers of a row: a lane has a scale group of sixteen; a word has the scales of four lanes. */
template <> struct chunk_of<RONDO_NVFP4> {
  static constexpr int elements = 64, row_bytes = 32, lane_elements = 16, slot = 768;
};

/* See FEED_FORWARD_KERNELS. */
template <rondo_dtype W, bool Split, int Operands, int Slots, int Held = 0, bool HasRanks = false> struct sizes {
  static constexpr bool has_ranks = HasRanks; /* takes and gives parts over ranks */
  static constexpr uint32_t held = Held;      /* tiles of gate and up in registers, the block's first */
  static constexpr rondo_dtype weights = W;
  using chunk = chunk_of<W>;
  static constexpr int cluster = LAYER_HALF_CLUSTER, operands = Operands, slots = Slots;
  static_assert(slots * chunk::slot == (held ? FEED_FORWARD_DEEP_BYTES : FEED_FORWARD_RING_BYTES(W)),
                "what a plan gives");
  static constexpr int parts = FEED_FORWARD_MOST_PARTS;
  static constexpr bool split = Split;
  /* Few registers if they suffice: then a multiprocessor holds a block of the predecessor too, which ends while this
   * one fetches weights. */
  static constexpr int blocks = Split && W != RONDO_NVFP4 && !held ? 2 : 1;
  static constexpr uint32_t columns_of_token = Split ? 2 : 1;
};

/* ---- A block's place --------------------------------------------------------------------------------------------- */

template <typename Size> struct place {
  uint32_t shared, rank, cluster, lane, warp, warps, g, t;
  uint32_t first_group, groups; /* of the cluster's gated columns */

  DEVICE place(const feed_forward_parameters &p, uint32_t memory)
      : shared(memory), rank(blockIdx.x % Size::cluster), cluster(blockIdx.x / Size::cluster), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), warps(blockDim.x / 32), g(lane / 4), t(lane % 4) {
    first_group = cluster * p.groups / p.parts;
    groups = (cluster + 1) * p.groups / p.parts - first_group;
    if constexpr (Size::has_ranks) first_group += p.first_group, cluster += p.first_part;
  }
};

/* What a warp does of one product. */
template <typename Size> struct share {
  using chunk = typename Size::chunk;
  uint32_t tile, first_chunk, chunks; /* tile: of the block; chunks of the warp's cut */
  uint32_t cluster_tiles;             /* that there are in the cluster */

  DEVICE share(const place<Size> &at, const feed_forward_product &of, uint32_t all_chunks, uint32_t all_tiles)
      : cluster_tiles(all_tiles) {
    tile = at.warp * of.reciprocal >> 16;
    first_chunk = (at.warp - tile * of.cuts) * of.cut_chunks;
    chunks = first_chunk < all_chunks ? min(all_chunks - first_chunk, of.cut_chunks) : 0;
  }
  DEVICE bool has(const place<Size> &at, const feed_forward_product &of, uint32_t of_block) const {
    return of_block < of.tiles && at.rank + of_block * Size::cluster < cluster_tiles;
  }
};

/* ---- A warp's weights -------------------------------------------------------------------------------------------- */

/* Addresses of a lane's requests for a tile's next chunk. */
template <rondo_dtype W> struct source;

/* Eight lanes request a row's line, four rows at once, so that memory sees whole lines. */
template <> struct source<RONDO_BF16> {
  using chunk = chunk_of<RONDO_BF16>;
  const unsigned char *codes;
  uint32_t four_rows; /* bytes */

  DEVICE void set(uint32_t lane, const layer_half_matrix &matrix, const feed_forward_product &of, uint32_t row,
                  uint32_t chunks) {
    four_rows = 4 * of.row_bytes;
    codes = (const unsigned char *)matrix.weights + (uint64_t)(row + lane / 8) * of.row_bytes +
            chunks * chunk::row_bytes + lane % 8 * 16;
  }
  DEVICE void copy(uint32_t slot, uint32_t lane) {
    const uint32_t to = slot + lane / 8 * 128 + (lane % 8 ^ lane / 8 % 2 * 4) * 16;
    unrolled_for (uint32_t i = 0; i < 4; i++) copy_early_16(to + i * 512, codes + (uint64_t)i * four_rows);
    codes += chunk::row_bytes;
  }
};

/* Each lane requests its own operands, of rows g and g + 8. */
template <> struct source<RONDO_NVFP4> {
  using chunk = chunk_of<RONDO_NVFP4>;
  const unsigned char *codes, *codes_8, *scales, *scales_8;

  DEVICE void set(uint32_t lane, const layer_half_matrix &matrix, const feed_forward_product &of, uint32_t row,
                  uint32_t chunks) {
    const uint64_t mine = row + lane / 4;
    codes = (const unsigned char *)matrix.weights + mine * of.row_bytes + chunks * chunk::row_bytes + lane % 4 * 8;
    codes_8 = codes + 8 * (uint64_t)of.row_bytes;
    scales = (const unsigned char *)matrix.scales + mine * of.scale_row_bytes + chunks * 4;
    scales_8 = scales + 8 * (uint64_t)of.scale_row_bytes;
  }
  DEVICE void copy(uint32_t slot, uint32_t lane) {
    copy_early<8>(slot + lane * 8, codes);
    copy_early<8>(slot + lane * 8 + 256, codes_8);
    copy_early<4>(slot + lane * 4 + 512, scales);
    copy_early<4>(slot + lane * 4 + 640, scales_8);
    codes += chunk::row_bytes, codes_8 += chunk::row_bytes, scales += 4, scales_8 += 4;
  }
};

/* The slots of a warp. */
template <typename Size> struct slots {
  using chunk = typename Size::chunk;
  static constexpr uint32_t bytes = Size::slots * chunk::slot;
  uint32_t ring, lane;
  uint32_t asked, used; /* slots: in bytes from the ring */
  source<Size::weights> from;
  uint32_t left, tile, next;
  bool second;

  DEVICE slots(const feed_forward_parameters &p, const place<Size> &at)
      : ring(at.shared + p.ring + at.warp * bytes), lane(at.lane), asked(0), used(0), left(0), tile(0), next(0),
        second(false) {}

  DEVICE static uint32_t row_of(const place<Size> &at, bool second, uint32_t tile) {
    return (at.rank + tile * Size::cluster) * 16 + (second ? 0 : at.first_group * (2 * chunk::elements));
  }

  /* The ring: the next chunk, if there is one. */
  DEVICE void find_next(const feed_forward_parameters &p, const place<Size> &at, const share<Size> &one,
                        const share<Size> &two) {
    if (!second) {
      tile = next++ ? tile + p.gate_up.step : one.tile + Size::held;
      if (one.has(at, p.gate_up, tile)) {
        left = one.chunks;
        from.set(lane, p.half.first, p.gate_up, row_of(at, false, tile), one.first_chunk);
        return;
      }
      second = true, next = 0;
    }
    tile = next++ ? tile + p.down.step : two.tile;
    left = 0;
    if (!two.has(at, p.down, tile)) {
      tile = 1u << 16;
      return;
    }
    left = two.chunks;
    from.set(lane, p.half.second, p.down, row_of(at, true, tile), two.first_chunk + at.first_group);
  }
  /* What is known between two requests, to one word and back. */
  DEVICE uint32_t packed() const { return left | next << 8 | (uint32_t)second << 14 | tile << 15; }
  DEVICE void unpack(uint32_t word) {
    left = word & 255, next = word >> 8 & 63, second = word >> 14 & 1, tile = word >> 15;
  }
  DEVICE void ask(const feed_forward_parameters &p, const place<Size> &at, const share<Size> &one,
                  const share<Size> &two) {
    if (left) {
      from.copy(ring + asked, lane);
      asked += chunk::slot;
      if (asked == bytes) asked = 0;
      if (--left == 0) find_next(p, at, one, two);
    }
    cp_async_commit();
  }
};
