/* attention_wgmma.cu - softmax(scale Q K^T) V of many query rows in 16 bits, for sm_90a: FlashAttention-3 (Shah et al.
 * 2024, arXiv 2407.08608) without a running maximum. Bound by the chip's power at head dimensions 128 and 256, by the
 * exponentials' latencies beside the products at 64 (README.md has figures).
 *
 * A block stays on its multiprocessor and takes query tiles until none are left (attention_wgmma_tiles.cuh). One
 * warpgroup copies: one warp each brings Q, K and V into slots of shared memory. The others compute, 64 query rows each
 * (attention_wgmma_loop.cuh). They treat the KV tiles of all their query tiles as one stream: S = Q K(j)^T runs beside
 * O += P V(j - 1), exponentials run beside the latter, and warpgroups take turns at the tensor cores. KV tiles go from
 * the last to the first. So tiles that need a mask come first and, with a window, tiles at its edge last.
 *
 * Few query tiles leave multiprocessors idle, while those with the most KV tiles take long. Then two blocks of a
 * cluster take every second KV tile each, and exchange halves of O (merge). They have one warpgroup that computes, and
 * a multiprocessor has two of them.
 *
 * If scores of a query tile's first KV tile lie so far apart that a later weight may overflow, all its KV tiles take a
 * running maximum (first_steps): 1.05 to 1.2 times as long. Other faults show in the sums and in O, and the same launch
 * computes the query tile again: in the second pass with a running maximum, if sums are out of range; in the third
 * pass without infinities and NaNs of V, if O has one, since a product spreads them to rows that do not see them. Each
 * column then remembers which rows see what. Rows of V after a length are zeros from the start. */
#include <math.h>

#include "attention_wgmma_copies.cuh"
#include "attention_wgmma_loop.cuh"

