/* attention_wgmma_e4m3.cu - softmax(scale Q K^T) V of many query rows in e4m3, for sm_90a: attention_wgmma.cu's
 * pipeline with products of one-byte numbers, which are twice as fast, and weights in e4m3 too. Bound by latencies of
 * exponentials beside products.
 *
 * Two warps transpose V after its copy (attention_wgmma_e4m3_copies.cuh). A row of ones after V^T makes the products
 * sum the weights beside O, rounded and with the same losses as O, so that both errors cancel in the quotient.
 *
 * Products keep 14 bits of a term, counted from the first bit of the sum so far. A sum of 4096 positive terms would
 * come out some 4 % too small. So every 512 KV rows O goes to totals in bf16, without the bits that these cannot hold,
 * and begins anew. A remainder is at most 2^-8 of its total: at 2^19 KV rows, four times the amount that 512 rows add.
 */
#include <math.h>

#include "../common/wgmma_e4m3.cuh"
#include "attention_wgmma_e4m3_copies.cuh"
#include "attention_wgmma_e4m3_softmax.cuh"
#include "attention_wgmma_loop.cuh"

/* A line of the list in attention_wgmma.h. */
template <int Dimension, attention_wgmma_mask Mask, int Warpgroups, int Tile, int KvSlots, int QuerySlots, int Early>
struct e4m3_tiling {
  template <int Columns> using product = e4m3_product<Columns>;
  static constexpr int dimension = Dimension, warpgroups = Warpgroups, tile = Tile, early = Early;
  static constexpr bool is_e4m3 = true, causal = Mask == ATTENTION_WGMMA_CAUSAL, general = false;
  static constexpr int kv_slots = KvSlots, query_slots = QuerySlots, cluster = 1, parts = 1, exchange_bytes = 0;
  static constexpr bool shares_copies = false;
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

/* The policy of attention_wgmma_loop.cuh. */
template <typename Size> struct one_byte : warpgroup_products<Size> {
  using tiling = Size;
  using base = warpgroup_products<Size>;
  using base::base, base::p, base::at, base::s, base::o, base::weights, base::rows, base::wide;
  using base::first_row, base::needs_mask, base::mask_tile, base::score_beside_accumulate, base::end_accumulate;

  uint32_t totals[Size::dimension / 4]; /* of O, two in bf16 to a word; totals of the sums are in rows */
  float totals_factor[2];               /* that totals are still to be multiplied by */

  static DEVICE void copy(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t rank,
                          const tile_walk<Size> &first) {
    copy_tiles<Size, value_transposer<Size>>(p, at, rank, first);
  }

  DEVICE void clear() {
    unroll<Size::output / 2>([&](int i) { o[i] = 0.0f; });
    unroll<Size::dimension / 4>([&](int i) { totals[i] = 0; });
    totals_factor[0] = totals_factor[1] = 1.0f;
  }

  /* The last KV tile, which comes first. */
  DEVICE void weigh_first_tile(const query_tile &tile, int j) {
    if (needs_mask(tile, j)) mask_tile(tile, j);
    wide = weigh_first<true>(s, rows, p.scale_log2, FAR_E4M3);
  }
  DEVICE void round() { round_e4m3(weights, s); }
  DEVICE void end_accumulate_and_round() {
    uint16_t upper[Size::tile / 16];
    round_upper_halves(upper, s);
    /* Without a mask, finish() beside the exponentials is better. */
    if constexpr (Size::causal) hold_e4m3(upper, p.scale_log2, at.unwritten);
    end_accumulate();
    round_e4m3(weights, upper, s);
  }

  /* O and the sums go to their totals. What a total of eight bits cannot hold stays in O until it has grown: otherwise
   * a total would grow no more after some 256 times. */
  DEVICE void take_over() {
    add_totals();
    unroll<Size::dimension / 4>([&](int i) {
      totals[i] = pack_two<__nv_bfloat16>(o[2 * i], o[2 * i + 1]);
      o[2 * i] -= __uint_as_float(totals[i] << 16);
      o[2 * i + 1] -= __uint_as_float(totals[i] & 0xffff0000u);
    });
    totals_factor[0] = totals_factor[1] = 1.0f;
    unroll<2>([&](int half) { rows.sum[half] += o[Size::sums / 2 + 2 * half]; });
    unrolled_for (int i = Size::sums / 2; i < Size::output / 2; i++) o[i] = 0.0f;
  }
  /* They are not multiplied before O is added to them. */
  DEVICE void rescale_totals(const float (&factor)[2]) { totals_factor[0] *= factor[0], totals_factor[1] *= factor[1]; }
  DEVICE void add_totals() {
    unroll<Size::dimension / 4>([&](int i) {
      o[2 * i] = fmaf(__uint_as_float(totals[i] << 16), totals_factor[i % 2], o[2 * i]);
      o[2 * i + 1] = fmaf(__uint_as_float(totals[i] & 0xffff0000u), totals_factor[i % 2], o[2 * i + 1]);
    });
  }

  /* A KV tile with the running maximum: Masked, one that some rows do not see whole, which comes before there are
   * totals; or one of wide rows. */
  template <bool Masked> DEVICE void step_with_maximum(const query_tile &tile, int j) {
    float factor[2];
    uint16_t upper[Size::tile / 16];
    score_beside_accumulate();
    if constexpr (Masked) mask_tile(tile, j);
    wide = weigh_with_maximum<true>(s, rows, p.scale_log2, FAR_E4M3, factor);
    round_upper_halves(upper, s);
    hold_e4m3(upper, p.scale_log2, at.unwritten);
    end_accumulate();
    round_e4m3(weights, upper, s);
    pin(weights);
    rescale(o, factor);
    if constexpr (!Masked) rescale_totals(factor);
  }

  /* Any other. The wait for the sums sits amid the exponentials. Words that are half made before it are finished after
   * it: no product under way reads the registers that they go to. */
  DEVICE void step() {
    const float against[2] = {rows.reference[0], rows.reference[1]};
    uint16_t upper[Size::early];
    score_beside_accumulate();
    weigh_halves<true, 0, Size::early>(s, p.scale_log2, against);
    round_upper_halves(upper, s);
    hold_e4m3(upper, p.scale_log2, at.unwritten);
    end_accumulate();
    weigh_halves<true, Size::early, Size::tile / 8>(s, p.scale_log2, against);
    weigh_halves<false, 0, Size::tile / 8>(s, p.scale_log2, against);
    const bool high = round_e4m3(weights, upper, s);
    if (__any_sync(0xffffffffu, high)) {
      float factor[2];
      move_reference_e4m3(s, rows, factor);
      round_e4m3(weights, s);
      rescale(o, factor);
      rescale_totals(factor);
    }
    pin(weights);
  }

  /* Does KV tile j say too little of the others? Under the causal mask each tile that needs one does. */
  DEVICE bool is_poor(const query_tile &tile, int j) const {
    return Size::causal ? needs_mask(tile, j) : tile.length - j * Size::tile < FEW_COLUMNS;
  }
  DEVICE void attend_rest(const query_tile &tile, int j) {
    /* Also the tile after a poor one: a first maximum of a few columns makes a reference that would have to move. */
    for (; j >= 0 && is_poor(tile, j + 1); j--) step_with_maximum<true>(tile, j);
    const bool all_wide = this->any_of_warpgroup(wide);
    while (true) {
      const int end = max(j - Size::together, -1);
      if (all_wide)
        for (; j > end; j--) step_with_maximum<false>(tile, j);
      else
        for (; j > end; j--) step();
      if (j < 0) break;
      take_over();
    }
  }
  DEVICE void sums_end() { add_totals(); }

  DEVICE void weigh_again() {
    float factor[2];
    weigh_with_maximum<true>(s, rows, 1.0f, ALWAYS_FAR, factor);
    rescale(o, factor);
    rescale_totals(factor);
    round();
  }
  DEVICE void tile_is_summed(int j) {
    if (j % Size::together == 0) take_over();
  }

  /* What the third pass has taken out of V comes back to the rows that see it. */
  DEVICE void put_back(uint32_t parity) {
    barrier_wait(at.columns_full, parity);
    unroll<Size::dimension / 2>([&](int i) {
      const uint32_t row = first_row + (i & 2 ? 8 : 0);
      const uint32_t word = at.columns + 4 * (8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2);
      if (row >= min(load_word(word), load_word(word + 4 * Size::dimension))) o[i] = NAN;
    });
  }

  DEVICE float sum_of(const softmax_rows &rows, int half) const {
    return rows.sum[half] + o[Size::sums / 2 + 2 * half];
  }
  /* A reference of 2^24 and more is rounded by up to 1, or by more: the largest weight of its tile may have been
   * rounded to 448. */
  DEVICE bool fits(float reference, float sum) const { return sum > 1.0f && sum < 1e30f && fabsf(reference) < 0x1p24f; }

  /* One of the thread's rows, o over the sum. Whether it has a NaN. */
  template <int Half> DEVICE bool store_row(const query_tile &tile, float reference, float sum) const {
    const float inverse = sum == 0.0f ? 0.0f : __fdividef(p.v_scale, sum);
    float special = 0.0f; /* or NaN */
    this->template store_output<Half>(tile, [&](int i) {
      special = fmaf(o[i], 0.0f, fmaf(o[i + 1], 0.0f, special));
      return p.bf16 ? pack_two<__nv_bfloat16>(o[i] * inverse, o[i + 1] * inverse)
                    : pack_two<__half>(o[i] * inverse, o[i + 1] * inverse);
    });
    this->template store_lse<Half>(tile, reference, sum);
    return isnan(special);
  }
};

#define DEFINE(chips, parameters, name, threads, type, dimension, mask, warpgroups, tile, kv_slots, query_slots,       \
               cluster, early)                                                                                         \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ parameters p) {                \
    let_successors_start();                                                                                            \
    attend_wgmma<                                                                                                      \
        one_byte<e4m3_tiling<dimension, ATTENTION_WGMMA_##mask, warpgroups, tile, kv_slots, query_slots, early>>>(p);  \
    publish(p.done);                                                                                                   \
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
ATTENTION_E4M3_KERNELS(DEFINE)
#endif
