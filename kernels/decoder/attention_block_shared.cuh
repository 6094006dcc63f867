/* attention_block_shared.cuh - shared by the parts of attention_block.cu: a block's position in its cluster, and
 * numbers in shared memory. */
#pragma once

#include "../attention/attention_decode_tile.cuh"
#include "attention_block.h"
#include "decoder_shared.cuh"

/* A line of the list in attention_block.h. */
template <rondo_dtype Weights, int Dimension> struct block_sizes {
  using tile = tiling<RONDO_BF16, DECODE_PLAIN, Dimension, 1, 1, 1, DECODE_PARTS>; /* of K and V */
  static constexpr rondo_dtype weights = Weights;
  static constexpr int dimension = Dimension;
  static constexpr uint32_t cluster = LAYER_HALF_CLUSTER, warps = ATTENTION_BLOCK_WARPS, threads = 32 * warps;
  static constexpr uint32_t attending = ATTENTION_BLOCK_ATTENDING(Dimension); /* warps */
  static constexpr uint32_t row_step = attending * cluster * LAYER_HALF_TILE; /* from a warp's KV tile to its next */
  static constexpr uint32_t numbers_pitch = ATTENTION_BLOCK_NUMBERS_PITCH(Dimension);
  static constexpr uint32_t stages = ATTENTION_BLOCK_STAGES, stage_bytes = tile::stage_bytes,
                            ring_bytes = stages * stage_bytes;
  /* From a stage to the next, in bytes from the warp's first. */
  static DEVICE uint32_t stage_behind(uint32_t stage, uint32_t /* warp */) {
    static_assert(stages == 2, "there and back");
    return stage ^ stage_bytes;
  }
  static constexpr uint32_t sharing = cluster; /* blocks that share a context */
  static constexpr bool scaled_vector = false; /* of the products: see decoder_integers.cuh */
  static constexpr bool knows_sizes = false;   /* at compile time */
  static constexpr bool has_ranks = false;     /* takes and gives parts over ranks */
  /* The bits of attention_rows_as_tokens.cuh. */
  static constexpr bool alike = Weights == RONDO_BF16 && Dimension == 64;
  /* Parameters of the kernel, or constants in attention_block_wide.cu: */
  typedef const attention_block_parameters &told;
  static DEVICE attention_block_share first(told p) { return p.first; }
  static DEVICE uint32_t group(told p) { return p.group; }
  static DEVICE uint32_t received(told p) { return p.received; }
  static DEVICE uint32_t cuts(told p) { return p.cuts; }
  static DEVICE uint32_t activations(told p) { return p.activations; }
  static DEVICE uint32_t pitch(told p) { return p.pitch; }
  static DEVICE uint32_t powers(told) { return 0; } /* only where vectors are scaled */
  static DEVICE uint32_t ring(told p) { return p.ring; }
  static DEVICE uint32_t place_of_warp(uint32_t warp) { return warp; } /* among those that attend for its token */
  template <typename Place> static DEVICE uint32_t numbers(told, const Place &b) {
    return b.shared + ATTENTION_BLOCK_NUMBERS;
  }
};

/* `splits` clusters share the query heads of a KV head, whose new row the first of them writes. */
struct kv_head_place {
  uint32_t shared, rank, part, kv_head; /* part: which cluster */
  uint32_t lane, warp, g, t;            /* lane = 4 g + t */
  bool keeps_row;

  DEVICE kv_head_place(uint32_t memory, uint32_t splits) : shared(memory) {
    rank = blockIdx.x % LAYER_HALF_CLUSTER, part = blockIdx.x / LAYER_HALF_CLUSTER;
    kv_head = part / splits, keeps_row = kv_head * splits == part;
    lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  }
  /* The barriers of numbers of q, k and v, of partial results, and where blocks share its making of the row; each has
   * one phase. */
  DEVICE uint32_t numbers_barrier() const { return shared + ATTENTION_BLOCK_BARRIERS; }
  DEVICE uint32_t partials_barrier() const { return shared + ATTENTION_BLOCK_BARRIERS + 8; }
  DEVICE uint32_t row_barrier() const { return shared + ATTENTION_BLOCK_BARRIERS + 16; }
  DEVICE uint32_t squares_barrier() const { return shared + ATTENTION_BLOCK_BARRIERS + 24; }
};

/* load_four_words from an array: ptxas then takes other registers. */
DEVICE uint4 load_shared_words_four(uint32_t from) {
  uint32_t four[4];
  load_four_words(from, four);
  return {four[0], four[1], four[2], four[3]};
}