/* The policy of attention_wgmma_loop.cuh. */
template <typename Size> struct sixteen_bits : warpgroup_products<Size> {
  using tiling = Size;
  using T = typename Size::type;
  using base = warpgroup_products<Size>;
  using base::base, base::p, base::at, base::s, base::o, base::weights, base::rows, base::keys, base::wide;
  using base::first_row, base::warpgroup, base::needs_mask, base::edge_end, base::end_accumulate;

  static DEVICE void copy(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t rank,
                          const tile_walk<Size> &first) {
    copy_tiles<Size, value_copies<Size>>(p, at, rank, first);
  }

  DEVICE void clear() {
    unroll<Size::dimension / 2>([&](int i) { o[i] = 0.0f; });
  }

  /* Scores of KV tile j lie far apart if they differ by more exponents than this: the tiles after it need maxima. */
  DEVICE float far_apart(const query_tile &tile, int j) const {
    if (!needs_mask(tile, j)) return FAR_IN_WHOLE;
    const int most = limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64 + 63) - kv_begin_of<Size>(p, tile) -
                     j * Size::tile;
    return most < FEW_COLUMNS ? ALWAYS_FAR : FAR_IN_PART;
  }

  DEVICE void note_if(bool far) {
    if constexpr (Size::causal)
      wide = far;
    else if (far)
      store_word(this->note(), keys.taken);
  }

  /* The last KV tile, which comes first. */
  DEVICE void weigh_first_tile(const query_tile &tile, int j) {
    if (needs_mask(tile, j)) this->mask_tile(tile, j);
    note_if(weigh_first(s, rows, p.scale_log2, far_apart(tile, j)) || hides(tile, j));
  }
  /* Does a row see nothing of KV tile j? With parts, the block's next tile may need no mask, but a reference. */
  DEVICE bool hides(const query_tile &tile, int j) const {
    return Size::parts > 1 && limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64) <= j * Size::tile;
  }
  DEVICE void round() { round_weights<T>(weights, s); }
  DEVICE void end_accumulate_and_round() {
    /* Without a mask, finish() beside the exponentials is better: 1 to 2 % at 512 and 1024 positions. */
    if constexpr (Size::causal) hold(s, rows, p.scale_log2, at.unwritten);
    end_accumulate();
    round();
  }

  /* Another, with the running maximum. */
  DEVICE void weigh_tile_with_maximum(const query_tile &tile, int j) {
    float factor[2];
    if constexpr (Size::causal)
      if (needs_mask(tile, j) || j < edge_end(tile)) this->mask_tile(tile, j);
    note_if(weigh_with_maximum(s, rows, p.scale_log2, far_apart(tile, j), factor));
    hold(s, rows, p.scale_log2, at.unwritten);
    end_accumulate();
    round();
    rescale(o, factor);
  }

  /* KV tiles with a running maximum: those that some rows do not see whole; if scores lie far apart in these, the tile
   * after them, whose maximum is a better reference; and if they do in that tile, all. Returns the first tile that is
   * left. */
  DEVICE int first_steps(const query_tile &tile, int j) {
    bool all = false;
    if constexpr (Size::causal) {
      rolled_for (; j >= 0; j -= Size::parts) {
        if (!all && !needs_mask(tile, j)) {
          if (!uniform(this->any_of_warpgroup(wide))) break;
          all = !needs_mask(tile, j + Size::parts);
        }
        this->score_beside_accumulate();
        weigh_tile_with_maximum(tile, j);
      }
      return j;
    }
    if (j < 0) return j;
    bool far = this->template score_beside_accumulate<true>();
#pragma unroll 1
    while (all || far) {
      all = all || !needs_mask(tile, j + 1);
      weigh_tile_with_maximum(tile, j);
      if (--j < 0) return j;
      far = this->template score_beside_accumulate<true>();
    }
    weigh_tile(); /* its score is there */
    return j - 1;
  }

  /* Any other KV tile. Edge: all rows see its end, but not all its beginning, since the window begins in it. */
  template <bool Edge> DEVICE void step(const query_tile &tile, int j) {
    this->score_beside_accumulate();
    if constexpr (Edge) this->mask_edge(tile, j);
    weigh_tile();
  }
  /* The wait for the sums sits amid the exponentials. Those after it share the pipes with the rounding of weights. */
  DEVICE void weigh_tile() {
    const float against[2] = {rows.reference[0], rows.reference[1]};
    weigh<0, Size::early>(s, p.scale_log2, against, rows.sum);
    hold(s, rows, p.scale_log2, at.unwritten);
    end_accumulate();
    weigh<Size::early, Size::tile / 2>(s, p.scale_log2, against, rows.sum);
    round();
    if (__any_sync(0xffffffffu, fmaxf(rows.sum[0], rows.sum[1]) > most_sum<T>)) {
      float factor[2];
      move_reference(s, rows, factor);
      round();
      rescale(o, factor);
    }
  }

  DEVICE void attend_rest(const query_tile &tile, int j) {
    j = first_steps(tile, j);
    for (const int end = edge_end(tile); j >= end; j -= Size::parts) step<false>(tile, j);
    if constexpr (Size::general)
      for (; j >= 0; j--) step<true>(tile, j);
  }
  DEVICE void sums_end() {}

  DEVICE void weigh_again() {
    float factor[2];
    weigh_with_maximum(s, rows, 1.0f, ALWAYS_FAR, factor);
    rescale(o, factor);
    round();
  }
  DEVICE void tile_is_summed(int) {}

  /* What the third pass has taken out of V comes back to the rows that see it. */
  DEVICE void put_back(uint32_t parity) {
    barrier_wait(at.columns_full, parity);
    unroll<Size::dimension / 2>([&](int i) {
      const uint32_t row = first_row + (i & 2 ? 8 : 0);
      const uint32_t column = at.columns + (8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2) * Size::column_bytes;
      if constexpr (Size::general) {
        const uint32_t word = column + row / 32 * 4, kind_bytes = Size::rows / 8;
        if (load_word(word) >> row % 32 & 1) o[i] += NAN;
        if (load_word(word + kind_bytes) >> row % 32 & 1) o[i] += INFINITY;
        if (load_word(word + 2 * kind_bytes) >> row % 32 & 1) o[i] -= INFINITY;
        return;
      }
      const uint32_t seen = load_word(column);
      if (row >= (seen & 0xff)) o[i] += NAN;
      if (row >= (seen >> 8 & 0xff)) o[i] += INFINITY;
      if (row >= (seen >> 16 & 0xff)) o[i] -= INFINITY;
    });
  }

  DEVICE float sum_of(const softmax_rows &rows, int half) const { return quad_sum(rows.sum[half]); }
  DEVICE bool fits(float, float sum) const { return sum > 0.5f && sum < 1e30f; }

  /* One of the thread's rows, o over the sum. Whether it has a number that is none. */
  template <int Half> DEVICE bool store_row(const query_tile &tile, float reference, float sum) const {
    const bool nothing = sum == 0.0f;
    const float inverse = __fdividef(1.0f, sum);
    uint32_t special = 0; /* two zeros of T, or NaN */
    this->template store_output<Half>(tile, [&](int i) {
      const float first = o[i] * inverse, second = o[i + 1] * inverse;
      const uint32_t word = nothing ? 0 : pack_two<T>(first, second);
      special = zero_or_nan<T>(word, special);
      return word;
    });
    this->template store_lse<Half>(tile, reference, sum);
    return special & 0x7fff7fff;
  }
};

#define DEFINE(chips, parameters, name, threads, type, dimension, mask, warpgroups, tile, kv_slots, query_slots,       \
               cluster, early)                                                                                         \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1)                                                           \
      __launch_bounds__(threads, ATTENTION_WGMMA_AT_ONCE(warpgroups)) name(const __grid_constant__ parameters p) {     \
    let_successors_start();                                                                                            \
    attend_wgmma<sixteen_bits<wgmma_tiling<type, dimension, ATTENTION_WGMMA_##mask, warpgroups, tile, kv_slots,        \
                                           query_slots, cluster, early>>>(p);                                          \
    publish(p.done);                                                                                                   \
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
#ifndef BF16_ALONE /* build/check-types */
ATTENTION_WGMMA_F16_KERNELS(DEFINE)
#endif
#ifndef F16_ALONE /* build/compile-device makes these of those of f16 */
ATTENTION_WGMMA_BF16_KERNELS(DEFINE)
#endif
#endif
