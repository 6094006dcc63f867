/* attention_wgmma.cu - softmax(scale Q K^T) V of many query rows, for sm_90a: FlashAttention-3 (Shah et al. 2024, arXiv
 * 2407.08608) without a running maximum.
 *
 * A block is a multiprocessor's, and takes tiles until there are none (attention_wgmma_tiles.cuh). Its first warpgroup
 * copies: one warp each brings Q, K and V into slots of shared memory. The others compute, 64 query rows each, and
 * treat the KV tiles of all their query tiles as one stream: S = Q K(j)^T runs beside O += P V(j - 1), also across the
 * border of two query tiles, the exponentials beside the latter, and the warpgroups take turns at the tensor cores. KV
 * tiles go from the last to the first, so that those that need a mask come first; with a window, those at its edge
 * last.
 *
 * Where scores of a query tile's first KV tile lie so far apart that a later weight may overflow, all its KV tiles take
 * the running maximum (first_steps): 1.05 to 1.2 times as long. Otherwise what can go wrong is found in the sums and in
 * O, and the query tile is computed again by the same launch: a second time with the running maximum, where a sum is
 * out of range (attention_wgmma_softmax.cuh); a third time with the infinities and NaNs of V taken out, where O has
 * one: a product spreads them to rows that do not see them, as 0 * NaN, and so each column remembers which rows of the
 * tile see what. V rows beyond a length are zeros from the start.
 *
 * One block a multiprocessor: 384 threads with 40 registers to copy and 232 to compute, or 512 with 32 and 160; 166 to
 * 210 KB of shared memory. Bound by the chip's power at head dimensions 128 and 256, by the exponentials' latencies
 * beside the products at 64: 800, 805 and 600 of the 990 TFLOP/s that an H200 is made for (full attention, 4096
 * positions, bf16), 735, 740 and 540 under the causal mask. */
#include <math.h>

#include "../common/launch.cuh"
#include "../common/wgmma.cuh"
#include "attention_wgmma_copies.cuh"
#include "attention_wgmma_queries.cuh"
#include "attention_wgmma_softmax.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900

/* ---- The warpgroups that compute --------------------------------------------------------------------------------- */

/* The slots of K or of V as those see them who multiply with what is in them. */
template <typename Size> struct ring_begin {
  uint32_t full, empty;
  uint64_t first; /* the first slot's descriptor */
  uint32_t rank;
  bool leads;         /* the thread is the one of its warp that arrives */
  uint32_t taken = 0; /* slot and parity are bits of it */

  __device__ __forceinline__ uint32_t slot() const { return taken & (Size::kv_slots - 1); }
  __device__ __forceinline__ void wait() const { barrier_wait(full + 8 * slot(), taken / Size::kv_slots & 1); }
  __device__ __forceinline__ uint64_t descriptor() const { return operand_further(first, slot() * Size::kv_bytes); }
  __device__ __forceinline__ void release() {
    const uint32_t barrier = empty + 8 * slot();
    if (leads) {
      barrier_arrive(barrier);
      if constexpr (Size::cluster == 2) barrier_arrive_there(address_in(rank ^ 1, barrier));
    }
    taken++;
  }
};

