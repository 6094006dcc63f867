/* attention_loop.cuh - the plain portable kernel: softmax(scale Q K^T) V without stored scores, FlashAttention-2 (Dao
 * 2023, arXiv 2307.08691) on mma.m16n8k16, for every chip from sm_80 on. Bound by the tensor cores, shared memory and
 * the exponentials in prefill, by the memory in decode.
 *
 * A block has 64 or 128 rows (attention.h) of one KV head, a warp 16 or 32 of them: with 32, each fragment of K and V
 * serves two products. cp.async brings the next tiles of the split during the work on one. The scores of a warp's rows
 * stay in its registers: the C fragments of Q K^T are the A fragments of P V. The 16-byte chunks of a shared row are
 * permuted, so that ldmatrix meets no bank twice.
 *
 * There is no running maximum: the reference of a row's weights is the maximum of its first tile. If the weights of a
 * tile pass 2^14 (f16 ends at 2^16), the scores of the tile are computed again, their maximum becomes the reference,
 * and the sums so far are rescaled.
 *
 * A KV row that no row of the block sees is read as zeros. A score of a KV row that the query row does not see becomes
 * -infinity. Since 0 * NaN is NaN, infinities and NaNs of V become zeros in tiles that only some rows of the block see;
 * afterwards they are added to the rows that see them. */
#pragma once

#include "attention_warp.cuh"

/* ---- Tiles on their way ------------------------------------------------------------------------------------------ */

/* The stage of the tile that begins with KV row `begin`. */
template <typename Size> DEVICE uint32_t stage_of(int begin) { return (uint32_t)begin / Size::tile % Size::stages; }

/* The split's tiles of K and V. With several stages, K and V of a tile are copied together, during the work on earlier
 * tiles. With one stage, V is copied while the scores are computed, and the next K while V is used. */
template <typename Size> struct tiles {
  static constexpr bool together = Size::stages > 1, eager = Size::steps::eager;
  /* Tiles under way. With several stages they are one less: a tile is requested after the barrier at which all warps
   * have left the tile before, and takes its stage. */
  static constexpr int ahead = together ? Size::stages - 1 : 1;
  const attention_parameters &p;
  const work &w;
  stream<Size> k, v;
  int *unclean; /* for each stage: the tile whose V has an infinity or a NaN */

  DEVICE void load(const stream<Size> &to, const uint16_t *from, int64_t stride, int begin, uint32_t stage) const {
    to.load(from, stride, begin, w.kv_end, stage, p.aligned);
  }
  DEVICE void load_k(int begin, uint32_t stage) const { load(k, w.k, p.k_stride.position, begin, stage); }
  DEVICE void load_v(int begin, uint32_t stage) const { load(v, w.v, p.v_stride.position, begin, stage); }

  /* Before the first tile. */
  DEVICE void begin() const {
    unroll<ahead>([&](int t) {
      const int begin = w.kv_begin + t * Size::tile;
      const uint32_t stage = stage_of<Size>(begin);
      if (eager && begin < w.kv_end) load_k(begin, stage);
      if (together && begin < w.kv_end) load_v(begin, stage);
      cp_async_commit();
    });
    cp_async_wait<ahead>();
    __syncthreads();
  }

  /* Waits for the tile's K. */
  DEVICE void take_keys(int begin, uint32_t stage, bool some) const {
    cp_async_wait<ahead - 1>();
    if constexpr (together) {
      if (some && v.clean(stage)) atomicMax(&unclean[stage], begin);
      __syncthreads();
      const int later = begin + ahead * Size::tile;
      if (later < w.kv_end) {
        const uint32_t free_stage = stage_of<Size>(later);
        load_k(later, free_stage);
        load_v(later, free_stage);
      }
      cp_async_commit();
    } else if constexpr (eager) {
      __syncthreads();
      load_v(begin, 0);
      cp_async_commit();
    } else {
      __syncthreads();
      load_k(begin, 0);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
    }
  }

  /* After the tile's scores: waits for its V. */
  DEVICE void take_values(int begin, bool some) const {
    if constexpr (together) return;
    if constexpr (!eager) {
      load_v(begin, 0);
      cp_async_commit();
    }
    cp_async_wait<0>();
    if (some && v.clean(0)) atomicMax(&unclean[0], begin);
    __syncthreads();
    const int next = begin + Size::tile;
    if (eager && next < w.kv_end) load_k(next, 0);
    cp_async_commit();
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void attend(const attention_parameters &p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ work w;
  __shared__ int limits[Size::threads / 32]; /* of the warps */
  __shared__ int unclean[Size::stages];
  if (threadIdx.x == 0) w = work_of<Size>(p);
  if (threadIdx.x < Size::stages) unclean[threadIdx.x] = -1;
  __syncthreads();
  if (lane_index() == 0) limits[threadIdx.x / 32] = warp_limit<Size>(p, w);
  unsigned char *const keys = shared + Size::query_bytes;
  unsigned char *const values = keys + Size::stages * Size::tile_bytes;
  query_load<Size>(p, w, shared);
  cp_async_commit();
  const tiles<Size> tiles = {p, w, {keys}, {values}, unclean};
  tiles.begin();
  const query_fragments<Size> q(shared + warp_row<Size>() * Size::row_bytes);

  output_fragments<Size> o = {};
  softmax_state<Size> state;
  state.clear();
  rolled_for (int begin = w.kv_begin; begin < w.kv_end; begin += Size::tile) {
    const int next = begin + Size::tile;
    uint32_t stage = stage_of<Size>(begin);
    /* Otherwise ptxas keeps all addresses of the only stage in registers, and runs out of them. */
    if constexpr (Size::stages == 1) asm volatile("" : "+r"(stage));
    const bool active = begin < limits[threadIdx.x / 32];
    const bool some = next > w.kv_all && w.kv_all < w.kv_end; /* not all rows of the block see all of the tile */
    tiles.take_keys(begin, stage, some);
    score_fragments<Size> s;
    if (active) {
      bool again = !Size::steps::one_reference || begin == w.kv_begin;
#pragma unroll 1
      do {
        score<Size>(q, keys + stage * Size::tile_bytes, s);
        if (next > w.kv_all) mask<Size>(p, w, begin, s);
        if (again) refer<Size>(s, p.scale_log2, state, o);
        again = !weigh<Size>(p.scale_log2, again, state, s);
      } while (again);
    }
    tiles.take_values(begin, some);
    if (active) {
      accumulate<Size>(s, values + stage * Size::tile_bytes, o);
      /* Keeps the address of the stage's word out of the registers too. */
      int found_in = begin;
      asm volatile("" : "+r"(found_in));
      if (unclean[stage_of<Size>(found_in)] == begin) spread<Size>(p, w, begin, min(next, w.kv_end), o);
    }
  }
  finish<Size>(p, w, state, o, shared);
}
