/* attention_wgmma_block.cuh - for all warps of a block of attention_wgmma.cu and attention_wgmma_e4m3.cu: the sizes of
 * a kernel in 16 bits, the layout of shared memory, and the query tiles of a pass. */
#pragma once

#include "../common/device_code.cuh"
#include "../common/elected.cuh"
#include "../common/element.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "../common/tensor_copy.cuh"
#include "../common/wgmma.cuh"
#include "attention_wgmma_tiles.cuh"

/* What a kernel is made for: a line of the list in attention_wgmma.h. */
template <rondo_dtype Dtype, int Dimension, attention_wgmma_mask Mask, int Warpgroups, int Tile, int KvSlots,
          int QuerySlots, int Cluster, int Early>
struct wgmma_tiling {
  using type = element<Dtype>;
  template <int Columns> using product = warpgroup_product<type, Columns>;
  static constexpr bool is_e4m3 = false;
  /* A general kernel has the structure of a causal one with a window. */
  static constexpr bool causal = Mask != ATTENTION_WGMMA_ALL, general = Mask == ATTENTION_WGMMA_GENERAL;
  static constexpr int dimension = Dimension, warpgroups = Warpgroups, tile = Tile;
  static constexpr int kv_slots = KvSlots, query_slots = QuerySlots, cluster = Cluster;
  /* Under the causal mask, the two blocks of a cluster take a part each of a query tile's KV tiles, and exchange
   * results. Else they have query tiles of their own, and share copies of K and V. */
  static constexpr int parts = causal ? Cluster : 1;
  static constexpr bool shares_copies = Cluster > parts;
  static constexpr int exchange_bytes = parts > 1 ? ATTENTION_WGMMA_EXCHANGE_BYTES(Dimension) : 0; /* of a warpgroup */
  /* Barriers of copies of V that are cleaned. The other block of a pair may be a slot ahead: what it copies for that
   * must not be counted for this one. */
  static constexpr int landings = shares_copies ? KvSlots : 1, landing_bytes = 0; /* V is cleaned in its slot */
  static constexpr int early = Tile / 2 * Early / 8 / 4 * 4;                      /* scores weighed before the wait */
  static constexpr int rows = 64 * Warpgroups, panels = Dimension / 64, row_bytes = 2 * Dimension;
  static constexpr int column_bytes = ATTENTION_WGMMA_COLUMN_BYTES(Mask, Warpgroups);
  static constexpr int query_bytes = 64 * row_bytes, kv_bytes = Tile * row_bytes,
                       value_bytes = kv_bytes;                      /* of a slot */
  static constexpr int output = Dimension, weight_words = Tile / 4; /* O's columns; a thread's words of P */
  static constexpr int value_panel_bytes = Tile * 128, value_step_bytes = 16 * 128; /* V's 16 rows of a product */
  static constexpr int value_warps = 1;                                             /* that bring V */
  /* 64 Ki registers: as many at launch for each warpgroup, then few for the one that copies. */
  static constexpr int copying_registers = Warpgroups == 3 ? 32 : 40;
  static constexpr int computing_registers = Warpgroups == 3 ? 160 : Warpgroups == 2 ? 232 : 216;
  static_assert(!general || Cluster == 1, "parts of a window's KV tiles are not tried");
  static_assert(Cluster <= 2, "a share is half of a KV tile");
  static_assert((KvSlots & (KvSlots - 1)) == 0, "a slot's number is bits of a count");
};

enum : uint32_t {
  TURN_BARRIER = 1, /* of the block's numbered barriers: one for each warpgroup that computes */
  WIDE_BARRIER = 4, /* one for each such warpgroup */
  PASSES = 3,
  PASS_BYTES = ATTENTION_WGMMA_MOST_TILES / 8 + 4
};