template <typename Size> struct computing {
  using T = typename Size::type;
  const attention_wgmma_parameters &p;
  const places<Size> &at;
  const uint32_t warpgroup, rank;
  const int first_row; /* this thread's, in a query tile; the second is eight below */
  ring_begin<Size> keys, values;
  query_ring<Size> query;

  /* As wgmma.cuh lays them out: scores, which become weights; the output; the weights as operand A. */

  float s[Size::tile / 2], o[Size::dimension / 2];
  uint32_t weights[Size::tile / 4];
  softmax_rows rows;
  bool wide; /* rows of this thread: any_of_warpgroup() */

  __device__ __forceinline__ computing(const attention_wgmma_parameters &p, const places<Size> &at, uint32_t warpgroup,
                                       uint32_t rank)
      : p(p), at(at), warpgroup(warpgroup), rank(rank),
        first_row(warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4),
        keys{at.key_full, at.key_empty, operand_descriptor(at.key, 16), rank, threadIdx.x % 32 == 0},
        values{at.value_full, at.value_empty, operand_descriptor(at.value, Size::tile * 128), rank,
               threadIdx.x % 32 == 0},
        query{at.query_full + 8 * warpgroup, at.query_empty + 8 * warpgroup, at.tile + 32 * warpgroup,
              operand_descriptor(at.query + warpgroup * Size::query_bytes, 16), threadIdx.x % 32 == 0} {}

  /* Turns at the tensor cores. */
  __device__ __forceinline__ void take_turn() const { warps_meet(TURN_BARRIER + warpgroup, 256); }
  __device__ __forceinline__ void pass_turn() const {
    warps_arrive(TURN_BARRIER + (warpgroup + 1 == Size::warpgroups ? 0 : warpgroup + 1), 256);
  }

  /* S = Q K^T, begun. */
  __device__ __forceinline__ void begin_score() {
    const uint64_t q = query.descriptor(), k = keys.descriptor();
    pin(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Size::dimension / 16; i++)
      warpgroup_product<T, Size::tile>::shared(s, operand_further(q, i / 4 * 64 * 128 + i % 4 * 32),
                                               operand_further(k, i / 4 * Size::tile * 128 + i % 4 * 32), i != 0);
    wgmma_commit();
  }

  /* O += P V, begun. */
  __device__ __forceinline__ void begin_accumulate() {
    const uint64_t v = values.descriptor();
    pin(o);
    pin(weights);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Size::tile / 16; i++)
      warpgroup_product<T, Size::dimension>::registers(o, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                                       weights[4 * i + 3], operand_further(v, i * 16 * 128));
    wgmma_commit();
  }
  __device__ __forceinline__ void end_accumulate() {
    wgmma_wait<0>();
    pin(o);
    pin(weights);
    values.release();
  }

  /* The score of the next KV tile beside the sums of the one before; ends with the score. Returns is_noted() if asked.
   */
  template <bool Asks = false> __device__ __forceinline__ bool score_beside_accumulate() {
    keys.wait();
    take_turn();
    begin_score();
    values.wait();
    begin_accumulate();
    pass_turn();
    const bool noted = Asks && is_noted();
    wgmma_wait<1>();
    pin(s);
    keys.release();
    if constexpr (Size::capped) cap(s, p.cap_scale);
    return noted;
  }
  __device__ __forceinline__ void score_alone() {
    keys.wait();
    begin_score();
    wgmma_wait<0>();
    pin(s);
    keys.release();
    if constexpr (Size::capped) cap(s, p.cap_scale);
  }

  /* Does some row of the warpgroup not see the end of KV tile j, or, under the causal mask, nothing behind it? */
  __device__ __forceinline__ bool needs_mask(const query_tile &tile, int j) const {
    return kv_begin_of<Size>(p, tile) + (j + 1) * Size::tile + (Size::causal ? 0 : -1) >=
           limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64);
  }
  __device__ __forceinline__ void mask_tile(const query_tile &tile, int j) {
    const int column = kv_begin_of<Size>(p, tile) + j * Size::tile + (int)threadIdx.x % 4 * 2,
              row = tile.row_begin + first_row;
    mask(s, limit_of<Size>(p, tile, row) - column, limit_of<Size>(p, tile, row + 8) - column);
    if constexpr (Size::window)
      if (j < edge_end(tile)) mask_edge(tile, j);
  }
  /* The first KV tile that all rows of the warpgroup see from its beginning on. */
  __device__ __forceinline__ int edge_end(const query_tile &tile) const {
    const int begin = begin_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64 + 63);
    return Size::window ? (begin - kv_begin_of<Size>(p, tile) + Size::tile - 1) / Size::tile : 0;
  }
  __device__ __forceinline__ void mask_edge(const query_tile &tile, int j) {
    const int column = kv_begin_of<Size>(p, tile) + j * Size::tile + (int)threadIdx.x % 4 * 2,
              row = tile.row_begin + first_row;
    mask_before(s, begin_of<Size>(p, tile, row) - column, begin_of<Size>(p, tile, row + 8) - column);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < Size::dimension / 2; i++) o[i] = 0.0f;
  }

  /* Scores of KV tile j that lie so many exponents apart need the maxima of the tiles behind. */
  __device__ __forceinline__ float far_apart(const query_tile &tile, int j) const {
    if (!needs_mask(tile, j)) return FAR_IN_WHOLE;
    const int most = limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64 + 63) - kv_begin_of<Size>(p, tile) -
                     j * Size::tile;
    return most < FEW_COLUMNS ? ALWAYS_FAR : FAR_IN_PART;
  }

  /* Warps decide together whether scores of the last tile whose maximum was taken lie far apart, since products are all
   * of a warpgroup's or none's. Under the causal mask they vote. Without one a thread notes it in shared memory, and
   * all read it behind their next turn, where they have met: a vote would cost 3 % at 512 positions. There are two
   * places, since the fastest warp may be a tile further than the slowest. */
  __device__ __forceinline__ bool any_of_warpgroup(bool here) const {
    return uniform(warpgroup_any(WIDE_BARRIER + warpgroup, here));
  }
  __device__ __forceinline__ uint32_t note() const { return at.wide + 8 * warpgroup + keys.taken % 2 * 4; }
  __device__ __forceinline__ bool is_noted() const { return uniform(load_shared(note())) == keys.taken; }
  __device__ __forceinline__ void note_if(bool far) {
    if constexpr (Size::causal)
      wide = far;
    else if (far)
      store_shared(note(), keys.taken);
  }

  /* The last KV tile, which comes first. */
  __device__ __forceinline__ void weigh_first_tile(const query_tile &tile, int j) {
    if (needs_mask(tile, j)) mask_tile(tile, j);
    note_if(weigh_first(s, rows, p.scale_log2, far_apart(tile, j)));
  }
  /* Another, with the running maximum. */
  __device__ __forceinline__ void weigh_tile_with_maximum(const query_tile &tile, int j) {
    float factor[2];
    if constexpr (Size::causal)
      if (needs_mask(tile, j) || j < edge_end(tile)) mask_tile(tile, j);
    note_if(weigh_with_maximum(s, rows, p.scale_log2, far_apart(tile, j), factor));
    hold(s, rows, p.scale_log2, at.never);
    end_accumulate();
    round_weights<T>(weights, s);
    rescale(o, factor);
  }

  /* Such are KV tiles that some rows do not see whole; where scores lie far apart in these the one behind, whose
   * maximum is a better reference; and where they do in that, all. Returns the first that is to be done. */
  __device__ __forceinline__ int first_steps(const query_tile &tile, int j) {
    bool all = false;
    if constexpr (Size::causal) {
#pragma unroll 1
      for (; j >= 0; j--) {
        if (!all && !needs_mask(tile, j)) {
          if (!any_of_warpgroup(wide)) break;
          all = !needs_mask(tile, j + 1);
        }
        score_beside_accumulate();
        weigh_tile_with_maximum(tile, j);
      }
      return j;
    }
    if (j < 0) return j;
    bool far = score_beside_accumulate<true>();
#pragma unroll 1
    while (all || far) {
      all = all || !needs_mask(tile, j + 1);
      weigh_tile_with_maximum(tile, j);
      if (--j < 0) return j;
      far = score_beside_accumulate<true>();
    }
    weigh_tile(); /* its score is there */
    return j - 1;
  }

  /* Any other, or one that all rows see the end of, but not all the beginning: the window's edge. The wait for the sums
   * sits amid the exponentials: those behind it share the pipes with the rounding of the weights, instead of coming
   * before it. */
  template <bool Edge> __device__ __forceinline__ void step(const query_tile &tile, int j) {
    score_beside_accumulate();
    if constexpr (Edge) mask_edge(tile, j);
    weigh_tile();
  }
  __device__ __forceinline__ void weigh_tile() {
    const float against[2] = {rows.reference[0], rows.reference[1]};
    weigh<0, Size::early>(s, p.scale_log2, against, rows.sum);
    hold(s, rows, p.scale_log2, at.never);
    end_accumulate();
    weigh<Size::early, Size::tile / 2>(s, p.scale_log2, against, rows.sum);
    round_weights<T>(weights, s);
    if (__any_sync(0xffffffffu, fmaxf(rows.sum[0], rows.sum[1]) > most_sum<T>)) {
      float factor[2];
      move_reference(s, rows, factor);
      round_weights<T>(weights, s);
      rescale(o, factor);
    }
  }

  /* What the third pass has taken out of V comes back to the rows that see it. */
  __device__ __forceinline__ void put_back(uint32_t parity) {
    barrier_wait(at.columns_full, parity);
#pragma unroll
    for (int i = 0; i < Size::dimension / 2; i++) {
      const uint32_t row = first_row + (i & 2 ? 8 : 0);
      const uint32_t column = at.columns + (8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2) * Size::column_bytes;
      if constexpr (Size::window) {
        const uint32_t word = column + row / 32 * 4, kind_bytes = Size::rows / 8;
        if (load_shared(word) >> row % 32 & 1) o[i] += NAN;
        if (load_shared(word + kind_bytes) >> row % 32 & 1) o[i] += INFINITY;
        if (load_shared(word + 2 * kind_bytes) >> row % 32 & 1) o[i] -= INFINITY;
        continue;
      }
      const uint32_t seen = load_shared(column);
      if (row >= (seen & 0xff)) o[i] += NAN;
      if (row >= (seen >> 8 & 0xff)) o[i] += INFINITY;
      if (row >= (seen >> 16 & 0xff)) o[i] -= INFINITY;
    }
  }

  /* One of the thread's rows, o over the sum. Whether it has a number that is none. */
  template <int Half>
  __device__ __forceinline__ bool store_row(const query_tile &tile, float reference, float sum) const {
    const int row = tile.row_begin + first_row + 8 * Half;
    const bool nothing = sum == 0.0f, there = row < p.query_length;
    const uint32_t lane = threadIdx.x % 4;
    const float inverse = __fdividef(1.0f, sum);
    uint16_t *to = static_cast<uint16_t *>(p.o) + tile.batch * p.o_stride.batch + tile.head * p.o_stride.head +
                   row * p.o_stride.position;
    uint32_t special = 0; /* two zeros of T, or NaN */
#pragma unroll
    for (int g = 0; g < Size::dimension / 8; g += 4) {
      uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float first = o[4 * (g + j) + 2 * Half] * inverse, second = o[4 * (g + j) + 2 * Half + 1] * inverse;
        word[j] = nothing ? 0 : pack_two<T>(first, second);
        special = zero_or_nan<T>(word[j], special);
      }
      transpose(word);
      const bool in_head = Size::dimension > ATTENTION_WGMMA_LEAST_DIMENSION || 8 * (int)(g + lane) < p.head_dimension;
      if (there && in_head)
        *reinterpret_cast<uint4 *>(to + 8 * (g + lane)) = make_uint4(word[0], word[1], word[2], word[3]);
    }
    if (there && lane == 0 && p.lse)
      p.lse[tile.batch * p.lse_batch_stride + tile.head * p.lse_head_stride + row] =
          nothing ? -INFINITY : (reference + __log2f(sum)) * 0.693147181f;
    return special & 0x7fff7fff;
  }

  /* Stores the warpgroup's rows of a tile; in the first two passes, tells if they have to be computed again. */
  __device__ __forceinline__ void finish(const query_tile &tile, const softmax_rows &rows, uint32_t pass,
                                         uint32_t number) {
    const float sum[2] = {quad_sum(rows.sum[0]), quad_sum(rows.sum[1])};
    bool special[2] = {store_row<0>(tile, rows.reference[0], sum[0]), store_row<1>(tile, rows.reference[1], sum[1])};
    bool failed = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool sees = limit_of<Size>(p, tile, tile.row_begin + first_row + 8 * half) > 0;
      const bool fits = (sum[half] > 0.5f && sum[half] < 1e30f) || !sees;
      failed |= pass ? special[half] && !isnan(sum[half]) : special[half] || !fits;
    }
    if (pass < PASSES - 1 && __any_sync(0xffffffffu, failed) && threadIdx.x % 32 == 0) fail(at, pass, number);
  }

  /* The first pass. */
  __device__ __forceinline__ void attend() {
    query_tile tile;
    uint32_t number = 0;
    if (warpgroup == Size::warpgroups - 1) pass_turn();
    if (!query.wait(tile)) return;
    int j = kv_tiles_of<Size>(p, tile) - 1;
    score_alone();
    weigh_first_tile(tile, j);
    round_weights<T>(weights, s);
    clear();
    while (true) {
      j = first_steps(tile, j - 1);
      for (const int end = edge_end(tile); j >= end; j--) step<false>(tile, j);
      if constexpr (Size::window)
        for (; j >= 0; j--) step<true>(tile, j);
      query.release();
      /* The first score of the next query tile beside the last sums of this one. */
      const query_tile done = tile;
      if (!query.wait(tile)) {
        tile = done;
        break;
      }
      j = kv_tiles_of<Size>(p, tile) - 1;
      score_beside_accumulate();
      const softmax_rows done_rows = rows;
      weigh_first_tile(tile, j);
      /* Without a mask, finish() beside the exponentials is better: 1 to 2 % at 512 and 1024 positions. */
      if constexpr (Size::causal) hold(s, rows, p.scale_log2, at.never);
      end_accumulate();
      round_weights<T>(weights, s);
      finish(done, done_rows, 0, number);
      number = Size::causal ? uniform(number + 1) : number + 1; /* threads have no register left for it */
      clear();
    }
    values.wait();
    begin_accumulate();
    end_accumulate();
    finish(tile, rows, 0, number);
  }

  /* The others, one step after the other: load, score, mask, update, accumulate. */
  __device__ __forceinline__ void attend_again(uint32_t pass) {
    query_tile tile;
    uint32_t parity = 0;
#pragma unroll 1
    while (query.wait(tile)) {
      if (pass == PASSES - 1) barrier_arrive(at.columns_free);
      rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
      clear();
#pragma unroll 1
      for (int j = kv_tiles_of<Size>(p, tile) - 1; j >= 0; j--) {
        float factor[2];
        score_alone();
        mask_tile(tile, j);
        scale_first(s, p.scale_log2);
        weigh_with_maximum(s, rows, 1.0f, ALWAYS_FAR, factor);
        rescale(o, factor);
        round_weights<T>(weights, s);
        values.wait();
        begin_accumulate();
        end_accumulate();
      }
      query.release();
      if (pass == PASSES - 1) put_back(parity);
      parity ^= 1;
      finish(tile, rows, pass, tile.number);
    }
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* All that needs no predecessor. */
template <typename Size>
__device__ __forceinline__ void prepare(const attention_wgmma_parameters &p, const places<Size> &at) {
  if (threadIdx.x == 0) {
    tensor_prefetch(&p.q);
    tensor_prefetch(&p.k);
    tensor_prefetch(&p.v);
    for (uint32_t i = 0; i < Size::kv_slots; i++) {
      const uint32_t warps = 4 * Size::warpgroups * Size::cluster;
      barrier_init(at.key_full + 8 * i, 1);
      barrier_init(at.value_full + 8 * i, 1);
      barrier_init(at.key_empty + 8 * i, warps);
      barrier_init(at.value_empty + 8 * i, warps);
    }
    for (uint32_t i = 0; i < Size::query_slots * Size::warpgroups; i++) {
      barrier_init(at.query_full + 8 * i, 1);
      barrier_init(at.query_empty + 8 * i, 4);
    }
    for (uint32_t i = 0; i < Size::landings; i++) barrier_init(at.value_landed + 8 * i, 1);
    barrier_init(at.pass_ended, 4 * (1 + Size::warpgroups));
    barrier_init(at.columns_free, 128 * Size::warpgroups);
    barrier_init(at.columns_full, 32);
    barriers_are_initialised();
  }
  for (uint32_t i = threadIdx.x; i < 2 * PASS_BYTES / 4; i += blockDim.x) store_shared(at.failed + 4 * i, 0);
  if (threadIdx.x < 2 * Size::warpgroups) store_shared(at.wide + 4 * threadIdx.x, 0);
  if (Size::cluster > 1)
    cluster_meet();
  else
    __syncthreads();
}

template <typename Size> __device__ __forceinline__ void attend_wgmma(const attention_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const places<Size> at(shared_address(wgmma_shared));
  const uint32_t warpgroup = uniform(threadIdx.x / 128), rank = Size::cluster > 1 ? cluster_rank() : 0;
  prepare(p, at);
  wait_for_predecessors();
  if (warpgroup == 0) {
    copy(p, at, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Size::computing_registers));
    computing<Size> rows(p, at, warpgroup - 1, rank);
    rows.attend();
#pragma unroll 1
    for (uint32_t pass = 1; pass < PASSES && again(at, pass - 1); pass++) rows.attend_again(pass);
  }
  /* Others of the cluster may still copy into this block's memory, or arrive at its barriers. */
  if (Size::cluster > 1) cluster_meet();
}

#define DEFINE(chips, parameters, name, threads, type, dimension, mask, cap, warpgroups, tile, kv_slots, query_slots,  \
               cluster, early)                                                                                         \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                             \
      name(const __grid_constant__ parameters p) {                                                                     \
    let_successors_start();                                                                                            \
    attend_wgmma<wgmma_tiling<type, dimension, ATTENTION_WGMMA_##mask, cap, warpgroups, tile, kv_slots, query_slots,   \
                              cluster, early>>(p);                                                                     \
    publish(p.done);                                                                                                   \
  }
ATTENTION_WGMMA_KERNELS(DEFINE)

#endif
