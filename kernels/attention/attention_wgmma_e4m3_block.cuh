/* attention_wgmma_e4m3_block.cuh - what all warps of a block of attention_wgmma_e4m3.cu know: its sizes, and where
 * things lie in shared memory. */
#ifndef RONDO_ATTENTION_WGMMA_E4M3_BLOCK_CUH
#define RONDO_ATTENTION_WGMMA_E4M3_BLOCK_CUH

#include "../common/wgmma_e4m3.cuh"
#include "attention_wgmma_block.cuh"
#include "attention_wgmma_e4m3.h"

/* The sizes of a kernel: a line of the list in attention_wgmma_e4m3.h. */
template <int Dimension, int Causal, int Warpgroups, int Tile, int KvSlots, int QuerySlots, int Early>
struct e4m3_tiling {
  template <int Columns> using product = e4m3_product<Columns>;
  static constexpr int dimension = Dimension, warpgroups = Warpgroups, tile = Tile, early = Early;
  static constexpr bool is_e4m3 = true, causal = Causal, general = false;
  static constexpr int kv_slots = KvSlots, query_slots = QuerySlots, cluster = 1;
  static constexpr int rows = 64 * Warpgroups, panels = 1, row_bytes = Dimension;
  static constexpr int weight_words = Tile / 8; /* a thread's words of P */
  static constexpr int value_panel_bytes = 16,
                       value_step_bytes = 32;         /* 32 KV rows of a product are contiguous in V^T */
  static constexpr int value_warps = 2, landings = 4; /* two landings for each warp that transposes V */
  static constexpr int query_bytes = 64 * Dimension, kv_bytes = Tile * Dimension; /* of a slot of Q, of K */
  /* V^T has a row of ones, eight times: in the place of a column of O, weights are summed. */
  static constexpr int sums = Dimension, output = Dimension + 8, value_bytes = output * Tile;
  static constexpr int part = Tile / 2, part_bytes = part * Dimension; /* of V, that a warp transposes */
  static constexpr int together = 512 / Tile;                          /* KV tiles that products sum: take_over() */
  static constexpr int copying_registers = 56, computing_registers = 224;
  static_assert(Dimension == 128 && Tile == 128, "rows of Q, K, V and V^T are of the 128 bytes of a swizzled panel");
  static_assert(Warpgroups == 2, "64 Ki registers: as many at launch for each of three warpgroups");
  static_assert((KvSlots & (KvSlots - 1)) == 0 && (QuerySlots & (QuerySlots - 1)) == 0,
                "a slot's number is bits of a count");
};

template <int... Sizes> struct shared_layout<e4m3_tiling<Sizes...>> {
  using Size = e4m3_tiling<Sizes...>;
  uint32_t query, key, value;                            /* slots; of V^T */
  uint32_t landing;                                      /* of V: two for each warp that transposes */
  uint32_t key_full, key_empty, value_full, value_empty; /* a barrier for each slot */
  uint32_t query_full, query_empty;                      /* one for each slot and warpgroup */
  uint32_t value_landed;                                 /* one for each landing */
  uint32_t pass_ended;                                   /* one */
  uint32_t columns_free, columns_full;                   /* one */
  uint32_t tile;                                         /* what a slot of Q is of, for each slot and warpgroup */
  uint32_t unwritten;                                    /* hold_e4m3() */
  uint32_t failed;                                       /* for two passes: a word, and a bit for each tile */
  uint32_t columns;                                      /* a word for each column of V and warp that transposes */

  __device__ __forceinline__ explicit shared_layout(uint32_t base) {
    query = base;
    key = query + Size::query_slots * Size::warpgroups * Size::query_bytes;
    value = key + Size::kv_slots * Size::kv_bytes;
    landing = value + Size::kv_slots * Size::value_bytes;
    key_full = landing + 4 * Size::part_bytes;
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
    tile = key_full + ATTENTION_E4M3_BARRIER_BYTES;
    failed = tile + 32 * Size::query_slots * Size::warpgroups;
    columns = failed + 2 * PASS_BYTES;
    static_assert(32 * Size::kv_slots + 16 * Size::query_slots * Size::warpgroups + 64 <= ATTENTION_E4M3_BARRIER_BYTES,
                  "barriers");
  }

  /* By all threads, before products: eight rows of each V^T, all 1. */
  __device__ __forceinline__ void fill() const {
    for (uint32_t i = threadIdx.x; i < Size::kv_slots * 256; i += blockDim.x)
      store_shared(value + i / 256 * Size::value_bytes + Size::sums * Size::tile + i % 256 * 4, 0x38383838);
    writes_reach_products();
  }
};

#endif