DEVICE void or_shared(uint32_t address, uint32_t bits) {
  asm volatile("red.shared.or.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
}

/* Where things lie in shared memory. */
template <typename Size> struct shared_layout {
  uint32_t query, key, value;                            /* slots */
  uint32_t landing;                                      /* e4m3: where copies of V arrive */
  uint32_t key_full, key_empty, value_full, value_empty; /* a barrier for each slot */
  uint32_t query_full, query_empty;                      /* one for each slot and warpgroup */
  uint32_t value_landed;                                 /* Size::landings */
  uint32_t pass_ended;                                   /* one */
  uint32_t columns_free, columns_full;                   /* one */
  uint32_t tile;                                         /* what a slot of Q is of, for each slot and warpgroup */
  uint32_t unwritten;                                    /* hold() */
  uint32_t exchange, exchanged;                          /* parts: two packets of each warpgroup, and their barriers */
  uint32_t wide;                                         /* two words for each warpgroup */
  uint32_t failed;                                       /* for two passes: a word, and a bit for each tile */
  uint32_t columns;                                      /* what the third pass has taken out of each column of V */

  DEVICE explicit shared_layout(uint32_t base) {
    query = base;
    key = query + Size::query_slots * Size::warpgroups * Size::query_bytes;
    value = key + Size::kv_slots * Size::kv_bytes;
    landing = value + Size::kv_slots * Size::value_bytes;
    exchange = landing + Size::landings * Size::landing_bytes;
    key_full = exchange + 2 * Size::warpgroups * Size::exchange_bytes;
    key_empty = key_full + 8 * Size::kv_slots;
    value_full = key_empty + 8 * Size::kv_slots;
    value_empty = value_full + 8 * Size::kv_slots;
    query_full = value_empty + 8 * Size::kv_slots;
    query_empty = query_full + 8 * Size::query_slots * Size::warpgroups;
    value_landed = query_empty + 8 * Size::query_slots * Size::warpgroups;
    pass_ended = value_landed + 8 * Size::landings;
    columns_free = pass_ended + 8;
    columns_full = columns_free + 8;
    unwritten = columns_full + 8;
    exchanged = unwritten + 8;
    tile = key_full + ATTENTION_WGMMA_BARRIER_BYTES;
    wide = tile + 32 * Size::query_slots * Size::warpgroups;
    failed = wide + 8 * Size::warpgroups;
    columns = failed + 2 * PASS_BYTES;
    static_assert(32 * Size::kv_slots + 16 * Size::query_slots * Size::warpgroups + 8 * Size::landings + 32 +
                          (Size::parts > 1 ? 16 * Size::warpgroups : 0) <=
                      ATTENTION_WGMMA_BARRIER_BYTES,
                  "barriers");
  }

  /* By all threads, before products. */
  DEVICE void fill() const {
    if (threadIdx.x < 2 * Size::warpgroups) store_word(wide + 4 * threadIdx.x, 0);
    if constexpr (Size::is_e4m3) {
      /* Eight rows of each V^T, all 1. */
      for (uint32_t i = threadIdx.x; i < Size::kv_slots * 256; i += blockDim.x)
        store_word(value + i / 256 * Size::value_bytes + Size::sums * Size::tile + i % 256 * 4, 0x38383838);
      writes_reach_products();
    }
  }
};

/* The same in all lanes, and known to be: ptxas puts a warp's reduction into a uniform register, and what follows from
 * it, operand descriptors above all, into others. */
DEVICE uint32_t uniform(uint32_t value) { return __reduce_max_sync(0xffffffffu, value); }

/* Of four times eight columns, each of a quad's lanes has two of every eight. A transposition inside the quad gives
 * it one eight whole, so that it stores 16 bytes at once. */
DEVICE void transpose(uint32_t (&word)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? word[0] : word[1], 1);
  uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? word[2] : word[3], 1);
  (odd ? word[0] : word[1]) = a;
  (odd ? word[2] : word[3]) = b;
  a = __shfl_xor_sync(0xffffffffu, high ? word[0] : word[2], 2);
  b = __shfl_xor_sync(0xffffffffu, high ? word[1] : word[3], 2);
  (high ? word[0] : word[2]) = a;
  (high ? word[1] : word[3]) = b;
}

/* The order of writes that only_arrive_at_cluster lacks, for what other blocks read. */
DEVICE void cluster_fence() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

/* A tile has to be computed again, and with it those of the cluster's other blocks, which share copies. */
template <typename Size> DEVICE void fail(const shared_layout<Size> &at, uint32_t pass, uint32_t number) {
  const uint32_t any = at.failed + pass * PASS_BYTES, word = any + 4 + number / 32 * 4;
  or_shared(any, 1);
  or_shared(word, 1u << number % 32);
  if constexpr (Size::cluster == 2) {
    or_there(address_in_block(any, cluster_rank() ^ 1), 1);
    or_there(address_in_block(word, cluster_rank() ^ 1), 1u << number % 32);
    cluster_fence();
  }
}

/* All warps of the cluster: whether there is another pass after this one. */
template <typename Size> DEVICE bool again(const shared_layout<Size> &at, uint32_t pass) {
  __syncwarp();
  if constexpr (Size::cluster > 1) {
    only_arrive_at_cluster(); /* fail() has a fence */
    wait_for_cluster();
  } else { /* no __syncthreads: warps come from two places */
    if (threadIdx.x % 32 == 0) barrier_arrive(at.pass_ended);
    barrier_wait(at.pass_ended, pass);
  }
  return load_word(at.failed + pass * PASS_BYTES) != 0;
}

/* This block's next tile of a pass: all in the first, in a later one those that failed in the one before. */
template <typename Size>
DEVICE bool next_tile(tile_walk<Size> &walk, const shared_layout<Size> &at, uint32_t pass, query_tile &tile) {
  while (walk.next(tile)) {
    if (!pass) return true;
    const uint32_t word = at.failed + (pass - 1) * PASS_BYTES + 4 + tile.number / 32 * 4;
    if (load_word(word) >> tile.number % 32 & 1) return true;
  }
  return false;
}
