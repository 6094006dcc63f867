/* attention_wgmma_e4m3_block.cuh - the sizes of a block of attention_wgmma_e4m3.cu. */
#ifndef RONDO_ATTENTION_WGMMA_E4M3_BLOCK_CUH
#define RONDO_ATTENTION_WGMMA_E4M3_BLOCK_CUH

#include "../common/wgmma_e4m3.cuh"
#include "attention_wgmma_block.cuh"

/* A line of the list in attention_wgmma.h. */
template <int Dimension, attention_wgmma_mask Mask, int Warpgroups, int Tile, int KvSlots, int QuerySlots, int Early>
struct e4m3_tiling {
  template <int Columns> using product = e4m3_product<Columns>;
  static constexpr int dimension = Dimension, warpgroups = Warpgroups, tile = Tile, early = Early;
  static constexpr bool is_e4m3 = true, causal = Mask == ATTENTION_WGMMA_CAUSAL, general = false;
  static constexpr int kv_slots = KvSlots, query_slots = QuerySlots, cluster = 1;
  static constexpr int rows = 64 * Warpgroups, panels = 1, row_bytes = Dimension;
  static constexpr int weight_words = Tile / 8; /* a thread's words of P */
  static constexpr int value_panel_bytes = 16,
                       value_step_bytes = 32;         /* 32 KV rows of a product are contiguous in V^T */
  static constexpr int value_warps = 2, landings = 4; /* two landings for each warp that transposes V */
  static constexpr int query_bytes = 64 * Dimension, kv_bytes = Tile * Dimension; /* of a slot of Q, of K */
  /* V^T has a row of ones, eight times: in the place of a column of O, weights are summed. */
  static constexpr int sums = Dimension, output = Dimension + 8, value_bytes = output * Tile;
  static constexpr int part = Tile / 2, landing_bytes = part * Dimension; /* of V, for one warp to transpose */
  static constexpr int column_bytes = 4;                                  /* of each of these warps */
  static constexpr int together = 512 / Tile;                             /* KV tiles that products sum: take_over() */
  static constexpr int copying_registers = 56, computing_registers = 224;
  static_assert(Dimension == 128 && Tile == 128, "rows of Q, K, V and V^T are of the 128 bytes of a swizzled panel");
  static_assert(Warpgroups == 2, "64 Ki registers: as many at launch for each of three warpgroups");
  static_assert((KvSlots & (KvSlots - 1)) == 0 && (QuerySlots & (QuerySlots - 1)) == 0,
                "a slot's number is bits of a count");
};

#endif
